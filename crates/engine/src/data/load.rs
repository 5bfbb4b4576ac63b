//! Turns payloads into data. A file is given to a task as the store's own object where that is a local file, else as a
//! copy in a directory of the attempt.

use super::{
    lists::visit,
    small::{InUse, SmallFiles},
};
use crate::{
    Error,
    shared::lock,
    task::{Data, DataList, ElementBuilder, FileData, KnownContent},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence,
    payload::{Payload, Stored},
    protocol::rows::Held,
};
use onceflow_store::values::{SourceFile, Values, limits::INLINE_FILE_BYTES_MAX};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
};

/// A directory for the files of an attempt: created with the first file, removed when the attempt is over.
pub(crate) struct Scratch {
    directory: ScratchDirectory,
    taken: Mutex<BTreeSet<PathBuf>>,
    given: Mutex<BTreeMap<PathBuf, Stored>>,
    /// The engine's small files, and those in use here; `None` in a directory of the caller's.
    small: Option<Arc<SmallFiles>>,
    in_use: Mutex<Vec<InUse>>,
    /// Files by reference that were given to the task, as they were then.
    sources: Mutex<Vec<SourceFile>>,
    for_sources: ForSources,
    links: bool,
}

/// The directory of a [`Scratch`]. That of an attempt is named only when it is needed: most attempts have no files.
enum ScratchDirectory {
    OfCaller(PathBuf),
    OfAttempt(Fence),
}

/// The treatment of files by reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForSources {
    /// The file is given by its own path if its content is unchanged.
    Checked,
    /// The file is given by its own path, whatever its content is by now.
    Unchecked,
    /// The file is copied: files that leave the engine are independent of their source.
    Copied,
}

impl Scratch {
    /// The directory of an attempt, beside the engine's small files; it is removed when this is dropped.
    pub(crate) fn new(attempt: Fence, small: Arc<SmallFiles>) -> Self {
        Scratch::at(ScratchDirectory::OfAttempt(attempt), Some(small))
    }

    fn of_caller(directory: impl Into<PathBuf>) -> Self {
        Scratch::at(ScratchDirectory::OfCaller(directory.into()), None)
    }

    fn at(directory: ScratchDirectory, small: Option<Arc<SmallFiles>>) -> Self {
        let (taken, given, in_use, sources) = Default::default();
        let for_sources = if small.is_some() { ForSources::Checked } else { ForSources::Copied };
        Scratch { directory, taken, given, small, in_use, sources, for_sources, links: false }
    }

    fn directory(&self) -> Cow<'_, Path> {
        match (&self.directory, &self.small) {
            (ScratchDirectory::OfCaller(directory), _) => Cow::Borrowed(directory),
            (ScratchDirectory::OfAttempt(fence), Some(small)) => Cow::Owned(small.beside(&format!("onceflow-{fence}"))),
            (ScratchDirectory::OfAttempt(_), None) => unreachable!("an attempt has the engine's small files"),
        }
    }

    /// The same, for bodies that must be given the file even if it has changed: compensations and checks of outcomes
    /// refer to work that was done before.
    pub(crate) fn without_checks(mut self) -> Self {
        self.for_sources = ForSources::Unchecked;
        self
    }

    /// Files by reference that were given to the task, as they were then.
    pub(crate) fn sources(&self) -> Vec<SourceFile> {
        lock(&self.sources).clone()
    }

    /// The files that were given, and their stored values: a file that a task passes on is not stored again.
    pub(crate) fn given(&self) -> BTreeMap<PathBuf, Stored> {
        lock(&self.given).clone()
    }

    /// The path for a file of this name: in a subdirectory of its own if the name is taken.
    fn path(&self, name: &str) -> PathBuf {
        let mut taken = lock(&self.taken);
        let directory = self.directory();
        let mut path = directory.join(name);
        for apart in 2_u64.. {
            if taken.insert(path.clone()) {
                break;
            }
            path = directory.join(format!(".{apart}")).join(name);
        }
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if matches!(self.directory, ScratchDirectory::OfCaller(_)) || lock(&self.taken).is_empty() {
            return;
        }
        let directory = self.directory();
        if directory.exists()
            && let Err(error) = onceflow_store::tree::remove(&directory)
        {
            tracing::warn!(%error, ?directory, "failed to remove a scratch directory");
        }
    }
}

/// As [`load`]; files stay in a directory of the caller's. With `links`, they may be hard links to the store's own
/// objects, which must not be written to.
pub(crate) async fn load_into(
    values: &Values,
    payload: &Payload,
    directory: Option<&Path>,
    links: bool,
) -> Result<Data, Error> {
    let mut scratch = directory.map(Scratch::of_caller);
    if let Some(scratch) = &mut scratch {
        scratch.links = links;
    }
    load(values, payload, scratch.as_ref()).await
}

/// As [`load_into`], for the inputs of a run: files by reference keep their own path.
pub(crate) async fn load_inputs(values: &Values, payload: &Payload, directory: &Path) -> Result<Data, Error> {
    let scratch = Scratch::of_caller(directory).without_checks();
    load(values, payload, Some(&scratch)).await
}

/// As [`load`]; files are listed with name and digest, and not written: their paths are empty.
pub(crate) async fn peek(values: &Values, payload: &Payload) -> Result<Data, Error> {
    load(values, payload, Some(&Scratch::of_caller(PathBuf::new()))).await
}

/// Reads all data that a payload stands for. Files are placed where a task can read them.
pub(crate) fn load<'a>(
    values: &'a Values,
    payload: &'a Payload,
    scratch: Option<&'a Scratch>,
) -> BoxFuture<'a, Result<Data, Error>> {
    Box::pin(async move {
        Ok(match payload {
            Payload::Inline(bytes) => Data::Bytes(Bytes::copy_from_slice(bytes)),
            Payload::Stored(stored) => Data::Bytes(values.read_all(&stored.id).await?),
            Payload::File { name, content } => file(values, name, content, scratch).await?.into(),
            Payload::List(elements) => {
                let mut list = ElementBuilder::with_capacity(elements.len());
                for element in elements.iter() {
                    list.push(load_option(values, element.as_ref(), scratch).await?);
                }
                Data::List(list.finish())
            }
            Payload::StoredList(stored) => Data::List(stored_list(values, stored, scratch).await?),
        })
    })
}

/// Reads a list of the store.
async fn stored_list(values: &Values, list: &Stored, scratch: Option<&Scratch>) -> Result<DataList, Error> {
    let mut loaded = ElementBuilder::with_capacity(usize::try_from(list.len).unwrap_or_default());
    let mut others = Vec::new();
    let mut each = |element| match element {
        Some(Payload::Inline(bytes)) => loaded.push_bytes(&bytes),
        Some(other) => {
            others.push((loaded.len(), other));
            loaded.push(Data::None);
        }
        None => loaded.push(Data::None),
    };
    visit(values, list, &mut each).await?;
    if others.is_empty() {
        return Ok(loaded.finish());
    }
    let mut loaded: Vec<_> = loaded.finish().into_iter().collect();
    for (at, element) in others {
        loaded[at] = load(values, &element, scratch).await?;
    }
    Ok(loaded.into())
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
    if matches!(&scratch.directory, ScratchDirectory::OfCaller(none) if none.as_os_str().is_empty()) {
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
    // A file that leaves the engine is independent of the store.
    let Some(small) = &scratch.small else {
        let path = scratch.path(name);
        if !scratch.links || !values.files().link(value, &path).await? {
            values.files().export(value, &path, false).await?;
        }
        return Ok(FileData::new(name, path));
    };
    // A task reads the object itself, if that is a local file.
    let path = if let Some(local) = values.files().local_path(value).await? {
        local
    } else if content.len <= INLINE_FILE_BYTES_MAX {
        let (path, in_use) = small.file(values, content).await?;
        lock(&scratch.in_use).push(in_use);
        path
    } else {
        small.hold_lock()?;
        let path = scratch.path(name);
        values.files().export(value, &path, true).await?;
        path
    };
    lock(&scratch.given).insert(path.clone(), content.clone());
    Ok(FileData::new(name, path))
}

/// A file by reference, by its own path.
async fn source(values: &Values, name: &str, content: &Stored, scratch: &Scratch) -> Result<Option<FileData>, Error> {
    let value = &content.id;
    let path = match scratch.for_sources {
        ForSources::Checked => match values.sources().open(value).await? {
            Some(source) => {
                let path = source.path.clone();
                lock(&scratch.sources).push(source);
                path
            }
            None => return Ok(None),
        },
        ForSources::Unchecked | ForSources::Copied => match values.sources().path(value).await? {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    lock(&scratch.given).insert(path.clone(), content.clone());
    Ok(Some(FileData::new(name, path).by_reference()))
}

/// Refuses names that lead out of the directory.
fn check_name(name: &str) -> Result<(), Error> {
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !inside {
        return Err(Error::Inputs(format!("a file cannot be called `{name}`")));
    }
    Ok(())
}
