//! Payloads become data. A file is where a task finds it: the object of the store itself where that is a file of this
//! machine, else a copy in a directory of the attempt's own.

use super::{
    lists::elements,
    small::{InUse, SmallFiles},
};
use crate::{
    Error,
    shared::lock,
    task::{Data, FileData, KnownContent},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    payload::{Payload, Stored},
    protocol::rows::Held,
};
use onceflow_store::values::{SourceFile, Values, limits::INLINE_FILE_BYTES_MAX};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
};

/// A directory for the files of an attempt: made when a file is put there, removed when the attempt is over.
pub(crate) struct Scratch {
    directory: PathBuf,
    is_ours: bool,
    taken: Mutex<BTreeSet<PathBuf>>,
    given: Mutex<BTreeMap<PathBuf, Stored>>,
    /// Those of the engine, and which of them are in use here; none in a directory of the caller's.
    small: Option<Arc<SmallFiles>>,
    in_use: Mutex<Vec<InUse>>,
    /// Files of the user's that were given, as they were then.
    sources: Mutex<Vec<SourceFile>>,
    for_sources: ForSources,
    links: bool,
}

/// What becomes of a file by reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForSources {
    /// It is given by its own path if it holds what it held.
    Checked,
    /// It is given by its own path, whatever it holds by now.
    Unchecked,
    /// It is copied: what leaves the engine is a file of its own.
    Copied,
}

impl Scratch {
    /// One that goes when this is dropped.
    pub(crate) fn new(directory: PathBuf, small: Arc<SmallFiles>) -> Self {
        Scratch::at(directory, Some(small))
    }

    fn at(directory: PathBuf, small: Option<Arc<SmallFiles>>) -> Self {
        let (taken, given, in_use, sources) = Default::default();
        let for_sources = if small.is_some() { ForSources::Checked } else { ForSources::Copied };
        Scratch { directory, is_ours: small.is_some(), taken, given, small, in_use, sources, for_sources, links: false }
    }

    /// The same, for bodies that must be given something, though an input file has changed: what they undo or look after
    /// was done before.
    pub(crate) fn without_checks(mut self) -> Self {
        self.for_sources = ForSources::Unchecked;
        self
    }

    /// Files of the user's that were given, as they were then.
    pub(crate) fn sources(&self) -> Vec<SourceFile> {
        lock(&self.sources).clone()
    }

    /// The files that were given, and what they are in the store: one that is passed on is not stored again.
    pub(crate) fn given(&self) -> BTreeMap<PathBuf, Stored> {
        lock(&self.given).clone()
    }

    /// Where a file of this name goes: apart, if there is one of its name already.
    fn path(&self, name: &str) -> PathBuf {
        let mut taken = lock(&self.taken);
        let mut path = self.directory.join(name);
        for apart in 2_u64.. {
            if taken.insert(path.clone()) {
                break;
            }
            path = self.directory.join(format!(".{apart}")).join(name);
        }
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_ours
            && !lock(&self.taken).is_empty()
            && self.directory.exists()
            && let Err(error) = onceflow_store::tree::remove(&self.directory)
        {
            tracing::warn!(%error, directory = ?self.directory, "a scratch directory could not be removed");
        }
    }
}

/// As [`load`]; files stay in a directory of the caller's. With `links`, they may be further names of the store's own
/// objects, which nobody may write to.
pub(crate) async fn load_into(
    values: &Values,
    payload: &Payload,
    directory: Option<&Path>,
    links: bool,
) -> Result<Data, Error> {
    let mut scratch = directory.map(|directory| Scratch::at(directory.to_owned(), None));
    if let Some(scratch) = &mut scratch {
        scratch.links = links;
    }
    load(values, payload, scratch.as_ref()).await
}

/// As [`load_into`], for the inputs of a run: files by reference are those themselves.
pub(crate) async fn load_inputs(values: &Values, payload: &Payload, directory: &Path) -> Result<Data, Error> {
    let scratch = Scratch::at(directory.to_owned(), None).without_checks();
    load(values, payload, Some(&scratch)).await
}

/// As [`load`]; files are named, with what they hold, and put nowhere: their paths are empty.
pub(crate) async fn peek(values: &Values, payload: &Payload) -> Result<Data, Error> {
    load(values, payload, Some(&Scratch::at(PathBuf::new(), None))).await
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
            Payload::Stored(stored) => Data::Bytes(values.read_all(&stored.id).await?),
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
    if scratch.directory.as_os_str().is_empty() {
        let known = Some(KnownContent { digest: content.digest, len: content.len });
        return Ok(FileData { known, ..FileData::new(name, PathBuf::new()) });
    }
    check_name(name)?;
    let value = &content.id;
    if value.is_source()
        && scratch.for_sources != ForSources::Copied
        && let Some(file) = source(values, name, content, scratch).await?
    {
        return Ok(file);
    }
    // What leaves the engine is a file of its own.
    let Some(small) = &scratch.small else {
        let path = scratch.path(name);
        if !scratch.links || !values.link(value, &path).await? {
            values.export(value, &path, false).await?;
        }
        return Ok(FileData::new(name, path));
    };
    // What a task reads is the object itself, if that is a file here.
    let path = if let Some(local) = values.local_path(value).await? {
        local
    } else if content.len <= INLINE_FILE_BYTES_MAX {
        let (path, in_use) = small.file(values, content).await?;
        lock(&scratch.in_use).push(in_use);
        path
    } else {
        small.hold_lock()?;
        let path = scratch.path(name);
        values.export(value, &path, true).await?;
        path
    };
    lock(&scratch.given).insert(path.clone(), content.clone());
    Ok(FileData::new(name, path))
}

/// A file of the user's, by its own path.
async fn source(values: &Values, name: &str, content: &Stored, scratch: &Scratch) -> Result<Option<FileData>, Error> {
    let value = &content.id;
    let path = match scratch.for_sources {
        ForSources::Checked => match values.open_source(value).await? {
            Some(source) => {
                let path = source.path.clone();
                lock(&scratch.sources).push(source);
                path
            }
            None => return Ok(None),
        },
        ForSources::Unchecked | ForSources::Copied => match values.source_path(value).await? {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    lock(&scratch.given).insert(path.clone(), content.clone());
    Ok(Some(FileData::new(name, path).by_reference()))
}

/// Names that would lead elsewhere are refused.
fn check_name(name: &str) -> Result<(), Error> {
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !inside {
        return Err(Error::Inputs(format!("a file cannot be called `{name}`")));
    }
    Ok(())
}
