//! The map: inserting and deleting split the tree at a key and join the halves again. Only nodes along one path are
//! read or put.

use super::{EdgeName, Error, Expect, Update, ValueId, Values, node::Node};
use std::sync::Arc;

/// An ordered map under a root.
pub(crate) struct OrderedMap {
    values: Arc<Values>,
    root: EdgeName,
}

type Tree = Option<ValueId>;

/// A change on its way: nodes to put, and those among them that the change itself may look at again.
struct Change<'a> {
    values: &'a Values,
    fresh: Vec<(ValueId, Node)>,
}

impl OrderedMap {
    pub(crate) fn new(values: Arc<Values>, root: &str) -> Self {
        OrderedMap { values, root: EdgeName::root(root) }
    }

    /// Maps a key to a text.
    pub(crate) async fn insert(&self, key: &str, value: &str) -> Result<(), Error> {
        self.replace(key, Some(value)).await
    }

    /// Forgets a key.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Error> {
        self.replace(key, None).await
    }

    async fn replace(&self, key: &str, value: Option<&str>) -> Result<(), Error> {
        loop {
            let old = self.values.edge(&self.root).await?;
            let mut change = Change { values: &self.values, fresh: vec![] };
            let (smaller, larger) = change.split(old.clone(), key).await?;
            let middle = value.map(|value| {
                let (key, value) = (key.to_owned(), value.to_owned());
                change.put(Node { key, value, left: None, right: None })
            });
            let left = change.join(smaller, middle).await?;
            let new = change.join(left, larger).await?;
            match self.values.update(change.update(&self.root, old, new)).await {
                Ok(_) => return Ok(()),
                // Another writer moved the root, or a node read is gone already: look again.
                Err(Error::Stale { .. } | Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Another root at the same tree. Costs one edge.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<(), Error> {
        let update = match self.values.edge(&self.root).await? {
            Some(top) => Update::new().set(&EdgeName::root(name), top),
            None => Update::new().clear(&EdgeName::root(name)),
        };
        self.values.update(update).await.map(drop)
    }

    /// Lets the tree go.
    pub(crate) async fn clear(&self) -> Result<(), Error> {
        self.values.update(Update::new().clear(&self.root)).await.map(drop)
    }

    /// All entries in order.
    pub(crate) async fn entries(&self) -> Result<Vec<(String, String)>, Error> {
        let mut entries = Vec::new();
        let mut above: Vec<Node> = Vec::new();
        let mut next = self.values.edge(&self.root).await?;
        loop {
            while let Some(id) = next {
                let node = Node::read(&self.values, &id).await?;
                next = node.left.clone();
                above.push(node);
            }
            let Some(node) = above.pop() else { return Ok(entries) };
            next = node.right;
            entries.push((node.key, node.value));
        }
    }
}

impl Change<'_> {
    async fn read(&self, id: &ValueId) -> Result<Node, Error> {
        match self.fresh.iter().find(|(fresh, _)| fresh == id) {
            Some((_, node)) => Ok(node.clone()),
            None => Node::read(self.values, id).await,
        }
    }

    fn put(&mut self, node: Node) -> ValueId {
        let (id, _) = node.clone().put(Update::new());
        self.fresh.push((id.clone(), node));
        id
    }

    /// The nodes with smaller keys, and those with larger ones.
    async fn split(&mut self, tree: Tree, key: &str) -> Result<(Tree, Tree), Error> {
        let mut path = Vec::new();
        let mut next = tree;
        let (mut smaller, mut larger) = loop {
            let Some(id) = next else { break (None, None) };
            let node = self.read(&id).await?;
            if node.key == key {
                break (node.left, node.right);
            }
            next = if key < node.key.as_str() { node.left.clone() } else { node.right.clone() };
            path.push(node);
        };
        for node in path.into_iter().rev() {
            if key < node.key.as_str() {
                larger = Some(self.put(Node { left: larger, ..node }));
            } else {
                smaller = Some(self.put(Node { right: smaller, ..node }));
            }
        }
        Ok((smaller, larger))
    }

    /// One tree of two, of which every key of the first is smaller than any of the second.
    async fn join(&mut self, mut smaller: Tree, mut larger: Tree) -> Result<Tree, Error> {
        let mut path: Vec<(Node, bool)> = Vec::new();
        let mut joined = loop {
            let (Some(left), Some(right)) = (&smaller, &larger) else { break smaller.or(larger) };
            let (left, right) = (self.read(left).await?, self.read(right).await?);
            if left.rank() > right.rank() {
                smaller = left.right.clone();
                path.push((left, true));
            } else {
                larger = right.left.clone();
                path.push((right, false));
            }
        };
        for (node, goes_right) in path.into_iter().rev() {
            let node = if goes_right { Node { right: joined, ..node } } else { Node { left: joined, ..node } };
            joined = Some(self.put(node));
        }
        Ok(joined)
    }

    /// Puts the nodes of the new tree and moves the root.
    fn update(self, root: &EdgeName, old: Tree, new: Tree) -> Update {
        let puts = self.fresh.into_iter().fold(Update::new(), |update, (_, node)| node.put(update).1);
        let expect = old.map_or(Expect::Unset, Expect::Target);
        puts.change(onceflow_store::values::ValueChange::Move { edge: root.clone(), to: new, expect, ttl_ms: None })
    }
}
