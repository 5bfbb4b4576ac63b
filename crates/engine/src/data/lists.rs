//! Lists in the store: gathered under a prefix, all in one value, or in pages that a value above them refers to.

use crate::{Error, shared::lock};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Name,
    limits::{INLINE_BYTES_MAX, SCAN_ROWS_MAX},
    payload::{Outcome, Payload, Stored},
    protocol::rows,
};
use onceflow_store::values::{Content, Element, Value, ValueId, Values};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Stored elements of one page, and pages below one value: each costs operations in the batch that puts it.
const PAGE_REFS_MAX: usize = 100;

/// Bytes of a page that refers to values: it is stored in a row.
const PAGE_BYTES_MAX: usize = 256 << 10;

/// The first byte of a value that refers to pages. Encoded elements begin with the version of rows, which is less.
const PAGED: u8 = 0x50;

/// Elements of a list that go into one value. They are encoded at once: as payloads they take ten times the memory.
#[derive(Default)]
pub(super) struct Page {
    encoded: rows::ListWriter,
    refs: Vec<ValueId>,
    bytes: usize,
    /// The elements, while the page is small enough to be inlined in a row.
    inline: Vec<Option<Payload>>,
}

impl Page {
    /// The page has space for one more element. A page without references may become a blob, so any number of inline
    /// elements fit.
    pub(super) fn has_room(&self, element: Option<&Payload>) -> bool {
        let refs = self.refs.len() + usize::from(element.is_some_and(|element| element.stored().is_some()));
        let fits = refs <= PAGE_REFS_MAX && self.bytes + bytes_of(element) <= PAGE_BYTES_MAX;
        fits || refs == 0 || self.bytes == 0
    }

    pub(super) fn push(&mut self, element: Option<Payload>) {
        self.encoded.push(&element);
        self.bytes += bytes_of(element.as_ref());
        self.refs.extend(element.as_ref().and_then(Payload::stored).map(|stored| stored.id.clone()));
        match self.travels() {
            true => self.inline.push(element),
            false => self.inline = Vec::new(),
        }
    }

    /// The page is small enough to be inlined in a row.
    fn travels(&self) -> bool {
        self.refs.is_empty() && self.bytes <= INLINE_BYTES_MAX
    }

    /// The elements, if the page is small enough to be inlined in a row; otherwise the page.
    pub(super) fn into_inline(self) -> Result<Vec<Option<Payload>>, Self> {
        if self.travels() { Ok(self.inline) } else { Err(self) }
    }

    /// The values that the page refers to, and its encoded elements.
    pub(super) fn into_content(self) -> (Vec<ValueId>, Vec<u8>) {
        (self.refs, self.encoded.finish())
    }
}

/// The approximate encoded size of an element.
pub(super) fn bytes_of(element: Option<&Payload>) -> usize {
    let of_stored = |stored: &Stored| stored.id.as_bytes().len() + 48;
    match element {
        None => 1,
        Some(Payload::Inline(bytes)) => bytes.len() + 4,
        Some(Payload::List(elements)) => elements.iter().map(|element| bytes_of(element.as_ref())).sum::<usize>() + 4,
        Some(Payload::Stored(stored) | Payload::StoredList(stored)) => of_stored(stored),
        Some(Payload::File { name, content }) => of_stored(content) + name.len() + 4,
    }
}

/// The pages of a list that no page refers to yet, in order.
#[derive(Default)]
pub(super) struct Pages {
    pages: Vec<ValueId>,
    /// Pages before this index belong to the level above.
    next: usize,
}

impl Pages {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(super) fn push(&mut self, id: ValueId) {
        self.pages.push(id);
    }

    /// The next value above pages, and the range of pages that it replaces; `None` if only one page is left. Built
    /// level by level, so that a list of any length is a few levels high.
    pub(super) fn above(&mut self) -> Option<(Range<usize>, Value)> {
        if self.pages.len() < 2 {
            return None;
        }
        if self.next + 1 >= self.pages.len() {
            self.next = 0;
        }
        let below = self.next..self.pages.len().min(self.next + PAGE_REFS_MAX);
        let refs = self.pages[below.clone()].to_vec();
        Some((below, Value { refs, content: Content::Inline(vec![PAGED]) }))
    }

    pub(super) fn put_above(&mut self, below: Range<usize>, id: ValueId) {
        assert_eq!(below.start, self.next, "a value stands above other pages than those that it was made of");
        self.pages.splice(below, [id]);
        self.next += 1;
    }

    pub(super) fn top(&self) -> &ValueId {
        assert_eq!(self.pages.len(), 1, "a list is referred to while some of its pages have no value above them");
        &self.pages[0]
    }
}

/// A cache of lists that were read whole, so that an each that opens its elements chunk by chunk reads its list once.
/// Lists are immutable; a few of them are cached.
#[derive(Default)]
pub(crate) struct Lists(Mutex<VecDeque<(ValueId, Whole)>>);

type Whole = Arc<Vec<Option<Payload>>>;

/// Lists cached.
const LISTS_MAX: usize = 8;

impl Lists {
    /// As [`elements`], through the cache.
    pub(crate) async fn elements(
        &self,
        values: &Values,
        list: &Payload,
        range: Range<u32>,
    ) -> Result<Vec<Outcome>, Error> {
        let Payload::StoredList(stored) = list else { return elements(values, list, range).await };
        let known = lock(&self.0).iter().find(|(id, _)| *id == stored.id).map(|(_, whole)| whole.clone());
        let whole = match known {
            Some(whole) => whole,
            None => {
                let whole = match whole(values, &stored.id).await? {
                    Found::Gathered(prefix) => return gathered(values, &prefix, range).await,
                    Found::Elements(whole) => Arc::new(whole),
                };
                let mut known = lock(&self.0);
                known.truncate(LISTS_MAX - 1);
                known.push_front((stored.id.clone(), whole.clone()));
                whole
            }
        };
        slice(&whole, range)
    }
}

fn slice(elements: &[Option<Payload>], range: Range<u32>) -> Result<Vec<Outcome>, Error> {
    let some = elements.get(range.start as usize..range.end as usize);
    let some = some.ok_or_else(|| Error::damaged("a list is too short"))?;
    Ok(some.iter().cloned().map(Outcome::of).collect())
}

/// Reads a range of elements of a list.
pub(crate) async fn elements(values: &Values, list: &Payload, range: Range<u32>) -> Result<Vec<Outcome>, Error> {
    match list {
        Payload::List(elements) => slice(elements, range),
        Payload::StoredList(stored) => match whole(values, &stored.id).await? {
            Found::Gathered(prefix) => gathered(values, &prefix, range).await,
            Found::Elements(whole) => slice(&whole, range),
        },
        _ => Err(Error::damaged("a list is not one")),
    }
}

/// A list in the store.
enum Found {
    Gathered(Name),
    Elements(Vec<Option<Payload>>),
}

async fn whole(values: &Values, list: &ValueId) -> Result<Found, Error> {
    let mut all = Vec::new();
    Ok(match read_pages(values, list, &mut |element| all.push(element)).await? {
        Some(prefix) => Found::Gathered(prefix),
        None => Found::Elements(all),
    })
}

/// Passes on every element of a stored list, in order, without holding all of them.
pub(super) async fn visit(values: &Values, list: &Stored, each: Each<'_>) -> Result<(), Error> {
    let mut passed = 0;
    let mut pass = |element| {
        passed += 1;
        each(element);
    };
    if let Some(prefix) = read_pages(values, &list.id, &mut pass).await? {
        let len = u32::try_from(list.len).map_err(|_| Error::damaged("a list is too long"))?;
        for first in (0..len).step_by(SCAN_ROWS_MAX) {
            let some = gathered(values, &prefix, first..len.min(first + SCAN_ROWS_MAX as u32)).await?;
            passed += some.len() as u64;
            some.into_iter().for_each(|outcome| each(outcome.into_value()));
        }
    }
    if passed == list.len { Ok(()) } else { Err(Error::damaged("a list has another length than its reference says")) }
}

/// Receives the elements of a list.
type Each<'a> = &'a mut (dyn FnMut(Option<Payload>) + Send);

/// Passes on every element of a list in pages. A gathered list has none: its prefix is answered.
fn read_pages<'a>(values: &'a Values, list: &'a ValueId, each: Each<'a>) -> BoxFuture<'a, Result<Option<Name>, Error>> {
    Box::pin(async move {
        let value = values.get(list).await?;
        let bytes = match value.content {
            Content::Gathered { prefix, .. } => return Ok(Some(prefix)),
            Content::Inline(bytes) => Bytes::from(bytes),
            Content::Object { .. } => values.read_all(list).await?,
            Content::Source(_) => return Err(Error::damaged("a list is a file by reference")),
        };
        if bytes.first() != Some(&PAGED) {
            rows::read_list(&bytes, each).ok_or_else(|| Error::damaged("a list is not one"))?;
            return Ok(None);
        }
        for page in &value.refs {
            if read_pages(values, page, each).await?.is_some() {
                return Err(Error::damaged("a page of a list is not one"));
            }
        }
        Ok(None)
    })
}

/// Reads a range of elements that are gathered under a prefix.
pub(crate) async fn gathered(values: &Values, prefix: &Name, range: Range<u32>) -> Result<Vec<Outcome>, Error> {
    let mut found = Vec::with_capacity(range.len());
    let mut next = u64::from(range.start);
    while next < u64::from(range.end) {
        let limit = (u64::from(range.end) - next).min(SCAN_ROWS_MAX as u64) as usize;
        let page = values.elements(prefix, next, limit).await?;
        let Some((last, _)) = page.last() else { break };
        next = last + 1;
        for (_, element) in page {
            found.push(element_outcome(values, element).await?);
        }
    }
    if found.len() != range.len() {
        return Err(Error::damaged(format!("a list has {} of its {} elements", found.len(), range.len())));
    }
    Ok(found)
}

async fn element_outcome(values: &Values, element: Element) -> Result<Outcome, Error> {
    let outcome = match element {
        Element::Described { bytes, .. } => rows::read(&bytes),
        Element::Inline(bytes) => rows::read(&bytes),
        // A stored element is a small value that describes it and refers to it.
        Element::Ref(front) => match values.get(&front).await?.content {
            Content::Inline(bytes) => rows::read(&bytes),
            Content::Gathered { .. } | Content::Object { .. } | Content::Source(_) => None,
        },
    };
    outcome.ok_or_else(|| Error::damaged("an element of a list"))
}
