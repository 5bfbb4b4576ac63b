//! The identity of a record between stages: the producer that committed it and its number there, and the producer's
//! stamp. All three are fixed by the commit, so a retry sends the same ones.
//!
//! Stamps of one producer only grow, also across a restart and a clock that is set back: the last one is committed with
//! every bundle. A stamp that repeated or fell would make a new record look like one that was reclaimed long ago.

use crate::seams;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One partition of a stage as the sender to one partition of another, on one edge. Numbers of its records are
/// consecutive, so that a receiver's catalog of them is one interval. The plan's generation keeps the producers of
/// different plans apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProducerId(u64);

impl ProducerId {
    /// Returns the producer that is partition `from` of the sending stage, on `edge` to partition `to`.
    pub const fn new(edge: u16, from: u16, to: u16, generation: u16) -> Self {
        ProducerId(((edge as u64) << 48) | ((from as u64) << 32) | ((to as u64) << 16) | generation as u64)
    }

    /// Returns the edge it sends on.
    pub const fn edge(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Returns the partition of the sending stage.
    pub const fn from(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Returns the partition of the receiving stage.
    pub const fn to(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns eight bytes that sort as producers do.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Decodes bytes that [`ProducerId::to_bytes`] wrote.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        ProducerId(u64::from_be_bytes(bytes))
    }
}

impl fmt::Debug for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edge {} from {} to {}", self.edge(), self.from(), self.to())
    }
}

/// The id of a record between stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordId {
    /// The sender that committed it.
    pub producer: ProducerId,
    /// How many records that producer had committed before.
    pub seq: u64,
}

/// Processing time at a sender in microseconds, made strictly increasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Before every stamp.
    pub const ZERO: Stamp = Stamp(0);
    /// After every stamp: the bound of a sender that will stamp nothing more.
    pub const NEVER: Stamp = Stamp(u64::MAX);

    /// Returns the next possible stamp of a sender whose last one this is.
    pub const fn next(self) -> Stamp {
        Stamp(self.0.saturating_add(1))
    }
}

/// Makes the stamps of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamper {
    last: Stamp,
}

impl Stamper {
    /// Returns a stamp after every earlier one, and not before `now` (ms) on the sender's clock.
    pub fn stamp(&mut self, now_ms: u64) -> Stamp {
        let now = Stamp(now_ms.saturating_mul(1000));
        self.last = seams::stamp(now, self.last);
        self.last
    }

    /// Returns the earliest stamp this sender may still give.
    pub const fn next_possible(&self) -> Stamp {
        self.last.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_grow_across_restarts_and_clocks_that_jump(clocks in prop::collection::vec((0u64..100, any::<bool>()), 1..50)) {
            let mut stamper = Stamper::default();
            let mut last = Stamp::ZERO;
            for (now, restart) in clocks {
                if restart {
                    let stored = postcard::to_stdvec(&stamper).unwrap();
                    stamper = postcard::from_bytes(&stored).unwrap();
                }
                prop_assert!(stamper.next_possible() > last);
                let stamp = stamper.stamp(now);
                prop_assert!(stamp > last && stamp >= Stamp(now * 1000));
                last = stamp;
            }
        }

        #[test]
        fn a_producer_names_its_edge_and_both_ends(edge: u16, from: u16, to: u16, generation: u16) {
            let producer = ProducerId::new(edge, from, to, generation);
            prop_assert_eq!((producer.edge(), producer.from(), producer.to()), (edge, from, to));
            prop_assert_eq!(ProducerId::from_bytes(producer.to_bytes()), producer);
        }
    }
}
