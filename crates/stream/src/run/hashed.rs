//! Maps whose keys are hashes already. A table of things with names keeps the names with the things only: a look-up reads
//! sixteen bytes of the map, and then the thing that it is about.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by hash.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<HashedHasher>>;

/// The hasher of numbers that are hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HashedHasher(u64);

impl Hasher for HashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are hashes, which are numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
