//! The rows, the server and the lock together, and the order in which they begin and end.
//!
//! Beginning: lock, listen, open, collect the claims of living processes, serve. Listening comes before opening, so
//! that guests that arrive while the store recovers wait in the system's queue instead of retrying. Ending: stop
//! serving, close the rows, remove the socket, leave the claims in the lock's file and release it; last, guests that
//! connected meanwhile are turned away, and try for the lock.

use super::{
    claim_registry::ClaimRegistry,
    handover::Handover,
    identity,
    join::{OpenError, StoreDir},
    lock::Lock,
    owned::OwnedRecords,
    socket_path,
};
use crate::{
    backend::{
        journal::{
            Recovered,
            files::{self, Files, StoreDirectory},
        },
        socket::{ServerHandle, Welcome, serve_guests},
    },
    records::Error,
};
use std::{io, path::PathBuf, sync::Arc};
use tokio::{net::UnixListener, sync::oneshot};

/// A directory that this process owns.
pub(super) struct Owner {
    store: Arc<StoreDir>,
    pub(super) records: Arc<dyn OwnedRecords>,
    pub(super) recovered: Recovered,
    /// None where sockets are impossible.
    server: Option<ServerHandle>,
    registry: Arc<ClaimRegistry>,
    lock: Arc<Lock>,
}

impl Owner {
    /// Opens and serves the directory that is locked.
    pub(super) async fn begin(store: &Arc<StoreDir>, lock: Lock) -> Result<Self, OpenError> {
        let listener = listen(store);
        let lock = Arc::new(lock);
        let left = Handover::from_bytes(&lock.left);
        let opened = open(store, lock.clone()).await;
        if opened.is_err() {
            // Nothing was changed and nothing runs; the next one may try, and knows as much as we do.
            leave(store, &lock, &lock.left).map_err(OpenError::io("leave", &store.dir))?;
        }
        let (records, recovered) = opened?;
        let registry = ClaimRegistry::begin(store, &records, left, &store.held).await.map_err(OpenError::Store)?;
        let welcome = Welcome { opening: store.world.random(), holder: lock.holder.to_string() };
        let serve = |listener| serve_guests(listener, records.clone(), registry.clone(), welcome, store.world.clone());
        let server = listener.map(serve);
        registry.gather().await;
        Ok(Owner { store: store.clone(), records, recovered, server, registry, lock })
    }

    /// Hands over: the process that takes the lock next finds everything that was applied.
    pub(super) async fn close(self) -> Result<(), Error> {
        if let Some(server) = &self.server {
            server.stop().await;
        }
        let handover = self.registry.close();
        let closed = self.records.close().await;
        let handover = handover.filter(|_| closed.is_ok()).and_then(|handover| handover.to_bytes());
        // Its objects may have come since it was opened. If there is no room for that, the next opening does it.
        if self.lock.check().is_ok()
            && let Err(error) = identity::write(&self.store.dir, self.records.id())
        {
            tracing::debug!(%error, "failed to write the store's id beside its objects; the next opening does");
        }
        let left = leave(&self.store, &self.lock, &handover.unwrap_or_default());
        drop(self.server);
        closed?;
        left.map_err(|error| Error::Unavailable(format!("the directory is not left in order: {error}").into()))
    }
}

/// Removes the socket, then leaves a handover to the next owner and releases the lock. If the lock is not the one that
/// other processes see, neither is ours to touch.
fn leave(store: &StoreDir, lock: &Lock, left: &[u8]) -> io::Result<()> {
    if let Err(lost) = lock.check() {
        lock.let_go()?;
        return Err(lost);
    }
    socket_path::remove(&store.dir)?;
    lock.release(left)
}

fn listen(store: &StoreDir) -> Option<UnixListener> {
    match socket_path::listen(&store.dir) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let dir = store.dir.display();
            tracing::warn!(%error, %dir, "no socket can be made here, so no other process can share the store");
            None
        }
    }
}

/// Opens the rows on a thread of its own: recovery reads files for as long as it takes.
async fn open(store: &Arc<StoreDir>, lock: Arc<Lock>) -> Result<(Arc<dyn OwnedRecords>, Recovered), OpenError> {
    let (tell, told) = oneshot::channel();
    let here = store.clone();
    let opening = async move {
        let files = StoreDirectory::at(&here.dir).map_err(OpenError::io("open", &here.dir));
        let opened = files.and_then(|directory| {
            let known = identity::read(&here.dir)?;
            let files = Arc::new(Locked { directory, lock });
            let opened = here.backend.open(files, here.world.clone(), known)?;
            identity::write(&here.dir, opened.0.id())?;
            Ok(opened)
        });
        // If the caller does not wait any more, what was opened is closed by being dropped.
        drop(tell.send(opened));
    };
    store.world.dedicate("onceflow-open", Box::pin(opening));
    told.await.expect("opening a store does not panic")
}

/// The directory with its lock: any thread that can still write a file holds this, and so keeps the next owner out; it
/// writes nothing once the lock is not the one that other processes see.
struct Locked {
    directory: StoreDirectory,
    lock: Arc<Lock>,
}

impl Locked {
    fn file(&self, file: Box<dyn files::StoreFile>) -> Box<dyn files::StoreFile> {
        Box::new(LockedFile { file, lock: self.lock.clone() })
    }
}

impl Files for Locked {
    fn list(&self) -> io::Result<Vec<String>> {
        self.directory.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn files::StoreFile>> {
        Ok(self.file(self.directory.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn files::StoreFile>> {
        self.lock.check()?;
        Ok(self.file(self.directory.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock.check()?;
        self.directory.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock.check()?;
        self.directory.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path(name)
    }
}

struct LockedFile {
    file: Box<dyn files::StoreFile>,
    lock: Arc<Lock>,
}

impl files::StoreFile for LockedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.lock.check()?;
        self.file.write_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.lock.check()?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
