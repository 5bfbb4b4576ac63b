//! Names of values and of edges. The caller chooses them; this module bounds their length, and orders edges so that the
//! elements of one list are adjacent.

use crate::{digest::Digest, fence::Fence, key::Name, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of a value: 1 to [`ID_BYTES_MAX`](limits::ID_BYTES_MAX) bytes of the caller's choice, for instance a digest.
///
/// The default is empty and names no stored value: it stands in a payload whose content is not stored yet.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueId(Name);

/// The first bytes of the ids that the store itself makes.
const FRESH: u8 = b'v';
const BLOB: u8 = b'b';
const SOURCE: u8 = b's';

impl ValueId {
    /// Creates the id with these bytes.
    ///
    /// # Panics
    /// If there are none, or more than [`ID_BYTES_MAX`](limits::ID_BYTES_MAX). For bytes from outside use
    /// [`ValueId::checked`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self::checked(bytes.as_ref()).expect("an id has 1 to limits::ID_BYTES_MAX bytes")
    }

    /// Returns the id with these bytes; `None` if there are none or too many.
    pub fn checked(bytes: &[u8]) -> Option<Self> {
        (1..=limits::ID_BYTES_MAX).contains(&bytes.len()).then(|| ValueId(Name::new(bytes)))
    }

    /// Returns the id of a new value. Unique because the fence is; use each fence for one id.
    pub fn of_fence(fence: Fence) -> Self {
        ValueId(Name::join(&[&[FRESH], &fence.to_bytes()]))
    }

    /// Returns the id of the blob with this content.
    pub fn of_blob(digest: Digest) -> Self {
        ValueId(Name::join(&[&[BLOB], digest.as_bytes()]))
    }

    /// Returns the id of a new value by reference. Unique because the fence is.
    pub fn of_source(fence: Fence) -> Self {
        ValueId(Name::join(&[&[SOURCE], &fence.to_bytes()]))
    }

    /// The value is a blob: its id is the digest of its content.
    pub fn is_blob(&self) -> bool {
        self.blob_digest().is_some()
    }

    /// Returns the digest in the id of a blob.
    pub fn blob_digest(&self) -> Option<Digest> {
        let bytes = self.as_bytes().strip_prefix(&[BLOB])?;
        Some(Digest::from_bytes(bytes.try_into().ok()?))
    }

    /// The value is a file of the user's, by reference. (A blob that was handed over later keeps the id of a blob.)
    pub fn is_source(&self) -> bool {
        self.as_bytes().first() == Some(&SOURCE)
    }

    /// Returns the id's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the id as the name of a row.
    pub fn name(&self) -> &Name {
        &self.0
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        readable(self.as_bytes(), f)
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        readable(self.as_bytes(), f)
    }
}

impl From<&str> for ValueId {
    /// Accepts any text, also from outside. The store refuses updates with an id that is empty or too long.
    fn from(id: &str) -> Self {
        ValueId(Name::new(id))
    }
}

/// The name of an edge: a reference to a value from outside the values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeName {
    /// A root or a lease, by name.
    Root(Name),
    /// An element of a list that is, or will be, gathered: it belongs to `prefix` from the beginning.
    Element {
        /// The prefix that all elements of the list share.
        prefix: Name,
        /// The element's index.
        index: u64,
    },
}

const ROOT: u8 = b'r';
const ELEMENT: u8 = b'e';

impl EdgeName {
    /// Returns the name of a root or a lease.
    pub fn root(name: impl AsRef<[u8]>) -> Self {
        EdgeName::Root(Name::new(name))
    }

    /// Returns the name of an element of a list.
    pub fn element(prefix: impl AsRef<[u8]>, index: u64) -> Self {
        EdgeName::Element { prefix: Name::new(prefix), index }
    }

    /// Returns the root's name or the element's prefix; at most [`ID_BYTES_MAX`](limits::ID_BYTES_MAX) bytes.
    pub fn name(&self) -> &Name {
        match self {
            EdgeName::Root(name) | EdgeName::Element { prefix: name, .. } => name,
        }
    }

    /// Returns the name of the edge's row. Elements of one prefix are adjacent, in order of their index.
    pub fn to_row_name(&self) -> Name {
        match self {
            EdgeName::Root(name) => Name::join(&[&[ROOT], name.as_bytes()]),
            EdgeName::Element { prefix, index } => {
                Name::join(&[elements_of(prefix.as_bytes()).as_bytes(), &index.to_be_bytes()])
            }
        }
    }

    /// Decodes a name that [`EdgeName::to_row_name`] wrote.
    pub fn from_row_name(name: &[u8]) -> Option<Self> {
        match name.split_first()? {
            (&ROOT, root) => Some(EdgeName::root(root)),
            (&ELEMENT, rest) => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let (prefix, index) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
                Some(EdgeName::element(prefix, u64::from_be_bytes(index.try_into().ok()?)))
            }
            _ => None,
        }
    }
}

/// Returns the prefix of the row names of all elements under `prefix`, and of no other edges: the length comes first.
pub fn elements_of(prefix: &[u8]) -> Name {
    let length = u16::try_from(prefix.len()).unwrap_or(u16::MAX);
    Name::join(&[&[ELEMENT], &length.to_be_bytes(), prefix])
}

impl fmt::Debug for EdgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EdgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        readable(self.name().as_bytes(), f)?;
        match self {
            EdgeName::Root(_) => Ok(()),
            EdgeName::Element { index, .. } => write!(f, "[{index}]"),
        }
    }
}

/// Writes text as it is, other bytes in hexadecimal.
pub fn readable(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
        _ => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_read_back_from_its_row_name() {
        for name in [
            EdgeName::root(""),
            EdgeName::root("run/7"),
            EdgeName::element("", 0),
            EdgeName::element("run/7:list", u64::MAX),
        ] {
            assert_eq!(EdgeName::from_row_name(name.to_row_name().as_bytes()), Some(name));
        }
        assert_eq!(EdgeName::from_row_name(b""), None);
        assert_eq!(EdgeName::from_row_name(b"e\0\x09short"), None);
    }

    #[test]
    fn a_prefix_owns_its_elements_and_no_other_prefix_does() {
        let row = EdgeName::element("ab", 1).to_row_name();
        assert!(row.as_bytes().starts_with(elements_of(b"ab").as_bytes()));
        for other in ["", "a", "abc", "ab\0"] {
            assert!(!row.as_bytes().starts_with(elements_of(other.as_bytes()).as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn an_id_tells_blobs_and_sources_from_other_values() {
        let (digest, fence) = (Digest::of(b"content"), crate::Fences::new(1).next());
        assert_eq!(ValueId::of_blob(digest).blob_digest(), Some(digest));
        assert!(ValueId::of_source(fence).is_source() && !ValueId::of_source(fence).is_blob());
        assert!(!ValueId::of_fence(fence).is_source() && !ValueId::of_fence(fence).is_blob());
        assert!(!ValueId::new("b1").is_blob() && !ValueId::of_blob(digest).is_source());
    }

    #[test]
    fn an_id_is_bounded() {
        assert!(ValueId::checked(b"").is_none());
        assert!(ValueId::checked(&[0; limits::ID_BYTES_MAX]).is_some());
        assert!(ValueId::checked(&[0; limits::ID_BYTES_MAX + 1]).is_none());
    }
}
