//! A world whose time the test moves, a log, and scopes that many tests use.

use onceflow::scope::{BufferKey, Cancellation, Scope, SessionEnd, SessionRun};
use onceflow_store::{BoxFuture, World, testing::world::TestWorld};
use std::{
    future::Future,
    sync::{Arc, Mutex},
    task::Poll,
};

/// Lines that operations and cleanup flows write.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort();
        lines
    }
}

/// A world whose time stands still until everything waits.
#[derive(Clone)]
pub(super) struct Clock(pub(super) Arc<TestWorld>);

impl Clock {
    pub(super) fn new() -> Self {
        Clock(TestWorld::new(7))
    }

    pub(super) fn world(&self) -> Arc<dyn World> {
        self.0.clone()
    }

    pub(super) fn wait(&self, ms: u64) -> BoxFuture<'static, ()> {
        self.0.sleep(ms)
    }

    pub(super) fn now(&self) -> u64 {
        self.0.clock().as_ms()
    }

    /// Runs everything that can run without time passing.
    pub(super) async fn settle(&self) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass until a future ends.
    pub(super) async fn until<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            for _ in 0..512 {
                let poll = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
                if let Poll::Ready(value) = poll.await {
                    return value;
                }
                tokio::task::yield_now().await;
            }
            assert!(self.0.advance_to_next(), "everything waits for something that never comes");
        }
    }

    /// Opens a session, lets time pass until it ends, and requires that nothing is left of it.
    pub(super) async fn end<I: Send + 'static, O: Send + 'static>(
        &self,
        scope: &Scope<I, O>,
        input: I,
    ) -> SessionEnd<O> {
        let mut run = scope.open(&self.world(), input);
        self.end_of(&mut run).await
    }

    pub(super) async fn end_of<O: Send + 'static>(&self, run: &mut SessionRun<O>) -> SessionEnd<O> {
        let end = self.until(run.outcome()).await;
        assert!(run.is_empty(), "a session has left {:?}", run.overview());
        end
    }

    pub(super) async fn run<I: Send + 'static, O: Send + 'static>(
        &self,
        scope: &Scope<I, O>,
        input: I,
    ) -> Result<O, Cancellation> {
        let end = self.end(scope, input).await;
        assert_eq!(end.mishaps, []);
        end.result
    }
}

/// A cleanup flow that writes what it finds in a buffer.
pub(super) fn drains(log: &Log, label: &'static str) -> Scope<(BufferKey<i64>,), ()> {
    let log = log.clone();
    let build = Scope::build(|s| {
        s.start().map(move |(key,): (BufferKey<i64>,)| log.add(format!("{label} {:?}", key.drain()))).terminate(s);
    });
    build.unwrap()
}

/// A guard that writes a line when it is dropped.
pub(super) struct Dropped(pub(super) Log, pub(super) &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add(self.1);
    }
}
