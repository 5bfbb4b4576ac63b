//! A world whose tasks take turns, so that a replay calls its disk in the same order.

use super::TestWorld;
use crate::world::{BoxFuture, World};
use onceflow_core::Timestamp;
use std::sync::Arc;

/// A world whose tasks take turns on one thread, also those that want a thread of their own: the n-th operation on a disk
/// is the same one every time.
pub struct OneThread(pub Arc<TestWorld>);

impl World for OneThread {
    fn clock(&self) -> Timestamp {
        self.0.clock()
    }
    fn random(&self) -> u128 {
        self.0.random()
    }
    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        self.0.sleep(ms)
    }
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(name, task);
    }
    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(name, task);
    }
}
