//! A store directory that the processes of one user share.
//!
//! The process that holds the lock owns the directory: it has the rows open, in a [journal](super::journal) or in
//! [pages](super::paged), and serves them on a
//! [socket](super::socket) beside it. Every other process is a guest on that socket. When the owner is gone, killed or
//! closed, the guests try for the lock; one becomes the owner, the others its guests. Callers notice only this:
//!
//! | a call while the owner changes | |
//! |---|---|
//! | `get`, `scan`, `now` | asked again of the new owner |
//! | `commit` not sent, or known not to be executed | waits for the new owner, at most [`CHANGE_MS_MAX`] |
//! | `commit` sent and not answered | [`Error::Unknown`]; it is never sent again by itself |
//! | `wait` | ends: something may have happened |
//!
//! **Claims** outlive the owner. No backend writes them, so one that closes leaves them to the next, and after one
//! that was killed every process that lives asserts its own before any is granted. They are void with the process that
//! made them, at once: the kernel says when it is gone.
//!
//! **Positions** of one [`Embedded`] only rise, whichever process owns the directory: those of each opening are moved
//! above all that were given before. So a position from before a change of owner is recognised. `wait` with it ends at
//! once. `durable` with it answers at once: it came from a reply, and an owner replies only durable results. (An owner
//! stays the owner until it is closed, so a position that it gave and that is not durable yet always belongs to the
//! journal that it has open, also after closing.) Positions of two processes are not comparable.
//!
//! | module | what it owns |
//! |---|---|
//! | `lock` | the ownership of the directory |
//! | `socket_path` | where the socket is, also when its path is too long for one |
//! | `route` | where calls go, and whose positions they carry |
//! | `owned` | the backends whose rows a process can own, and what an owner needs of them |
//! | `owner` | the rows, the server and the lock together; the order in which they end |
//! | `join` | becoming owner or guest |
//! | `member` | which processes live |
//! | `claim_registry` | whose claims are whose, and when a new owner grants any |
//! | `identity` | which store a directory holds, also if parts of it are gone or another's |
//! | `handover` | the claims that a closing owner leaves to the next |

mod claim_registry;
mod handover;
mod identity;
mod join;
mod lock;
mod member;
mod owned;
mod owner;
mod route;
mod socket_path;

pub use join::{Obstacle, OpenError};
pub use lock::Holder;
pub use owned::EmbeddedBackend;

use super::journal::Recovered;
use crate::{
    records::{CommitResult, Error, InProcessRecords, Page, Position, Records, Scan},
    sync::{Mutex, lock},
    wake::Signal,
    world::{BoxFuture, World},
};
use futures_util::future::{Either, select};
use join::{Joined, StoreDir};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use owner::Owner;
use route::Route;
use std::{
    path::Path,
    pin::pin,
    sync::{Arc, Weak},
};

/// How long a call waits for a new owner before it is answered that there is none. Recovery reads the whole live state;
/// this is generous even for a gigabyte of it on a slow disk.
pub const CHANGE_MS_MAX: u64 = 30_000;

/// A store in a directory, owned by this process or by another one of the same user.
pub struct Embedded {
    store: Arc<StoreDir>,
    inner: Mutex<Inner>,
    /// Rings when the inner state changes.
    changed: Signal,
}

struct Inner {
    phase: Phase,
    /// The route that calls take, or took last.
    route: Arc<Route>,
    /// The owner to be closed, if this process owns the directory.
    owner: Option<Owner>,
}

enum Phase {
    Open,
    /// The owner is gone; a seat is being taken.
    Changing,
    Ended(Error),
}

/// The role of a process in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process owns the directory.
    Owner {
        /// The result of opening the journal.
        recovered: Recovered,
    },
    /// Another process owns the directory.
    Guest {
        /// The owner.
        holder: String,
    },
    /// The owner is gone, and the next one is not known yet.
    Changing,
    /// The directory was closed.
    Ended,
}

impl Embedded {
    /// Opens the store in a directory, making one if there is none. The settings of the backend matter when this process
    /// is, or becomes, the owner.
    ///
    /// # Errors
    /// If the journal cannot be opened, or if another process owns the directory and cannot be shared with; see
    /// [`OpenError`].
    pub async fn open(
        dir: impl AsRef<Path>,
        backend: impl Into<EmbeddedBackend>,
        world: Arc<dyn World>,
    ) -> Result<Arc<Self>, OpenError> {
        let store = Arc::new(StoreDir::at(dir.as_ref(), backend.into(), world)?);
        // The task that opens the journal may have the store a moment longer than we.
        let seat = join::join(&store).await.inspect_err(|_| store.member.leave())?;
        let (route, owner) = Route::to(seat, 0);
        let inner = Inner { phase: Phase::Open, route: route.clone(), owner };
        let embedded = Arc::new(Embedded { store, inner: Mutex::new(inner), changed: Signal::default() });
        embedded.watch(&route);
        Ok(embedded)
    }

    /// The present role of this process in the directory.
    pub fn role(&self) -> Role {
        let inner = lock(&self.inner);
        match (&inner.phase, &inner.owner, &inner.route.socket) {
            (Phase::Ended(_), _, _) => Role::Ended,
            (Phase::Changing, _, _) => Role::Changing,
            (Phase::Open, Some(owner), _) => Role::Owner { recovered: owner.recovered.clone() },
            (Phase::Open, None, Some(socket)) if socket.is_lost().is_none() => {
                Role::Guest { holder: socket.welcome().holder.clone() }
            }
            (Phase::Open, None, _) => Role::Changing,
        }
    }

    /// Ends when this process owns the directory; with an error when it never will.
    pub async fn until_owner(&self) -> Result<(), Error> {
        let look = || {
            let inner = lock(&self.inner);
            match &inner.phase {
                Phase::Ended(error) => Some(Err(error.clone())),
                _ => inner.owner.is_some().then_some(Ok(())),
            }
        };
        self.changed.until(look).await
    }

    /// Leaves the directory. An owner answers the requests it has executed, writes everything, and releases the lock
    /// last; one of the guests takes over. Later calls are refused; calls in flight end.
    pub async fn close(&self) -> Result<(), Error> {
        match self.end(Error::Unavailable("the store is closed".into())) {
            Some(owner) => owner.close().await,
            None => Ok(()),
        }
    }

    fn end(&self, error: Error) -> Option<Owner> {
        let mut inner = lock(&self.inner);
        inner.phase = Phase::Ended(error);
        let owner = inner.owner.take();
        let socket = inner.route.socket.clone();
        drop(inner);
        // Before the connection ends, so that a process that notices its end finds our claims void.
        self.store.member.leave();
        if let Some(socket) = socket {
            socket.close();
        }
        self.changed.notify();
        owner
    }

    /// Takes another seat when the connection that this route stands for is lost.
    fn watch(self: &Arc<Self>, route: &Route) {
        let Some(socket) = &route.socket else { return };
        let (lost, me) = (socket.lost(), Arc::downgrade(self));
        self.store.world.spawn("embedded guest", Box::pin(change_when_lost(lost, me)));
    }

    async fn change(self: Arc<Self>) {
        {
            let mut inner = lock(&self.inner);
            if matches!(inner.phase, Phase::Ended(_)) {
                return;
            }
            inner.phase = Phase::Changing;
        }
        self.changed.notify();
        match join::join(&self.store).await {
            Ok(seat) => self.install(seat).await,
            Err(error) => {
                tracing::error!(%error, dir = %self.store.dir.display(), "failed to open the store after its owner ended; it is to be opened again");
                drop(self.end(Error::Unavailable(error.to_string().into())));
            }
        }
    }

    async fn install(self: &Arc<Self>, seat: Joined) {
        let left = {
            let mut inner = lock(&self.inner);
            // All that was given so far is at most this: a lost connection answers nothing more.
            let base = inner.route.position().0 + 1;
            let (route, owner) = Route::to(seat, base);
            if let Phase::Ended(_) = inner.phase {
                owner
            } else {
                *inner = Inner { phase: Phase::Open, route, owner };
                None
            }
        };
        if let Some(owner) = left {
            // Closed while the seat was being taken: no caller waits for the result.
            drop(owner.close().await);
        }
        self.changed.notify();
        let route = lock(&self.inner).route.clone();
        self.watch(&route);
    }

    /// Returns the route to the owner, as soon as there is one.
    async fn route(&self) -> Result<Arc<Route>, Error> {
        if let Some(now) = self.link_now() {
            return now;
        }
        match select(pin!(self.changed.until(|| self.link_now())), self.store.world.sleep(CHANGE_MS_MAX)).await {
            Either::Left((route, _)) => route,
            Either::Right(_) => {
                let why = format!("its owner is gone, and no process took over within {CHANGE_MS_MAX} ms");
                Err(Error::Unavailable(why.into()))
            }
        }
    }

    fn link_now(&self) -> Option<Result<Arc<Route>, Error>> {
        let inner = lock(&self.inner);
        match &inner.phase {
            Phase::Open => (!inner.route.is_lost()).then(|| Ok(inner.route.clone())),
            Phase::Changing => None,
            Phase::Ended(error) => Some(Err(error.clone())),
        }
    }

    /// Ends when this is closed.
    async fn until_ended(&self) -> Error {
        let look = || match &lock(&self.inner).phase {
            Phase::Ended(error) => Some(error.clone()),
            _ => None,
        };
        self.changed.until(look).await
    }
}

impl Drop for Embedded {
    /// Closes beside. Nothing that was answered is lost if that does not come to its end.
    fn drop(&mut self) {
        if let Some(owner) = self.end(Error::Unavailable("the store is closed".into())) {
            let close = async move { drop(owner.close().await) };
            self.store.world.spawn("embedded close", Box::pin(close));
        }
    }
}

async fn change_when_lost(lost: BoxFuture<'static, Arc<str>>, embedded: Weak<Embedded>) {
    let why = lost.await;
    if let Some(embedded) = embedded.upgrade() {
        tracing::info!(%why, "lost the connection to the owner of the store; connecting again");
        embedded.change().await;
    }
}

impl Records for Embedded {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            loop {
                let route = self.route().await?;
                let answer = route.records.get(shard, keys).await;
                if !route.is_over(&answer) {
                    return answer;
                }
            }
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            loop {
                let route = self.route().await?;
                let answer = route.records.scan(shard, scan.clone()).await;
                if !route.is_over(&answer) {
                    return answer;
                }
            }
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            loop {
                let route = self.route().await?;
                if route.socket.is_none() {
                    return Ok(route.give_outcome(route.records.commit(batch).await?));
                }
                let answer = route.records.commit(batch.clone()).await;
                if !route.is_over(&answer) {
                    return answer.map(|outcome| route.give_outcome(outcome));
                }
            }
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        let route = lock(&self.inner).route.clone();
        Box::pin(async move {
            match route.take(position) {
                Some(position) => route.records.durable(position).await,
                None => Ok(()),
            }
        })
    }

    fn position(&self) -> Position {
        lock(&self.inner).route.clone().position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(async move {
            loop {
                let route = self.route().await?;
                let answer = route.records.now().await;
                if !route.is_over(&answer) {
                    return answer;
                }
            }
        })
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let route = self.route().await?;
            let Some(seen) = route.take(seen) else { return Ok(()) };
            let answer = match select(pin!(self.until_ended()), route.records.wait(shard, seen, until)).await {
                Either::Left((error, _)) => return Err(error),
                Either::Right((answer, _)) => answer,
            };
            if route.is_over(&answer) { Ok(()) } else { answer }
        })
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }

    fn in_process(&self) -> Option<&dyn InProcessRecords> {
        Some(self)
    }
}

/// The rows are in this process while it owns the directory.
impl InProcessRecords for Embedded {
    fn try_commit(&self, batch: &Batch) -> Option<Result<CommitResult, Error>> {
        let route = self.link_now()?.ok()?;
        let decided = route.records.in_process()?.try_commit(batch)?;
        Some(decided.map(|outcome| route.give_outcome(outcome)))
    }

    fn peek(&self, shard: Shard, key: &Key) -> Option<Result<Option<Row>, Error>> {
        self.link_now()?.ok()?.records.in_process()?.peek(shard, key)
    }

    fn is_durable(&self, position: Position) -> bool {
        let route = lock(&self.inner).route.clone();
        match (route.take(position), route.records.in_process()) {
            (Some(position), Some(records)) => records.is_durable(position),
            _ => false,
        }
    }
}
