//! The transitions of a running session: messages from operation to operation, orders and their answers.

use super::{Session, Stage, Store, orders::OrderKind};
use crate::scope::{
    cause::{CancelCause, Disposal, DisposalCause, OrderFailure},
    check::Scope,
    definition::{OpId, OpKind},
    effect::{Contents, Emitted, Feed, OrderId, ScopeEffect, ScopeEvent, SessionTimer},
    operation,
    reach::graph::Shape,
};
use std::collections::VecDeque;

/// A session with all that a transition needs.
pub(crate) struct Machine<'a, M, C> {
    pub(crate) scope: &'a Scope,
    pub(crate) contents: &'a C,
    pub(crate) session: &'a mut Session<M>,
    pub(crate) effects: &'a mut VecDeque<ScopeEffect<M>>,
}

pub(crate) fn op_ids(count: usize) -> impl Iterator<Item = OpId> {
    (0..).take(count).map(OpId)
}

impl<M, C: Contents<M>> Machine<'_, M, C> {
    pub(crate) fn apply(&mut self, event: ScopeEvent<M>) {
        match event {
            ScopeEvent::Start(message) => self.open(message),
            ScopeEvent::Ended { order, emitted, mishaps } => self.answered(order, Ok(emitted), mishaps),
            ScopeEvent::Failed { order, why, mishaps } => self.answered(order, Err(Some(why)), mishaps),
            ScopeEvent::Dropped { order, mishaps } => self.answered(order, Err(None), mishaps),
            ScopeEvent::Streamed { order, port, message } => self.streamed(order, port, message),
            ScopeEvent::Push { buffer, by, message } => self.pushed(buffer, by, message),
            ScopeEvent::KeysReleased { buffer } => self.keys_released(buffer),
            // Not deferred by an uninterruptible session: it cannot go on.
            ScopeEvent::Cancel(cause @ CancelCause::TooLarge { .. }) if self.is_running() => self.end(Err(cause)),
            ScopeEvent::Cancel(cause) => self.interrupt(cause),
            ScopeEvent::ParentEnds => self.interrupt(CancelCause::ParentEnded),
            ScopeEvent::Due(SessionTimer::Deadline) => {
                if let Some(after_ms) = self.scope.settings.deadline_ms.filter(|_| self.is_running()) {
                    self.end(Err(CancelCause::Deadline { after_ms }));
                }
            }
            ScopeEvent::Due(SessionTimer::Cleanup(order)) => self.cleanup_overdue(order),
            ScopeEvent::Idle => self.idle(),
        }
        self.pass_messages();
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.session.stage, Stage::Running { .. })
    }

    fn open(&mut self, message: M) {
        if !matches!(self.session.stage, Stage::New) {
            self.effects.push_back(ScopeEffect::Drop(message));
            return;
        }
        self.session.stage = Stage::Running { is_deferred: false };
        if let Some(after_ms) = self.scope.settings.deadline_ms {
            self.effects.push_back(ScopeEffect::SetTimer { timer: SessionTimer::Deadline, after_ms });
        }
        self.session.queue.push_back((self.scope.start, message));
    }

    fn pass_messages(&mut self) {
        while self.is_running() {
            let Some((op, message)) = self.session.queue.pop_front() else { return };
            if self.scope.settings.rounds_max.is_some() && self.is_over_rounds(op) {
                self.effects.push_back(ScopeEffect::Drop(message));
                let max = self.scope.settings.rounds_max.unwrap_or_default();
                self.end(Err(CancelCause::Rounds { at: self.scope.op(op).name.clone(), max }));
                return;
            }
            operation::execute(self, op, message);
        }
    }

    fn is_over_rounds(&mut self, op: OpId) -> bool {
        let graph = &self.scope.wiring.graph;
        if graph.shape[graph.component[op.at()] as usize] == Shape::Single {
            return false;
        }
        let cell = &mut self.session.ops[op.at()];
        cell.rounds = cell.rounds.saturating_add(1);
        self.scope.settings.rounds_max.is_some_and(|max| cell.rounds > max)
    }

    /// Nothing else can happen at once: looks at what can still be reached, or tells the next orders to end.
    fn idle(&mut self) {
        if matches!(self.session.stage, Stage::CleaningOperations(_)) {
            self.tell_orders();
        } else if self.is_running() && self.session.queue.is_empty() && !self.follow_deaths() {
            self.end(Err(CancelCause::Unreachable));
        }
    }

    /// Sends a message from a port of an operation.
    pub(crate) fn send(&mut self, op: OpId, port: u32, message: M) {
        match self.scope.op(op).outputs.get(port as usize).copied().flatten() {
            Some(target) => self.session.queue.push_back((target, message)),
            None => {
                self.effects.push_back(ScopeEffect::Drop(message));
                self.dispose(op, port, DisposalCause::Disposed);
            }
        }
    }

    /// Records that a port got nothing, and tells the operations that watch for it.
    pub(crate) fn dispose(&mut self, op: OpId, port: u32, cause: DisposalCause) {
        let watchers = &self.scope.wiring.watchers[op.at()];
        if !watchers.is_empty() && self.is_running() {
            for watcher in watchers {
                let disposal = Disposal { at: self.scope.op(op).name.clone(), port, cause: cause.clone() };
                self.run(*watcher, Feed::Disposal(Box::new(disposal)));
            }
        }
        self.session.disposals.insert((op, port), cause);
        if let Some(recorder) = &mut self.session.recorder {
            recorder.disposals.push((op, port));
        }
    }

    /// Records that a stream of an operation was sent by.
    pub(crate) fn note_streamed(&mut self, op: OpId, port: u32) {
        if self.session.streamed.insert((op, port))
            && let Some(recorder) = &mut self.session.recorder
        {
            recorder.streamed.push((op, port));
        }
    }

    /// Asks the driver to run an operation.
    pub(crate) fn run(&mut self, op: OpId, feed: Feed<M>) {
        let order = self.session.orders.add(OrderKind::Op(op));
        self.activate(op);
        self.effects.push_back(ScopeEffect::Run { order, op, feed });
    }

    pub(crate) fn activate(&mut self, op: OpId) {
        let cell = &mut self.session.ops[op.at()];
        cell.active += 1;
        if cell.active == 1 {
            self.session.cycles[self.scope.wiring.graph.component[op.at()] as usize] += 1;
        }
    }

    pub(crate) fn deactivate(&mut self, op: OpId) {
        let cell = &mut self.session.ops[op.at()];
        assert!(cell.active > 0, "operation {} ended more often than it began", op.0);
        cell.active -= 1;
        if cell.active == 0 {
            let graph = &self.scope.wiring.graph;
            let component = graph.component[op.at()] as usize;
            self.session.cycles[component] -= 1;
            if let Some(reach) = &mut self.session.reach {
                reach.became_idle(op, graph.shape[component] == Shape::Mixed);
            }
        }
    }

    /// An order is answered: a result, a failure, or (`None`) it was dropped.
    fn answered(
        &mut self,
        order: OrderId,
        answer: Result<Emitted<M>, Option<OrderFailure>>,
        mishaps: Vec<crate::scope::Mishap>,
    ) {
        let Some(open) = self.session.orders.remove(order) else {
            self.drop_all(answer.unwrap_or_default());
            return;
        };
        let op = match open.kind {
            OrderKind::Cleanup(flow) => return self.cleanup_answered(flow, open.is_cancelled, answer, mishaps),
            OrderKind::Op(op) => op,
        };
        let name = &self.scope.op(op).name;
        for inner in mishaps {
            self.note(crate::scope::Mishap::Nested { at: name.clone(), inner: Box::new(inner) });
        }
        self.deactivate(op);
        match answer {
            Ok(emitted) if self.is_running() && !open.is_cancelled => operation::answered(self, op, emitted),
            Ok(emitted) => self.drop_all(emitted),
            Err(Some(why)) if self.is_running() && !open.is_cancelled => {
                self.dispose(op, 0, DisposalCause::Failed(why));
            }
            Err(Some(why)) => self.late_failure(op, why),
            Err(None) => {}
        }
        for trim in open.trims {
            operation::trim::acknowledged(self, trim);
        }
        if matches!(self.session.stage, Stage::CleaningOperations(_)) && self.session.orders.len() == 0 {
            self.clean_buffers();
        }
    }

    fn streamed(&mut self, order: OrderId, port: u32, message: M) {
        let open = self.session.orders.get(order).filter(|open| !open.is_cancelled);
        match open.map(|open| open.kind) {
            Some(OrderKind::Op(op)) if self.is_running() => {
                self.note_streamed(op, port);
                self.send(op, port, message);
            }
            _ => self.effects.push_back(ScopeEffect::Drop(message)),
        }
    }

    fn drop_all(&mut self, emitted: Emitted<M>) {
        match emitted {
            Emitted::Nothing => {}
            Emitted::One(_, message) => self.effects.push_back(ScopeEffect::Drop(message)),
            Emitted::Many(list) => {
                self.effects.extend(list.into_iter().map(|(_, message)| ScopeEffect::Drop(message)));
            }
        }
    }

    pub(crate) fn store(&self, buffer: OpId) -> &Store<M> {
        &self.session.stores[self.scope.slot(buffer)]
    }

    pub(crate) fn store_mut(&mut self, buffer: OpId) -> &mut Store<M> {
        &mut self.session.stores[self.scope.slot(buffer)]
    }

    fn pushed(&mut self, buffer: OpId, by: Option<OpId>, message: M) {
        if !self.is_buffer(buffer) || matches!(self.session.stage, Stage::New | Stage::Done) {
            self.effects.push_back(ScopeEffect::Drop(message));
            return;
        }
        operation::buffer::put(self, buffer, message);
        self.changed(buffer, by, true);
    }

    fn is_buffer(&self, op: OpId) -> bool {
        self.scope.ops.get(op.at()).is_some_and(|op| matches!(op.kind, OpKind::Buffer { .. }))
    }

    fn keys_released(&mut self, buffer: OpId) {
        if self.is_buffer(buffer) && std::mem::take(&mut self.store_mut(buffer).has_keys) {
            self.deactivate(buffer);
        }
    }

    /// Notes that keys to these buffers are about to exist.
    pub(crate) fn issue_keys(&mut self, buffers: &[OpId]) {
        for buffer in buffers {
            if !std::mem::replace(&mut self.store_mut(*buffer).has_keys, true) {
                self.activate(*buffer);
            }
        }
    }

    /// Takes an entry out of a buffer. Its readers learn of it by [`Machine::changed`].
    pub(crate) fn take_entry(&mut self, buffer: OpId, index: usize) -> Option<M> {
        let taken = self.store_mut(buffer).entries.remove(index)?;
        if self.store(buffer).entries.is_empty() {
            if !self.store(buffer).is_closed {
                operation::join::input_lost(self, buffer);
            }
            if let Some(reach) = self.session.reach.as_mut().filter(|reach| reach.is_dead(buffer)) {
                reach.recheck(buffer);
            }
        }
        Some(taken)
    }

    /// Wakes the readers of a buffer that has changed; `by` is the operation whose key changed it.
    pub(crate) fn changed(&mut self, buffer: OpId, by: Option<OpId>, has_more: bool) {
        if self.store(buffer).has_keys || !self.is_running() {
            self.effects.push_back(ScopeEffect::Changed { buffer });
        }
        if self.is_running() && !self.store(buffer).is_closed {
            if has_more {
                operation::join::woken(self, buffer);
            }
            operation::listen::woken(self, buffer, by);
        }
    }
}
