//! The keys of a run's rows.
//!
//! | group | name | row |
//! |---|---|---|
//! | `runs` | the run's key | [`Head`](super::rows::Head) |
//! | `runs.due` | deadline, kind, run, key | [`Due`](super::run::Due): a scheduled removal |
//! | `R` run | `s` | [`RunState`](super::rows::RunState): every commit requires it |
//! | `R` run | `h` | [`Header`](super::rows::Header) |
//! | `r` run, generation | `f` frame | [`Frame`](super::rows::Frame) |
//! | `r` run, generation | `i` step, port | [`Received`](super::rows::Received): a delivery to that input |
//! | `r` run, generation | `j` step | a bitmap of the deliveries that have arrived |
//! | `r` run, generation | `l` | the count of steps in flight; stands just before `p` |
//! | `r` run, generation | `o` | [`Settings`](super::settings::Settings) that a changed flow brought along |
//! | `r` run, generation | `p` step | [`Parked`](super::rows::Parked) |
//! | `r` run, generation | `u` number | [`Undo`](super::rows::Undo) |
//! | `K` run | `m` digest | [`Memo`](super::rows::Memo) |
//! | queue `q`, or `q/` class | run, step | [`ReadyStep`](super::rows::ReadyStep), as the note of an inbox |
//! | queue `w/` digest | run, step | the same, of a task that the worker that claimed it does not offer |
//! | `L` run | the step's address | its log, on a store that several machines share |
//! | `W` run | generation | the reasons why steps of that plan run, or do not |
//! | `E` run | `b` worker, number | a block of events that this worker logged |
//! | `E` run | `h0` worker | the counts of what this worker logged; changes whenever one of its blocks does |
//! | `E` run | `h1` | the value that earlier blocks were sealed into |
//! | `S` run | `o` session | a session of a scope that a step of the run has open; the run ends after it |
//! | `S` run | `e` session | the end of such a session, and messages of its streams, until the step has taken it |
//! | `wanted` | digest | the tasks of such a queue: see [`unserved_name`] |
//! | `timers` | deadline, run, step | [`Timer`](super::timer::Timer): wakes a suspended step |
//! | `workers` | incarnation | the registration of a worker, with its last heartbeat |
//! | `attended` | the run's key | the worker that attends this run, if only one process takes its steps |

use super::ids::{FrameId, Generation, RunId, StepId};
use crate::{
    digest::Digest,
    key::{Group, Key, Name},
    time::Timestamp,
    value::EdgeName,
};

/// Returns the group of the rows of run keys.
pub fn heads() -> Group {
    Group::rows("runs")
}

/// Returns the group of scheduled removals.
pub fn dues() -> Group {
    Group::rows("runs.due")
}

/// Returns the key of a scheduled removal. It contains the kind and the run beside the deadline and the run's key,
/// because several removals may be due at the same time: of a run's row and its memos, or of two runs with one key.
pub fn due(deadline: Timestamp, what: u8, run: RunId, key: &str) -> Key {
    dues().key(Name::join(&[&deadline.to_sortable(), &[what], &run.0, key.as_bytes()]))
}

/// Returns the deadline and the run's key in a name that [`due`] made.
pub fn of_due(name: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (deadline, rest) = name.split_at_checked(8)?;
    Some((Timestamp::from_sortable(deadline)?, rest.get(1 + 8..)?))
}

/// Returns the queue of internal steps, which every worker takes.
pub fn internal_queue() -> Group {
    Group::queue("q")
}

/// Returns the queue of a class of tasks.
pub fn class_queue(class: &str) -> Group {
    Group::queue(format!("q/{class}"))
}

/// Returns the group of the logs of a run's steps, by address; kept as long as its history.
pub fn logs(run: RunId) -> Group {
    Group::rows([&b"L"[..], &run.0].concat())
}

/// Returns the group of the reasons why steps of a run ran, by plan; kept as long as its history.
pub fn reasons(run: RunId) -> Group {
    Group::rows([&b"W"[..], &run.0].concat())
}

/// Returns the group of the sessions of scopes that a run has open, whichever of its plans opened them.
pub fn sessions(run: RunId) -> Group {
    Group::rows([&b"S"[..], &run.0].concat())
}

/// Returns the group of the event log of a run; kept as long as its history.
pub fn events(run: RunId) -> Group {
    Group::rows([&b"E"[..], &run.0].concat())
}

/// Returns the prefix of the names of the blocks of events that a worker logged.
pub fn event_blocks(worker: u128) -> Name {
    Name::join(&[b"b", &worker.to_be_bytes()])
}

/// Returns the name of a block of events, by its worker and number.
pub fn event_block(worker: u128, number: u32) -> Name {
    Name::join(&[b"b", &worker.to_be_bytes(), &number.to_be_bytes()])
}

/// Returns the worker and the number in a name that [`event_block`] made.
pub fn of_event_block(name: &[u8]) -> Option<(u128, u32)> {
    let (worker, number) = name.strip_prefix(b"b")?.split_first_chunk()?;
    Some((u128::from_be_bytes(*worker), u32::from_be_bytes(number.try_into().ok()?)))
}

/// The prefix of the names of all rows of an event log but its blocks.
pub const EVENT_HEADERS: &[u8] = b"h";

/// Returns the name of the row that counts what a worker logged.
pub fn event_header(worker: u128) -> Name {
    Name::join(&[EVENT_HEADERS, b"0", &worker.to_be_bytes()])
}

/// Returns the worker in a name that [`event_header`] made.
pub fn of_event_header(name: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(name.strip_prefix(b"h0")?.try_into().ok()?))
}

/// Returns the name of the row of the sealed part of an event log.
pub fn sealed_events() -> Name {
    Name::join(&[EVENT_HEADERS, b"1"])
}

/// Returns the name of the edge that holds the sealed part of an event log. It belongs to no generation, so that it
/// outlives the outputs of earlier ones; there are two, which take turns when the log is sealed again.
pub fn events_edge(run: RunId, port: u16) -> EdgeName {
    EdgeName::Root(Name::join(&[RESULT, b"r", &run.0, &u32::MAX.to_be_bytes(), &port.to_be_bytes()]))
}

/// Returns the group of the registrations of workers.
pub fn workers() -> Group {
    Group::rows("workers")
}

/// Returns the group of runs that one worker attends, by key. No step depends on these rows.
pub fn attended() -> Group {
    Group::rows("attended")
}

/// Returns the group of tasks whose steps were claimed by workers that do not offer them. A row exists at least as long
/// as its queue has rows.
pub fn unserved() -> Group {
    Group::rows("wanted")
}

/// Returns the name of the row of these tasks, of this class, in [`unserved`]: a digest of the class and of their names
/// and versions; several tasks where a step is fused.
pub fn unserved_name<'a>(class: &str, tasks: impl IntoIterator<Item = (&'a str, &'a str)>) -> Name {
    let mut hasher = blake3::Hasher::new_derive_key("onceflow wanted tasks");
    let mut part = |part: &str| {
        hasher.update(&(part.len() as u64).to_be_bytes()).update(part.as_bytes());
    };
    part(class);
    for (task, version) in tasks {
        part(task);
        part(version);
    }
    Name::new(&hasher.finalize().as_bytes()[..16])
}

/// Returns the queue of steps of such a task: only workers that offer the task claim from it.
pub fn unserved_queue(name: &Name) -> Group {
    Group::queue([&b"w/"[..], name.as_bytes()].concat())
}

/// Returns the class whose queue this is.
pub fn class_of(queue: &Group) -> Option<&str> {
    std::str::from_utf8(queue.id().strip_prefix(b"q/")?).ok()
}

/// The name of the row of settings among the rows of a generation.
pub const SETTINGS: &[u8] = b"o";

/// The prefix of the names of edges that hold outputs of runs.
const RESULT: &[u8] = b"result";

/// Returns the run and the port in a name that [`Keys::result_edge`] made.
pub fn of_result_edge(name: &[u8]) -> Option<(RunId, u16)> {
    let (run, rest) = name.strip_prefix(RESULT)?.strip_prefix(b"r")?.split_first_chunk()?;
    Some((RunId(*run), u16::from_be_bytes(rest.get(4..)?.try_into().ok()?)))
}

/// Returns the prefix of the names of all edges that hold outputs of a run, in any generation.
pub fn results_of(run: RunId) -> Name {
    Name::join(&[RESULT, b"r", &run.0])
}

/// Returns the generation in a name that [`Keys::result_edge`] made.
pub fn generation_of_result_edge(name: &[u8]) -> Option<Generation> {
    let rest = name.strip_prefix(RESULT)?.strip_prefix(b"r")?.get(8..)?;
    Some(Generation(u32::from_be_bytes(*rest.first_chunk()?)))
}

/// Returns the run in a name that [`Keys::kept_edge`] made.
pub fn of_kept_edge(name: &[u8]) -> Option<RunId> {
    Some(RunId(*name.strip_prefix(b"K")?.first_chunk()?))
}

/// The keys of one generation of a run.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The run.
    pub run: RunId,
    /// The generation.
    pub generation: Generation,
    /// The group of the run's rows.
    pub home: Group,
    /// The group of the generation's rows.
    pub rows: Group,
    /// The group of the run's memos.
    pub kept: Group,
}

impl Keys {
    /// Returns the keys of this generation.
    pub fn new(run: RunId, generation: Generation) -> Self {
        Keys {
            run,
            generation,
            home: Group::rows([&b"R"[..], &run.0].concat()),
            rows: Group::rows([&b"r"[..], &run.0, &generation.0.to_be_bytes()].concat()),
            kept: Group::rows([&b"K"[..], &run.0].concat()),
        }
    }

    /// Returns the key of the state, which every commit requires.
    pub fn state(&self) -> Key {
        self.home.key("s")
    }

    /// Returns the key of the header.
    pub fn header(&self) -> Key {
        self.home.key("h")
    }

    /// Returns the key of the count of steps in flight.
    pub fn live(&self) -> Key {
        self.rows.key("l")
    }

    /// Returns the key of the settings that a changed flow brought to the generation.
    pub fn settings(&self) -> Key {
        self.rows.key(SETTINGS)
    }

    /// Returns the key of a frame.
    pub fn frame(&self, frame: FrameId) -> Key {
        self.row(b"f", frame.as_bytes(), b"")
    }

    /// Returns the prefix of the names of the rows in a step's inbox.
    pub fn inbox(&self, step: StepId) -> Name {
        Name::join(&[b"i", &step.to_bytes()])
    }

    /// Returns the key of a delivery to one input of a step.
    pub fn arrival(&self, step: StepId, port: u16) -> Key {
        self.row(b"i", &step.to_bytes(), &port.to_be_bytes())
    }

    /// Returns the input that a row in a step's inbox was delivered to.
    pub fn port_of_arrival(name: &[u8]) -> Option<u16> {
        Some(u16::from_be_bytes(name.get(1 + StepId::BYTES..)?.try_into().ok()?))
    }

    /// Returns the key of the bitmap of the deliveries that have arrived at a step.
    pub fn join(&self, step: StepId) -> Key {
        let step = step.to_bytes();
        crate::seams::join_key(self.row(b"j", &step, b""), &self.rows, &step)
    }

    /// Returns the key of a parked step.
    pub fn parked(&self, step: StepId) -> Key {
        self.row(b"p", &step.to_bytes(), b"")
    }

    /// Returns the key of a registered compensation.
    pub fn undo(&self, number: u32) -> Key {
        self.row(b"u", &number.to_be_bytes(), b"")
    }

    /// Returns the key of the memo with this digest.
    pub fn memo(&self, memo: &Digest) -> Key {
        self.kept.key(Name::join(&[b"m", &memo.as_bytes()[..16]]))
    }

    fn row(&self, kind: &[u8], id: &[u8], more: &[u8]) -> Key {
        Key { group: self.rows.clone(), name: Name::join(&[kind, id, more]) }
    }

    /// Returns the name of the edge that holds a value for a row of this generation.
    pub fn edge(&self, row: &Key, port: u16) -> EdgeName {
        EdgeName::Root(Name::join(&[self.rows.id(), row.name.as_bytes(), &port.to_be_bytes()]))
    }

    /// Returns the name of the edge that holds an output of a finished run, its program or its sealed record.
    pub fn result_edge(&self, port: u16) -> EdgeName {
        EdgeName::Root(Name::join(&[RESULT, self.rows.id(), &port.to_be_bytes()]))
    }

    /// Returns the name of the edge that holds an output of the memo with this row name: see [`Keys::memo`].
    pub fn kept_edge(&self, row: &[u8], port: u16) -> EdgeName {
        EdgeName::Root(Name::join(&[self.kept.id(), row.get(1..).unwrap_or_default(), &port.to_be_bytes()]))
    }

    /// Returns the prefix of the elements of a list that a frame gathers.
    pub fn elements(&self, frame: FrameId, port: u16) -> Name {
        Name::join(&[self.rows.id(), frame.as_bytes(), &port.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_two_runs_of_one_key_are_due_apart() {
        let at = Timestamp::from_ms(7);
        let [one, two] = [1, 2].map(|id| due(at, b'k', RunId([id; 8]), "order"));
        assert_ne!(one, two);
        assert_eq!(of_due(one.name.as_bytes()), Some((at, &b"order"[..])));
        assert_eq!(of_due(b"short"), None);
    }

    #[test]
    fn an_edge_of_what_a_run_gave_or_keeps_says_whose_it_is() {
        let (run, memo) = (RunId(*b"01234567"), Digest::from_bytes([7; 32]));
        let keys = Keys::new(run, Generation(9));
        let (result, kept) = (keys.result_edge(258), keys.kept_edge(keys.memo(&memo).name.as_bytes(), 3));
        let (result, kept) = (result.name(), kept.name());
        assert_eq!(of_result_edge(result.as_bytes()), Some((run, 258)));
        assert_eq!(of_kept_edge(kept.as_bytes()), Some(run));
        assert_eq!(generation_of_result_edge(result.as_bytes()), Some(Generation(9)));
        assert!(result.as_bytes().starts_with(results_of(run).as_bytes()));
        assert_eq!(*kept, Name::join(&[keys.kept.id(), &memo.as_bytes()[..16], &[0, 3]]));
        assert_eq!((of_result_edge(kept.as_bytes()), of_kept_edge(result.as_bytes())), (None, None));
        for len in 0..result.as_bytes().len() {
            assert_eq!(of_result_edge(&result.as_bytes()[..len]), None, "{len}");
        }
        assert_eq!((of_kept_edge(b"K0123"), of_result_edge(b"resultr")), (None, None));
    }
}
