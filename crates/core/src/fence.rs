//! Fences: tokens by which the store refuses a stale attempt. A fence is globally unique: the incarnation that made it,
//! and how many that had made before. It is never a counter in the store, because a store that lost its last writes
//! would hand out the same number again.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::atomic::AtomicU64, sync::atomic::Ordering::Relaxed};

/// Identifies one attempt; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence {
    incarnation: u128,
    count: u64,
}

impl Fence {
    /// The size of a fence in a row, in bytes.
    pub const BYTES: usize = 24;

    /// Encodes the fence as a row holds it.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[16..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// Decodes bytes that [`Fence::to_bytes`] wrote; `None` for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (incarnation, count) = bytes.split_at(16);
        Some(Fence {
            incarnation: u128::from_be_bytes(incarnation.try_into().ok()?),
            count: u64::from_be_bytes(count.try_into().ok()?),
        })
    }

    /// Returns the incarnation that made it, as given to [`Fences::new`].
    pub fn incarnation(self) -> u128 {
        self.incarnation
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:x}", self.incarnation, self.count)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes the fences of one incarnation of a worker or client.
#[derive(Debug)]
pub struct Fences {
    incarnation: u128,
    made: AtomicU64,
}

impl Fences {
    /// Creates the fences of an incarnation. `incarnation` must be new every time a process or worker starts: 128
    /// random bits. With a reused one, an attempt from before a crash passes for one from after it.
    pub fn new(incarnation: u128) -> Self {
        Fences { incarnation: crate::seams::incarnation(incarnation), made: AtomicU64::new(0) }
    }

    /// Returns the incarnation of this process or worker.
    pub fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Returns a new fence.
    pub fn next(&self) -> Fence {
        Fence { incarnation: self.incarnation, count: self.made.fetch_add(1, Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_differ_and_survive_being_stored() {
        let (one, two) = (Fences::new(1), Fences::new(2));
        let made = [one.next(), one.next(), two.next(), two.next()];
        for (at, fence) in made.iter().enumerate() {
            assert!(!made[..at].contains(fence));
            assert_eq!(Fence::from_bytes(&fence.to_bytes()), Some(*fence));
        }
    }
}
