//! What the rows of a run hold. Each begins with a version byte, so that a later version can tell what it reads.

use super::ids::{Generation, RunId, StepId};
use crate::{digest::Digest, fence::Fence, model::program::BlockIndex, payload::Outcome, row::Row, time::Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

const VERSION: u8 = 1;

/// Of rows that end with a checksum. A store on a server has none of its own.
const CHECKED: u8 = 2;

/// A row that says this.
pub fn write<T: Serialize>(content: &T) -> Row {
    Row::from(bytes(content))
}

/// The bytes of a row that says this: for what is too large to be one.
pub fn bytes<T: Serialize>(content: &T) -> Vec<u8> {
    let mut bytes = postcard::to_extend(content, vec![CHECKED]).expect("rows are plain data");
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Reads what [`write()`] wrote, also before rows had a checksum; `None` if the row is something else.
pub fn read<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    match row.split_first()? {
        (&VERSION, rest) => postcard::from_bytes(rest).ok(),
        (&CHECKED, _) => {
            let (content, sum) = row.split_last_chunk::<4>()?;
            let is_whole = crc32fast::hash(content) == u32::from_le_bytes(*sum);
            is_whole.then(|| postcard::from_bytes(&content[1..]).ok())?
        }
        _ => None,
    }
}

/// The row that every commit compares. It holds no progress, so that it stays the same while a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Which plan is valid.
    pub generation: Generation,
    /// What the run is doing.
    pub phase: Phase,
}

impl State {
    /// The row that says so. It is compared byte by byte, also with one that an earlier version wrote, so it is written as it
    /// always was: without a checksum.
    pub fn to_row(&self) -> Row {
        Row::from(postcard::to_extend(self, vec![VERSION]).expect("rows are plain data"))
    }
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Steps are taken and committed.
    Running,
    /// A step failed, and no others are taken; those in flight may still commit.
    Failing,
    /// As failing, but the run will not go on.
    Cancelling,
    /// Nothing is in flight; what failed can be tried again, until its history ends.
    Failed {
        /// When that is.
        until: Timestamp,
    },
    /// Nothing is in flight; the outcome of a step is not known, and someone must say.
    Waiting,
    /// What was done is being undone, after a failure.
    UndoingFailed,
    /// What was done is being undone, after it was cancelled.
    UndoingCancelled,
    /// A new plan is being made; nothing is taken and nothing committed.
    Frozen,
    /// What is left is being removed, after a failure whose history has ended: nothing will remain.
    RemovingFailed,
    /// What is left is being removed, after it was cancelled.
    RemovingCancelled,
    /// It failed, and its history has ended: what is left is to be removed.
    Expired,
    /// Nothing is in flight; some of what was done could not be undone, and someone must say how it goes on.
    NotUndone {
        /// Whether it was cancelled; else it failed.
        cancelled: bool,
    },
}

impl Phase {
    /// Whether user code of steps may be started.
    pub fn dispatches(self) -> bool {
        matches!(self, Phase::Running)
    }

    /// Whether it failed, and can be tried again.
    pub fn is_failed(self) -> bool {
        matches!(self, Phase::Failed { .. })
    }

    /// Whether it goes because its history has ended.
    pub fn expires(self) -> bool {
        matches!(self, Phase::Expired | Phase::RemovingFailed)
    }

    /// Whether steps that were started may commit.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Running | Phase::Failing | Phase::Cancelling)
    }
}

/// The content of a step's row in a queue: all that its worker must know beside its program and frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyStep {
    /// Whose plan it belongs to.
    pub generation: Generation,
    /// The block its node is in.
    pub block: BlockIndex,
    /// Attempts that have failed.
    pub failed: u32,
    /// Who started the body, if that must not happen twice.
    pub started: Option<Fence>,
    /// For a lane: the chunk it opens next.
    pub cursor: u32,
    /// What it was enabled with, if one commit brought it all; else the inbox has it.
    pub inputs: Vec<Received>,
}

/// Something that arrived at an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The input.
    pub port: u16,
    /// Whether an edge was set for it that goes when it is consumed; else someone holds it who lives longer.
    pub owned: bool,
    /// What arrived.
    pub outcome: Outcome,
}

/// A loop, each, choice or call while it lives, or the run itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// What is instantiated.
    pub block: BlockIndex,
    /// The step that opened it, and the block of its node; none for the run.
    pub opened_by: Option<(StepId, BlockIndex)>,
    /// How many frames are around it.
    pub depth: u32,
    /// Whether something around it handles failures, so that they travel instead of ending the run.
    pub guarded: bool,
    /// What its instances are.
    pub shape: Shape,
    /// The inputs that all instances share; of those that vary, the lists. The flag says whether it holds an edge.
    pub inputs: Vec<Option<Held>>,
    /// What it was opened for, for runs that keep what they computed.
    pub memo: Option<Digest>,
}

/// An input of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Whether an edge was set for it.
    pub owned: bool,
    /// What it is.
    pub outcome: Outcome,
}

/// What the instances of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// The run itself.
    Run,
    /// One instance, or one after the other.
    Single,
    /// One for every element.
    Each(Elements),
}

/// How the elements of an each are opened: in chunks, which take turns on lanes. A chunk opens when the one before it
/// on its lane has ended, so that at most `lanes * chunk` elements are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elements {
    /// How many.
    pub n: u32,
    /// How many in one chunk.
    pub chunk: u32,
    /// How many chunks at a time.
    pub lanes: u32,
}

impl Elements {
    /// The elements of a chunk.
    pub fn of_chunk(self, chunk: u32) -> std::ops::Range<u32> {
        let first = chunk.saturating_mul(self.chunk).min(self.n);
        first..first.saturating_add(self.chunk).min(self.n)
    }

    /// The chunk an element is in.
    pub fn chunk_of(self, element: u32) -> u32 {
        element / self.chunk
    }

    /// How many chunks there are.
    pub fn chunks(self) -> u32 {
        self.n.div_ceil(self.chunk)
    }
}

/// A step that was taken out of its queue and waits for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Why.
    pub why: Why,
    /// The queue it goes back to.
    pub class: Option<String>,
    /// Its row there.
    pub ready_step: ReadyStep,
}

/// Why a step is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The run stopped before it was started.
    NotStarted,
    /// It failed.
    Failed(Failed),
    /// It was started, and whether it was done is not known.
    Unknown {
        /// Who started it; may still say.
        started: Fence,
        /// Where.
        address: Arc<str>,
    },
}

/// A failure, as it is stored and told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Where.
    pub address: Arc<str>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What went wrong, and below it, what caused that.
    pub causes: Vec<String>,
    /// Whether it may have been done in part, by a body that must not start twice.
    pub started: bool,
}

/// A run while it is not finished: what was asked for. Changes only with a new generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What people call the run.
    pub key: String,
    /// What people call the flow.
    pub flow: String,
    /// The value that holds the program that is run.
    pub program: crate::payload::Stored,
    /// The value that holds all that was asked for, if the program is only what was still to do of it.
    pub full: Option<crate::payload::Stored>,
    /// Digest of the flow as it was asked for, before planning.
    pub asked: Digest,
    /// Digests of the inputs by name.
    pub inputs: Vec<(String, Digest)>,
    /// Which outputs were asked for; none is all.
    pub requested: Option<Vec<String>>,
    /// Go on with what does not depend on a failed step.
    pub finish_independent: bool,
    /// How long inner values outlive the run; none is not at all.
    pub keep_ms: Option<u64>,
    /// How long the result can be asked for.
    pub history_ms: u64,
    /// When it was started first.
    pub started: Timestamp,
    /// Steps that earlier plans of the run have done and that must not simply run again, also such as this plan does not
    /// have: the marks of their addresses.
    pub done_before: Vec<u64>,
}

/// What the key of a run leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Head {
    /// It is at work, or could be.
    Active(RunId),
    /// It has ended; this is what remains.
    Finished(Box<Finished>),
}

/// What remains of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Which run it was.
    pub run: RunId,
    /// Its last plan.
    pub generation: Generation,
    /// How it ended.
    pub status: Status,
    /// What was asked for.
    pub header: Header,
    /// When it ended.
    pub ended: Timestamp,
    /// The outputs, held by leases until the history ends.
    pub outputs: Vec<(String, Outcome)>,
    /// The sealed record: a value with what else can be asked.
    pub sealed: Option<crate::payload::Stored>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Every requested output is there.
    Done,
    /// It failed, and was undone as far as it could be.
    Failed {
        /// What went wrong first.
        failures: Vec<Failed>,
        /// What could not be undone.
        undone: Vec<Failed>,
    },
    /// It was cancelled, and undone as far as it could be.
    Cancelled {
        /// What could not be undone.
        undone: Vec<Failed>,
    },
}

/// A compensation, registered before the body of its step runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The step it undoes.
    pub step: StepId,
    /// Where that is.
    pub address: Arc<str>,
    /// The task that undoes it: index into the program's tasks.
    pub task: u32,
    /// What that is given: the step's own inputs.
    pub inputs: Vec<Held>,
    /// Attempts that have failed.
    pub failed: u32,
}

/// What a step gave, kept for runs that say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memo {
    /// What it gave.
    pub outputs: Vec<Outcome>,
}
