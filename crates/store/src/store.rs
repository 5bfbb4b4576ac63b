//! Rows, blobs and values in one directory: what most people want, put together.

use crate::{
    backend::{
        embedded::{Embedded, OpenError, Role},
        journal,
    },
    blobs,
    records::{Error, Records},
    values::Values,
    world::{RealWorld, World},
};
use futures_util::future::BoxFuture;
use onceflow_core::Shard;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A store in a directory, shared by the processes of one user.
///
/// The first process to open it owns the directory and serves the others; when it is gone, however it ended, one of them
/// takes over. What was acknowledged is on the disk.
///
/// ```
/// use onceflow_store::{Store, values::{EdgeName, Update}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path().join("store");
///
/// let store = Store::open(&directory).await?;
/// let values = store.values().await?;
///
/// // Two values, one referring to the other, kept alive by a name.
/// let latest = EdgeName::root("latest");
/// values.update(Update::new().leaf("part", "text").put("whole", ["part"], "").set(&latest, "whole")).await?;
///
/// // Nothing needs them any more, so nothing is left.
/// values.update(Update::new().clear(&latest)).await?;
/// assert_eq!(values.reclaim(1000).await?.buried, 2);
/// store.close().await?;
/// # Ok(()) }
/// ```
pub struct Store {
    directory: PathBuf,
    embedded: Arc<Embedded>,
    world: Arc<dyn World>,
}

impl Store {
    /// Opens the store in a directory, making one if there is none, on the tokio runtime this is called in.
    ///
    /// # Errors
    /// If the directory cannot be used, is damaged, was written by a later version, or belongs to a process that cannot be
    /// shared with; nothing is changed then.
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Store, OpenError> {
        Store::open_with(directory, journal::Options::default(), RealWorld::here()).await
    }

    /// [`Store::open`], with options for the journal and a world of one's own.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(
        directory: impl Into<PathBuf>,
        options: journal::Options,
        world: Arc<dyn World>,
    ) -> Result<Store, OpenError> {
        open(directory.into(), options, world).await
    }

    /// The rows.
    pub fn records(&self) -> Arc<dyn Records> {
        self.embedded.clone()
    }

    /// The values of the store. Content too large for a row goes into files beside the journal, by
    /// [`Values::upload`] or [`Values::adopt`].
    ///
    /// # Errors
    /// If the directory of the files cannot be made.
    pub async fn values(&self) -> Result<Arc<Values>, blobs::Error> {
        self.values_of(Shard::default()).await
    }

    /// The values of one shard, for stores that are divided.
    ///
    /// # Errors
    /// If the directory of the files cannot be made.
    pub fn values_of(&self, shard: Shard) -> BoxFuture<'_, Result<Arc<Values>, blobs::Error>> {
        Box::pin(async move {
            let files = blobs::Directory::open(self.directory.join("blobs").join(shard.0.to_string())).await?;
            Ok(Arc::new(Values::new(self.records(), self.world.clone(), shard).with_blobs(Arc::new(files))))
        })
    }

    /// Whether this process owns the directory, and what it found there.
    pub fn role(&self) -> Role {
        self.embedded.role()
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends when everything is on the disk and the directory is another's to take. Later calls are refused.
    ///
    /// # Errors
    /// If what was applied could not be written.
    pub fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.embedded.close().await })
    }
}

/// In a box, so that it is compiled here and not by everyone who opens a store.
fn open(
    directory: PathBuf,
    options: journal::Options,
    world: Arc<dyn World>,
) -> BoxFuture<'static, Result<Store, OpenError>> {
    Box::pin(async move {
        let embedded = Embedded::open(&directory, options, world.clone()).await?;
        Ok(Store { directory, embedded, world })
    })
}
