//! Becoming owner or guest. The process that gets the lock is the owner; every other process connects to the owner.
//! There are moments in which neither works (an owner that is dying, one that has not begun to listen), so both are
//! tried in turn, a few times within milliseconds.

use super::{
    lock::{Holder, Lock, LockAttempt},
    member::Member,
    owned::EmbeddedBackend,
    owner::Owner,
    socket_path::SocketPath,
};
use crate::{
    backend::{
        error,
        held::HeldClaims,
        journal::files::StoreDirectory,
        socket::{ConnectError, Socket},
    },
    world::World,
};
use futures_util::future::{Either, select};
use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

/// How long to retry while a process holds the lock and none listens. That lasts for moments when an owner begins or is
/// killed, and for one sync when it closes; longer means that the owner cannot be reached from here.
pub(super) const UNSERVED_MS_MAX: u64 = 10_000;

/// The same when the lock's file names another machine, where no socket leads to: only for the moment in which the file
/// still names the last owner.
pub(super) const ELSEWHERE_MS_MAX: u64 = 200;

/// How long a running owner may take to report that it is ready: as long as recovery may take.
pub(super) const READY_MS_MAX: u64 = 60_000;

/// The longest pause between two tries; the first is a millisecond.
pub(super) const RETRY_MS_MAX: u64 = 32;

/// A directory, and all it takes to own it.
pub(super) struct StoreDir {
    pub(super) dir: PathBuf,
    pub(super) backend: EmbeddedBackend,
    pub(super) world: Arc<dyn World>,
    /// This process, as others see it.
    pub(super) member: Member,
    /// The claims this process was granted as a guest.
    pub(super) held: Arc<HeldClaims>,
}

impl StoreDir {
    /// The directory, made if it is not there, with this process as a member.
    pub(super) fn at(dir: &Path, backend: EmbeddedBackend, world: Arc<dyn World>) -> Result<Self, OpenError> {
        // One name for ever, also if the process changes its working directory before it becomes the owner.
        let made = StoreDirectory::at(dir).and_then(|_| dir.canonicalize());
        let dir = made.map_err(OpenError::io("open", dir))?;
        // Also for a guest, which would otherwise use whatever the owner has open.
        backend.refuse_other(&dir, EmbeddedBackend::found_in(&dir).map_err(OpenError::io("list", &dir))?)?;
        let member = Member::join(&dir, world.random()).map_err(OpenError::io("lock", &dir))?;
        Ok(StoreDir { dir, backend, world, member, held: Arc::default() })
    }
}

/// Why a store in a directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The rows do not open.
    #[error(transparent)]
    Rows(#[from] error::OpenError),
    /// The directory holds a store of another backend.
    #[error(
        "{} holds a {found} store, and was opened as a {asked} store\nhint: open it as `{found}:{}`; `onceflow export` and `import` copy runs \
         from one store to another",
        dir.display(),
        dir.display()
    )]
    OtherBackend {
        /// The directory.
        dir: PathBuf,
        /// The scheme of the store that is there.
        found: &'static str,
        /// The scheme that was asked for.
        asked: &'static str,
    },
    /// Another process owns the directory, and cannot be shared with.
    #[error("{} is in use by {}: {why}\nhint: end that process, or work on the machine and as the user it runs as", dir.display(), name(.holder))]
    Held {
        /// The directory.
        dir: PathBuf,
        /// The owner, if it said who it is.
        holder: Option<Holder>,
        /// Why it cannot be shared.
        why: String,
    },
    /// Parts of two stores are in one directory.
    #[error("{} holds parts of two stores: {what}\nhint: put back what belongs together; nothing was changed", dir.display())]
    Mixed {
        /// The directory.
        dir: PathBuf,
        /// Which parts.
        what: String,
    },
    /// The store did not take back the claims that stand.
    #[error("cannot take back the claims of those who use the store: {0}")]
    Store(crate::records::Error),
    /// The file system did not do what it was asked.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The failed operation.
        what: &'static str,
        /// Of what.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

/// The kind of an obstacle, for callers that must tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The stored bytes are not those that were written.
    Damaged,
    /// Written by a later version.
    TooNew,
    /// Another process has it, and cannot be shared with.
    Busy,
    /// The directory holds a store of another backend than was asked for.
    OtherBackend,
    /// The directory, or a file in it, cannot be used: permissions, a full disk, a path that is no directory.
    Unusable,
}

impl OpenError {
    /// The kind of obstacle.
    pub fn obstacle(&self) -> Obstacle {
        match self {
            OpenError::Rows(error::OpenError::Damaged { .. } | error::OpenError::NotThisStore { .. })
            | OpenError::Mixed { .. } => Obstacle::Damaged,
            OpenError::Rows(error::OpenError::TooNew { .. }) => Obstacle::TooNew,
            OpenError::Held { .. } => Obstacle::Busy,
            OpenError::OtherBackend { .. } => Obstacle::OtherBackend,
            OpenError::Rows(error::OpenError::Io { .. }) | OpenError::Store(_) | OpenError::Io { .. } => {
                Obstacle::Unusable
            }
        }
    }

    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        move |source| OpenError::Io { what, path: path.into(), source }
    }
}

fn name(holder: &Option<Holder>) -> String {
    holder.as_ref().map_or("another process".into(), Holder::to_string)
}

/// The role of a process in the directory.
pub(super) enum Joined {
    Owner(Owner),
    Guest(Socket),
}

/// Becomes owner or guest.
pub(super) async fn join(store: &Arc<StoreDir>) -> Result<Joined, OpenError> {
    let (mut waited_ms, mut pause_ms) = (0, 1);
    loop {
        let taken = Lock::take(&store.dir, &*store.world).map_err(OpenError::io("lock", &store.dir))?;
        let holder = match taken {
            LockAttempt::Acquired(lock) => return Ok(Joined::Owner(Owner::begin(store, lock).await?)),
            LockAttempt::HeldBy(holder) => holder,
        };
        let broken = match connect(store).await {
            Ok(socket) => return Ok(Joined::Guest(socket)),
            Err(NotConnected::Yet(why)) if waited_ms < patience_ms(&holder) => why,
            Err(NotConnected::Yet(why) | NotConnected::Ever(why)) => {
                return Err(OpenError::Held { dir: store.dir.clone(), holder, why });
            }
        };
        tracing::debug!(broken, waited_ms, "the store is locked, but no process serves it yet");
        store.world.sleep(pause_ms).await;
        waited_ms += pause_ms;
        pause_ms = (2 * pause_ms).min(RETRY_MS_MAX);
    }
}

fn patience_ms(holder: &Option<Holder>) -> u64 {
    let is_elsewhere = holder.as_ref().is_some_and(|holder| !holder.is_here());
    if is_elsewhere { ELSEWHERE_MS_MAX } else { UNSERVED_MS_MAX }
}

enum NotConnected {
    /// A retry may succeed in a moment.
    Yet(String),
    Ever(String),
}

async fn connect(store: &StoreDir) -> Result<Socket, NotConnected> {
    let address = SocketPath::of(&store.dir).map_err(|error| NotConnected::Ever(error.to_string()))?;
    let connecting = pin!(Socket::join(address.path(), &*store.world, store.member.id, store.held.clone()));
    match select(connecting, store.world.sleep(READY_MS_MAX)).await {
        Either::Left((Ok(socket), _)) => Ok(socket),
        Either::Left((Err(unserved @ ConnectError::Unserved(_)), _)) => Err(NotConnected::Yet(unserved.to_string())),
        Either::Left((Err(refused @ ConnectError::Refused(_)), _)) => Err(NotConnected::Ever(refused.to_string())),
        Either::Right(_) => Err(NotConnected::Ever(format!("it did not answer within {READY_MS_MAX} ms"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Timestamp;

    #[test]
    fn a_refusal_names_the_holder() {
        let holder = Holder { pid: 12, host: "elsewhere".into(), since: Timestamp::ZERO };
        let error = OpenError::Held { dir: "/d".into(), holder: Some(holder), why: "no socket".into() };
        let text = error.to_string();
        assert!(text.contains("in use by pid 12 on elsewhere since 1970-01-01 00:00:00 UTC: no socket"), "{text}");
    }
}
