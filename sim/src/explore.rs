//! Small and exhaustive: all interleavings of two workers on a flow of a few steps, with a crash of either, a lease that
//! expires under either, a restart of the store and a cancel at every point, and a retry once the run has failed.
//!
//! What is explored is the real protocol on the real state machine; the worker is a model of the real one that keeps
//! its awaits: it takes, decides from what it reads then, and sends what it decided, each a point where others may go first.

mod container;
mod flow;
pub mod values;
mod worker;

pub use flow::SHAPES;

use onceflow_core::{
    Fence, Kind, Shard, Timestamp,
    protocol::{draft::InstalledProgram, premise::Premise},
};
use onceflow_store::{
    CommitResult, Position, Refused,
    state::{NoEffects, StoreState},
};
use std::collections::{BTreeSet, HashSet, VecDeque};
use worker::{Job, Worker};

/// How many workers there are.
pub const WORKERS: usize = 2;

/// A state of the world.
#[derive(Clone)]
pub struct World {
    /// All rows.
    pub rows: StoreState,
    workers: [Worker; WORKERS],
    cancelled: bool,
    /// The run was retried, so that tasks which fail at first succeed.
    retried: bool,
    /// Steps that have committed, by their names in queues.
    committed: BTreeSet<Vec<u8>>,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Take(usize),
    Decide(usize),
    Send(usize),
    SendAndTake(usize),
    Die(usize),
    Expire(usize),
    Restart,
    Cancel,
    Retry,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// States in which the run had ended.
    pub ends: usize,
}

/// Everything that can happen to a run of this shape.
///
/// # Errors
/// What may not be, and how many events lead there.
pub fn explore(shape: &str, cancels: bool) -> Result<Explored, String> {
    let (plan, rows) = flow::started(shape);
    let first =
        World { rows, workers: Default::default(), cancelled: !cancels, retried: false, committed: BTreeSet::new() };
    let mut seen = HashSet::from([first.digest()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut found = Explored { states: 1, ..Explored::default() };
    while let Some((world, depth)) = queue.pop_front() {
        found.depth = found.depth.max(depth);
        let at = |why: String| format!("after {depth} events: {why}");
        if flow::has_ended(&plan, &world.rows).map_err(at)? {
            found.ends += 1;
        }
        let mut moves = false;
        for event in world.events() {
            let Some(next) = world.after(&plan, event).map_err(|why| at(format!("{event:?}: {why}")))? else {
                continue;
            };
            moves = true;
            if seen.insert(next.digest()) {
                found.states += 1;
                queue.push_back((next, depth + 1));
            }
        }
        if !moves && !flow::has_ended(&plan, &world.rows).map_err(at)? {
            return Err(at(String::from("nothing can happen any more, and the run has not ended")));
        }
    }
    Ok(found)
}

impl World {
    fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Restart, Event::Retry];
        for (at, worker) in self.workers.iter().enumerate() {
            match &worker.job {
                None => events.push(Event::Take(at)),
                Some(Job { batch: None, .. }) => events.extend([Event::Decide(at), Event::Die(at)]),
                Some(_) => events.extend([Event::Send(at), Event::SendAndTake(at), Event::Die(at)]),
            }
        }
        let claims = self.rows.all().iter().filter(|(_, key, _)| key.group.kind() == Kind::Claims).count();
        events.extend((0..claims).map(Event::Expire));
        if !self.cancelled {
            events.push(Event::Cancel);
        }
        events
    }

    /// The world after an event; `None` if that changes nothing.
    fn after(&self, plan: &InstalledProgram, event: Event) -> Result<Option<World>, String> {
        let mut next = self.clone();
        let changed = match event {
            Event::Take(at) => next.take(at)?,
            Event::Decide(at) => {
                let World { rows, workers, retried, .. } = &mut next;
                workers[at].decide(plan, rows, *retried)?;
                true
            }
            Event::Send(at) => next.send(plan, at, false)?,
            Event::SendAndTake(at) => next.send(plan, at, true)?,
            Event::Die(at) => {
                next.workers[at] = Worker::default();
                true
            }
            Event::Expire(at) => next.expire(at),
            Event::Restart => next.restart(),
            Event::Cancel => {
                next.cancelled = true;
                flow::cancel(plan, &mut next.rows)?
            }
            Event::Retry => {
                next.retried = true;
                flow::retry(plan, &mut next.rows)?
            }
        };
        Ok(changed.then_some(next))
    }

    fn take(&mut self, at: usize) -> Result<bool, String> {
        let fence = self.fence(at);
        let claimed = match apply(&mut self.rows, &worker::take(fence))? {
            CommitResult::Applied(committed) => committed.claimed,
            CommitResult::Refused(_) => None,
        };
        self.workers[at].job = claimed.map(|claimed| Job { claimed, fence, batch: None });
        Ok(self.workers[at].job.is_some())
    }

    /// A fence that neither a row nor a worker has.
    fn fence(&self, worker: usize) -> Fence {
        let made = |count: u64| {
            let mut bytes = [0; Fence::BYTES];
            bytes[15] = 1 + worker as u8;
            bytes[16..].copy_from_slice(&count.to_be_bytes());
            Fence::from_bytes(&bytes).expect("as many bytes as a fence has")
        };
        let rows = self.rows.all();
        let used = |fence: &Fence| {
            let in_rows = rows.iter().any(|(_, _, row)| row[..] == fence.to_bytes());
            in_rows || self.workers.iter().any(|worker| worker.job.as_ref().is_some_and(|job| job.fence == *fence))
        };
        (0..).map(made).find(|fence| !used(fence)).expect("there are many numbers")
    }

    fn send(&mut self, plan: &InstalledProgram, at: usize, takes: bool) -> Result<bool, String> {
        let Some(mut job) = self.workers[at].job.take() else { return Ok(false) };
        let mut batch = job.batch.take().expect("it was decided");
        let next = takes.then(|| self.fence(at));
        batch.claim = next.map(worker::claim);
        let before = self.rows.clone();
        match apply(&mut self.rows, &batch)? {
            CommitResult::Applied(committed) => {
                let mut again = self.rows.clone();
                if apply(&mut again, &batch)?.is_applied() {
                    return Err(format!("a batch happens twice: {batch:?}"));
                }
                self.note(plan, &before, &job)?;
                let next = committed.claimed.zip(next);
                self.workers[at].job = next.map(|(claimed, fence)| Job { claimed, fence, batch: None });
            }
            CommitResult::Refused(Refused { which, found, .. }) => {
                let worker = &mut self.workers[at];
                // The state of the run has changed: it is decided again, if the step may still commit.
                if Premise::of(batch.requires[which].key()) == Premise::State && worker.saw(found.as_deref(), &job) {
                    worker.job = Some(job);
                }
            }
        }
        Ok(true)
    }

    /// Notes which steps have committed; none may twice.
    fn note(&mut self, plan: &InstalledProgram, before: &StoreState, job: &Job) -> Result<(), String> {
        let key = job.claimed.queue.key(&job.claimed.name);
        let left = before.get(Shard(0), &key).is_some() && self.rows.get(Shard(0), &key).is_none();
        if !left || worker::is_parked(plan, &self.rows, &job.claimed.name) || !worker::is_ordinary(&job.claimed.name) {
            return Ok(());
        }
        let name = job.claimed.name.as_bytes().to_vec();
        match self.committed.insert(name) {
            true => Ok(()),
            false => Err(format!("{:?} committed twice", job.claimed.name)),
        }
    }

    fn expire(&mut self, at: usize) -> bool {
        let rows = self.rows.all();
        let claim = rows.into_iter().filter(|(_, key, _)| key.group.kind() == Kind::Claims).nth(at);
        let Some((shard, key, _)) = claim else { return false };
        self.rows.set(shard, &key, None);
        self.rows.set(shard, &key.group.companion(Kind::Deadlines).key(&key.name), None);
        true
    }

    /// The store is opened again: no step is claimed.
    fn restart(&mut self) -> bool {
        let mut changed = false;
        for (shard, key, _) in self.rows.all() {
            if key.group.kind().is_volatile() {
                self.rows.set(shard, &key, None);
                changed = true;
            }
        }
        changed
    }

    fn digest(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        for (_, key, row) in self.rows.all() {
            hasher.update(format!("{key:?}").as_bytes()).update(&row);
        }
        for worker in &self.workers {
            worker.hash(&mut hasher);
        }
        hasher.update(&[u8::from(self.cancelled), u8::from(self.retried)]);
        let (digest, _) = hasher.finalize().as_bytes().split_first_chunk().map(|(a, b)| (*a, b.len())).expect("long");
        digest
    }
}

/// Does what a batch says. One that is wrong is a violation.
pub fn apply(rows: &mut StoreState, batch: &onceflow_core::Batch) -> Result<CommitResult, String> {
    if !batch.is_repeatable() {
        return Err(format!("a batch that is not repeatable: {batch:?}"));
    }
    let at = (Position(0), Timestamp::from_ms(1));
    rows.apply(batch, at, &mut NoEffects).map(|(result, _)| result).map_err(|wrong| wrong.to_string())
}
