//! A session from outside: its result, its streams, and a way to cancel it.

use super::{
    builder::{Scope, StreamTag},
    medium::{Light, Message, mismatch},
};
use onceflow_core::scope::{
    CancelCause, Cancellation, Disposal, DisposalCause, OpOverview, OrderFailure, SessionEnd, SessionPhase,
};
use onceflow_engine::scope::{Packet, SessionHandle, SessionOutlet};
use onceflow_store::{World, world::RealWorld};
use std::{
    collections::VecDeque,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

impl<I: Send + 'static, O: Send + 'static> Scope<I, O> {
    /// Opens a session on the tokio runtime this is called in, and waits for its result.
    ///
    /// # Errors
    /// Why the session was cancelled. Cleanup has ended in either case.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn run(&self, input: I) -> Result<O, Cancellation> {
        self.start(input).await
    }

    /// Opens a session on the tokio runtime this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self, input: I) -> SessionRun<O> {
        let world: Arc<dyn World> = RealWorld::here();
        self.open(&world, input)
    }

    /// Opens a session in a world. It runs as far as it can before this returns.
    pub fn open(&self, world: &Arc<dyn World>, input: I) -> SessionRun<O> {
        let shared = Arc::new(Shared { state: Mutex::default() });
        shared.lock().streams.resize_with(self.compiled.scope().streams().len(), VecDeque::new);
        let handle = self.compiled.open(world, Box::new(input), shared.clone());
        let streams = self.compiled.scope().streams().to_vec();
        SessionRun { handle, shared, streams, is_detached: false, types: PhantomData }
    }
}

struct Shared {
    state: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    end: Option<SessionEnd<Packet>>,
    has_ended: bool,
    streams: Vec<VecDeque<Packet>>,
    wakers: Vec<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Received)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Received {
    fn wait(&mut self, context: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            self.wakers.push(context.waker().clone());
        }
    }
}

impl SessionOutlet for Shared {
    fn stream(&self, stream: u32, message: Packet) {
        self.change(|state| state.streams[stream as usize].push_back(message));
    }

    fn end(&self, end: SessionEnd<Packet>) {
        self.change(|state| {
            state.end = Some(end);
            state.has_ended = true;
        });
    }
}

/// A session that was opened: a future of its result, which comes when all cleanup has ended. Dropped before that, it
/// cancels the session, unless it is [detached](SessionRun::detach).
#[must_use = "a session whose run is dropped is cancelled"]
pub struct SessionRun<O> {
    handle: SessionHandle,
    shared: Arc<Shared>,
    streams: Vec<String>,
    is_detached: bool,
    types: PhantomData<fn() -> O>,
}

impl<O: Send + 'static> SessionRun<O> {
    /// Asks the session to end, and gives the reason. An uninterruptible one goes on to its own end.
    pub fn cancel(&self, why: &str) {
        self.handle.cancel(CancelCause::Requested(why.into()));
    }

    /// Lets the session go on by itself.
    pub fn detach(mut self) {
        self.is_detached = true;
    }

    /// Where the session stands.
    pub fn phase(&self) -> SessionPhase {
        self.handle.phase()
    }

    /// Operations that are active or hold something: why the session is not done.
    pub fn overview(&self) -> Vec<OpOverview> {
        self.handle.overview()
    }

    /// Nothing is left of the session: no message, no entry of a buffer, no order.
    pub fn is_empty(&self) -> bool {
        self.handle.is_empty()
    }

    /// Messages that the session sends out by a stream. A scope without such a stream sends none.
    pub fn stream<S: Send + 'static>(&self, tag: StreamTag<S>) -> StreamItems<S> {
        let stream = self.streams.iter().position(|name| name == tag.name);
        StreamItems { shared: self.shared.clone(), stream, types: PhantomData }
    }

    /// Waits for the end, with the problems that did not change the result.
    pub async fn outcome(&mut self) -> SessionEnd<O> {
        std::future::poll_fn(|context| self.poll_end(context)).await
    }

    fn poll_end(&self, context: &Context<'_>) -> Poll<SessionEnd<O>> {
        let mut state = self.shared.lock();
        match state.end.take() {
            Some(SessionEnd { result, mishaps }) => {
                Poll::Ready(SessionEnd { result: result.and_then(result_value), mishaps })
            }
            None => {
                state.wait(context);
                Poll::Pending
            }
        }
    }
}

/// The result of a session, unless copying it panicked.
fn result_value<O: 'static>(packet: Packet) -> Result<O, Cancellation> {
    packet.downcast::<O>().map(|value| *value).map_err(|packet| {
        let why = OrderFailure::Panic(mismatch::<O>(&packet));
        let disposal = Disposal { at: String::from("terminate"), port: 0, cause: DisposalCause::Failed(why) };
        Cancellation { cause: CancelCause::Unreachable, disposals: vec![disposal] }
    })
}

impl<O: Send + 'static> Future for SessionRun<O> {
    type Output = Result<O, Cancellation>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_end(context).map(|end| end.result)
    }
}

impl<O> Drop for SessionRun<O> {
    fn drop(&mut self) {
        if !self.is_detached && !self.shared.lock().has_ended {
            self.handle.cancel(CancelCause::CallerGone);
        }
    }
}

fn value<S: Send + 'static>(packet: Packet) -> S {
    <S as Message<Light>>::unpack(packet).unwrap_or_else(|why| panic!("{why}"))
}

/// Messages of one stream of a session, in order.
pub struct StreamItems<S> {
    shared: Arc<Shared>,
    stream: Option<usize>,
    types: PhantomData<fn() -> S>,
}

impl<S: Send + 'static> StreamItems<S> {
    /// The next message; `None` when the session has ended and all were taken.
    pub async fn next(&mut self) -> Option<S> {
        let stream = self.stream?;
        let next = std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            match state.streams[stream].pop_front() {
                Some(message) => Poll::Ready(Some(message)),
                None if state.has_ended => Poll::Ready(None),
                None => {
                    state.wait(context);
                    Poll::Pending
                }
            }
        });
        next.await.map(value)
    }

    /// The messages that are there.
    pub fn take_ready(&mut self) -> Vec<S> {
        let Some(stream) = self.stream else { return Vec::new() };
        let ready = std::mem::take(&mut self.shared.lock().streams[stream]);
        ready.into_iter().map(value).collect()
    }
}
