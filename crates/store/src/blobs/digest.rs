//! Computes digests while bytes pass.

use super::ContentInfo;

/// Counts and digests bytes as they pass.
#[derive(Clone, Debug, Default)]
pub struct Hashing {
    hasher: blake3::Hasher,
    len: u64,
}

impl Hashing {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// The length and digest of the bytes so far.
    pub fn info(&self) -> ContentInfo {
        ContentInfo { len: self.len, digest: self.hasher.finalize().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Digest;

    #[test]
    fn a_digest_does_not_depend_on_how_the_bytes_are_split() {
        let mut hashing = Hashing::default();
        assert_eq!(hashing.info(), ContentInfo { len: 0, digest: Digest::of(b"") });
        hashing.update(b"on");
        hashing.update(b"ce");
        assert_eq!(hashing.info(), ContentInfo { len: 4, digest: Digest::of(b"once") });
    }
}
