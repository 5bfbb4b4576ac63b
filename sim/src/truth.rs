//! The truth of a seed, as an observer of everything sees it: which user code ran where, with what, and what was told to
//! users. Everything that may not be is written down as a violation, with the promise it breaks.

use crate::{executor::NodeId, value::Value};
use onceflow_core::{
    model::Effect,
    protocol::ids::{RunId, StepId},
};
use onceflow_store::Position;
use std::collections::{BTreeMap, BTreeSet};

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: &'static str,
    /// What was seen.
    pub seen: String,
}

/// User code that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Where.
    pub node: NodeId,
    /// Its inputs.
    pub inputs: Vec<Value>,
    /// Its task and version.
    pub task: (String, String),
    /// When.
    pub at_ms: u64,
    /// Whether it writes rows of its flow.
    pub writes: bool,
    /// Whether it was taken before its run ended, and came too late.
    pub late: bool,
    /// Whether its run keeps what it computes.
    pub kept: bool,
    /// Whether it can be undone.
    pub undoable: bool,
    /// Since when its run is done, so that it will not be undone. The store may yet lose that.
    pub settled: Option<Position>,
    /// Whether it came to its end, well.
    pub done: Option<Vec<Value>>,
}

/// A step of a plan.
pub type Step = (RunId, u32, StepId);

/// Everything that is known.
#[derive(Default)]
pub struct Truth {
    /// What may not be.
    pub violations: Vec<Violation>,
    /// Bodies that started, by run and address.
    pub ran: BTreeMap<(RunId, String), Vec<Ran>>,
    /// How often a body that must not start twice may start once more, because a user reported so.
    pub permits: BTreeMap<(String, String), usize>,
    /// The same, because the task's own check said so.
    pub verdicts: BTreeMap<(RunId, String), usize>,
    /// When a run has ended, each time it did.
    pub lives: BTreeMap<RunId, Vec<Position>>,
    /// How often a run of this key has ended, also runs whose start was answered to no user.
    pub ends: BTreeMap<String, usize>,
    /// Runs whose end a user was told.
    pub told: BTreeSet<RunId>,
    /// Runs that were asked for more than one thing.
    pub changed: BTreeSet<String>,
    /// Steps of runs that are done and keep what they computed: run, address, task, inputs.
    pub memos: BTreeSet<(RunId, String, (String, String), Vec<Value>)>,
    /// Runs for which a reply was lost.
    pub unanswered: BTreeSet<RunId>,
    /// How often it was told that a step took effect: run key, address.
    pub events: BTreeMap<(String, String), usize>,
    /// When a node took a step of a run, by its claim, unless it has committed under that since.
    pub taken: BTreeMap<(NodeId, RunId), BTreeMap<[u8; 24], Position>>,
    /// Who took a step, by its claim.
    pub takers: BTreeMap<[u8; 24], NodeId>,
    /// When it was written that a body starts which must not start twice: run, claim, and how many attempts had failed.
    pub start_written: BTreeMap<(RunId, [u8; 24], u32), Position>,
    /// How many such bodies started.
    pub once_only: BTreeMap<(NodeId, RunId), usize>,
    /// Runs that were stopped or failed, and are gone: what they did was undone.
    pub given_up: BTreeMap<RunId, Position>,
    /// Compensations that ran: run, address, and whether well.
    pub undone: Vec<(RunId, String, bool)>,
    /// When each step committed, unless that was lost.
    pub committed: BTreeMap<Step, Position>,
    /// Compensations that were registered: run, generation, number; the address; and when.
    pub registered: BTreeMap<(RunId, u32, u32), (String, Position)>,
    /// Those that went because their run was done, and when: the store may yet lose that.
    pub struck: Vec<((RunId, u32, u32), (String, Position), Position)>,
    /// Compensations whose end was committed.
    pub undo_committed: BTreeMap<(RunId, u32, u32), Position>,
    /// Transactional steps that committed, by flow.
    pub written: BTreeMap<Position, (RunId, String)>,
    /// What the user has repaired.
    pub repaired: bool,
    /// Steps that were suspended.
    pub suspended: BTreeSet<(RunId, String)>,
    /// Bodies at work.
    pub working: usize,
    /// All bodies that ever started.
    pub starts: u64,
    /// Expected inputs of every step, by run key; several if the flow or its inputs changed.
    pub known_runs: BTreeMap<RunId, String>,
    /// What may be given to steps: run key, address, task, version; and the inputs.
    pub may_be_given: BTreeMap<(String, String), Vec<(String, String, Vec<Value>)>>,
    /// Runs that keep what they compute.
    pub keepers: BTreeSet<String>,
    /// Runs that mean something else once the world is repaired.
    pub fragile: BTreeSet<String>,
    /// Runs that failed and were not retried.
    pub left: BTreeSet<String>,
    /// Runs of which not everything follows from their inputs.
    pub inexact: BTreeSet<String>,
}

impl Truth {
    /// Something may not be.
    pub fn violate(&mut self, promise: &'static str, seen: impl Into<String>) {
        if self.violations.len() < 20 {
            self.violations.push(Violation { promise, seen: seen.into() });
        }
    }

    /// User code starts.
    pub fn start(
        &mut self,
        (run, address): (RunId, String),
        (effect, attempt): (Effect, u32),
        ran: Ran,
        key_of_run: Option<String>,
    ) -> usize {
        self.starts += 1;
        if let Some(key) = &key_of_run
            && !self.inexact.contains(key)
        {
            let known = self.may_be_given.get(&(key.clone(), address.clone()));
            let found = |(task, version, inputs): &(String, String, Vec<Value>)| {
                (task, version) == (&ran.task.0, &ran.task.1) && *inputs == ran.inputs
            };
            if !known.is_some_and(|known| known.iter().any(found)) {
                let expected = known.map_or(String::from("nothing runs there"), |known| format!("{known:?}"));
                let seen =
                    format!("{key} {address}: {:?} was given {:?}; by the flow: {expected}", ran.task, ran.inputs);
                self.violate("inputs are complete", seen);
            }
        }
        let permit = key_of_run.clone().map(|key| (key, address.clone()));
        let mut permits = permit.and_then(|place| self.permits.get(&place).copied()).unwrap_or(0);
        permits += self.verdicts.get(&(run, address.clone())).copied().unwrap_or(0);
        let starts = self.ran.entry((run, address.clone())).or_default();
        starts.push(ran);
        let at = starts.len() - 1;
        // With other inputs it is something else that is done.
        let count = starts
            .iter()
            .filter(|other| (&other.inputs, &other.task) == (&starts[at].inputs, &starts[at].task))
            .count();
        // Who took the step before the run ended may come late; nothing follows from what it does.
        let ended = self.lives.get(&run).and_then(|ends| ends.last().copied());
        let taken = self.taken.get(&(starts[at].node, run));
        let late = taken.is_some_and(|taken| taken.values().any(|at| Some(*at) <= ended));
        starts[at].late = late;
        if late {
            starts[at].settled = ended;
        }
        let memo = (run, address.clone(), starts[at].task.clone(), starts[at].inputs.clone());
        if !late && starts[at].kept && self.memos.contains(&memo) {
            let seen = format!("{address} of run {run} gave the same before, which was kept, and runs again");
            self.violations.push(Violation { promise: "nothing is redone that need not be", seen });
        }
        let allowed = 1 + permits;
        if effect == Effect::AtMostOnce && count > allowed {
            let seen = format!("{address} of run {run} started {count} times (attempt {attempt}), allowed {allowed}");
            self.violate("at_most_once never twice", seen);
        }
        at
    }

    /// A run is done: what it did and registered is not undone any more.
    pub fn strike(&mut self, run: RunId, position: Position) {
        for (_, ran) in self.ran.iter_mut().filter(|((other, _), _)| *other == run) {
            ran.iter_mut().for_each(|ran| ran.settled = ran.settled.or(Some(position)));
        }
        let gone: Vec<_> = self.registered.keys().filter(|place| place.0 == run).copied().collect();
        for place in gone {
            let registered = self.registered.remove(&place).expect("it was there just now");
            self.struck.push((place, registered, position));
        }
    }

    /// Whether a step was registered to be undone, and the end of that was committed.
    pub fn is_undone(&self, run: RunId, address: &str) -> bool {
        let is_it = |((other, ..), (at, _)): &(&(RunId, u32, u32), &(String, Position))| *other == run && at == address;
        let mut registered = self.registered.iter().filter(is_it).peekable();
        registered.peek().is_some() && registered.all(|(place, _)| self.undo_committed.contains_key(place))
    }

    /// The store forgot everything after this.
    pub fn lost_after(&mut self, position: Position) {
        let lost = |ends: &Vec<Position>| ends.last().is_some_and(|at| *at > position);
        let early = self.lives.iter().find(|(run, ends)| lost(ends) && self.told.contains(run)).map(|(run, _)| *run);
        if let Some(run) = early {
            self.violate("nothing leaves before it is durable", format!("the end of run {run} was told, and is lost"));
        }
        self.lives.values_mut().for_each(|ends| ends.retain(|at| *at <= position));
        self.committed.retain(|_, at| *at <= position);
        self.ran.values_mut().flatten().for_each(|ran| ran.settled = ran.settled.filter(|at| *at <= position));
        for (place, registered, at) in std::mem::take(&mut self.struck) {
            if at <= position {
                self.struck.push((place, registered, at));
            } else {
                self.registered.insert(place, registered);
            }
        }
        self.registered.retain(|_, (_, at)| *at <= position);
        self.undo_committed.retain(|_, at| *at <= position);
        self.written.retain(|at, _| *at <= position);
        self.start_written.retain(|_, at| *at <= position);
        self.given_up.retain(|_, at| *at <= position);
    }
}
