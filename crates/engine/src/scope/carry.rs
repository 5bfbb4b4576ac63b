//! Carries effects of a session out. Code that runs at once answers at once; everything else answers later, through the
//! inbox of the session.

use super::{
    body::{Carrier, OrderStreams, Packet, ScopeBody},
    cell::{Due, Outlet, SessionCell},
    job::{Job, JobReport},
    service::Lease,
};
use onceflow_core::scope::{
    CancelCause, Emitted, Feed, OpId, OrderFailure, OrderId, ScopeEffect, ScopeEvent, SessionTimer,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// An order that is under way.
pub(super) struct Running {
    pub(super) work: Work,
    /// Its place at a service.
    pub(super) lease: Option<Lease>,
}

/// The part of a running order that a cancel must reach.
#[derive(Clone)]
pub(super) enum Work {
    Job(Arc<Job>),
    Nested(Arc<SessionCell>),
    /// It waits at the service, or is open there.
    AtService,
}

/// Says in words what a panic was about.
pub(super) fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| String::from(*text));
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| String::from("no message"))
}

pub(super) fn failed(order: OrderId, why: OrderFailure) -> ScopeEvent<Packet> {
    ScopeEvent::Failed { order, why, mishaps: Vec::new() }
}

/// The event that tells the outcome of user code.
pub(super) fn outcome(
    order: OrderId,
    outcome: std::thread::Result<Result<Emitted<Packet>, String>>,
) -> ScopeEvent<Packet> {
    match outcome {
        Ok(Ok(emitted)) => ScopeEvent::Ended { order, emitted, mishaps: Vec::new() },
        Ok(Err(error)) => failed(order, OrderFailure::Error(error)),
        Err(panic) => failed(order, OrderFailure::Panic(panic_words(&*panic))),
    }
}

impl SessionCell {
    /// Carries out one effect. Returns the answer of an order that is answered at once.
    pub(super) fn carry_out(self: &Arc<Self>, due: Due) -> Option<ScopeEvent<Packet>> {
        match due.effect {
            ScopeEffect::Run { order, .. } if !due.is_wanted => {
                Some(ScopeEvent::Dropped { order, mishaps: Vec::new() })
            }
            ScopeEffect::Run { order, op, feed } => self.run(order, op, feed),
            ScopeEffect::Cancel { order } => {
                self.cancel_order(order);
                None
            }
            ScopeEffect::Clean { order, flow } => {
                let cleanup = &self.scope.cleanups[flow as usize];
                let carrier = Carrier { cell: self, op: None };
                match catch_unwind(AssertUnwindSafe(|| (cleanup.first)(&carrier))) {
                    Ok(first) => self.start(order, &ScopeBody::Flow(cleanup.scope.clone()), first, None),
                    Err(panic) => return Some(failed(order, OrderFailure::Panic(panic_words(&*panic)))),
                }
                None
            }
            ScopeEffect::Stream { stream, message } => {
                match &self.outlet {
                    Outlet::Caller(outlet) => outlet.stream(stream, message),
                    Outlet::Parent(parent, order) => {
                        parent.feed(ScopeEvent::Streamed { order: *order, port: stream + 1, message });
                    }
                }
                None
            }
            ScopeEffect::Changed { buffer } => {
                let wakers = super::cell::lock(&self.keys).changed(buffer);
                wakers.into_iter().for_each(std::task::Waker::wake);
                None
            }
            ScopeEffect::SetTimer { timer, after_ms } => {
                self.set_timer(timer, after_ms);
                None
            }
            ScopeEffect::Drop(message) => {
                // User code may panic when it is dropped.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(message)));
                if let Err(panic) = dropped {
                    tracing::warn!("a message of a scope panicked as it was dropped: {}", panic_words(&*panic));
                }
                None
            }
            ScopeEffect::Deliver(end) => {
                self.deliver(*end);
                None
            }
        }
    }

    fn run(self: &Arc<Self>, order: OrderId, op: OpId, feed: Feed<Packet>) -> Option<ScopeEvent<Packet>> {
        match (&self.scope.bodies[op.at()], feed) {
            (ScopeBody::Blocking(body), feed) => {
                let carrier = Carrier { cell: self, op: Some(op) };
                Some(outcome(order, catch_unwind(AssertUnwindSafe(|| body(feed, &carrier)))))
            }
            (body, Feed::One(message)) => {
                self.start(order, body, message, None);
                None
            }
            _ => unreachable!("the builder gives a blocking body to every operation that takes more than a message"),
        }
    }

    /// Starts an order that is answered through the inbox.
    pub(super) fn start(self: &Arc<Self>, order: OrderId, body: &ScopeBody, message: Packet, lease: Option<Lease>) {
        match body {
            ScopeBody::None => unreachable!("an operation without a body was run"),
            ScopeBody::Blocking(body) => {
                if !self.register(order, Work::AtService, lease) {
                    return self.feed(ScopeEvent::Dropped { order, mishaps: Vec::new() });
                }
                let carrier = Carrier { cell: self, op: None };
                self.feed(outcome(order, catch_unwind(AssertUnwindSafe(|| body(Feed::One(message), &carrier)))));
            }
            ScopeBody::Async(body) => {
                let streams = OrderStreams { cell: self.clone(), order };
                match catch_unwind(AssertUnwindSafe(|| body(message, streams))) {
                    Ok(future) => {
                        let job = Job::new(self.clone(), JobReport::Order(order), future);
                        if self.register(order, Work::Job(job.clone()), lease) {
                            job.spawn();
                        } else {
                            job.cancel(None);
                        }
                    }
                    Err(panic) => {
                        self.register(order, Work::AtService, lease);
                        self.feed(outcome(order, Err(panic)));
                    }
                }
            }
            ScopeBody::Flow(scope) => {
                let outlet = Outlet::Parent(self.clone(), order);
                let nested = SessionCell::new(scope.clone(), self.world.clone(), outlet);
                if self.register(order, Work::Nested(nested.clone()), lease) {
                    nested.feed(ScopeEvent::Start(message));
                } else {
                    self.feed(ScopeEvent::Dropped { order, mishaps: Vec::new() });
                }
            }
            ScopeBody::Service(service, instruction) => service.arrive(self, order, message, instruction),
            ScopeBody::Injected(choose) => match catch_unwind(AssertUnwindSafe(|| choose(message))) {
                Ok((message, body)) => self.start(order, &body, message, lease),
                Err(panic) => {
                    self.register(order, Work::AtService, lease);
                    self.feed(outcome(order, Err(panic)));
                }
            },
        }
    }

    /// Notes how an order can be cancelled. Returns false when it is not wanted any more.
    pub(super) fn register(&self, order: OrderId, work: Work, lease: Option<Lease>) -> bool {
        let mut state = self.state();
        let replaced = state.running.insert(order.number(), Running { work, lease });
        let is_wanted = state.session.is_wanted(order);
        drop(state);
        drop(replaced);
        is_wanted
    }

    fn work(&self, order: OrderId) -> Option<(Work, Option<Lease>)> {
        let state = self.state();
        state.running.get(&order.number()).map(|running| (running.work.clone(), running.lease.clone()))
    }

    fn cancel_order(self: &Arc<Self>, order: OrderId) {
        match self.work(order) {
            Some((Work::Job(job), _)) => job.cancel(None),
            Some((Work::Nested(nested), _)) => nested.feed(ScopeEvent::ParentEnds),
            Some((Work::AtService, Some(lease))) => lease.withdraw(None),
            Some((Work::AtService, None)) | None => {}
        }
    }

    /// A later request takes the place of an order.
    pub(super) fn supplant(self: &Arc<Self>, order: OrderId) {
        match self.work(order) {
            Some((Work::Job(job), _)) => job.cancel(Some(OrderFailure::Supplanted)),
            Some((Work::Nested(nested), _)) => nested.feed(ScopeEvent::Cancel(CancelCause::Supplanted)),
            Some((Work::AtService, Some(lease))) => lease.withdraw(Some(OrderFailure::Supplanted)),
            Some((Work::AtService, None)) | None => {}
        }
    }

    fn set_timer(self: &Arc<Self>, timer: SessionTimer, after_ms: u64) {
        let sleep = self.world.sleep(after_ms);
        let wait = Box::pin(async move {
            sleep.await;
            Ok(Emitted::Nothing)
        });
        let job = Job::new(self.clone(), JobReport::Timer(timer), wait);
        self.state().timers.push(job.clone());
        job.spawn();
    }
}
