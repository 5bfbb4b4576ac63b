//! A world in which nothing happens by itself: time passes when a test says so, and chance comes from a seed.
//!
//! The world has two clocks, as the real one does. Waiting is measured on one that only runs forward; the wall clock
//! can also be set to another time, which ends or prolongs no wait.

mod one_thread;
mod skew;
mod sleep;

use super::random::Random;
use crate::{
    sync::{Mutex, lock},
    world::{BoxFuture, Uptime, World, block_on},
};
use onceflow_core::Timestamp;
pub use one_thread::OneThread;
pub use skew::SkewedWorld;
use sleep::{Sleep, Sleepers};
use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};
use tokio::runtime::Handle;

/// The time on the clock of a new world: some day in 2023.
pub const START: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// A world moved by hand. Tasks run on the tokio runtime it was made in.
pub struct TestWorld {
    wall: Mutex<Timestamp>,
    random: Mutex<Random>,
    sleepers: Arc<Sleepers>,
    runtime: Option<Handle>,
}

impl TestWorld {
    /// A world at [`START`], with the chance of this seed.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(TestWorld {
            wall: Mutex::new(START),
            random: Mutex::new(Random::new(seed)),
            sleepers: Arc::default(),
            runtime: Handle::try_current().ok(),
        })
    }

    /// Lets time pass, and wakes the tasks that waited for it.
    pub fn advance(&self, ms: u64) {
        self.set_clock(self.clock().plus_ms(ms));
        self.sleepers.advance(ms);
    }

    /// Lets exactly so much time pass that a task wakes. False if no task waits for anything.
    pub fn advance_to_next(&self) -> bool {
        let Some(ms) = self.sleepers.next_in_ms() else { return false };
        self.advance(ms);
        true
    }

    /// Sets the wall clock, as an administrator might: back or ahead. No time passes.
    pub fn set_clock(&self, time: Timestamp) {
        *lock(&self.wall) = time;
    }

    /// How many wait for time to pass. A future that is dropped does not wait any more.
    pub fn sleeping(&self) -> usize {
        self.sleepers.count()
    }

    /// Runs a future to its end, letting time pass, one millisecond at a time, while it waits.
    pub async fn hurry<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(done) = poll_once(&mut future).await {
                return done;
            }
            self.advance(1);
            tokio::task::yield_now().await;
        }
    }

    fn runtime(&self) -> Handle {
        self.runtime.clone().unwrap_or_else(Handle::current)
    }
}

impl World for TestWorld {
    fn clock(&self) -> Timestamp {
        *lock(&self.wall)
    }

    fn uptime(&self) -> Option<Uptime> {
        Some(Uptime { boot: 1, ms: self.sleepers.passed_ms() })
    }

    fn random(&self) -> u128 {
        let mut random = lock(&self.random);
        (u128::from(random.bits()) << 64) | u128::from(random.bits())
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.sleepers.clone(), ms))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        tracing::trace!(name, "spawn");
        self.runtime().spawn(task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let runtime = self.runtime();
        let run = move || {
            let _inside = runtime.enter();
            block_on(task);
        };
        std::thread::Builder::new().name(name.into()).spawn(run).expect("the system refuses another thread");
    }
}

/// Looks whether a future has ended, without waiting for it.
pub async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

#[cfg(test)]
mod tests;
