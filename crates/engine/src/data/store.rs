//! Turns data into payloads, and large data into values. Values are put by the batch they are for; values that are too
//! many or too large for it are put ahead of it, and held until then.

use super::{
    lists::{Page, Pages},
    look::unreadable,
};
use crate::{
    Error,
    perform::patience::Patience,
    task::{Data, DataList, FileData},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    limits::INLINE_BYTES_MAX,
    payload::{ListHasher, Outcome, Payload, Stored, digest_of},
};
use onceflow_store::{
    blobs,
    values::{self, Hold, Value, ValueChange, ValueId, Values},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The way in which files are stored.
pub(crate) enum Files {
    /// The files belong to a task and are moved into the store. The map has files that are stored already: those taken
    /// before, in case the task returns one twice, and those that the task was given.
    Taken(BTreeMap<PathBuf, Stored>),
    /// The files belong to the caller, who keeps them: they are copied, or referred to.
    Copied,
}

/// Operations on values in the batch they are for; the rest of the batch is left to the step itself.
const RIDING_OPS_MAX: usize = 300;

/// Bytes of values in the batch they are for.
const RIDING_BYTES_MAX: usize = 1 << 20;

/// Stores data.
pub(crate) struct Storing<'a> {
    values: &'a Values,
    files: Files,
    riding: Vec<ValueChange>,
    ops: usize,
    bytes: usize,
    ahead: Hold,
    /// The patience with a store that fails; `None` gives up at the first error.
    patience: Option<&'a dyn Patience>,
}

impl<'a> Storing<'a> {
    pub(crate) fn new(values: &'a Values, files: Files) -> Self {
        Storing { values, files, riding: vec![], ops: 0, bytes: 0, ahead: values.hold(), patience: None }
    }

    /// The same, retrying with this patience.
    pub(crate) fn patiently(self, patience: &'a dyn Patience) -> Self {
        Storing { patience: Some(patience), ..self }
    }

    /// Ends when the failed operation is to be retried.
    async fn wait(&self, error: impl Into<Error>) -> Result<(), Error> {
        match self.patience {
            Some(patience) => patience.wait(error.into()).await,
            None => Err(error.into()),
        }
    }

    async fn put_bytes(&self, bytes: Bytes) -> Result<(ValueChange, Stored), Error> {
        loop {
            match self.values.put_bytes(bytes.clone()).await {
                Ok(put) => return Ok(put),
                Err(error) => self.wait(error).await?,
            }
        }
    }

    async fn take_file(&self, path: &Path) -> Result<(ValueChange, Stored), Error> {
        loop {
            match self.values.files().take(path).await {
                Ok(put) => return Ok(put),
                Err(error) => self.wait(error).await?,
            }
        }
    }

    /// Stores one output, and answers the outcome that its consumers are delivered.
    pub(crate) async fn store(&mut self, data: &Data) -> Result<Outcome, Error> {
        match data {
            // Without a future of its own: most outputs are small.
            Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Ok(Outcome::Value(Payload::inline(bytes))),
            data => Ok(Outcome::of(self.payload(data).await?)),
        }
    }

    /// The changes that put the stored values and release those put ahead, for the batch they are for.
    pub(crate) fn changes(self) -> Vec<ValueChange> {
        let mut changes = self.riding;
        changes.extend(self.ahead.release());
        changes
    }

    fn payload<'s>(&'s mut self, data: &'s Data) -> BoxFuture<'s, Result<Option<Payload>, Error>> {
        Box::pin(async move {
            Ok(Some(match data {
                Data::None => return Ok(None),
                Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Payload::inline(bytes),
                Data::Bytes(bytes) => {
                    let (change, stored) = self.put_bytes(bytes.clone()).await?;
                    self.push(change).await?;
                    Payload::Stored(stored)
                }
                Data::File(file) => Payload::File { name: file.name.clone(), content: self.file(file).await? },
                Data::List(elements) => self.list(elements).await?,
            }))
        })
    }

    async fn file(&mut self, file: &FileData) -> Result<Stored, Error> {
        let put = match &self.files {
            Files::Taken(taken) => match taken.get(&file.path) {
                Some(stored) => return Ok(stored.clone()),
                None => self.take_file(&file.path).await?,
            },
            Files::Copied => match file.source() {
                Some(source) => self.values.sources().put(source),
                None => self.copy(file).await?,
            },
        };
        let (change, content) = put;
        self.push(change).await?;
        if let Files::Taken(taken) = &mut self.files {
            taken.insert(file.path.clone(), content.clone());
        }
        Ok(content)
    }

    async fn copy(&self, file: &FileData) -> Result<(ValueChange, Stored), Error> {
        let known = file.known.map(|known| blobs::ContentInfo { digest: known.digest, len: known.len });
        let copied = match self.values.files().copy(&file.path, known).await {
            Err(values::Error::Blobs(blobs::Error::Content { why, .. })) => return Err(unreadable(file, &why)),
            copied => copied?,
        };
        if file.known.is_some_and(|known| known.digest != copied.1.digest) {
            return Err(Error::Inputs(format!("file {} changed while it was read", file.path.display())));
        }
        Ok(copied)
    }

    /// Stores a list: a small one is inlined; any other becomes a value that refers to the values of its elements, or
    /// to pages of them.
    async fn list(&mut self, elements: &DataList) -> Result<Payload, Error> {
        let (mut pages, mut page, mut digest) = (Pages::default(), Page::default(), ListHasher::default());
        for element in elements.iter() {
            let element = match &*element {
                // Without a future of its own: most elements are small.
                Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Some(Payload::inline(bytes)),
                other => self.payload(other).await?,
            };
            digest.push(digest_of(element.as_ref()));
            if !page.has_room(element.as_ref()) {
                self.put_page(&mut pages, std::mem::take(&mut page)).await?;
            }
            page.push(element);
        }
        if pages.is_empty() {
            page = match page.into_inline() {
                Ok(elements) => return Ok(Payload::List(elements.into())),
                Err(page) => page,
            };
        }
        let (len, digest) = (digest.count(), digest.finish());
        assert_eq!(len, elements.len() as u64, "a list is stored with another length than it has");
        self.put_page(&mut pages, page).await?;
        while let Some((at, above)) = pages.above() {
            let id = self.put(above).await?;
            pages.put_above(at, id);
        }
        Ok(Payload::StoredList(Stored { id: pages.top().clone(), digest, len }))
    }

    async fn put_page(&mut self, pages: &mut Pages, page: Page) -> Result<(), Error> {
        let (refs, bytes) = page.into_content();
        let id = if refs.is_empty() {
            let (change, stored) = self.put_bytes(bytes.into()).await?;
            self.push(change).await?;
            stored.id
        } else {
            self.put(Value { refs, content: values::Content::Inline(bytes) }).await?
        };
        pages.push(id);
        Ok(())
    }

    async fn put(&mut self, value: Value) -> Result<ValueId, Error> {
        let id = self.values.fresh_id();
        self.push(ValueChange::Put { id: id.clone(), value }).await?;
        Ok(id)
    }

    /// Adds a change for the batch; puts the gathered changes ahead of it when they are too many.
    async fn push(&mut self, change: ValueChange) -> Result<(), Error> {
        self.ops += change.ops();
        if let ValueChange::Put { value, .. } = &change {
            self.bytes += value.content.as_inline().map_or(0, <[u8]>::len);
        }
        self.riding.push(change);
        if self.ops > RIDING_OPS_MAX || self.bytes > RIDING_BYTES_MAX {
            (self.ops, self.bytes) = (0, 0);
            while let Err(error) = self.ahead.put_ahead(self.values, &mut self.riding).await {
                self.wait(error).await?;
            }
            assert!(self.riding.is_empty(), "changes that were put ahead of a batch are in the batch too");
        }
        Ok(())
    }
}
