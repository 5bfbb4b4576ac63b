//! The contract suite of [`Records`]: one test for each promise. A backend is one line:
//!
//! ```
//! use onceflow_store::{Records, backend::memory::Memory, records_contract};
//! use std::sync::Arc;
//!
//! records_contract!(memory, async |world| Arc::new(Memory::new(world)) as Arc<dyn Records>);
//! # fn main() {}
//! ```
//!
//! That makes a module `memory` with a `#[test]` for each promise. The closure is given an
//! [`Arc<TestWorld>`](TestWorld) and makes an empty store; a backend with a clock of its own may ignore the world.
//! Promises about time hold for either. One more test runs random scripts on the store and on a [model](super::oracle) and
//! compares; for a slow store, give a number of seeds: `records_contract!(mine, make, seeds: 20)`.

mod bed;
mod promises;

pub mod all_or_nothing;
pub mod bits;
pub mod claims;
pub mod contention;
pub mod counters;
pub mod limits;
pub mod queues;
pub mod reads;
pub mod repeats;
pub mod requires;
pub mod rounds;
pub mod time;
pub mod turns;
pub mod waits;

use super::world::TestWorld;
use crate::{records::Records, world::BoxFuture};
pub use bed::Bed;
pub use promises::PROMISES;
use std::{panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

/// A promise: its name, and its test, which panics if a backend breaks the promise.
pub type Promise = (&'static str, fn(Bed) -> BoxFuture<'static, ()>);

/// An empty store on its way.
pub type Making = Pin<Box<dyn Future<Output = Arc<dyn Records>>>>;

/// Creates an empty store in the world of a test. Not a generic parameter: the suite would be compiled anew for every
/// backend and promise, which took longer than running it.
pub type Make<'a> = &'a dyn Fn(Arc<TestWorld>) -> Making;

/// The future of an async closure that creates a store, as [`Make`] returns it.
pub fn boxed(make: impl AsyncFn(Arc<TestWorld>) -> Arc<dyn Records> + 'static, world: Arc<TestWorld>) -> Making {
    Box::pin(async move { make(world).await })
}

/// Tests the promise of this name on a new store, in a runtime of its own.
///
/// # Panics
/// If the store breaks the promise, does not answer within a minute, or if there is no such promise.
pub fn hold(make: Make<'_>, name: &str) {
    let promise = PROMISES.iter().find(|promise| promise.0 == name);
    let promise = promise.unwrap_or_else(|| panic!("there is no promise `{name}`"));
    hold_within(Duration::from_secs(60), make, promise);
}

#[expect(clippy::disallowed_methods, reason = "only the real clock shows that a store never answers")]
fn hold_within(limit: Duration, make: Make<'_>, promise: &Promise) {
    let runtime = runtime();
    let test = async {
        let world = TestWorld::new(1);
        let bed = Bed::new(make(world.clone()).await, world);
        let kept = tokio::time::timeout(limit, promise.1(bed)).await;
        kept.unwrap_or_else(|_| panic!("the store did not answer within {} s", limit.as_secs()));
    };
    runtime.block_on(test);
    runtime.shutdown_background();
}

/// A runtime for one test.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().expect("the system refuses another thread")
}

/// The names of all promises that a backend breaks, to test that the suite notices a flawed backend. A call that takes
/// longer than three seconds counts as broken.
pub fn broken_promises(make: Make<'_>) -> Vec<&'static str> {
    let keeps = |promise: &Promise| {
        let hold = || hold_within(Duration::from_secs(3), make, promise);
        std::panic::catch_unwind(AssertUnwindSafe(hold)).is_ok()
    };
    PROMISES.iter().filter(|promise| !keeps(promise)).map(|promise| promise.0).collect()
}
