//! Builds a list over several updates. Finished pages are held by one lease, on a *spine*: a value that refers to the
//! newest page and to the spine before it. Full runs of pages are replaced by a page above them, so the spine stays
//! short, and each update changes one edge. After a crash the lease expires, and all pages are reclaimed.

use super::{
    super::{
        Content, EdgeName, Error, Expect, Update, Value, ValueChange, ValueId, Values,
        limits::{PAGE_BYTES_MAX, PAGE_ELEMENTS_MAX},
    },
    page::{PageHead, name},
};
use std::sync::Arc;

/// Operations an update is filled up to with elements that have references of their own.
const ELEMENT_OPS_MAX: usize = 900;

/// Makes a list. A call that fails, or is dropped, has appended nothing, and may be made again; earlier elements are
/// kept. Dropping the builder before [`ListBuilder::finish`] lets the lease expire, and all its pages are reclaimed.
pub struct ListBuilder {
    values: Arc<Values>,
    hold: EdgeName,
    ttl_ms: u64,
    /// Finished pages that no page refers to, in order; the lease holds the spine of the last one.
    finished: Vec<Finished>,
    /// The page being filled.
    elements: Vec<ValueId>,
    puts: Vec<ValueChange>,
    bytes: usize,
    ops: usize,
}

struct Finished {
    page: ValueId,
    head: PageHead,
    spine: ValueId,
}

impl ListBuilder {
    /// Starts an empty list. `hold` is the lease that keeps it meanwhile; it must last from one page to the next, and
    /// is set anew with each.
    pub fn new(values: Arc<Values>, hold: EdgeName, ttl_ms: u64) -> Self {
        let (finished, elements, puts) = (vec![], vec![], vec![]);
        ListBuilder { values, hold, ttl_ms, finished, elements, puts, bytes: 0, ops: 0 }
    }

    /// Appends a value that is stored already. Something must hold it until its page is stored, or this or a later
    /// call answers [`Missing`](Error::Missing).
    pub async fn push_stored(&mut self, id: impl Into<ValueId>) -> Result<(), Error> {
        self.make_room(0, 2).await?;
        self.elements.push(id.into());
        self.ops += 2;
        Ok(())
    }

    /// Appends a value with this content, which is put together with its page.
    pub async fn push(&mut self, id: impl Into<ValueId>, content: impl AsRef<[u8]>) -> Result<(), Error> {
        self.push_value(id, Value { refs: vec![], content: Content::Inline(content.as_ref().to_vec()) }).await
    }

    /// Appends a value, which is put together with its page.
    pub async fn push_value(&mut self, id: impl Into<ValueId>, value: Value) -> Result<(), Error> {
        let bytes = value.content.as_inline().map_or(0, <[u8]>::len);
        let ops = 2 + 2 * value.refs.len();
        self.make_room(bytes, ops).await?;
        let id = id.into();
        self.elements.push(id.clone());
        self.puts.push(ValueChange::Put { id, value });
        self.bytes += bytes;
        self.ops += ops;
        Ok(())
    }

    /// Sets `root` to the list and releases the lease, in one update. Returns the page at the top. Only then is all of
    /// it durable; nothing need be before.
    pub async fn finish(mut self, root: &EdgeName) -> Result<ValueId, Error> {
        if !self.elements.is_empty() || self.finished.is_empty() {
            self.store_page().await?;
        }
        while self.finished.len() > 1 {
            self.put_above(self.finished.len().min(PAGE_ELEMENTS_MAX)).await?;
        }
        let top = self.finished[0].page.clone();
        self.values.update(Update::new().set(root, top.clone()).clear(&self.hold)).await?;
        Ok(top)
    }

    async fn make_room(&mut self, bytes: usize, ops: usize) -> Result<(), Error> {
        let is_full = self.elements.len() == PAGE_ELEMENTS_MAX
            || self.bytes + bytes > PAGE_BYTES_MAX
            || self.ops + ops > ELEMENT_OPS_MAX;
        if is_full && !self.elements.is_empty() { self.store_page().await } else { Ok(()) }
    }

    /// Stores the page being filled, and pages above wherever a run of pages is full.
    async fn store_page(&mut self) -> Result<(), Error> {
        // A run may be left full by a call that failed or was dropped.
        self.put_above_full_runs().await?;
        let head = PageHead { level: 0, len: self.elements.len() as u64 };
        self.store(self.puts.clone(), head, self.elements.clone(), self.finished.len()).await?;
        // Only now: until here the call may fail, or be dropped, and is then made again.
        self.elements.clear();
        self.puts.clear();
        (self.bytes, self.ops) = (0, 0);
        self.put_above_full_runs().await
    }

    async fn put_above_full_runs(&mut self) -> Result<(), Error> {
        while let Some(run) = self.full_run() {
            self.put_above(run).await?;
        }
        Ok(())
    }

    /// How many pages at the end a page above should take, if there are enough of one level.
    fn full_run(&self) -> Option<usize> {
        let level = self.finished.last()?.head.level;
        let run = self.finished.iter().rev().take_while(|page| page.head.level == level).count();
        (run >= PAGE_ELEMENTS_MAX).then_some(run)
    }

    /// Replaces the last `many` finished pages by one above them.
    async fn put_above(&mut self, many: usize) -> Result<(), Error> {
        let from = self.finished.len() - many;
        let below = &self.finished[from..];
        let level = below.iter().map(|page| page.head.level).max().unwrap_or(0) + 1;
        let len = below.iter().map(|page| page.head.len).sum();
        let refs = below.iter().map(|page| page.page.clone()).collect();
        self.store(vec![], PageHead { level, len }, refs, from).await
    }

    /// Stores a page that takes the place of all finished ones from `from` on.
    async fn store(
        &mut self,
        puts: Vec<ValueChange>,
        head: PageHead,
        refs: Vec<ValueId>,
        from: usize,
    ) -> Result<(), Error> {
        let content = head.to_bytes();
        let page = name(b'P', &content, &refs);
        let before = from.checked_sub(1).map(|last| self.finished[last].spine.clone());
        let spine_refs: Vec<_> = before.into_iter().chain([page.clone()]).collect();
        let spine = name(b'S', b"", &spine_refs);
        let held = self.finished.last().map(|last| last.spine.clone());
        let update = Update { changes: puts }
            .put(page.clone(), refs, content)
            .put(spine.clone(), spine_refs, b"")
            .change(ValueChange::Move {
                edge: self.hold.clone(),
                to: Some(spine.clone()),
                expect: held.map_or(Expect::Unset, Expect::Target),
                ttl_ms: Some(self.ttl_ms),
            });
        self.values.apply(update).await?;
        self.finished.truncate(from);
        self.finished.push(Finished { page, head, spine });
        Ok(())
    }
}
