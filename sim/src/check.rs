//! What must be so of the rows, at any moment and at the end.

use crate::{
    executor::{at_once, lock},
    room::Room,
    truth::Truth,
};
use onceflow_core::{
    Inbox, Key, Kind, Row, Shard,
    payload::Outcome,
    protocol::{
        draft::stored,
        ids::{RunId, SETTLE, StepId, TEARDOWN, UNDO},
        rows::{self, Frame, Header, Parked, ReadyStep, Received, RunState, Undo},
    },
    row::counter,
};
use onceflow_store::values::fsck::Mode;
use std::collections::{BTreeMap, BTreeSet};

/// What must be so at any moment between two batches.
pub fn anytime(room: &Room) {
    let report = at_once(room.values().fsck(Mode::Check)).expect("nothing goes wrong with who checks");
    if !report.is_clean() || !report.lost.is_empty() {
        lock(&room.truth).violate("fsck finds nothing", report.to_string());
    }
    let rows = room.store.state().all();
    counts(room, &rows);
    holds(room, &rows);
    crate::bounded::look(room, &rows);
}

/// The counter of a run says how many of its steps are ready or taken.
fn counts(room: &Room, all: &[(Shard, Key, Row)]) {
    let mut ready: BTreeMap<(RunId, u32), i64> = BTreeMap::new();
    let mut counted: BTreeMap<(RunId, u32), i64> = BTreeMap::new();
    let mut states: BTreeMap<RunId, RunState> = BTreeMap::new();
    for (_, key, row) in all {
        let (id, name) = (key.group.id(), key.name.as_bytes());
        if key.group.kind() == Kind::Queue {
            let step = StepId::from_queue_name(name);
            let ready_step = Inbox::from_row(row).and_then(|inbox| rows::read::<ReadyStep>(&inbox.note));
            if let (Some((run, step)), Some(ready_step)) = (step, ready_step)
                && !matches!(step.node, SETTLE | TEARDOWN | UNDO)
            {
                *ready.entry((run, ready_step.generation.0)).or_default() += 1;
            }
        } else if id.first() == Some(&b'r') && id.len() == 13 && name == b"l" {
            let run = RunId(id[1..9].try_into().expect("eight bytes"));
            let generation = u32::from_be_bytes(id[9..].try_into().expect("four bytes"));
            counted.insert((run, generation), counter::read(row).unwrap_or(-1));
        } else if id.first() == Some(&b'R') && id.len() == 9 && name == b"s" {
            let run = RunId(id[1..].try_into().expect("eight bytes"));
            states.extend(rows::read::<RunState>(row).map(|state| (run, state)));
        }
    }
    for (run, state) in states {
        let place = (run, state.generation.0);
        let (ready, counted) = (ready.get(&place).copied(), counted.get(&place).copied());
        if ready != counted && !matches!(format!("{:?}", state.phase).as_str(), "RemovingFailed" | "RemovingCancelled")
        {
            let seen = format!("run {run} has {ready:?} steps ready or taken, and counts {counted:?} in {state:?}");
            lock(&room.truth).violate("one counter says what is in flight", seen);
        }
    }
}

/// Whatever a row refers to is there.
fn holds(room: &Room, all: &[(Shard, Key, Row)]) {
    let values: std::collections::BTreeSet<&[u8]> =
        all.iter().filter(|(_, key, _)| key.group.id() == b"values").map(|(_, key, _)| key.name.as_bytes()).collect();
    let mut missing = Vec::new();
    let mut need = |key: &Key, outcome: &Outcome| {
        if let Some(id) = stored(outcome)
            && !values.contains(id.as_bytes())
        {
            missing.push(format!("{key} refers to {id:?}, which is not there"));
        }
    };
    for (_, key, row) in all {
        let (id, name) = (key.group.id(), key.name.as_bytes());
        if key.group.kind() == Kind::Queue {
            let ready_step = Inbox::from_row(row).and_then(|inbox| rows::read::<ReadyStep>(&inbox.note));
            ready_step
                .iter()
                .flat_map(|ready_step| &ready_step.inputs)
                .for_each(|received| need(key, &received.outcome));
        } else if id.first() == Some(&b'r') && id.len() == 13 {
            match name.first() {
                Some(b'f') => {
                    let frame = rows::read::<Frame>(row);
                    frame
                        .iter()
                        .flat_map(|frame| frame.inputs.iter().flatten())
                        .for_each(|held| need(key, &held.outcome));
                }
                Some(b'i') => rows::read::<Received>(row).iter().for_each(|received| need(key, &received.outcome)),
                Some(b'p') => {
                    let parked = rows::read::<Parked>(row);
                    let inputs = parked.iter().flat_map(|parked| &parked.ready_step.inputs);
                    inputs.for_each(|received| need(key, &received.outcome));
                }
                Some(b'u') => {
                    let undo = rows::read::<Undo>(row);
                    undo.iter().flat_map(|undo| &undo.inputs).for_each(|held| need(key, &held.outcome));
                }
                _ => {}
            }
        }
    }
    if let Some(first) = missing.first() {
        lock(&room.truth).violate("nothing live is missing", format!("{first}; {} in all", missing.len()));
    }
}

/// Groups that may hold rows when every run has ended.
const MAY_REMAIN: [&[u8]; 8] = [
    b"runs",
    b"runs.due",
    b"values",
    b"values.counts",
    b"values.edges",
    b"values.due",
    b"values.sealed",
    b"values.sweeper",
];

/// Reclaims all there is to reclaim now.
fn reclaim(room: &Room) -> Option<onceflow_core::Timestamp> {
    loop {
        let done = at_once(room.values().reclaim(usize::MAX)).expect("nothing goes wrong with who checks");
        if !done.more {
            return done.next_deadline;
        }
    }
}

/// Runs that failed, were not retried, and whose history lasts or has just ended.
fn failed(room: &Room, all: &[(Shard, Key, Row)]) -> BTreeSet<RunId> {
    let (mut states, mut left) = (BTreeMap::new(), BTreeSet::new());
    for (_, key, row) in all.iter().filter(|(_, key, _)| key.group.id().first() == Some(&b'R')) {
        let run = run_of(key);
        match key.name.as_bytes() {
            b"s" => states.extend(run.zip(rows::read::<RunState>(row))),
            b"h" => {
                let key = rows::read::<Header>(row).map(|header| header.key).unwrap_or_default();
                left.extend(run.filter(|_| lock(&room.truth).left.contains(&key)));
            }
            _ => {}
        }
    }
    left.retain(|run| states.get(run).is_some_and(|state| state.phase.is_failed() || state.phase.expires()));
    left
}

/// The run whose row this is, if it goes with its run.
fn run_of(key: &Key) -> Option<RunId> {
    let (id, name) = (key.group.id(), key.name.as_bytes());
    match (key.group.kind(), id.first()) {
        (Kind::Queue | Kind::Claims | Kind::Deadlines, _) => StepId::from_queue_name(name).map(|(run, _)| run),
        (_, Some(b'R' | b'r')) => id.get(1..9)?.try_into().ok().map(RunId),
        _ => None,
    }
}

/// Every run has ended: of each there are only its row, its outputs and its sealed record, why its steps ran, its event
/// log, and what it keeps.
pub fn at_rest(room: &Room) {
    reclaim(room);
    let all = room.store.state().all();
    let left = failed(room, &all);
    for (_, key, row) in all {
        let id = key.group.id();
        let may = MAY_REMAIN.contains(&id)
            || id.starts_with(b"K")
            || id.starts_with(b"W")
            || id.starts_with(b"E")
            || id.starts_with(b"flow/")
            || id == b"values.uploads";
        if !may && !run_of(&key).is_some_and(|run| left.contains(&run)) {
            let seen = format!("{key} is left: {row:?}");
            lock(&room.truth).violate("nothing is left behind", seen);
            return;
        }
    }
    anytime(room);
}

/// The history of every run has ended: nothing at all is left.
pub fn at_the_end(room: &Room) {
    let mut tries = 0;
    while let Some(next) = reclaim(room) {
        room.sim.jump(next.ms_since(room.store.now()).max(1));
        tries += 1;
        if tries > 10_000 {
            lock(&room.truth).violate("nothing is left behind", "reclaiming has no end");
            return;
        }
    }
    anytime(room);
    let left: Vec<_> = room
        .store
        .state()
        .all()
        .into_iter()
        .filter(|(_, key, _)| key.group.id() != b"values.sweeper" && !key.group.id().starts_with(b"flow/"))
        .collect();
    if let Some((_, key, row)) = left.first() {
        let seen = format!("{} rows are left, the first is {key}: {row:?}", left.len());
        lock(&room.truth).violate("nothing is left behind", seen);
    }
    let objects = at_once(room.blobs.list(None, 10)).expect("memory answers").objects;
    if !objects.is_empty() {
        lock(&room.truth).violate("nothing is left behind", format!("objects are left: {objects:?}"));
    }
}

/// What was written by transactional steps was written once for each that committed.
pub fn written(room: &Room) {
    let group = onceflow_core::Group::rows("flow/main");
    let rows = room.store.state().all();
    let count = rows.iter().find(|(_, key, _)| key.group == group && key.name.as_bytes().ends_with(b"count"));
    let count = count.map_or(0, |(_, _, row)| u64::from_be_bytes(row[..].try_into().expect("a count")));
    let mut truth = lock(&room.truth);
    let committed = truth.written.len() as u64;
    let wrote = |((run, _), ran): &(&(RunId, String), &Vec<crate::truth::Ran>)| {
        let single = truth.known_runs.get(run).is_some_and(|key| !truth.changed.contains(key));
        let ended = truth.lives.contains_key(run) && !truth.given_up.contains_key(run);
        single && ended && ran.iter().any(|ran| ran.writes && ran.done.is_some())
    };
    let must = truth.ran.iter().filter(wrote).count() as u64;
    if count < must {
        let seen = format!("{must} transactional steps ran in runs that are done, and the flow counted {count}");
        truth.violate("what a transactional step writes rides in its commit", seen);
    }
    if count != committed {
        let seen = format!("{committed} transactional steps committed, and the flow counted {count}");
        truth.violate("what a transactional step writes rides in its commit", seen);
    }
}

/// That a step took effect is told once at most, of runs that were asked for one thing and lived once. Who got no answer
/// to a commit and finds the step gone cannot know whether another did it: it tells what is true, and so may the other.
pub fn told_once(truth: &mut Truth) {
    let lives = |key: &str| truth.ends.get(key).copied().unwrap_or(0);
    let answered = |key: &str| !truth.known_runs.iter().any(|(run, at)| at == key && truth.unanswered.contains(run));
    let plain = |key: &String| !truth.changed.contains(key) && lives(key) <= 1 && answered(key);
    let twice = truth.events.iter().find(|((key, _), n)| **n > 1 && plain(key));
    if let Some(((key, address), n)) = twice {
        let seen = format!("{address} of {key} was told {n} times to have taken effect");
        truth.violate("at most one committed value per step", seen);
    }
}

/// Compensations ran as they were registered: the last first, each to its end, none after the run was done.
pub fn undone(truth: &mut Truth) {
    let mut last: BTreeMap<RunId, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (run, address, _) in &truth.undone {
        let mut numbers = truth.registered.iter().filter(|((other, _, _), (at, _))| other == run && at == address);
        let Some(((_, _, number), _)) = numbers.next_back() else {
            wrong.push(format!("{address} of run {run} was undone, and never registered"));
            continue;
        };
        let before = last.entry(*run).or_insert(u32::MAX);
        if *number > *before {
            wrong.push(format!("{address} of run {run} was undone after what was registered before it"));
        }
        *before = *number;
    }
    for ((run, generation, number), (address, _)) in &truth.registered {
        let began = truth.undone.iter().any(|(other, ..)| other == run);
        let well = truth.undone.iter().any(|(other, at, well)| other == run && at == address && *well);
        if began && !well && truth.undo_committed.contains_key(&(*run, *generation, *number)) {
            wrong.push(format!("{address} of run {run} was not undone, and others were"));
        }
    }
    for ((run, address), ran) in truth.ran.iter().filter(|((run, _), _)| truth.given_up.contains_key(run)) {
        let well = truth.undone.iter().any(|(other, at, well)| other == run && at == address && *well);
        if ran.iter().any(|ran| ran.undoable && ran.settled.is_none()) && !well {
            wrong.push(format!("{address} of run {run} ran, the run is given up, and it was not undone"));
        }
    }
    for seen in wrong {
        truth.violate("compensations once, in order", seen);
    }
}
