//! The content of one file: for a reader now, and for a reader after a power cut.

use crate::testing::random::Random;

/// A disk writes whole sectors, and each or none of them.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// The bytes that readers see.
    now: Vec<u8>,
    /// The bytes that a power cut leaves for certain.
    durable: Vec<u8>,
    /// Written and not synced: from where to where.
    dirty: Vec<(usize, usize)>,
    /// Should have been synced and was not; no later sync saves it, unless it is written again.
    lost: Vec<(usize, usize)>,
}

impl Content {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Content { now: bytes.clone(), durable: bytes, ..Content::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.now, at, bytes);
        self.lost.retain(|(from, to)| *from < at || *to > at + bytes.len());
        self.dirty.push((at, at + bytes.len()));
    }

    /// Makes it so long. A power cut before the next sync leaves the old length or the new one.
    pub(super) fn set_len(&mut self, len: usize) {
        for (from, to) in self.dirty.iter_mut().chain(&mut self.lost) {
            (*from, *to) = ((*from).min(len), (*to).min(len));
        }
        self.now.resize(len, 0);
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.now.len(), 0);
        for (from, to) in std::mem::take(&mut self.dirty) {
            put(&mut self.durable, from, &self.now[from..to]);
        }
    }

    pub(super) fn lose_unsynced(&mut self) {
        self.lost.append(&mut self.dirty);
    }

    /// The content after a power cut: of everything not synced, each sector or not.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Content {
        let mut left = self.durable.clone();
        if left.len() != self.now.len() && random.below(2) == 0 {
            left.resize(self.now.len(), 0);
        }
        for (from, to) in self.lost.iter().chain(&self.dirty) {
            let mut at = *from;
            while at < *to {
                let end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
                let end = end.min(*to);
                if random.below(2) == 0 {
                    put(&mut left, at, &self.now[at..end]);
                }
                at = end;
            }
        }
        Content::durable(left)
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if into.len() < at + bytes.len() {
        into.resize(at + bytes.len(), 0);
    }
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
