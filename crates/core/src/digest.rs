//! Content digests: one type for every place that names content by its hash.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A BLAKE3 digest of content. Equal content has an equal digest, wherever it is stored.
///
/// Serialised as its 32 bytes, displayed in hexadecimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    /// Bytes of a digest in a row.
    pub const BYTES: usize = 32;

    /// The digest of an absent value: an option that is none.
    pub const NONE: Digest = Digest([0; Digest::BYTES]);

    /// Returns the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        blake3::hash(bytes).into()
    }

    /// Returns the digest with these bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Digest(bytes)
    }

    /// Reads 64 hexadecimal digits; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(Digest::from)
    }

    /// Returns the digest's bytes, as a row holds them.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Returns the digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Digest(*hash.as_bytes())
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_back_from_its_hexadecimal_text() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::from_hex(empty), Some(Digest::of(b"")));
        assert_eq!((Digest::from_hex(&empty[1..]), Digest::from_hex("zz")), (None, None));
    }

    #[test]
    fn a_digest_is_stored_as_its_32_bytes() {
        let digest = Digest::of(b"once");
        assert_eq!(postcard::to_stdvec(&digest).unwrap(), digest.to_bytes());
    }
}
