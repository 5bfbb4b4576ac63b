//! What one incarnation of a node gets as its world: the room's time, with its own wrong wall clock, and the room's chance.

use crate::executor::{NodeId, Sim};
use onceflow_core::Timestamp;
use onceflow_store::{BoxFuture, World};
use std::sync::Arc;

/// What the clock says at the beginning: some day in 2023.
pub const START_MS: u64 = 1_700_000_000_000;

/// The world of one incarnation of a node.
pub struct NodeWorld {
    /// The room.
    pub sim: Arc<Sim>,
    /// Which node.
    pub node: NodeId,
    /// Which life of it; what an earlier one starts does not happen.
    pub incarnation: u64,
    /// How wrong its clock is.
    pub ahead_ms: i64,
}

impl World for NodeWorld {
    fn clock(&self) -> Timestamp {
        Timestamp::from_ms((START_MS + self.sim.now_ms()).saturating_add_signed(self.ahead_ms))
    }

    fn random(&self) -> u128 {
        self.sim.random(|random| (u128::from(random.bits()) << 64) | u128::from(random.bits()))
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(self.sim.sleep(ms))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        if self.sim.incarnation(self.node) == self.incarnation {
            self.sim.spawn(self.node, name, task);
        }
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.spawn(name, task);
    }
}
