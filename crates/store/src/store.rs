//! Rows, blobs and values together: in one directory, the usual choice, or on a server that machines share.

mod url;

pub use url::{SCHEMES, Scheme, StoreUrl};

#[cfg(feature = "redis")]
use crate::backend::redis::{Address, BlobLocation, ConnectError, Redis};
use crate::{
    backend::embedded::{Embedded, EmbeddedBackend, OpenError, Role},
    blobs,
    records::{Error, Records},
    values::Values,
    world::{RealWorld, World, in_service, service},
};
use futures_util::future::BoxFuture;
use onceflow_core::Shard;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A store in a directory, shared by the processes of one user.
///
/// The first process to open it owns the directory and serves the others; when it is gone, however it ended, one of
/// them takes over. Acknowledged commits are on the disk.
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
/// assert_eq!(values.reclaim(1000).await?.swept, 2);
/// store.close().await?;
/// # Ok(()) }
/// ```
pub struct Store {
    location: Location,
    world: Arc<dyn World>,
    /// The most bytes its objects may have together, as set by the process that opened it.
    bytes_max: Option<u64>,
}

/// Why the store that a URL names cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenUrlError {
    /// It is a directory.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// It is a server.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Server(#[from] ConnectError),
    /// It is a server, but this build has no support for servers.
    #[error("stores on servers need the feature `redis`")]
    NoServers,
}

/// The location of a store.
enum Location {
    Directory {
        path: PathBuf,
        embedded: Arc<Embedded>,
    },
    #[cfg(feature = "redis")]
    Server {
        redis: Redis,
    },
}

impl Store {
    /// Opens the store that a URL names: `DIR`, `journal:DIR`, `paged:DIR` or `redis://HOST`; [`SCHEMES`] has them all.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::connect`]; and if a directory holds a store of another backend than the URL names.
    pub async fn open_url(url: impl AsRef<Path>) -> Result<Store, OpenUrlError> {
        match StoreUrl::parse(url.as_ref()) {
            StoreUrl::Directory(path, Some(backend)) => Ok(Store::open_with(path, backend, RealWorld::here()).await?),
            StoreUrl::Directory(path, None) => Ok(Store::open(path).await?),
            #[cfg(feature = "redis")]
            StoreUrl::Server(url) => Ok(Store::connect(&url).await?),
            #[cfg(not(feature = "redis"))]
            StoreUrl::Server(_) => Err(OpenUrlError::NoServers),
        }
    }

    /// Opens the store in a directory, as the backend whose store is there; makes a journal if there is none.
    ///
    /// # Errors
    /// If the directory cannot be used, is damaged, was written by a later version, or belongs to a process that cannot be
    /// shared with; nothing is changed then.
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Store, OpenError> {
        let directory = directory.into();
        let found = EmbeddedBackend::found_in(&directory);
        let found = found.map_err(|source| OpenError::Io { what: "list", path: directory.clone(), source })?;
        Store::open_with(directory, found.unwrap_or_default(), RealWorld::here()).await
    }

    /// [`Store::open`] with a given backend, or its options, and a given world.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(
        directory: impl Into<PathBuf>,
        backend: impl Into<EmbeddedBackend>,
        world: Arc<dyn World>,
    ) -> Result<Store, OpenError> {
        open(directory.into(), backend.into(), world).await
    }

    /// Connects to the store on a Redis server, by a URL: `redis://host:6379`. [`Address::parse`] lists the other parts
    /// of a URL; name and password may stand in the environment.
    ///
    /// # Errors
    /// If the server does not answer, or its settings can lose acknowledged commits.
    #[cfg(feature = "redis")]
    pub async fn connect(url: &str) -> Result<Store, ConnectError> {
        let variable = |name: &str| std::env::var(name).ok();
        Store::connect_with(Address::parse(url)?.with_environment(variable), RealWorld::here()).await
    }

    /// [`Store::connect`], with an address and a world of one's own.
    ///
    /// # Errors
    /// As [`Store::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect_with(address: Address, world: Arc<dyn World>) -> Result<Store, ConnectError> {
        let redis = Redis::connect(address, world.clone()).await?;
        Ok(Store { location: Location::Server { redis }, world: service(&world), bytes_max: None })
    }

    /// Limits the bytes that objects of the store may have together, as far as this process stores some: an object
    /// beyond the limit is refused as [`blobs::Error::Full`]. Rows, and with them small values, do not count.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: Option<u64>) -> Store {
        Store { bytes_max, ..self }
    }

    /// Tells whether the server is lost, and every change of that; `None` for a directory.
    pub fn lost(&self) -> Option<tokio::sync::watch::Receiver<bool>> {
        match &self.location {
            Location::Directory { .. } => None,
            #[cfg(feature = "redis")]
            Location::Server { redis } => Some(redis.lost()),
        }
    }

    /// The rows.
    pub fn records(&self) -> Arc<dyn Records> {
        self.records_of(Shard::default())
    }

    /// The rows, for a caller that works on one shard: on a cluster, with the clock of the node that has it.
    pub fn records_of(&self, shard: Shard) -> Arc<dyn Records> {
        let _ = shard;
        match &self.location {
            Location::Directory { embedded, .. } => embedded.clone(),
            #[cfg(feature = "redis")]
            Location::Server { redis } => Arc::new(redis.at(shard)),
        }
    }

    /// The values of the store. Content too large for a row goes into files beside the journal, by
    /// [`Uploads::upload`](crate::values::Uploads::upload) or [`Uploads::adopt`](crate::values::Uploads::adopt).
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
            let blobs: Arc<dyn blobs::Blobs> = match &self.location {
                Location::Directory { path, .. } => {
                    let path = path.join("blobs").join(shard.0.to_string());
                    Arc::new(blobs::DirectoryBlobs::open_here(path).await?)
                }
                #[cfg(feature = "redis")]
                Location::Server { redis } => match redis.address().blobs() {
                    BlobLocation::Server => Arc::new(blobs::redis::RedisObjects::new(redis.clone(), shard)),
                    BlobLocation::Directory(path) => in_directory(path, shard).await?,
                    #[cfg(feature = "s3")]
                    BlobLocation::S3 { bucket, prefix } => in_bucket(bucket, prefix, shard, &self.world)?,
                    #[cfg(not(feature = "s3"))]
                    BlobLocation::S3 { .. } => unreachable!("such an address is not read without the feature"),
                },
            };
            let blobs = match self.bytes_max {
                Some(bytes_max) => Arc::new(blobs::Limited::new(blobs, bytes_max)),
                None => blobs,
            };
            Ok(Arc::new(Values::new(self.records_of(shard), self.world.clone(), shard).with_blobs(blobs)))
        })
    }

    /// The role of this process in the directory, and what it found there; `None` for a server, which has no owner.
    pub fn role(&self) -> Option<Role> {
        match &self.location {
            Location::Directory { embedded, .. } => Some(embedded.role()),
            #[cfg(feature = "redis")]
            Location::Server { .. } => None,
        }
    }

    /// The path of the directory, if the store is one.
    pub fn directory(&self) -> Option<&Path> {
        match &self.location {
            Location::Directory { path, .. } => Some(path),
            #[cfg(feature = "redis")]
            Location::Server { .. } => None,
        }
    }

    /// Ends when everything is on the disk and the directory is another's to take. Later calls are refused. A server is
    /// just left.
    ///
    /// # Errors
    /// If applied batches could not be written.
    pub fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match &self.location {
                Location::Directory { embedded, .. } => embedded.close().await,
                #[cfg(feature = "redis")]
                Location::Server { redis } => redis.durable(redis.position()).await,
            }
        })
    }
}

/// The objects of a shard in a directory that machines share.
#[cfg(feature = "redis")]
async fn in_directory(path: &Path, shard: Shard) -> Result<Arc<dyn blobs::Blobs>, blobs::Error> {
    Ok(Arc::new(blobs::DirectoryBlobs::open(path.join(shard.0.to_string())).await?))
}

/// The objects of a shard in a bucket.
#[cfg(all(feature = "redis", feature = "s3"))]
fn in_bucket(
    bucket: &str,
    prefix: &str,
    shard: Shard,
    world: &Arc<dyn World>,
) -> Result<Arc<dyn blobs::Blobs>, blobs::Error> {
    let prefix = format!("{}/{}", prefix.trim_matches('/'), shard.0);
    let endpoint = std::env::var("AWS_ENDPOINT_URL").ok();
    let s3 = blobs::objects::S3 {
        bucket: bucket.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
        endpoint,
        ..Default::default()
    };
    Ok(Arc::new(s3.open(world.clone())?))
}

/// On the service thread, so that user code which blocks its own keeps neither this process's heartbeats from the store nor
/// other processes from its owner. In a box, so that it is compiled here and not by everyone who opens a store.
fn open(
    directory: PathBuf,
    backend: EmbeddedBackend,
    world: Arc<dyn World>,
) -> BoxFuture<'static, Result<Store, OpenError>> {
    Box::pin(async move {
        let (place, here) = (directory.clone(), service(&world));
        let opening = async move { Embedded::open(place, backend, here).await };
        let embedded = in_service(&*world, "onceflow open", opening).await?;
        Ok(Store {
            location: Location::Directory { path: directory, embedded },
            world: service(&world),
            bytes_max: None,
        })
    })
}
