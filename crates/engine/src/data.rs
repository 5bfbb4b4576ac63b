//! Data as tasks see it, and payloads as rows hold it: what is small travels itself, what is large becomes a value.

use crate::{
    Error,
    shared::lock,
    task::{Data, FileData},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Name,
    limits::{INLINE_BYTES_MAX, SCAN_ROWS_MAX},
    payload::{Outcome, Payload, Stored, digest_of, list_digest},
    protocol::rows::{self, Held},
};
use onceflow_store::values::{Content, Element, Value, ValueId, Values, Weave};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
};

/// What becomes of a file that is stored.
pub(crate) enum Files {
    /// A task gave it: it is taken from where it is. Those that were, in case it gives one more than once.
    Taken(BTreeMap<PathBuf, Stored>),
    /// It is the caller's, who keeps it.
    Copied,
}

impl Files {
    /// None taken yet.
    pub(crate) fn taken() -> Self {
        Files::Taken(BTreeMap::new())
    }

    /// Stores a file.
    async fn store(&mut self, values: &Values, path: PathBuf, weaves: &mut Vec<Weave>) -> Result<Stored, Error> {
        let upload = match self {
            Files::Taken(taken) => match taken.get(&path) {
                Some(stored) => return Ok(stored.clone()),
                None => values.adopt(&path).await?,
            },
            Files::Copied => values.upload(read(&path).await?).await?,
        };
        let content = stored(&upload.id(), upload.stored().digest.to_bytes(), upload.stored().len);
        weaves.push(Weave::Blob(upload));
        if let Files::Taken(taken) = self {
            taken.insert(path, content.clone());
        }
        Ok(content)
    }
}

/// Turns what was given into what its consumers get; new values are added to `weaves`.
pub(crate) async fn store(
    values: &Values,
    data: Data,
    files: &mut Files,
    weaves: &mut Vec<Weave>,
) -> Result<Outcome, Error> {
    Ok(Outcome::of(payload(values, data, files, weaves).await?))
}

fn payload<'a>(
    values: &'a Values,
    data: Data,
    files: &'a mut Files,
    weaves: &'a mut Vec<Weave>,
) -> BoxFuture<'a, Result<Option<Payload>, Error>> {
    Box::pin(async move {
        Ok(Some(match data {
            Data::None => return Ok(None),
            Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Payload::inline(&bytes),
            Data::Bytes(bytes) => {
                let (weave, id, digest, len) = values.put_bytes(bytes).await?;
                weaves.push(weave);
                Payload::Stored(stored(&id, digest, len))
            }
            Data::File(FileData { name, path }) => {
                let content = files.store(values, path, weaves).await?;
                Payload::File { name, content }
            }
            Data::List(elements) => {
                let mut payloads = Vec::with_capacity(elements.len());
                for element in elements {
                    payloads.push(payload(values, element, files, weaves).await?);
                }
                list(values, payloads, weaves).await?
            }
        }))
    })
}

/// The bytes of a file of the caller's.
async fn read(path: &Path) -> Result<onceflow_store::blobs::Content, Error> {
    let content = onceflow_store::blobs::content::from_path(path).await;
    content.map_err(|error| Error::Inputs(format!("file {} cannot be read: {error}", path.display())))
}

/// A list that is small travels itself; another is a value that refers to what its elements refer to.
async fn list(values: &Values, elements: Vec<Option<Payload>>, weaves: &mut Vec<Weave>) -> Result<Payload, Error> {
    if inline_bytes(&elements).is_some_and(|bytes| bytes <= INLINE_BYTES_MAX) {
        return Ok(Payload::List(elements.into()));
    }
    let digest = list_digest(elements.iter().map(|element| digest_of(element.as_ref())));
    let refs: Vec<_> = elements.iter().flatten().filter_map(Payload::stored).map(|stored| id(&stored.id)).collect();
    let len = elements.len() as u64;
    let bytes = rows::write(&elements);
    let id = if refs.is_empty() {
        let (weave, id, ..) = values.put_bytes(Bytes::copy_from_slice(&bytes)).await?;
        weaves.push(weave);
        id
    } else {
        let id = values.fresh_id();
        let value = Value { refs, content: Content::Inline(bytes.to_vec()) };
        weaves.push(Weave::Put { id: id.clone(), value });
        id
    };
    Ok(Payload::StoredList(stored(&id, digest, len)))
}

/// The bytes of a list whose elements all travel themselves.
fn inline_bytes(elements: &[Option<Payload>]) -> Option<usize> {
    let bytes = |element: &Option<Payload>| match element {
        None => Some(1),
        Some(Payload::Inline(bytes)) => Some(bytes.len() + 4),
        Some(Payload::List(elements)) => Some(inline_bytes(elements)? + 4),
        Some(Payload::Stored(_) | Payload::StoredList(_) | Payload::File { .. }) => None,
    };
    elements.iter().map(bytes).sum()
}

fn stored(id: &ValueId, digest: [u8; 32], len: u64) -> Stored {
    Stored { id: Name::new(id.as_bytes()), digest, len }
}

pub(crate) fn id(name: &Name) -> ValueId {
    ValueId::new(name)
}

/// A directory for the files of an attempt: made when a file is put there, removed when the attempt is over.
pub(crate) struct Scratch {
    directory: PathBuf,
    is_ours: bool,
    taken: Mutex<BTreeSet<PathBuf>>,
}

impl Scratch {
    /// One that goes when this is dropped.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Scratch { directory, is_ours: true, taken: Mutex::default() }
    }

    /// Where a file of this name goes: apart, if there is one of its name already. Names that would lead elsewhere are
    /// refused.
    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !inside {
            return Err(Error::Inputs(format!("a file cannot be called `{name}`")));
        }
        let mut taken = lock(&self.taken);
        let mut path = self.directory.join(name);
        for apart in 2_u64.. {
            if taken.insert(path.clone()) {
                break;
            }
            path = self.directory.join(format!(".{apart}")).join(name);
        }
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_ours
            && !lock(&self.taken).is_empty()
            && self.directory.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.directory)
        {
            tracing::warn!(%error, directory = ?self.directory, "a scratch directory could not be removed");
        }
    }
}

/// As [`load`]; files stay in a directory of the caller's.
pub(crate) async fn load_into(values: &Values, payload: &Payload, directory: Option<&Path>) -> Result<Data, Error> {
    let scratch =
        directory.map(|directory| Scratch { directory: directory.to_owned(), is_ours: false, taken: Mutex::default() });
    load(values, payload, scratch.as_ref()).await
}

/// Reads what a payload stands for, all of it. Files are put where a task finds them.
pub(crate) fn load<'a>(
    values: &'a Values,
    payload: &'a Payload,
    scratch: Option<&'a Scratch>,
) -> BoxFuture<'a, Result<Data, Error>> {
    Box::pin(async move {
        Ok(match payload {
            Payload::Inline(bytes) => Data::Bytes(Bytes::copy_from_slice(bytes)),
            Payload::Stored(stored) => Data::Bytes(values.read_all(&id(&stored.id)).await?),
            Payload::File { name, content } => Data::File(file(values, name, content, scratch).await?),
            Payload::List(elements) => {
                let mut list = Vec::with_capacity(elements.len());
                for element in elements.iter() {
                    list.push(load_option(values, element.as_ref(), scratch).await?);
                }
                Data::List(list)
            }
            Payload::StoredList(stored) => {
                let mut list = Vec::with_capacity(stored.len as usize);
                for outcome in elements(values, payload, 0..stored.len as u32).await? {
                    list.push(load_option(values, outcome.value(), scratch).await?);
                }
                Data::List(list)
            }
        })
    })
}

/// Reads all inputs of a step.
pub(crate) async fn load_all(values: &Values, inputs: &[Held], scratch: Option<&Scratch>) -> Result<Vec<Data>, Error> {
    let mut loaded = Vec::with_capacity(inputs.len());
    for held in inputs {
        loaded.push(load_option(values, held.outcome.value(), scratch).await?);
    }
    Ok(loaded)
}

async fn load_option(values: &Values, payload: Option<&Payload>, scratch: Option<&Scratch>) -> Result<Data, Error> {
    match payload {
        None => Ok(Data::None),
        // Without a future of its own: most elements are small.
        Some(Payload::Inline(bytes)) => Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
        Some(payload) => load(values, payload, scratch).await,
    }
}

async fn file(values: &Values, name: &str, content: &Stored, scratch: Option<&Scratch>) -> Result<FileData, Error> {
    let Some(scratch) = scratch else {
        return Err(Error::Inputs(format!("file `{name}` cannot be read without a directory to put it into")));
    };
    let path = scratch.path(name)?;
    values.export(&id(&content.id), &path).await?;
    Ok(FileData { name: name.to_owned(), path })
}

/// Lists that were read whole, so that an each that opens its elements chunk by chunk reads its list once. They are
/// immutable; a few of them are remembered.
#[derive(Default)]
pub(crate) struct Lists(Mutex<VecDeque<(Name, Whole)>>);

type Whole = Arc<Vec<Option<Payload>>>;

/// Lists remembered.
const LISTS_MAX: usize = 8;

impl Lists {
    /// As [`elements`], remembering.
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
                let bytes = match values.get(&id(&stored.id)).await?.content {
                    Content::Gathered { prefix, .. } => return gathered(values, &prefix, range).await,
                    Content::Inline(bytes) => Bytes::from(bytes),
                    Content::Object { .. } => values.read_all(&id(&stored.id)).await?,
                };
                let whole: Whole =
                    rows::read(&bytes).map(Arc::new).ok_or_else(|| Error::damaged("a list is not one"))?;
                let mut known = lock(&self.0);
                known.truncate(LISTS_MAX - 1);
                known.push_front((stored.id.clone(), whole.clone()));
                whole
            }
        };
        let some = whole.get(range.start as usize..range.end as usize);
        let some = some.ok_or_else(|| Error::damaged("a list is too short"))?;
        Ok(some.iter().cloned().map(Outcome::of).collect())
    }
}

/// Some elements of a list.
pub(crate) async fn elements(values: &Values, list: &Payload, range: Range<u32>) -> Result<Vec<Outcome>, Error> {
    let slice = |elements: &[Option<Payload>]| {
        let some = elements.get(range.start as usize..range.end as usize)?;
        Some(some.iter().cloned().map(Outcome::of).collect())
    };
    match list {
        Payload::List(elements) => slice(elements).ok_or_else(|| Error::damaged("a list is too short")),
        Payload::StoredList(stored) => {
            let value = values.get(&id(&stored.id)).await?;
            let bytes = match value.content {
                Content::Gathered { prefix, .. } => return gathered(values, &prefix, range).await,
                Content::Inline(bytes) => Bytes::from(bytes),
                Content::Object { .. } => values.read_all(&id(&stored.id)).await?,
            };
            let elements: Option<Vec<Option<Payload>>> = rows::read(&bytes);
            elements.and_then(|elements| slice(&elements)).ok_or_else(|| Error::damaged("a list is not one"))
        }
        _ => Err(Error::damaged("a list is not one")),
    }
}

/// Some elements that stand under a prefix.
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
        Element::Inline(bytes) => rows::read(&bytes),
        // An element that is stored has a small value in front that says what it is.
        Element::Ref(front) => match values.get(&front).await?.content {
            Content::Inline(bytes) => rows::read(&bytes),
            Content::Gathered { .. } | Content::Object { .. } => None,
        },
    };
    outcome.ok_or_else(|| Error::damaged("an element of a list"))
}

/// An element as it is put under its list's prefix.
pub(crate) fn element(values: &Values, outcome: &Outcome, weaves: &mut Vec<Weave>) -> Element {
    let bytes = rows::write(outcome);
    match onceflow_core::protocol::draft::stored(outcome) {
        None => Element::Inline(bytes),
        Some(target) => {
            let front = values.fresh_id();
            let value = Value { refs: vec![id(target)], content: Content::Inline(bytes.to_vec()) };
            weaves.push(Weave::Put { id: front.clone(), value });
            Element::Ref(front)
        }
    }
}
