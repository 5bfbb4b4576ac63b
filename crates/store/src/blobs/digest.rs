//! What content is known by: its BLAKE3 digest, computed while the bytes pass.

use super::Stored;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The BLAKE3 digest of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    /// How many bytes a digest takes in a row.
    pub const BYTES: usize = 32;

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// A digest that was stored.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Digest(bytes)
    }

    /// The digest as a row holds it.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Counts and digests bytes as they pass.
#[derive(Clone, Debug, Default)]
pub struct Hashing {
    hasher: blake3::Hasher,
    len: u64,
}

impl Hashing {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// What has passed so far.
    pub fn stored(&self) -> Stored {
        Stored { len: self.len, digest: Digest(*self.hasher.finalize().as_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_as_hex_and_does_not_depend_on_the_pieces() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of(b"").to_string(), empty);
        let mut hashing = Hashing::default();
        assert_eq!(hashing.stored(), Stored { len: 0, digest: Digest::of(b"") });
        hashing.update(b"on");
        hashing.update(b"ce");
        assert_eq!(hashing.stored(), Stored { len: 4, digest: Digest::of(b"once") });
    }
}
