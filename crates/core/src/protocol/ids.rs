//! Ids of runs, frames and steps, for use in keys. Addresses are for users; ids are short and of fixed length, however
//! deep a flow calls itself.

use crate::key::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of a run; never reused. Also the lane of its rows in a queue, so that runs take turns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub [u8; 8]);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a run's plan: a changed input, flow or request makes a new one. Rows of different generations never
/// collide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation(pub u32);

/// The id of a frame: one execution of a loop, each, choice or call, or the run itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrameId([u8; 12]);

impl FrameId {
    /// The frame of the run itself.
    pub const ROOT: FrameId = FrameId([0; 12]);

    /// Returns the frame that a step opens.
    pub fn opened_by(step: StepId) -> Self {
        let hash = blake3::hash(&step.to_bytes());
        let (id, _) = hash.as_bytes().split_first_chunk().expect("a digest is longer than an id");
        FrameId(*id)
    }

    /// Returns the id's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the frame with these bytes; `None` for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(FrameId(bytes.try_into().ok()?))
    }
}

impl fmt::Debug for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The id of a step in one generation of a run: a node of an instance of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId {
    /// The frame the instance belongs to.
    pub frame: FrameId,
    /// The index of the instance: element, iteration, arm; else 0.
    pub index: u32,
    /// The node, or one of the internal steps below.
    pub node: u32,
}

/// Delivers the outputs of an instance to the consumers of the step that opened its frame.
pub const END: u32 = u32::MAX;
/// Opens the next elements of an each; the index is the lane.
pub const LANE: u32 = u32::MAX - 1;
/// Decides how the run ends, once nothing is in flight.
pub const SETTLE: u32 = u32::MAX - 2;
/// Undoes a step; the index is the number of the registration.
pub const UNDO: u32 = u32::MAX - 3;
/// Removes the rows of an ended run, in small batches.
pub const TEARDOWN: u32 = u32::MAX - 4;

impl StepId {
    /// The size of an id in bytes.
    pub const BYTES: usize = 20;

    /// Returns an internal step of the run itself.
    pub const fn of_run(node: u32) -> Self {
        StepId { frame: FrameId::ROOT, index: 0, node }
    }

    /// Encodes the id as bytes that sort by frame, then instance, then node.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..12].copy_from_slice(&self.frame.0);
        bytes[12..16].copy_from_slice(&self.index.to_be_bytes());
        bytes[16..].copy_from_slice(&self.node.to_be_bytes());
        bytes
    }

    /// Decodes bytes that [`StepId::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (frame, rest) = bytes.split_first_chunk::<12>()?;
        let (index, node) = rest.split_first_chunk::<4>()?;
        let node = u32::from_be_bytes(node.try_into().ok()?);
        Some(StepId { frame: FrameId(*frame), index: u32::from_be_bytes(*index), node })
    }

    /// Returns the name of the step's row in a queue. It contains the generation, so rows of different plans never
    /// collide there.
    pub fn queue_name(self, run: RunId, generation: Generation) -> Name {
        // Two bytes are enough to distinguish plans: an old one is removed long before 65 536 others were made.
        Name::join(&[&run.0, &(generation.0 as u16).to_be_bytes(), &self.to_bytes()])
    }

    /// Decodes a name that [`StepId::queue_name`] wrote.
    pub fn from_queue_name(name: &[u8]) -> Option<(RunId, Self)> {
        let (run, rest) = name.split_first_chunk::<8>()?;
        let (_generation, step) = rest.split_first_chunk::<2>()?;
        Some((RunId(*run), StepId::from_bytes(step)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_name_says_whose_it_is_and_which() {
        let step = StepId { frame: FrameId::opened_by(StepId::of_run(3)), index: 7, node: END };
        let name = step.queue_name(RunId(*b"12345678"), Generation(3));
        assert_eq!(crate::queue::lane(name.as_bytes()), b"12345678");
        assert_eq!(StepId::from_queue_name(name.as_bytes()), Some((RunId(*b"12345678"), step)));
        assert_eq!(StepId::from_queue_name(&name.as_bytes()[1..]), None);
    }

    #[test]
    fn frames_of_different_steps_differ() {
        let frames: std::collections::BTreeSet<_> =
            (0..1000).map(|node| FrameId::opened_by(StepId::of_run(node))).collect();
        assert_eq!(frames.len(), 1000);
    }
}
