//! Long lists: trees of pages. A page refers to its elements, or to pages of them, and says how many elements there
//! are below it. Pages are named by what they hold, so equal pages of different lists are one value.
//!
//! ```
//! # use onceflow_store::{backend::memory::Memory, world::RealWorld, values::{*, list::*}};
//! # use std::sync::Arc;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
//! # let world = RealWorld::here();
//! # let values = Arc::new(Values::new(Arc::new(Memory::new(world.clone())), world, Default::default()));
//! let mut builder = ListBuilder::new(values.clone(), EdgeName::root("building"), 60_000);
//! for n in 0..1000 {
//!     builder.push(format!("element {n}").as_str(), b"content").await?;
//! }
//! builder.finish(&EdgeName::root("list")).await?;
//!
//! let mut elements = List::open(&values, &EdgeName::root("list")).await?.elements(&values);
//! while let Some(id) = elements.next().await? {
//!     values.get(&id).await?;
//! }
//! # assert_eq!(List::open(&values, &EdgeName::root("list")).await?.len(), 1000);
//! # Ok(()) }
//! ```

mod build;
mod page;

pub use build::ListBuilder;

use super::{EdgeName, Error, ValueId, Values};
use page::PageHead;

/// A list that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    root: ValueId,
    len: u64,
}

impl List {
    /// Opens the list that an edge is set to.
    ///
    /// # Errors
    /// [`Missing`](Error::Missing) if the edge is not set; [`Senseless`](Error::Senseless) if it is set to
    /// something else.
    pub async fn open(values: &Values, edge: &EdgeName) -> Result<Self, Error> {
        let unset = || Error::Senseless(format!("edge {edge} is not set, so there is no list"));
        let root = values.edge(edge).await?.ok_or_else(unset)?;
        let (head, _) = page(values, &root).await?;
        Ok(List { root, len: head.len })
    }

    /// The page at the top.
    pub fn root(&self) -> &ValueId {
        &self.root
    }

    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order. Something must hold the list meanwhile.
    pub fn elements<'a>(&self, values: &'a Values) -> Elements<'a> {
        Elements { values, todo: vec![(self.root.clone(), true)] }
    }
}

/// The elements of a list, one after the other. Holds a page per level.
pub struct Elements<'a> {
    values: &'a Values,
    /// The pages and elements still to be visited, last first, and whether each is a page.
    todo: Vec<(ValueId, bool)>,
}

impl Elements<'_> {
    /// The next element.
    pub async fn next(&mut self) -> Result<Option<ValueId>, Error> {
        while let Some((id, is_page)) = self.todo.pop() {
            if !is_page {
                return Ok(Some(id));
            }
            let (head, refs) = page(self.values, &id).await?;
            self.todo.extend(refs.into_iter().rev().map(|id| (id, head.level > 0)));
        }
        Ok(None)
    }
}

async fn page(values: &Values, id: &ValueId) -> Result<(PageHead, Vec<ValueId>), Error> {
    let value = values.get(id).await?;
    let head = value.content.as_inline().and_then(PageHead::read);
    let head = head.ok_or_else(|| Error::Senseless(format!("value {id} is no page of a list")))?;
    Ok((head, value.refs))
}
