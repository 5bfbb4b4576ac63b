//! The end of a session: operations are cleaned, then cleanup flows run, then the end is delivered and what is left in
//! the buffers is dropped. Everything is waited for; a flow's time limit cancels it, and is waited for too.

use super::{Machine, Stage, orders::OrderKind};
use crate::{
    limits,
    scope::{
        cause::{CancelCause, Cancellation, Disposal, DisposalCause, Mishap, OrderFailure, SessionEnd},
        definition::OpId,
        effect::{Contents, Emitted, OrderId, ScopeEffect, SessionTimer},
        operation,
    },
    seams,
};

impl<M, C: Contents<M>> Machine<'_, M, C> {
    /// The parent or the caller wants the session to end. One that is ending already goes on with that.
    pub(crate) fn interrupt(&mut self, cause: CancelCause) {
        match &mut self.session.stage {
            Stage::New => self.finish(Err(cause)),
            Stage::Running { is_deferred } if self.scope.settings.uninterruptible => *is_deferred = true,
            Stage::Running { .. } => self.end(Err(cause)),
            Stage::CleaningOperations(_) | Stage::CleaningBuffers(_) | Stage::Done => {}
        }
    }

    /// Ends a running session: new messages are refused and every operation is cleaned. Its orders are told to end whenever
    /// the session is idle, some at a time: a session may have more of them than one commit can change.
    pub(crate) fn end(&mut self, outcome: Result<M, CancelCause>) {
        assert!(self.is_running(), "a session that does not run ended again");
        self.session.stage = Stage::CleaningOperations(outcome);
        for (op, message) in std::mem::take(&mut self.session.queue) {
            operation::refuse(self, op, message);
        }
        for op in self.scope.wiring.collects.iter().chain(&self.scope.wiring.trims) {
            operation::clean(self, *op);
        }
        self.session.orders.begin_telling();
        if self.session.orders.len() == 0 {
            self.clean_buffers();
        }
    }

    /// Tells the next orders of a session that ends.
    pub(crate) fn tell_orders(&mut self) {
        let told = self.session.orders.tell(limits::SCOPE_CANCELS_AT_ONCE);
        self.effects.extend(told.into_iter().map(|order| ScopeEffect::Cancel { order }));
    }

    /// Adds a problem to those that the caller will see; beyond a limit they are only counted.
    pub(crate) fn note(&mut self, mishap: Mishap) {
        let mishaps = &mut self.session.mishaps;
        if mishaps.len() < limits::SCOPE_MISHAPS_MAX {
            return mishaps.push(mishap);
        }
        let more = match mishap {
            Mishap::Omitted { count } => count,
            _ => 1,
        };
        match mishaps.last_mut() {
            Some(Mishap::Omitted { count }) => *count = count.saturating_add(more),
            _ => mishaps.push(Mishap::Omitted { count: more }),
        }
    }

    /// An operation failed while the session was being cleaned.
    pub(crate) fn late_failure(&mut self, op: OpId, why: OrderFailure) {
        // A nested session that was cancelled from here ended as it was told to.
        let is_told = match &why {
            OrderFailure::Cancelled(inner) => inner.cause == CancelCause::ParentEnded,
            OrderFailure::Supplanted => true,
            _ => false,
        };
        if !is_told {
            self.note(Mishap::LateFailure { at: self.scope.op(op).name.clone(), why });
        }
    }

    /// Starts all cleanup flows whose condition holds.
    pub(crate) fn clean_buffers(&mut self) {
        let Stage::CleaningOperations(outcome) = std::mem::replace(&mut self.session.stage, Stage::Done) else {
            unreachable!("buffers are cleaned after operations")
        };
        let has_result = outcome.is_ok();
        self.session.stage = Stage::CleaningBuffers(outcome);
        for (number, flow) in (0..).zip(&self.scope.cleanups) {
            if flow.when.holds(has_result) {
                let order = self.session.orders.add(OrderKind::Cleanup(number));
                self.effects.push_back(ScopeEffect::Clean { order, flow: number });
                if let Some(after_ms) = flow.timeout_ms {
                    self.effects.push_back(ScopeEffect::SetTimer { timer: SessionTimer::Cleanup(order), after_ms });
                }
            }
        }
        self.finish_if_clean();
    }

    pub(crate) fn cleanup_overdue(&mut self, order: OrderId) {
        let Some(open) = self.session.orders.get_mut(order) else { return };
        let OrderKind::Cleanup(flow) = open.kind else { return };
        if !std::mem::replace(&mut open.is_cancelled, true) {
            let flow = &self.scope.cleanups[flow as usize];
            let after_ms = flow.timeout_ms.unwrap_or_default();
            self.note(Mishap::CleanupTimedOut { flow: flow.name.clone(), after_ms });
            self.effects.push_back(ScopeEffect::Cancel { order });
        }
    }

    pub(crate) fn cleanup_answered(
        &mut self,
        flow: u32,
        is_cancelled: bool,
        answer: Result<Emitted<M>, Option<OrderFailure>>,
        mishaps: Vec<Mishap>,
    ) {
        let name = &self.scope.cleanups[flow as usize].name;
        mishaps.into_iter().for_each(|inner| self.note(Mishap::Nested { at: name.clone(), inner: Box::new(inner) }));
        match answer {
            Ok(Emitted::Nothing) => {}
            Ok(Emitted::One(_, message)) => self.effects.push_back(ScopeEffect::Drop(message)),
            Ok(Emitted::Many(list)) => {
                self.effects.extend(list.into_iter().map(|(_, message)| ScopeEffect::Drop(message)));
            }
            // The end of a flow at its time limit is recorded already.
            Err(_) if is_cancelled => {}
            Err(why) => {
                let why = why.unwrap_or_else(|| OrderFailure::Error(String::from("it was dropped")));
                self.note(Mishap::CleanupFailed { flow: name.clone(), why });
            }
        }
        self.finish_if_clean();
    }

    fn finish_if_clean(&mut self) {
        if self.session.orders.len() > 0 && seams::waits_for_cleanup() {
            return;
        }
        match std::mem::replace(&mut self.session.stage, Stage::Done) {
            Stage::CleaningBuffers(outcome) => self.finish(outcome),
            other => self.session.stage = other,
        }
    }

    /// Delivers the end, and drops what is left.
    fn finish(&mut self, outcome: Result<M, CancelCause>) {
        self.session.stage = Stage::Done;
        for store in &mut self.session.stores {
            self.effects.extend(store.entries.take().map(ScopeEffect::Drop));
        }
        self.session.reach = None;
        let disposals = std::mem::take(&mut self.session.disposals);
        let named = |((op, port), cause): ((OpId, u32), DisposalCause)| {
            let at = self.scope.op(op).name.clone();
            Disposal { at, port, cause }
        };
        let cancelled = |cause| Cancellation { cause, disposals: disposals.into_iter().map(named).collect() };
        let mishaps = std::mem::take(&mut self.session.mishaps);
        let end = SessionEnd { result: outcome.map_err(cancelled), mishaps };
        assert!(self.session.is_empty(), "a session that is done has left something");
        self.effects.push_back(ScopeEffect::Deliver(Box::new(end)));
    }
}
