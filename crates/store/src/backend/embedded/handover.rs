//! The handover that an owner leaves when it closes in order: every claim that stands, and whose it is. So the next
//! owner knows them all, and waits for none.
//!
//! The handover is the content of the lock's file while no process holds the lock. The process that takes the lock
//! reads it and writes its own name there, so a handover is used once, by the next owner, or never. An owner that is
//! killed leaves its name instead; then the living processes [assert](super::super::held) the claims they hold.

use crate::{
    records::{Error, Records},
    state::StandingClaim,
};
use onceflow_core::{Batch, Group, Name, Row, Shard};
use serde::{Deserialize, Serialize};

/// How it begins.
const MAGIC: &[u8] = b"closed in order, version 1\n";

/// The most that is handed over: a hundred thousand claims and more. An owner with more leaves none, and the next one asks.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// The claims that stand when an owner closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handover {
    /// The store they are in.
    pub(super) store: u128,
    pub(super) claims: Vec<HandedClaim>,
}

/// A claim, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedClaim {
    pub(super) member: u128,
    shard: Shard,
    queue: Group,
    name: Name,
    pub(super) fence: Row,
    deadline: Option<Row>,
}

impl HandedClaim {
    pub(super) fn new(member: u128, claim: StandingClaim) -> Self {
        let StandingClaim { shard, queue, name, fence, deadline } = claim;
        HandedClaim { member, shard, queue, name, fence, deadline }
    }

    /// Puts the claim where it was.
    pub(super) async fn restore(&self, records: &dyn Records) -> Result<bool, Error> {
        let claim = self.queue.claims().key(&self.name);
        let mut batch = Batch::new(self.shard);
        batch.require_absent(claim.clone()).require_present(self.queue.key(&self.name));
        batch.put(claim, self.fence.clone());
        if let Some(deadline) = &self.deadline {
            batch.put(self.queue.deadlines().key(&self.name), deadline.clone());
        }
        Ok(records.commit(batch).await?.is_applied())
    }
}

impl Handover {
    /// The bytes that say this; `None` if they are too many.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        let body = postcard::to_stdvec(self).expect("claims can be written to memory");
        let bytes = [MAGIC, blake3::hash(&body).as_bytes(), &body].concat();
        (bytes.len() <= BYTES_MAX).then_some(bytes)
    }

    /// Reads what [`Handover::to_bytes`] wrote, whole; `None` for anything else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (digest, body) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
        if blake3::hash(body).as_bytes() != digest {
            return None;
        }
        postcard::from_bytes(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_is_read_whole_or_not_at_all() {
        let claim = StandingClaim {
            shard: Shard(1),
            queue: Group::queue("q"),
            name: Name::new("step"),
            fence: Row::new("fence"),
            deadline: Some(Row::new("later")),
        };
        let handover = Handover { store: 7, claims: vec![HandedClaim::new(3, claim)] };
        let bytes = handover.to_bytes().unwrap();
        assert_eq!(Handover::from_bytes(&bytes), Some(handover));
        for cut in 0..bytes.len() {
            assert_eq!(Handover::from_bytes(&bytes[..cut]), None);
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Handover::from_bytes(&damaged), None, "byte {at}");
        }
    }
}
