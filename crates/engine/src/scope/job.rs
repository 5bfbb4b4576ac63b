//! A future of a session. It can be cancelled from any thread: if it is not being polled it is dropped at once, otherwise
//! as soon as it yields. Only then is it reported as dropped, so that no side effect follows the session's result.

use super::{
    body::Packet,
    carry::{failed, outcome, panic_words},
    cell::{SessionCell, lock},
};
use onceflow_core::scope::{Emitted, OrderFailure, OrderId, ScopeEvent, SessionTimer};
use onceflow_store::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

type JobFuture = BoxFuture<'static, Result<Emitted<Packet>, String>>;

/// The event that the end of a job is reported by.
#[derive(Clone, Copy)]
pub(super) enum JobReport {
    Order(OrderId),
    Timer(SessionTimer),
}

pub(super) struct Job {
    cell: Arc<SessionCell>,
    report: JobReport,
    slot: Mutex<Slot>,
    is_cancelled: AtomicBool,
    /// Why it was cancelled, if its session did not want it.
    why: Mutex<Option<OrderFailure>>,
}

struct Slot {
    future: Option<JobFuture>,
    waker: Option<Waker>,
}

impl Job {
    pub(super) fn new(cell: Arc<SessionCell>, report: JobReport, future: JobFuture) -> Arc<Self> {
        let slot = Mutex::new(Slot { future: Some(future), waker: None });
        Arc::new(Job { cell, report, slot, is_cancelled: AtomicBool::new(false), why: Mutex::new(None) })
    }

    pub(super) fn spawn(self: &Arc<Self>) {
        let job = self.clone();
        let task = std::future::poll_fn(move |context| job.poll(context));
        self.cell.world.spawn("scope operation", Box::pin(task));
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let polled = {
            let mut slot = lock(&self.slot);
            let Some(future) = slot.future.as_mut() else { return Poll::Ready(()) };
            if self.is_cancelled.load(Ordering::SeqCst) {
                None
            } else {
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                    Ok(Poll::Pending) => {
                        slot.waker = Some(context.waker().clone());
                        None
                    }
                    Ok(Poll::Ready(result)) => Some((slot.future.take(), Ok(result))),
                    Err(panic) => Some((slot.future.take(), Err(panic))),
                }
            }
        };
        match polled {
            Some((future, result)) => {
                drop_future(future);
                self.finished(result);
                Poll::Ready(())
            }
            // A cancel that came while this was polled has left the dropping to this thread.
            None if self.is_cancelled.load(Ordering::SeqCst) => {
                self.drop_now();
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    /// Ends the job; its end is reported when the future is gone.
    pub(super) fn cancel(&self, why: Option<OrderFailure>) {
        *lock(&self.why) = why;
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.drop_now();
    }

    /// Drops the future unless it is being polled: then its thread sees that it is cancelled.
    fn drop_now(&self) {
        let (future, waker) = match self.slot.try_lock() {
            Ok(mut slot) => (slot.future.take(), slot.waker.take()),
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut slot = poisoned.into_inner();
                (slot.future.take(), slot.waker.take())
            }
            Err(TryLockError::WouldBlock) => return,
        };
        if future.is_some() {
            drop_future(future);
            self.dropped();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn finished(&self, result: std::thread::Result<Result<Emitted<Packet>, String>>) {
        self.cell.feed(match self.report {
            JobReport::Order(order) => outcome(order, result),
            JobReport::Timer(timer) => ScopeEvent::Due(timer),
        });
    }

    fn dropped(&self) {
        let JobReport::Order(order) = self.report else { return };
        let why = lock(&self.why).take();
        self.cell.feed(match why {
            Some(why) => failed(order, why),
            None => ScopeEvent::Dropped { order, mishaps: Vec::new() },
        });
    }
}

/// Drops a future of user code, which may panic.
fn drop_future(future: Option<JobFuture>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
        tracing::warn!("a future of a scope panicked as it was dropped: {}", panic_words(&*panic));
    }
}
