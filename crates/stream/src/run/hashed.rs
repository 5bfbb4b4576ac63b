//! Maps whose keys are hashes already. A table of things with names keeps the names with the things only: a look-up reads
//! sixteen bytes of the map, and then the thing that it is about.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};
use xxhash_rust::xxh3::xxh3_64;

/// A map by hash.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<HashedHasher>>;

/// Hashes a name. In the unit tests 16 hashes stand for all names, so that names share them.
#[inline]
pub(crate) fn hash_of(name: &[u8]) -> u64 {
    let hash = xxh3_64(name);
    if cfg!(test) { hash % 16 } else { hash }
}

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
