//! The simulated store: the real state machine, with what a crash leaves of it, and an ear for every batch that happens.

mod claims;

use crate::{
    executor::{NodeId, OUTSIDE, Sim, lock},
    faults::{Faults, StoreKind},
    journal::Shadow,
    watch::Watch,
    world::START_MS,
};
use claims::Standing;
use onceflow_core::{Batch, Group, Key, Row, Shard, Timestamp, batch::BatchLimits, row::bitmap};
use onceflow_store::{
    CommitResult, Committed, Error, Position,
    state::{Effects, StoreState},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::Notify;

/// The store all nodes share.
pub struct SimStore {
    /// The room.
    pub sim: Arc<Sim>,
    /// What goes wrong; all of it until the harm ends.
    pub faults: Faults,
    inner: Mutex<Inner>,
    /// Rings when a row became free.
    pub enabled: Notify,
    /// Rings when more is durable, or the store went down.
    pub synced: Notify,
    /// Rings when a node is to die.
    pub doom: Notify,
    doomed: Mutex<Vec<NodeId>>,
    /// Sees every batch that happens, and what was there before.
    pub watch: Watch,
    /// The real journal that writes it down.
    shadow: Option<Arc<Shadow>>,
}

struct Inner {
    state: StoreState,
    position: Position,
    /// What will outlive a crash, and up to where.
    lasting: StoreState,
    durable: Position,
    pending: VecDeque<Pending>,
    /// Who has it open, if it is embedded.
    owner: Option<NodeId>,
    /// How often it was opened.
    epoch: u64,
    down_until_ms: u64,
    given: Timestamp,
    world: Timestamp,
    ahead_ms: i64,
    syncing: bool,
    harmless: bool,
    /// Whose claims stand, and who has yet to assert theirs.
    standing: Standing,
}

/// A batch that happened and is not synced yet.
struct Pending {
    position: Position,
    effects: Vec<Effect>,
    /// What was there afterwards, claims and all, on a store that does not forget those.
    after: Option<StoreState>,
}

impl Pending {
    /// Takes it into what outlives a crash.
    fn outlives(self, lasting: &mut StoreState) {
        match self.after {
            Some(after) => *lasting = after,
            None => replay(lasting, &self.effects),
        }
    }
}

#[derive(Clone)]
enum Effect {
    Set(Shard, Key, Option<Row>),
    Clear(Shard, Group),
    Bit(Shard, Key, u32, u32),
}

#[derive(Default)]
struct Told {
    shard: Shard,
    effects: Vec<Effect>,
}

impl Effects for Told {
    fn shard(&mut self, shard: Shard) {
        self.shard = shard;
    }
    fn put(&mut self, key: &Key, row: &Row) {
        self.effects.push(Effect::Set(self.shard, key.clone(), Some(row.clone())));
    }
    fn delete(&mut self, key: &Key) {
        self.effects.push(Effect::Set(self.shard, key.clone(), None));
    }
    fn delete_group(&mut self, group: &Group) {
        self.effects.push(Effect::Clear(self.shard, group.clone()));
    }
    fn set_bit(&mut self, key: &Key, bit: u32, of: u32) {
        self.effects.push(Effect::Bit(self.shard, key.clone(), bit, of));
    }
}

fn replay(state: &mut StoreState, effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::Set(shard, key, row) => drop(state.set(*shard, key, row.clone())),
            Effect::Clear(shard, group) => drop(state.clear(*shard, group)),
            Effect::Bit(shard, key, bit, of) => {
                let (row, _) = bitmap::with(state.get(*shard, key).map(|row| &**row), *bit, *of);
                state.set(*shard, key, Some(row));
            }
        }
    }
}

impl SimStore {
    /// An empty store.
    pub fn new(sim: Arc<Sim>, faults: Faults, watch: Watch) -> Arc<Self> {
        let ahead_ms = if faults.skew_ms > 0 { sim.below(faults.skew_ms) as i64 } else { 0 };
        let inner = Inner {
            state: StoreState::new(),
            position: Position(0),
            lasting: StoreState::new(),
            durable: Position(0),
            pending: VecDeque::new(),
            owner: None,
            epoch: 0,
            down_until_ms: 0,
            given: Timestamp::ZERO,
            world: Timestamp::ZERO,
            ahead_ms,
            syncing: false,
            harmless: false,
            standing: Standing::default(),
        };
        let inner = Mutex::new(inner);
        let has_journal = faults.journal && faults.store == StoreKind::Embedded;
        let shadow = has_journal.then(|| Shadow::new(sim.clone(), watch.truth.clone()));
        let (enabled, synced, doom, doomed) = (Notify::new(), Notify::new(), Notify::new(), Mutex::default());
        Arc::new(SimStore { sim, faults, inner, enabled, synced, doom, doomed, watch, shadow })
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.faults.store == StoreKind::Embedded
    }

    /// From now on nothing goes wrong.
    pub fn heal(&self) {
        let mut inner = lock(&self.inner);
        inner.harmless = true;
        inner.down_until_ms = 0;
    }

    /// True in so many of a thousand cases, as long as harm is done.
    pub fn harm(&self, per_mille: u32) -> bool {
        per_mille > 0 && !lock(&self.inner).harmless && self.sim.per_mille(per_mille)
    }

    /// Whether it can be asked now, and which opening of it answers.
    pub fn epoch(&self) -> Result<u64, Error> {
        let inner = lock(&self.inner);
        if inner.down_until_ms > self.sim.now_ms() {
            return Err(Error::Unavailable("simulated".into()));
        }
        Ok(inner.epoch)
    }

    /// Which opening of it there is.
    pub fn opening(&self) -> u64 {
        lock(&self.inner).epoch
    }

    /// Whether the node's calls are answered when they are applied.
    pub fn is_owner(&self, node: NodeId) -> bool {
        self.is_embedded() && lock(&self.inner).owner == Some(node)
    }

    /// Whether an answer lasts when it is applied.
    pub fn lasts_at_once(&self) -> bool {
        self.faults.store == StoreKind::Server
    }

    /// Whether a node's positions are those of when it sent its calls.
    pub fn has_positions_of_senders(&self) -> bool {
        self.faults.store == StoreKind::Redis
    }

    /// A machine opens it, if none has.
    pub fn own(&self, node: NodeId) {
        let mut inner = lock(&self.inner);
        if inner.owner.is_none() {
            inner.owner = Some(node);
        }
    }

    /// Cannot be asked for so long. A Redis server may have died meanwhile.
    pub fn go_down(&self, ms: u64) {
        let dies = self.faults.store == StoreKind::Redis && self.sim.per_mille(500);
        let mut inner = lock(&self.inner);
        if inner.harmless {
            return;
        }
        inner.down_until_ms = self.sim.now_ms() + ms;
        if dies {
            let kept = self.sim.below(inner.pending.len() as u64 + 1) as usize;
            self.comes_back(inner, kept, "the server died");
        }
    }

    /// A node died, and its claims with it. If it had the store open, what was not synced is lost, but for a part that
    /// reached the disk all the same; and those who live assert their claims again.
    pub fn node_died(self: &Arc<Self>, node: NodeId, down_ms: u64) {
        let mut inner = lock(&self.inner);
        inner.standing.node_is_gone(node);
        if !self.is_embedded() || inner.owner != Some(node) {
            drop(inner);
            self.void_claims_of(node);
            return;
        }
        let position = Position(inner.position.0 + 1);
        let kept = match &self.shadow {
            None => self.sim.below(inner.pending.len() as u64 + 1) as usize,
            Some(shadow) => {
                let found = shadow.reopen(self.sim.per_mille(700), position);
                found.and_then(|found| self.prefix(&inner, &found)).unwrap_or(inner.pending.len())
            }
        };
        inner.owner = None;
        inner.down_until_ms = self.sim.now_ms() + down_ms;
        self.comes_back(inner, kept, &format!("the store's owner, node {node}, died"));
        self.gather_claims();
    }

    /// Is opened again after a crash, with so many of the batches that were not synced.
    fn comes_back(&self, mut inner: MutexGuard<'_, Inner>, kept: usize, why: &str) {
        let position = Position(inner.position.0 + 1);
        let kept_to = kept.checked_sub(1).map_or(inner.durable, |at| inner.pending[at].position);
        let lost = inner.pending.len() - kept;
        let pending = std::mem::take(&mut inner.pending);
        for batch in pending.into_iter().take(kept) {
            batch.outlives(&mut inner.lasting);
        }
        inner.state = inner.lasting.clone();
        (inner.position, inner.durable) = (position, position);
        inner.state.note_enabled(Shard::default(), position);
        inner.epoch += 1;
        inner.syncing = false;
        drop(inner);
        self.sim.tell(|| format!("{why}; {lost} of {} batches are lost", kept + lost));
        self.watch.lost(kept_to);
        self.synced.notify_waiters();
        self.enabled.notify_waiters();
    }

    /// How many of the batches that were not synced are in what the journal found.
    fn prefix(&self, inner: &Inner, found: &StoreState) -> Option<usize> {
        let (mut state, found) = (inner.lasting.clone(), found.all());
        for at in 0..=inner.pending.len() {
            if state.all() == found {
                return Some(at);
            }
            inner.pending.get(at).iter().for_each(|batch| replay(&mut state, &batch.effects));
        }
        let seen = format!("{} rows are no prefix of what happened since {}", found.len(), inner.durable.0);
        lock(&self.watch.truth).violate("after a crash the store is a prefix of what was applied", seen);
        None
    }

    /// Does what a batch says.
    pub fn apply(&self, node: NodeId, batch: &Batch) -> Result<CommitResult, Error> {
        batch.check_within(BatchLimits::EMBEDDED)?;
        let mut inner = lock(&self.inner);
        let now = self.read_clock(&mut inner);
        let without_claim;
        let batch = match batch.claim.is_some() && inner.standing.holds_grants(now) {
            true => {
                without_claim = Batch { claim: None, ..batch.clone() };
                &without_claim
            }
            false => batch,
        };
        let before = self.watch.before(&inner.state, batch);
        let mut told = Told::default();
        let at = (inner.position, now);
        let (result, enabled) = inner.state.apply(batch, at, &mut told)?;
        match &result {
            CommitResult::Refused(_) => {}
            CommitResult::Applied(Committed { position, claimed, .. }) => {
                let position = *position;
                inner.position = position;
                if !self.lasts_at_once() {
                    let after = (self.faults.store == StoreKind::Redis).then(|| inner.state.clone());
                    inner.pending.push_back(Pending { position, effects: told.effects, after });
                    self.shadow.iter().for_each(|shadow| shadow.happened(position, batch, now));
                } else {
                    inner.durable = position;
                }
                if enabled {
                    inner.state.note_enabled(batch.shard, position);
                }
                self.watch.applied(node, position, batch, claimed.as_ref(), &before, &inner.state, now);
                let broken = inner.standing.applied(node, batch, claimed.as_ref(), now);
                if let Some(seen) = broken.filter(|_| self.is_embedded()) {
                    lock(&self.watch.truth).violate("a claim is void only with its holder", seen);
                }
                drop(inner);
                if enabled && !self.harm(self.faults.wake_lost) {
                    self.enabled.notify_waiters();
                }
                if node != OUTSIDE && self.harm(self.faults.crash_after_batch) {
                    lock(&self.doomed).push(node);
                    self.doom.notify_one();
                }
            }
        }
        Ok(result)
    }

    /// A node that is to die now.
    pub fn next_doomed(&self) -> Option<NodeId> {
        lock(&self.doomed).pop()
    }

    /// Reads.
    pub fn read<T>(&self, with: impl FnOnce(&StoreState) -> T) -> T {
        with(&lock(&self.inner).state)
    }

    /// Reads what would outlive a crash.
    pub fn read_lasting<T>(&self, with: impl FnOnce(&StoreState) -> T) -> T {
        let inner = lock(&self.inner);
        with(if self.lasts_at_once() { &inner.state } else { &inner.lasting })
    }

    /// A copy of all rows.
    pub fn state(&self) -> StoreState {
        lock(&self.inner).state.clone()
    }

    /// The last position applied.
    pub fn position(&self) -> Position {
        lock(&self.inner).position
    }

    /// Up to where everything outlives a crash.
    pub fn durable(&self) -> Position {
        lock(&self.inner).durable
    }

    /// The store's clock: it never goes back.
    pub fn now(&self) -> Timestamp {
        let mut inner = lock(&self.inner);
        self.read_clock(&mut inner)
    }

    fn read_clock(&self, inner: &mut Inner) -> Timestamp {
        let world = Timestamp::from_ms((START_MS + self.sim.now_ms()).saturating_add_signed(inner.ahead_ms));
        // As the real one does: while the machine's clock is behind, time passes at half its speed.
        let half = world.ms_since(inner.world) / 2;
        if world >= inner.given {
            (inner.given, inner.world) = (world, world);
        } else if half > 0 || world < inner.world {
            (inner.given, inner.world) = (inner.given.plus_ms(half), world);
        }
        inner.given
    }

    /// Sets the clock of the machine the store is on.
    pub fn skew(&self, ahead_ms: i64) {
        lock(&self.inner).ahead_ms = ahead_ms;
    }

    /// Ends when everything up to there outlives a crash, or the store died first.
    pub async fn until_durable(self: &Arc<Self>, position: Position, epoch: u64) -> Result<(), Error> {
        loop {
            let synced = self.synced.notified();
            let mut synced = std::pin::pin!(synced);
            synced.as_mut().enable();
            {
                let mut inner = lock(&self.inner);
                if inner.epoch != epoch {
                    return Err(Error::Unavailable("the store was opened again".into()));
                }
                if inner.durable >= position {
                    return Ok(());
                }
                if !inner.syncing {
                    inner.syncing = true;
                    self.start_sync(inner.epoch, inner.position);
                }
            }
            synced.await;
        }
    }

    fn start_sync(self: &Arc<Self>, epoch: u64, to: Position) {
        let (store, ms) = (self.clone(), self.sim.below(self.faults.sync_ms + 1));
        let sync = async move {
            store.sim.sleep(ms).await;
            if let Some(shadow) = &store.shadow
                && shadow.until_durable(to).await.is_err()
            {
                return;
            }
            store.sync(epoch, to);
        };
        self.sim.spawn(OUTSIDE, "sync", Box::pin(sync));
    }

    fn sync(&self, epoch: u64, to: Position) {
        let mut inner = lock(&self.inner);
        if inner.epoch != epoch {
            return;
        }
        inner.syncing = false;
        inner.durable = inner.durable.max(to);
        while inner.pending.front().is_some_and(|batch| batch.position <= to) {
            let batch = inner.pending.pop_front().expect("just seen");
            batch.outlives(&mut inner.lasting);
        }
        drop(inner);
        self.synced.notify_waiters();
    }
}
