//! The owner's account of the processes at the directory, and of the claims of each.
//!
//! A claim belongs to the process that made it, identified by the incarnation in its fence. It becomes void at once
//! when that process is gone ([`member`](super::member)), but not when the owner is. A new owner that got no complete
//! [handover](super::handover) of all claims grants none before every living process has asserted its own, or
//! [`GRACE_MS_MAX`] has passed.
//!
//! | after an owner that | claims are known from | granted |
//! |---|---|---|
//! | closed | its handover | at once |
//! | was killed, no other process lives | there are none | at once |
//! | was killed | each living process | when the last has reported, usually within milliseconds |
//! | was killed, one living process is silent | the others | after grace; rows are served after [`ARRIVE_MS_MAX`] |

use super::{
    handover::{HandedClaim, Handover},
    join::StoreDir,
    member,
    owned::OwnedRecords,
};
use crate::{
    backend::{
        held::{self, HeldClaims},
        socket::{Guests, Hello},
    },
    records::Error,
    sync::{Mutex, lock},
    wake::Signal,
    world::BoxFuture,
};
use futures_util::future::select;
use onceflow_core::{Batch, Fence, Kind, Op, Row};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Weak},
};

/// How long nothing is served while living processes have not reported their claims. They are woken when the last owner
/// goes, and report within milliseconds; one that does not is stopped, or its machine is very busy.
const ARRIVE_MS_MAX: u64 = 2_000;

/// How long no claim is granted for the sake of a living process that does not report: the default lease of engines.
/// After that its claims would have lapsed anyway.
const GRACE_MS_MAX: u64 = 30_000;

/// The longest pause between two checks whether a process is gone.
const LOOK_MS_MAX: u64 = 250;

/// The members of the directory, and the claims of each.
pub(super) struct ClaimRegistry {
    store: Arc<StoreDir>,
    records: Arc<dyn OwnedRecords>,
    inner: Mutex<Inner>,
    /// Wakes waiters when anything here changes.
    changed: Signal,
    me: Weak<ClaimRegistry>,
}

#[derive(Default)]
struct Inner {
    /// Which member claims steps under an incarnation.
    incarnations: BTreeMap<u128, u128>,
    /// Connections by member.
    connections: BTreeMap<u128, usize>,
    /// Living members that have not reported their claims.
    awaited: BTreeSet<u128>,
    /// Guests are welcome.
    is_open: bool,
    is_closed: bool,
}

fn incarnation(fence: &Row) -> Option<u128> {
    Fence::from_bytes(fence).map(Fence::incarnation)
}

impl ClaimRegistry {
    /// The account of a directory that was just taken over: knows what the last owner left, and what this process held
    /// as a guest.
    pub(super) async fn begin(
        store: &Arc<StoreDir>,
        records: &Arc<dyn OwnedRecords>,
        left: Option<Handover>,
        own: &HeldClaims,
    ) -> Result<Arc<Self>, Error> {
        let registry = Arc::new_cyclic(|me| ClaimRegistry {
            store: store.clone(),
            records: records.clone(),
            inner: Mutex::default(),
            changed: Signal::default(),
            me: me.clone(),
        });
        let left = left.filter(|left| left.store == records.id());
        let is_told = left.is_some();
        registry.restore(left.map(|left| left.claims).unwrap_or_default()).await?;
        for claim in own.all() {
            let stands = held::reassert(&**records, &claim).await?;
            tracing::debug!(stands, step = ?claim.name, "asserted a claim of this process");
        }
        if !is_told {
            let others = member::others(&store.dir, store.member.id);
            let others =
                others.map_err(|error| Error::Unavailable(format!("cannot list `members`: {error}").into()))?;
            lock(&registry.inner).awaited.extend(others);
        }
        Ok(registry)
    }

    async fn restore(&self, claims: Vec<HandedClaim>) -> Result<(), Error> {
        let members: BTreeSet<_> = claims.iter().map(|claim| claim.member).collect();
        let is_there = |id: &u128| *id == self.store.member.id || member::is_alive(&self.store.dir, *id);
        let alive: BTreeSet<_> = members.into_iter().filter(is_there).collect();
        for claim in claims.iter().filter(|claim| alive.contains(&claim.member)) {
            if let Some(incarnation) = incarnation(&claim.fence) {
                lock(&self.inner).incarnations.insert(incarnation, claim.member);
            }
            claim.restore(&*self.records).await?;
        }
        for member in alive.into_iter().filter(|id| *id != self.store.member.id) {
            self.watch_until_back(member);
        }
        Ok(())
    }

    /// Waits until every living process has reported its claims, or its time is over; then guests are welcome.
    pub(super) async fn gather(&self) {
        let waited_ms = self.await_all(0, ARRIVE_MS_MAX).await;
        if !self.awaits_no_member() {
            let missing = lock(&self.inner).awaited.len();
            tracing::warn!(
                missing,
                waited_ms,
                "processes live and do not say what they have claimed; granting nothing"
            );
            self.records.hold_grants(true);
            let me = self.me.clone();
            let rest = async move {
                if let Some(registry) = me.upgrade() {
                    registry.await_all(waited_ms, GRACE_MS_MAX).await;
                    registry.records.hold_grants(false);
                    tracing::info!("all living processes have reported their claims; granting claims again");
                }
            };
            self.store.world.spawn("embedded grace", Box::pin(rest));
        }
        lock(&self.inner).is_open = true;
        self.changed.notify();
    }

    fn awaits_no_member(&self) -> bool {
        let inner = lock(&self.inner);
        inner.awaited.is_empty() || inner.is_closed
    }

    /// Waits until no living process is awaited; returns how long it has waited.
    async fn await_all(&self, mut waited_ms: u64, ms_max: u64) -> u64 {
        let mut pause_ms = 1;
        loop {
            let awaited = lock(&self.inner).awaited.clone();
            for member in awaited {
                if !member::is_alive(&self.store.dir, member) {
                    lock(&self.inner).awaited.remove(&member);
                }
            }
            if self.awaits_no_member() || waited_ms >= ms_max {
                return waited_ms;
            }
            let all = self.changed.until(|| self.awaits_no_member().then_some(()));
            select(pin!(all), self.store.world.sleep(pause_ms)).await;
            waited_ms += pause_ms;
            pause_ms = (2 * pause_ms).min(LOOK_MS_MAX);
        }
    }

    /// Stops recording and voiding claims; returns the handover for the next owner, if all claims are known.
    pub(super) fn close(&self) -> Option<Handover> {
        let was_complete = {
            let mut inner = lock(&self.inner);
            inner.is_closed = true;
            inner.is_open && inner.awaited.is_empty()
        };
        self.changed.notify();
        if !was_complete && self.records.holds_grants() {
            return None;
        }
        let inner = lock(&self.inner);
        // Those of this process end with it, and the holders of the others are not known.
        let handed = |claim: crate::state::StandingClaim| {
            let member = incarnation(&claim.fence).and_then(|it| inner.incarnations.get(&it))?;
            Some(HandedClaim::new(*member, claim))
        };
        Some(Handover {
            store: self.records.id(),
            claims: self.records.claims().into_iter().filter_map(handed).collect(),
        })
    }

    /// Looks after a member that is not connected: it comes back, or it is gone, and its claims with it.
    fn watch_until_back(&self, member: u128) {
        let me = self.me.clone();
        let watch = async move {
            let mut pause_ms = 1;
            loop {
                let Some(registry) = me.upgrade() else { return };
                let is_settled = {
                    let inner = lock(&registry.inner);
                    inner.is_closed || inner.connections.contains_key(&member)
                };
                if is_settled {
                    return;
                }
                if !member::is_alive(&registry.store.dir, member) {
                    if let Err(error) = registry.void(member).await {
                        tracing::debug!(%error, "claims of a process that is gone stand until their deadlines");
                    }
                    return;
                }
                let pause = registry.store.world.sleep(pause_ms);
                drop(registry);
                pause.await;
                pause_ms = (2 * pause_ms).min(LOOK_MS_MAX);
            }
        };
        self.store.world.spawn("embedded member", Box::pin(watch));
    }

    /// Takes the claims of a member away that is gone.
    async fn void(&self, member: u128) -> Result<(), Error> {
        let incarnations: BTreeSet<u128> = {
            let mut inner = lock(&self.inner);
            inner.awaited.remove(&member);
            let (gone, rest) =
                std::mem::take(&mut inner.incarnations).into_iter().partition(|(_, holder)| *holder == member);
            let _gone: BTreeMap<u128, u128> = gone;
            inner.incarnations = rest;
            _gone.into_keys().collect()
        };
        let is_its = |fence: &Row| incarnation(fence).is_some_and(|it| incarnations.contains(&it));
        let mut voided = 0;
        for claim in self.records.claims().into_iter().filter(|claim| is_its(&claim.fence)) {
            let key = claim.queue.claims().key(&claim.name);
            let mut batch = Batch::new(claim.shard);
            batch.require_equals(key.clone(), claim.fence).delete(key);
            batch.delete(claim.queue.deadlines().key(&claim.name));
            voided += usize::from(self.records.commit(batch).await?.is_applied());
        }
        tracing::debug!(voided, "a process is gone, and its claims with it");
        self.changed.notify();
        Ok(())
    }
}

impl Guests for ClaimRegistry {
    fn arrived(&self, hello: Hello) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let member = hello.member;
            for claim in &hello.claims {
                if let Some(incarnation) = incarnation(&claim.fence) {
                    lock(&self.inner).incarnations.insert(incarnation, member);
                }
                let stands = held::reassert(&*self.records, claim).await?;
                tracing::debug!(stands, step = ?claim.name, "a guest asserted a claim");
            }
            lock(&self.inner).awaited.remove(&member);
            self.changed.notify();
            let look = || {
                let mut inner = lock(&self.inner);
                match () {
                    () if inner.is_closed => Some(Err(Error::Unavailable("the store is closed".into()))),
                    () if inner.is_open => {
                        *inner.connections.entry(member).or_default() += 1;
                        Some(Ok(()))
                    }
                    () => None,
                }
            };
            self.changed.until(look).await
        })
    }

    fn commits(&self, member: u128, batch: &Batch) {
        let put = |op: &Op| match op {
            Op::Put(key, fence) if key.group.kind() == Kind::Claims => incarnation(fence),
            _ => None,
        };
        let claim = batch.claim.iter().map(|claim| claim.fence.incarnation());
        for incarnation in claim.chain(batch.ops.iter().filter_map(put)) {
            lock(&self.inner).incarnations.insert(incarnation, member);
        }
    }

    fn left(&self, member: u128) {
        let is_gone = {
            let mut inner = lock(&self.inner);
            let connections = inner.connections.get_mut(&member).map(|many| {
                *many -= 1;
                *many
            });
            if connections == Some(0) {
                inner.connections.remove(&member);
            }
            connections == Some(0) && !inner.is_closed
        };
        if is_gone {
            self.watch_until_back(member);
        }
    }
}
