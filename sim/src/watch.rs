//! Sees every batch that happens: which steps became ready, committed, were put aside; what was registered to be undone.
//! Holds the protocol to what can be seen from there.

use crate::{
    executor::{NodeId, OUTSIDE, Sim, lock},
    store::SimStore,
    truth::Truth,
};
use onceflow_core::{
    Batch, Claimed, Inbox, Key, Kind, Op, Require, Row, Timestamp,
    model::Effect,
    payload::Payload,
    protocol::{
        ids::{END, RunId, SETTLE, StepId},
        keys::Keys,
        rows::{self, Frame, Head, ReadyStep, Shape, Status, Undo},
    },
};
use onceflow_store::{Position, state::StoreState};
use std::sync::{Arc, Mutex};

/// Looks at every batch.
pub struct Watch {
    /// Where it writes down what it sees.
    pub truth: Arc<Mutex<Truth>>,
    /// The room.
    pub sim: Arc<Sim>,
}

/// What a batch may change, as it was before.
#[derive(Default)]
pub struct Before {
    /// Rows of queues.
    ready: Vec<(Key, Option<Row>)>,
    /// Claims and their deadlines.
    claims: Vec<(Row, Option<Row>)>,
    /// Registrations.
    undos: Vec<(Key, Option<Row>)>,
    /// What keys lead to.
    heads: Vec<(Key, Option<Row>)>,
}

/// All rows a batch may touch, those of triggers included.
fn touched<'a>(ops: &'a [Op], found: &mut Vec<&'a Key>) {
    for op in ops {
        match op {
            Op::Put(key, _) | Op::Delete(key) => found.push(key),
            Op::DeleteGroup(_) => {}
            Op::SetBit { key, when_full: then, .. } | Op::Add { key, at_zero: then, .. } => {
                found.push(key);
                touched(then, found);
            }
        }
    }
}

/// The run and generation a group of rows belongs to.
fn plan_of(key: &Key) -> Option<(RunId, u32)> {
    let id = key.group.id().strip_prefix(b"r")?;
    let (run, generation) = id.split_first_chunk::<8>()?;
    Some((RunId(*run), u32::from_be_bytes(generation.try_into().ok()?)))
}

fn ready_step(row: &Row) -> Option<ReadyStep> {
    rows::read(&Inbox::from_row(row)?.note)
}

impl Watch {
    /// What a batch may change.
    pub fn before(&self, state: &StoreState, batch: &Batch) -> Before {
        let mut keys = Vec::new();
        touched(&batch.ops, &mut keys);
        let mut before = Before::default();
        let look = |key: &Key| (key.clone(), state.get(batch.shard, key).cloned());
        for key in keys {
            if key.group.kind() == Kind::Claims {
                let deadline = key.group.companion(Kind::Deadlines).key(&key.name);
                let claim = state.get(batch.shard, key).cloned();
                before.claims.extend(claim.map(|claim| (claim, state.get(batch.shard, &deadline).cloned())));
            } else if key.group.kind() == Kind::Queue {
                before.ready.push(look(key));
            } else if key.group.id() == b"runs" {
                before.heads.push(look(key));
            } else if key.name.as_bytes().first() == Some(&b'u') && plan_of(key).is_some() {
                before.undos.push(look(key));
            }
        }
        before
    }

    /// A batch happened.
    #[expect(clippy::too_many_arguments, reason = "all there is to see of a batch")]
    pub fn applied(
        &self,
        node: NodeId,
        position: Position,
        batch: &Batch,
        claimed: Option<&Claimed>,
        before: &Before,
        state: &StoreState,
        now: Timestamp,
    ) {
        self.claims((node, position), batch, claimed, before, now);
        for (key, was) in &before.ready {
            let is = state.get(batch.shard, key);
            match (was, is) {
                (None, Some(row)) => {
                    self.ready(node, key, row);
                    self.settling(batch, key, row, state);
                }
                (Some(row), None) => self.left(node, position, batch, key, row, state),
                (Some(was), Some(is)) => self.starts(position, batch, (key, was, is)),
                (None, None) => {}
            }
        }
        for (key, was) in &before.undos {
            let Some((run, generation)) = plan_of(key) else { continue };
            let Ok(number) = key.name.as_bytes()[1..].try_into().map(u32::from_be_bytes) else { continue };
            let place = (run, generation, number);
            let mut truth = lock(&self.truth);
            match (was, state.get(batch.shard, key)) {
                (None, Some(row)) => {
                    let Some(undo) = rows::read::<Undo>(row) else { continue };
                    let again = truth.registered.iter().any(|((other, plan, _), (address, _))| {
                        *other == run && *plan == generation && **address == *undo.address
                    });
                    if again {
                        let seen = format!("{} of run {run} is registered twice", undo.address);
                        truth.violate("compensations once, in order", seen);
                    }
                    truth.registered.insert(place, (undo.address.to_string(), position));
                    self.sim.tell(|| format!("node {node} registers how to undo {}", undo.address));
                }
                (Some(_), None) if batch.requires.iter().any(|require| is_claim(require.key())) => {
                    truth.undo_committed.insert(place, position);
                }
                _ => {}
            }
        }
        for (key, was) in before.heads.iter().filter(|(key, _)| state.get(batch.shard, key).is_none()) {
            self.forgotten(key, was.as_ref());
        }
        self.widths(batch);
        self.sweeps(batch, state);
        for op in &batch.ops {
            if let Op::Put(key, row) = op
                && key.group.id() == b"runs"
                && let Some(Head::Finished(finished)) = rows::read::<Head>(row)
            {
                let mut truth = lock(&self.truth);
                truth.lives.entry(finished.run).or_default().push(position);
                truth.told.remove(&finished.run);
                *truth.ends.entry(finished.header.key.to_string()).or_default() += 1;
                if finished.status == Status::Done {
                    truth.strike(finished.run, position);
                } else {
                    truth.given_up.insert(finished.run, position);
                }
            }
        }
        if let Some(claimed) = claimed {
            self.sim.tell(|| format!("node {node} takes {}", name(&claimed.name)));
        }
    }

    /// A run is not remembered any more. One that failed has nothing then that would have to be undone.
    fn forgotten(&self, key: &Key, was: Option<&Row>) {
        let mut truth = lock(&self.truth);
        let called = String::from_utf8_lossy(key.name.as_bytes()).into_owned();
        self.sim.tell(|| format!("{called} is not remembered any more"));
        *truth.ends.entry(called).or_default() += 1;
        let Some(Head::Active(run)) = was.and_then(|row| rows::read::<Head>(row)) else { return };
        let left = truth.registered.iter().find(|(at, _)| at.0 == run && !truth.undo_committed.contains_key(at));
        if let Some((_, (address, _))) = left {
            let seen = format!("run {run} is gone, and {address} was not undone");
            truth.violate("compensations once, in order", seen);
        }
    }

    /// Checks that nothing refers to a value that is swept: if the value is put again soon, no later check would notice.
    fn sweeps(&self, batch: &Batch, state: &StoreState) {
        let counts = onceflow_core::Group::rows("values.counts");
        for op in &batch.ops {
            if let Op::Delete(key) = op
                && key.group.id() == b"values"
                && state.get(batch.shard, &counts.key(&key.name)).is_some()
            {
                lock(&self.truth).violate("nothing live is missing", format!("{key} is swept, and is referred to"));
            }
        }
    }

    /// An each has as many elements as a list it was given.
    fn widths(&self, batch: &Batch) {
        for op in &batch.ops {
            if let Op::Put(key, row) = op
                && key.name.as_bytes().first() == Some(&b'f')
                && plan_of(key).is_some()
                && let Some(wrong) = rows::read::<Frame>(row).as_ref().and_then(not_as_wide)
            {
                lock(&self.truth).violate("a fan-out is as wide as its list", format!("{key}: {wrong}"));
            }
        }
    }

    /// A worker that frees a step of another waits for its deadline.
    fn claims(
        &self,
        (node, position): (NodeId, Position),
        batch: &Batch,
        claimed: Option<&Claimed>,
        before: &Before,
        now: Timestamp,
    ) {
        let mut truth = lock(&self.truth);
        if let (Some(claimed), Some(claim)) = (claimed, &batch.claim) {
            truth.takers.insert(claim.fence.to_bytes(), node);
            if let Some((run, _)) = StepId::from_queue_name(claimed.name.as_bytes()) {
                truth.taken.entry((node, run)).or_default().insert(claim.fence.to_bytes(), position);
            }
        }
        let leaves = before.ready.iter().any(|(key, _)| batch.ops.contains(&Op::Delete(key.clone())));
        for require in batch.requires.iter().filter(|require| leaves && is_claim(require.key())) {
            let step = StepId::from_queue_name(require.key().name.as_bytes());
            let taken = step.and_then(|(run, _)| truth.taken.get_mut(&(node, run)));
            if let (Some(taken), Require::Equals(_, fence)) = (taken, require) {
                taken.retain(|taken, _| fence[..] != taken[..]);
            }
        }
        // The store itself knows which processes are gone.
        if node == OUTSIDE {
            return;
        }
        // A batch that requires nothing of a run only frees.
        if batch.requires.iter().any(|require| !is_claim(require.key()) && !is_deadline(require.key())) {
            return;
        }
        for (claim, deadline) in &before.claims {
            let taker = <[u8; 24]>::try_from(&claim[..]).ok().and_then(|fence| truth.takers.get(&fence).copied());
            let stands = deadline.as_deref().and_then(Timestamp::from_sortable).is_some_and(|deadline| deadline > now);
            if taker.is_some_and(|taker| taker != node) && stands {
                let seen = format!("node {node} frees a step of node {taker:?} before its time");
                truth.violate("a claim stands until its deadline", seen);
            }
        }
    }

    /// A run is settled by its counter only when nothing is in flight.
    fn settling(&self, batch: &Batch, key: &Key, row: &Row, state: &StoreState) {
        let Some((run, step)) = StepId::from_queue_name(key.name.as_bytes()) else { return };
        let Some(ready_step) = ready_step(row) else { return };
        let plainly = batch.ops.iter().any(|op| matches!(op, Op::Put(put, _) if put == key));
        let live = Keys::new(run, ready_step.generation).live();
        if step.node == SETTLE && !plainly && state.get(batch.shard, &live).is_some() {
            let seen = format!("run {run} is to be settled while steps are in flight");
            lock(&self.truth).violate("one counter says what is in flight", seen);
        }
    }

    fn ready(&self, node: NodeId, key: &Key, row: &Row) {
        let Some((run, step)) = StepId::from_queue_name(key.name.as_bytes()) else { return };
        let Some(ready_step) = ready_step(row) else { return };
        self.sim.tell(|| format!("node {node} makes {} ready", name(&key.name)));
        let place = (run, ready_step.generation.0, step);
        if is_ordinary(step) && lock(&self.truth).committed.contains_key(&place) {
            let seen = format!("{} of run {run} became ready again after it committed", name(&key.name));
            lock(&self.truth).violate("no step runs after it committed", seen);
        }
    }

    fn left(&self, node: NodeId, position: Position, batch: &Batch, key: &Key, row: &Row, state: &StoreState) {
        let Some((run, step)) = StepId::from_queue_name(key.name.as_bytes()) else { return };
        let Some(ready_step) = ready_step(row) else { return };
        let keys = Keys::new(run, ready_step.generation);
        if state.get(batch.shard, &keys.parked(step)).is_some() {
            self.sim.tell(|| format!("node {node} puts {} aside", name(&key.name)));
            return;
        }
        let requires = |wanted: &Key| batch.requires.iter().any(|require| require.key() == wanted);
        let claim = key.group.claims().key(&key.name);
        if !requires(&claim) || !requires(&keys.state()) {
            self.sim.tell(|| format!("node {node} removes {}", name(&key.name)));
            return;
        }
        self.sim.tell(|| format!("node {node} commits {}", name(&key.name)));
        if is_ordinary(step) {
            let mut truth = lock(&self.truth);
            if truth.committed.insert((run, ready_step.generation.0, step), position).is_some() {
                let seen = format!("{} of run {run} committed twice", name(&key.name));
                truth.violate("at most one committed value per step", seen);
            }
            if batch.ops.iter().any(|op| matches!(op, Op::Put(key, _) if key.group.id().starts_with(b"flow/"))) {
                truth.written.insert(position, (run, String::new()));
            }
        }
    }

    /// The reply to a commit was lost.
    pub fn unanswered(&self, batch: &Batch) {
        let claimed = batch.requires.iter().map(Require::key).filter(|key| is_claim(key));
        let runs = claimed.filter_map(|key| StepId::from_queue_name(key.name.as_bytes())).map(|(run, _)| run);
        lock(&self.truth).unanswered.extend(runs);
    }

    /// What was not synced is lost.
    pub fn lost(&self, kept_to: Position) {
        lock(&self.truth).lost_after(kept_to);
    }

    /// That the body of a step starts which must not start twice was written by who has the step.
    fn starts(&self, position: Position, batch: &Batch, (key, was, is): (&Key, &Row, &Row)) {
        let (Some(was), Some(is)) = (ready_step(was), ready_step(is)) else { return };
        let Some(fence) = is.started.filter(|_| (was.started, was.failed) != (is.started, is.failed)) else { return };
        let claim = Require::Equals(key.group.claims().key(&key.name), Row::new(fence.to_bytes()));
        if let Some((run, _)) = StepId::from_queue_name(key.name.as_bytes())
            && batch.requires.contains(&claim)
        {
            lock(&self.truth).start_written.insert((run, fence.to_bytes(), is.failed), position);
        }
    }

    /// User code starts: what it was decided on must be durable, if it must not start twice. A node starts no more such
    /// bodies of a run than it has written, durably, that it will, whichever worker has those steps by then.
    pub fn body_starts(&self, store: &SimStore, node: NodeId, place: &(RunId, String), effect: Effect) {
        if effect != Effect::AtMostOnce {
            return;
        }
        let durable = store.durable();
        let mut truth = lock(&self.truth);
        let mine = |((run, fence, _), at): &(&(RunId, [u8; 24], u32), &Position)| {
            *run == place.0 && **at <= durable && truth.takers.get(fence) == Some(&node)
        };
        let written = truth.start_written.iter().filter(mine).count();
        let bodies = truth.once_only.entry((node, place.0)).or_default();
        *bodies += 1;
        if *bodies > written {
            *bodies -= 1;
            let seen = format!("{} of run {} started before that was durable", place.1, place.0);
            truth.violate("nothing leaves before it is durable", seen);
        }
    }
}

fn is_deadline(key: &Key) -> bool {
    key.group.kind() == Kind::Deadlines
}

fn is_claim(key: &Key) -> bool {
    key.group.kind() == Kind::Claims
}

/// Steps that become ready once: nodes and ends of instances.
fn is_ordinary(step: StepId) -> bool {
    step.node == END || step.node < u32::MAX - 16
}

/// What people call a row of a queue.
pub fn name(name: &onceflow_core::Name) -> String {
    match StepId::from_queue_name(name.as_bytes()) {
        Some((run, step)) => {
            let node = match u32::MAX - step.node {
                0 => String::from("end"),
                1 => String::from("lane"),
                2 => String::from("settling"),
                3 => String::from("undoing"),
                4 => String::from("teardown"),
                _ => step.node.to_string(),
            };
            format!("{run}/{:?}[{}].{node}", step.frame, step.index)
        }
        None => format!("{name:?}"),
    }
}

fn not_as_wide(frame: &Frame) -> Option<String> {
    let Shape::Each(elements) = frame.shape else { return None };
    let lens = frame.inputs.iter().flatten().filter_map(|held| held.outcome.value().and_then(Payload::list_len));
    let lens: Vec<_> = lens.collect();
    (!lens.contains(&u64::from(elements.n))).then(|| format!("{} elements of lists with {lens:?}", elements.n))
}
