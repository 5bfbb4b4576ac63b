//! Another machine's view of the same world: its wall clock is wrong.

use crate::world::{BoxFuture, Uptime, World};
use onceflow_core::Timestamp;
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

/// A world whose wall clock is ahead of another's, or behind. Everything else is shared.
pub struct SkewedWorld {
    world: Arc<dyn World>,
    ahead_ms: Arc<AtomicI64>,
}

impl SkewedWorld {
    /// So many milliseconds ahead; negative is behind.
    pub fn new(world: Arc<dyn World>, ahead_ms: i64) -> Arc<Self> {
        Arc::new(SkewedWorld { world, ahead_ms: Arc::new(AtomicI64::new(ahead_ms)) })
    }

    /// Changes the skew, as if someone had set this machine's clock.
    pub fn set_ahead_ms(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, SeqCst);
    }
}

impl World for SkewedWorld {
    fn clock(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(SeqCst);
        Timestamp::from_ms(self.world.clock().as_ms().saturating_add_signed(ahead_ms))
    }

    fn uptime(&self) -> Option<Uptime> {
        self.world.uptime()
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
        Some(Arc::new(SkewedWorld { world, ahead_ms: self.ahead_ms.clone() }))
    }
}
