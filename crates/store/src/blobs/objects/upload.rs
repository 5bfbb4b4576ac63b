//! Uploads content larger than one part. The order ensures that an interruption leaves only what can be found: begin an
//! upload, note its id under `unfinished/<name>`, send the parts, complete it if the name is free, delete the note.

use super::{Created, Error, ObjectName, Objects, Parts, StorePath};
use crate::world::World;
use object_store::{
    Error as StoreError, MultipartId, ObjectStoreExt, PutMode, PutPayload,
    multipart::{MultipartStore, PartId},
};
use onceflow_core::limits::PARTS_MAX;
use std::sync::Arc;

/// How a store takes content in parts.
#[derive(Clone)]
pub(super) struct Uploads {
    /// Where parts go.
    parts: Arc<dyn MultipartStore>,
    /// Completes an upload only if the name is free.
    completing: Arc<dyn MultipartStore>,
    part_bytes: usize,
    /// Runs the abort of an upload whose caller has gone.
    world: Arc<dyn World>,
}

impl Uploads {
    #[cfg(any(feature = "s3", test))]
    pub(super) fn new(
        parts: Arc<dyn MultipartStore>,
        completing: Arc<dyn MultipartStore>,
        part_bytes: usize,
        world: Arc<dyn World>,
    ) -> Self {
        Uploads { parts, completing, part_bytes, world }
    }

    pub(super) fn part_bytes(&self) -> usize {
        self.part_bytes
    }
}

impl Objects {
    /// Sends `first` and the parts after it.
    pub(super) async fn upload(
        &self,
        uploads: &Uploads,
        name: ObjectName,
        first: PutPayload,
        parts: &mut Parts,
    ) -> Result<Created, Error> {
        let path = self.object(name);
        let id = uploads.parts.create_multipart(&path).await.map_err(|error| self.nothing_yet(&error))?;
        let mut begun = Begun { objects: self, uploads, name, path, id: Some(id.clone()) };
        let sent = async {
            self.note_down(uploads, name, &id).await?;
            let ids = self.send(uploads, &begun.path, &id, first, parts, name).await?;
            self.complete(uploads, &begun.path, &id, ids).await
        };
        let created = sent.await;
        // An upload that is not known to have failed is left alone: it may be whole.
        if matches!(created, Ok(Created::Yes) | Err(Error::Unknown { .. })) {
            begun.id = None;
        }
        if matches!(created, Ok(Created::Yes)) {
            // If this fails, the note is deleted with the object.
            let _ = self.store.delete(&self.note(name)).await;
        } else if let Some(id) = begun.id.take() {
            self.abort(uploads, name, &begun.path, &id).await;
        }
        created
    }

    /// Writes down the upload's id. An older one under this name is of an earlier try of the same writer.
    async fn note_down(&self, uploads: &Uploads, name: ObjectName, id: &MultipartId) -> Result<(), Error> {
        let note = self.note(name);
        for _ in 0..2 {
            let payload = PutPayload::from(id.clone().into_bytes());
            match self.store.put_opts(&note, payload, PutMode::Create.into()).await {
                Ok(_) => return Ok(()),
                Err(StoreError::AlreadyExists { .. }) => self.abandon(uploads, name).await?,
                Err(error) => return Err(self.nothing_yet(&error)),
            }
        }
        Err(Error::unavailable(&self.place, format_args!("another process is writing object {name}")))
    }

    async fn send(
        &self,
        uploads: &Uploads,
        path: &StorePath,
        id: &MultipartId,
        first: PutPayload,
        parts: &mut Parts,
        name: ObjectName,
    ) -> Result<Vec<PartId>, Error> {
        let (mut ids, mut part) = (Vec::new(), first);
        loop {
            if ids.len() == PARTS_MAX {
                let why = format!("it has more than {PARTS_MAX} parts (PARTS_MAX) of {} bytes", uploads.part_bytes);
                return Err(Error::content(name, why));
            }
            match uploads.parts.put_part(path, id, ids.len(), part).await {
                Ok(id) => ids.push(id),
                // Another process deleted everything under this name, so the object is not wanted.
                Err(error @ StoreError::NotFound { .. }) => return Err(self.reading(name, &error)),
                Err(error) => return Err(self.nothing_yet(&error)),
            }
            if parts.ended {
                return Ok(ids);
            }
            part = parts.next(name).await?;
            if parts.ended && part.content_length() == 0 {
                return Ok(ids);
            }
        }
    }

    async fn complete(
        &self,
        uploads: &Uploads,
        path: &StorePath,
        id: &MultipartId,
        ids: Vec<PartId>,
    ) -> Result<Created, Error> {
        match uploads.completing.complete_multipart(path, id, ids).await {
            Ok(_) => Ok(Created::Yes),
            Err(
                why @ (StoreError::AlreadyExists { .. }
                | StoreError::Precondition { .. }
                | StoreError::NotModified { .. }),
            ) => Ok(Created::Taken(why.to_string())),
            Err(StoreError::NotFound { .. }) => Ok(Created::Gone),
            Err(error) => Err(self.changing(&error)),
        }
    }

    /// Aborts the upload that is noted under a name, if any, and forgets it.
    pub(super) async fn abandon(&self, uploads: &Uploads, name: ObjectName) -> Result<(), Error> {
        let note = self.note(name);
        let found = match self.store.get(&note).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        let id = match found {
            Ok(id) => String::from_utf8_lossy(&id).into_owned(),
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(Error::unavailable(&self.place, error)),
        };
        match uploads.parts.abort_multipart(&self.object(name), &id).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => self.remove(&note).await,
            Err(error) => Err(self.changing(&error)),
        }
    }

    /// Aborts an upload as far as possible; `delete` does the rest.
    async fn abort(&self, uploads: &Uploads, name: ObjectName, path: &StorePath, id: &MultipartId) {
        match uploads.parts.abort_multipart(path, id).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => drop(self.store.delete(&self.note(name)).await),
            Err(error) => tracing::warn!(%name, %error, "failed to abort an upload; deleting its object aborts it"),
        }
    }

    /// The error before an upload is completed: nothing is visible, whatever went wrong.
    fn nothing_yet(&self, error: &StoreError) -> Error {
        Error::unavailable(&self.place, error)
    }
}

/// An upload that is aborted unless it ends.
struct Begun<'a> {
    objects: &'a Objects,
    uploads: &'a Uploads,
    name: ObjectName,
    path: StorePath,
    id: Option<MultipartId>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (objects, uploads, name, path) = (self.objects.clone(), self.uploads.clone(), self.name, self.path.clone());
        let world = uploads.world.clone();
        world.spawn("abort upload", Box::pin(async move { objects.abort(&uploads, name, &path, &id).await }));
    }
}
