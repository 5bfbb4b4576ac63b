//! A checked flow, in the form the kernel runs: blocks of nodes joined by indices. There is nothing left to get wrong:
//! every index is in range, every type fits, nothing waits for what never comes.
//!
//! Composites and calls that do not recur are gone: their nodes stand in the block around them, and only their paths
//! remember. A *plan* is a program too: what is reused has become one more input of the root block.

pub mod nested;

use super::{Port, TaskSpec};
use crate::{digest::Digest, payload::Payload};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// All there is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Block 0 is the root.
    pub blocks: Vec<Block>,
    /// The tasks that nodes refer to, and their compensations.
    pub tasks: Vec<TaskSpec>,
    /// What connections that come from nowhere bring.
    pub constants: Vec<Payload>,
}

impl Program {
    /// The task that undoes this one.
    pub fn undo_of(&self, spec: &TaskSpec) -> Option<u32> {
        let undo = spec.compensation.as_deref()?;
        let is_it = |task: &TaskSpec| {
            (&task.name, &task.version, &task.params, &task.inputs, &task.class)
                == (&undo.name, &undo.version, &undo.params, &spec.inputs, &spec.class)
        };
        self.tasks.iter().position(is_it).map(|at| at as u32)
    }
}

impl Program {
    /// What it is known by.
    pub fn identity(&self) -> Identity {
        let root = &self.blocks[ROOT as usize];
        Identity { digest: root.digest, inputs: root.inputs.iter().map(|input| input.port.clone()).collect() }
    }
}

/// What a program is known by: enough to see whether a run is for the same, without the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What the root block means.
    pub digest: Digest,
    /// What it takes.
    pub inputs: Vec<Port>,
}

/// The root block.
pub const ROOT: BlockIndex = 0;
/// Index into [`Program::blocks`].
pub type BlockIndex = u32;
/// Index into [`Block::nodes`].
pub type NodeIndex = u32;
/// Index of a port.
pub type PortIndex = u16;

/// A graph without names: what is instantiated as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// What it takes. Inputs marked *varying* are delivered to each instance (elements, carried ports); the others are
    /// held by the frame and read from there.
    pub inputs: Vec<BlockInput>,
    /// What it gives.
    pub outputs: Vec<BlockOutput>,
    /// In an order where every node stands after those that feed it.
    pub nodes: Vec<Node>,
    /// Digest of all it means: nodes, versions, constants, blocks below; not names, paths, retries or limits.
    pub digest: Digest,
}

/// An input of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockInput {
    /// Name and type.
    pub port: Port,
    /// Whether it differs between the instances of one frame.
    pub varying: bool,
}

/// An output of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockOutput {
    /// Name and type.
    pub port: Port,
    /// What gives it.
    pub from: Source,
    /// Nobody reads it; it is there so that the block does not end before what gives it has. Hidden outputs stand after
    /// all others (and after a loop's condition), and are no outputs of the container. Something that failed below one
    /// fails the block, as below any other.
    pub hidden: bool,
}

/// What feeds a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// An input of the block.
    Input(PortIndex),
    /// An output of a node of the block.
    Node(NodeIndex, PortIndex),
    /// One of [`Program::constants`].
    Constant(u32),
    /// Nothing: an optional input that is not connected.
    None,
}

/// A step, once per instance of its block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Where people see it: from the nearest [`NodeOp::Call`] around it, or the root, on. The names of all containers in
    /// between are in it, and one [`PathSegment::Element`] or [`PathSegment::Iteration`] for every each or loop; see
    /// [`InstancePath`](super::InstancePath). The name of the call itself is not, because many calls may share one block.
    pub path: Arc<[PathSegment]>,
    /// What it does.
    pub op: NodeOp,
    /// What feeds its inputs.
    pub inputs: Box<[Source]>,
    /// Its outputs. Nodes of one task share them.
    pub outputs: Arc<[Port]>,
    /// A failure becomes outputs of none and one more output, the last, that says why. Not for relays.
    pub attempt: bool,
    /// One more thing it waits for, and reads nothing from: a relay, where the opening of the block would otherwise
    /// enable more nodes than one batch can.
    pub gate: Option<Source>,
}

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PathSegment {
    /// `/name`
    Name(Box<str>),
    /// `[i]`, the element the instance is for.
    Element,
    /// `@i`, the iteration the instance is for.
    Iteration,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOp {
    /// Runs a task: index into [`Program::tasks`]. The node of a task that gives nothing has one output,
    /// [`DONE`](super::task::DONE); the task itself is listed as it was described.
    Task(u32),
    /// Runs several tasks, one after the other, with one commit; see `plan::fuse`.
    Fused(Box<[FusedTask]>),
    /// Gives its first input to all who want it, when all its inputs are there: fan-out wider than a batch, and waiting
    /// for more than a bitmap holds, are trees of these.
    Relay,
    /// A block for every element.
    Each {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
        /// How many elements may be in flight.
        concurrency: Option<u32>,
    },
    /// A block again and again. The body's outputs are the node's, in order, and then the condition.
    Loop {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
        /// Which output of the body feeds which input of the next iteration.
        carried: Box<[(PortIndex, PortIndex)]>,
    },
    /// The first block whose guard holds. The inputs of every arm are those of the node, in order.
    Choice {
        /// In order. The last may have no guard.
        arms: Box<[ProgramArm]>,
    },
    /// A block once: a flow that recurs, or a composite with `attempt`.
    Call {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
    },
}

/// One way through a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramArm {
    /// The input of the node that must hold; `None` always does.
    pub guard: Option<PortIndex>,
    /// What is done. Its outputs are the node's, in order; one it does not give is [`Source::None`].
    pub body: BlockIndex,
}

/// A task inside a fused step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FusedTask {
    /// Index into [`Program::tasks`].
    pub task: u32,
    /// Where people see it.
    pub path: Arc<[PathSegment]>,
    /// What feeds its inputs.
    pub inputs: Box<[FusedSource]>,
    /// Which of its outputs is which of the node's.
    pub outputs: Box<[Option<PortIndex>]>,
}

/// What feeds an input inside a fused step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FusedSource {
    /// An input of the node.
    Input(PortIndex),
    /// An output of an earlier task of the step.
    Task(u16, PortIndex),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wiring::Delivery;

    /// A flow of half a million modules starts with less than 500 bytes a step beyond its description. Most of that are
    /// these, and a few numbers a step beside them.
    #[test]
    fn types_of_which_a_large_flow_has_one_a_step_are_small() {
        assert!(size_of::<Node>() <= 88, "a node takes {} bytes", size_of::<Node>());
        assert!(size_of::<NodeOp>() <= 24, "what a node does takes {} bytes", size_of::<NodeOp>());
        assert!(size_of::<PathSegment>() <= 24, "a part of a path takes {} bytes", size_of::<PathSegment>());
        assert!(size_of::<Source>() <= 8, "a source takes {} bytes", size_of::<Source>());
        assert!(size_of::<FusedTask>() <= 56, "a fused task takes {} bytes", size_of::<FusedTask>());
        assert!(size_of::<Delivery>() <= 32, "a delivery takes {} bytes", size_of::<Delivery>());
    }
}
