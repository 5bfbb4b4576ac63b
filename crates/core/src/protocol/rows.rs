//! The contents of a run's rows. Each begins with a version byte, so that a later version of onceflow can read them.

mod encoding;

use super::ids::{Generation, RunId, StepId};
use crate::{digest::Digest, fence::Fence, model::program::BlockIndex, payload::Outcome, row::Row, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use encoding::VERSION;
pub(crate) use encoding::write_after;
pub use encoding::{ListWriter, bytes, read, read_list, write};

/// The row that every commit requires. It contains no progress, so it does not change while steps of the run commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The current generation.
    pub generation: Generation,
    /// The phase of the run.
    pub phase: Phase,
    /// The number of the [`Settings`](super::settings::Settings) of the generation; 0 if it has none. Written only if
    /// it is not 0, as in rows of earlier versions.
    pub settings: u32,
}

impl Serialize for RunState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.settings {
            0 => (self.generation, self.phase).serialize(serializer),
            settings => (self.generation, self.phase, settings).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RunState {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A number that may be missing at the end of a row.
        struct Last(u32);
        impl<'de> Deserialize<'de> for Last {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Last(u32::deserialize(deserializer).unwrap_or(0)))
            }
        }
        let (generation, phase, Last(settings)) = Deserialize::deserialize(deserializer)?;
        Ok(RunState { generation, phase, settings })
    }
}

impl RunState {
    /// Returns the state of a generation that begins.
    pub fn begins(generation: Generation) -> Self {
        RunState { generation, phase: Phase::Running, settings: 0 }
    }

    /// Encodes the state. Commits compare it byte by byte, also with rows of earlier versions, so it still has no
    /// checksum.
    pub fn to_row(&self) -> Row {
        /// More than the version, two numbers, and a phase with its time take.
        const BYTES_MAX: usize = 32;
        let mut bytes = [VERSION; BYTES_MAX];
        let len = postcard::to_slice(self, &mut bytes[1..]).expect("a state is small").len();
        Row::new(&bytes[..1 + len])
    }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Steps are claimed and committed.
    Running,
    /// A step failed: no more bodies start; steps in flight may still commit.
    Failing,
    /// A user cancelled the run: as failing, but it cannot be retried.
    Cancelling,
    /// No step is in flight; failed steps can be retried until the history ends.
    Failed {
        /// When the history ends.
        until: Timestamp,
    },
    /// No step is in flight; the outcome of an at-most-once step is unknown, and an operator must report it.
    Waiting,
    /// Compensations run, after a failure.
    UndoingFailed,
    /// Compensations run, after a cancel.
    UndoingCancelled,
    /// A new plan is being made: no step is claimed and none commits.
    Frozen,
    /// Rows are being removed, after a failure whose history has ended: no record remains.
    RemovingFailed,
    /// Rows are being removed, after a cancel.
    RemovingCancelled,
    /// The run failed and its history has ended: its rows are to be removed.
    Expired,
    /// No step is in flight; a compensation failed for good, and an operator must decide.
    NotUndone {
        /// The run was cancelled; else it failed.
        cancelled: bool,
    },
}

impl Phase {
    /// Bodies may start.
    pub fn dispatches(self) -> bool {
        matches!(self, Phase::Running)
    }

    /// Compensations run: no other step is left.
    pub fn is_undoing(self) -> bool {
        matches!(self, Phase::UndoingFailed | Phase::UndoingCancelled)
    }

    /// The run failed and can be retried.
    pub fn is_failed(self) -> bool {
        matches!(self, Phase::Failed { .. })
    }

    /// The run is removed because its history has ended.
    pub fn expires(self) -> bool {
        matches!(self, Phase::Expired | Phase::RemovingFailed)
    }

    /// Steps in flight may commit.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Running | Phase::Failing | Phase::Cancelling)
    }
}

/// A ready step: the content of its row in a queue, with everything a worker needs beside the program and the frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyStep {
    /// The generation that the step belongs to.
    pub generation: Generation,
    /// The block its node is in.
    pub block: BlockIndex,
    /// Attempts that have failed.
    pub failed: u32,
    /// The claim under which the body of an at-most-once step was started.
    pub started: Option<Fence>,
    /// For a lane: the chunk it opens next.
    pub cursor: u32,
    /// Its deliveries, if one commit brought them all; else they are in the inbox.
    pub inputs: Vec<Received>,
    /// The suspended attempt that it continues. Rows of earlier versions end before this field.
    #[serde(deserialize_with = "none_at_the_end")]
    pub resumed: Option<Resumed>,
}

impl ReadyStep {
    /// Returns a step that was never tried, with these deliveries.
    pub fn begins(generation: Generation, block: BlockIndex, inputs: Vec<Received>) -> Self {
        ReadyStep { generation, block, failed: 0, started: None, cursor: 0, inputs, resumed: None }
    }
}

/// The continuation of a suspended attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The handle that the attempt was suspended with.
    pub handle: String,
    /// The deadline of the suspension has passed.
    pub timed_out: bool,
}

/// Reads an optional last field; the row may end before it.
fn none_at_the_end<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(row: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(row).unwrap_or(None))
}

/// A delivery to an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The input.
    pub port: u16,
    /// The delivery has an edge to its value, which is cleared when it is consumed; else a frame that outlives it holds
    /// the value.
    pub owned: bool,
    /// The outcome that was delivered.
    pub outcome: Outcome,
}

/// A frame: one execution of a loop, each, choice or call, or the run itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The block that is instantiated.
    pub block: BlockIndex,
    /// The step that opened it, and the block of its node; `None` for the run.
    pub opened_by: Option<(StepId, BlockIndex)>,
    /// How many frames are around it.
    pub depth: u32,
    /// A module with `attempt` around it handles failures, so they are delivered instead of ending the run.
    pub guarded: bool,
    /// The shape of its instances.
    pub shape: Shape,
    /// The inputs that all instances share; for varying inputs of an each, the lists.
    pub inputs: Vec<Option<Held>>,
    /// The memo it was opened for, in runs that keep memos.
    pub memo: Option<Digest>,
}

/// An input of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The frame has an edge to the value.
    pub owned: bool,
    /// The outcome.
    pub outcome: Outcome,
}

/// The instances of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// The run itself.
    Run,
    /// A single instance, or iterations one after the other.
    Single,
    /// An instance for every element.
    Each(Elements),
}

/// How the elements of an each are opened: in chunks, which take turns on lanes. A chunk opens when the one before it
/// on its lane has ended, so that at most `lanes * chunk` elements are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elements {
    /// The number of elements.
    pub n: u32,
    /// The number of elements in one chunk.
    pub chunk: u32,
    /// The number of chunks in flight at a time.
    pub lanes: u32,
}

impl Elements {
    /// Returns the elements of a chunk.
    pub fn of_chunk(self, chunk: u32) -> std::ops::Range<u32> {
        let first = chunk.saturating_mul(self.chunk).min(self.n);
        first..first.saturating_add(self.chunk).min(self.n)
    }

    /// Returns the chunk an element is in.
    pub fn chunk_of(self, element: u32) -> u32 {
        element / self.chunk
    }

    /// Returns the number of chunks.
    pub fn chunks(self) -> u32 {
        self.n.div_ceil(self.chunk)
    }
}

/// A parked step: out of its queue until the run is retried or an operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The reason.
    pub why: Why,
    /// The queue it goes back to.
    pub class: Option<String>,
    /// The content of its ready row, as it goes back there.
    pub ready_step: ReadyStep,
}

/// The reason why a step is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The run stopped before the step was started.
    NotStarted,
    /// The step failed.
    Failed(Failed),
    /// The body was started, and its outcome is unknown.
    Unknown {
        /// The claim under which it was started; that worker may still report the result.
        started: Fence,
        /// The address of the step.
        address: Arc<str>,
    },
    /// The attempt is suspended: something outside ends it, or its deadline.
    Suspended {
        /// The address of the step.
        address: Arc<str>,
        /// The handle by which its body takes up the attempt, or cancels it.
        handle: String,
        /// The deadline; a [`Timer`](super::timer::Timer) stands until then.
        wakes: Option<Timestamp>,
    },
}

impl Why {
    /// Returns the address of a step whose outcome an operator or an event reports.
    pub fn awaited(&self) -> Option<&Arc<str>> {
        match self {
            Why::Unknown { address, .. } | Why::Suspended { address, .. } => Some(address),
            Why::NotStarted | Why::Failed(_) => None,
        }
    }
}

/// A failure, as it is stored and reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The address of the step.
    pub address: Arc<str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The error, followed by its causes.
    pub causes: Vec<String>,
    /// The body was at-most-once and started, so it may have taken effect in part.
    pub started: bool,
}

/// The parameters that a run was started with. They change only with a new generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The key of the run.
    pub key: String,
    /// The name of the flow.
    pub flow: String,
    /// The value that holds the program that is run.
    pub program: crate::payload::Stored,
    /// The value that holds the whole program, if the program that is run is only a part of it.
    pub full: Option<crate::payload::Stored>,
    /// Digest of the flow as it was started, before planning.
    pub asked: Digest,
    /// Digests of the inputs by name.
    pub inputs: Vec<(String, Digest)>,
    /// The requested outputs; `None` is all.
    pub requested: Option<Vec<String>>,
    /// Steps that do not depend on a failed one continue.
    pub finish_independent: bool,
    /// How long inner values outlive the run; `None` is not at all.
    pub keep_ms: Option<u64>,
    /// How long the result can be read.
    pub history_ms: u64,
    /// When the run was first started.
    pub started: Timestamp,
    /// Hashes of the addresses of steps that earlier plans of the run have completed and that must not simply run
    /// again, including steps that this plan does not have.
    pub done_before: Vec<u64>,
}

/// The row of a run's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Head {
    /// The run is not finished.
    Active(RunId),
    /// The run is finished; this record remains.
    Finished(Box<Finished>),
}

/// The record of a finished run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The run.
    pub run: RunId,
    /// The generation of its last plan.
    pub generation: Generation,
    /// How it ended.
    pub status: Status,
    /// The parameters it was started with.
    pub header: Header,
    /// When it ended.
    pub ended: Timestamp,
    /// The outputs, held by leases until the history ends.
    pub outputs: Vec<(String, Outcome)>,
    /// The value of the sealed record: everything else that can be queried about the run.
    pub sealed: Option<crate::payload::Stored>,
}

/// The final status of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Every requested output exists.
    Done,
    /// The run failed, and was undone as far as possible.
    Failed {
        /// The first failures.
        failures: Vec<Failed>,
        /// The steps that could not be undone.
        undone: Vec<Failed>,
    },
    /// The run was cancelled, and undone as far as possible.
    Cancelled {
        /// The steps that could not be undone.
        undone: Vec<Failed>,
    },
}

/// A compensation, registered before the body of its step runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The step it undoes.
    pub step: StepId,
    /// The step's address.
    pub address: Arc<str>,
    /// The task that undoes it: index into the program's tasks.
    pub task: u32,
    /// The inputs of the compensation: those of the step.
    pub inputs: Vec<Held>,
    /// Attempts that have failed.
    pub failed: u32,
}

/// The kept outputs of a step, in runs that keep memos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memo {
    /// The outputs.
    pub outputs: Vec<Outcome>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Fences;

    #[test]
    fn the_state_of_a_run_without_settings_is_written_as_before() {
        let state = RunState::begins(Generation(7));
        let before = Row::from(postcard::to_extend(&(Generation(7), Phase::Running), vec![VERSION]).unwrap());
        assert_eq!(state.to_row(), before);
        for settings in [0, 1, 127, 128, u32::MAX] {
            let state = RunState { settings, phase: Phase::Failed { until: Timestamp::from_ms(9) }, ..state };
            assert_eq!(read::<RunState>(&state.to_row()), Some(state));
        }
    }

    #[test]
    fn ready_and_parked_rows_of_earlier_versions_resume_nothing() {
        let started = Some(Fences::new(3).next());
        let received = Received { port: 2, owned: true, outcome: Outcome::None };
        // All fields but the last, as earlier versions wrote them.
        let before = (Generation(4), 5 as BlockIndex, 6_u32, started, 7_u32, vec![received.clone()]);
        let ready_step = ReadyStep {
            generation: Generation(4),
            block: 5,
            failed: 6,
            started,
            cursor: 7,
            inputs: vec![received],
            resumed: None,
        };
        assert_eq!(read::<ReadyStep>(&write(&before)), Some(ready_step.clone()));
        let parked = Parked { why: Why::NotStarted, class: Some("c".into()), ready_step: ready_step.clone() };
        assert_eq!(read::<Parked>(&write(&(Why::NotStarted, Some("c"), &before))), Some(parked));
        let resumed = Some(Resumed { handle: "job 7".into(), timed_out: true });
        let ready_step = ReadyStep { resumed, ..ready_step };
        assert_eq!(read::<ReadyStep>(&write(&ready_step)), Some(ready_step));
    }
}
