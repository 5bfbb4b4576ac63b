//! Another machine's view of the same world: its wall clock is wrong.

use crate::world::{BoxFuture, Uptime, World};
use onceflow_core::Timestamp;
use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
};

/// A world whose wall clock is ahead of another's, or behind. Everything else is shared.
pub struct SkewedWorld {
    world: Arc<dyn World>,
    ahead_ms: Arc<AtomicI64>,
    /// Time that has gone by for all clocks, the monotonic one too.
    passed_ms: Arc<AtomicU64>,
}

impl SkewedWorld {
    /// So many milliseconds ahead; negative is behind.
    pub fn new(world: Arc<dyn World>, ahead_ms: i64) -> Arc<Self> {
        Arc::new(SkewedWorld { world, ahead_ms: Arc::new(AtomicI64::new(ahead_ms)), passed_ms: Arc::default() })
    }

    /// Changes the skew, as if a user had set this machine's clock.
    pub fn set_ahead_ms(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, SeqCst);
    }

    /// Lets time pass on all clocks: the wall clock is not set.
    pub fn set_passed_ms(&self, passed_ms: u64) {
        self.passed_ms.store(passed_ms, SeqCst);
    }
}

impl World for SkewedWorld {
    fn clock(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(SeqCst);
        let passed_ms = self.passed_ms.load(SeqCst);
        Timestamp::from_ms(self.world.clock().as_ms().saturating_add(passed_ms).saturating_add_signed(ahead_ms))
    }

    fn uptime(&self) -> Option<Uptime> {
        let uptime = self.world.uptime()?;
        Some(Uptime { ms: uptime.ms.saturating_add(self.passed_ms.load(SeqCst)), ..uptime })
    }

    fn random(&self) -> u128 {
        self.world.random()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        self.world.sleep(ms)
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.world.spawn(name, task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.world.dedicate(name, task);
    }

    fn service(&self) -> Option<Arc<dyn World>> {
        let world = self.world.service()?;
        Some(Arc::new(SkewedWorld { world, ahead_ms: self.ahead_ms.clone(), passed_ms: self.passed_ms.clone() }))
    }
}
