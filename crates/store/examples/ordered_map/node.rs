//! A node of the tree, as a value: its key, the text the key maps to, and which of the two sides there are.

use super::{Content, Error, Update, Value, ValueId, Values};

/// A node of a treap: ordered by key, and as deep as a random one, because a node never stands above one whose key
/// has a larger digest. The shape follows from the keys alone, whatever was inserted and deleted before.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) left: Option<ValueId>,
    pub(crate) right: Option<ValueId>,
}

impl Node {
    pub(crate) async fn read(values: &Values, id: &ValueId) -> Result<Self, Error> {
        let Value { refs, content } = values.get(id).await?;
        let Content::Inline(bytes) = content else { return Err(Error::Senseless(format!("{id} is no node"))) };
        let text = String::from_utf8_lossy(&bytes);
        let mut fields = text.splitn(3, '\n').map(str::to_owned);
        let (Some(sides), Some(key), Some(value)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(Error::Senseless(format!("{id} is no node")));
        };
        let mut refs = refs.into_iter();
        let mut side = |name: char| if sides.contains(name) { refs.next() } else { None };
        let (left, right) = (side('l'), side('r'));
        Ok(Node { key, value, left, right })
    }

    /// Adds the node to an update. It is named by its content, so equal nodes are one value.
    pub(crate) fn put(self, update: Update) -> (ValueId, Update) {
        let sides = [self.left.as_ref().map(|_| 'l'), self.right.as_ref().map(|_| 'r')];
        let sides: String = sides.into_iter().flatten().collect();
        let content = format!("{sides}\n{}\n{}", self.key, self.value);
        let refs: Vec<ValueId> = self.left.into_iter().chain(self.right).collect();
        let mut hasher = blake3::Hasher::new();
        hasher.update(content.as_bytes());
        for id in &refs {
            hasher.update(id.as_bytes());
        }
        let id = ValueId::new(&hasher.finalize().as_bytes()[..16]);
        (id.clone(), update.put(id, refs, content))
    }

    /// The rank of a node, which decides its place in the tree.
    pub(crate) fn rank(&self) -> [u8; 32] {
        *blake3::hash(self.key.as_bytes()).as_bytes()
    }
}
