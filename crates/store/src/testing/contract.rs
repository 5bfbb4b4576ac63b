//! What every backend promises, one test for each promise. A backend is one line:
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
//! Promises about time hold for either. One more test compares the store with a [model](super::oracle) by random
//! scripts; where a store is slow, give a number of seeds: `records_contract!(mine, make, seeds: 20)`.

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
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// A promise: its name, and what tests it. It panics if the promise is not kept.
pub type Promise = (&'static str, fn(Bed) -> BoxFuture<'static, ()>);

/// Tests one promise on a new store, in a runtime of its own.
///
/// # Panics
/// If the promise is not kept.
pub fn hold(make: impl AsyncFn(Arc<TestWorld>) -> Arc<dyn Records>, promise: impl AsyncFnOnce(Bed)) {
    hold_within(Duration::from_secs(60), make, promise);
}

#[expect(clippy::disallowed_methods, reason = "a store that never answers is found out by the real clock alone")]
fn hold_within(
    limit: Duration,
    make: impl AsyncFn(Arc<TestWorld>) -> Arc<dyn Records>,
    promise: impl AsyncFnOnce(Bed),
) {
    let runtime = runtime();
    let test = async {
        let world = TestWorld::new(1);
        let bed = Bed::new(make(world.clone()).await, world);
        tokio::time::timeout(limit, promise(bed)).await.expect("the store should have answered long ago");
    };
    runtime.block_on(test);
    runtime.shutdown_background();
}

/// A runtime for one test.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().expect("the system refuses another thread")
}

/// The names of all promises that a backend does not keep. For testing the tests: a backend with a flaw should
/// break one. A call that takes longer than three seconds counts as broken.
pub fn broken_promises(make: impl AsyncFn(Arc<TestWorld>) -> Arc<dyn Records>) -> Vec<&'static str> {
    let keeps = |promise: &Promise| {
        let hold = || hold_within(Duration::from_secs(3), &make, promise.1);
        std::panic::catch_unwind(AssertUnwindSafe(hold)).is_ok()
    };
    PROMISES.iter().filter(|promise| !keeps(promise)).map(|promise| promise.0).collect()
}
