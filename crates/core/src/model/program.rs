//! A checked flow, in the form the kernel runs: blocks of nodes joined by indices. It is valid by construction: every
//! index is in range, every type fits, and no node waits for an input that never arrives.
//!
//! Composites and calls that do not recur are inlined: their nodes stand in the block around them, and only the paths
//! of the nodes still name them. A *plan* is a program too, in which each reused value has become one more input of the
//! root block.

pub mod nested;

use super::{Port, TaskSpec};
use crate::{digest::Digest, payload::Payload};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A program: its blocks, and the tasks and constants they refer to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Block 0 is the root.
    pub blocks: Vec<Block>,
    /// The tasks that nodes refer to, and their compensations.
    pub tasks: Vec<TaskSpec>,
    /// The constants that nodes and outputs refer to.
    pub constants: Vec<Payload>,
}

impl Program {
    /// Returns the index of the task that compensates `spec`.
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
    /// Returns the identity of the program.
    pub fn identity(&self) -> Identity {
        let root = &self.blocks[ROOT as usize];
        Identity { digest: root.digest, inputs: root.inputs.iter().map(|input| input.port.clone()).collect() }
    }
}

/// The identity of a program: enough to tell whether a run is for the same program, without reading the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The digest of the root block.
    pub digest: Digest,
    /// The inputs of the root block.
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

/// A graph without names: the unit that is instantiated as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The inputs. Those marked *varying* are delivered to each instance (elements, carried ports); the others are held
    /// by the frame and read from there.
    pub inputs: Vec<BlockInput>,
    /// The outputs.
    pub outputs: Vec<BlockOutput>,
    /// The nodes, each after the nodes that feed it.
    pub nodes: Vec<Node>,
    /// Digest of the block's meaning: nodes, versions, constants, blocks below; not names, paths, retries or limits.
    pub digest: Digest,
}

/// An input of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockInput {
    /// Name and type.
    pub port: Port,
    /// The value differs between the instances of one frame.
    pub varying: bool,
}

/// An output of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockOutput {
    /// Name and type.
    pub port: Port,
    /// The source of its value.
    pub from: Source,
    /// The output has no reader; it only keeps the block from ending before its source has committed. Hidden outputs
    /// stand after all others (and after a loop's condition), and are not outputs of the container. A failure in a node
    /// behind a hidden output fails the block, as behind any other.
    pub hidden: bool,
}

/// The source that feeds a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// An input of the block.
    Input(PortIndex),
    /// An output of a node of the block.
    Node(NodeIndex, PortIndex),
    /// A constant: index into [`Program::constants`].
    Constant(u32),
    /// Nothing: an optional input that is not connected.
    None,
}

/// A step, once per instance of its block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its address, as users see it, from the nearest [`NodeOp::Call`] around it, or the root, on. The path has the
    /// names of all containers in between, and one [`PathSegment::Element`] or [`PathSegment::Iteration`] for every
    /// each or loop; see [`InstancePath`](super::InstancePath). It does not have the name of the call itself, because
    /// many calls may share one block.
    pub path: Arc<[PathSegment]>,
    /// The operation.
    pub op: NodeOp,
    /// The sources of its inputs, in order.
    pub inputs: Box<[Source]>,
    /// Its outputs. Nodes of one task share them.
    pub outputs: Arc<[Port]>,
    /// On a failure every output is none, and one more output, the last, has the error message. Not for relays.
    pub attempt: bool,
    /// One more source that the node waits for without reading it: a relay, used where the opening of the block would
    /// otherwise enable more nodes than one batch can.
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

/// The operation of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOp {
    /// Runs a task: index into [`Program::tasks`]. The node of a task that gives nothing has one output,
    /// [`DONE`](super::task::DONE); the task itself is listed as it was described.
    Task(u32),
    /// Runs several tasks, one after the other, with one commit; see `plan::fuse`.
    Fused(Box<[FusedTask]>),
    /// Passes its first input to all its consumers once all its inputs have arrived. Trees of relays serve fan-out
    /// wider than a batch, and joins of more sources than a bitmap holds.
    Relay,
    /// Runs a block once for every element.
    Each {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
        /// How many elements may be in flight.
        concurrency: Option<u32>,
    },
    /// Repeats a block. The body's outputs are the node's, in order, and then the condition.
    Loop {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
        /// Which output of the body feeds which input of the next iteration.
        carried: Box<[(PortIndex, PortIndex)]>,
    },
    /// Runs the first block whose guard holds. The inputs of every arm are those of the node, in order.
    Choice {
        /// In order. The last may have no guard.
        arms: Box<[ProgramArm]>,
    },
    /// Runs a block once: a flow that recurs, or a composite with `attempt`.
    Call {
        /// The body. Its inputs are the node's, in order.
        body: BlockIndex,
    },
}

/// One alternative of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramArm {
    /// The input of the node that must be true for the arm to be taken; an arm with `None` is always taken.
    pub guard: Option<PortIndex>,
    /// The block that runs. Its outputs are the node's, in order; an output it does not give is [`Source::None`].
    pub body: BlockIndex,
}

/// A task inside a fused step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FusedTask {
    /// Index into [`Program::tasks`].
    pub task: u32,
    /// Its address, as users see it.
    pub path: Arc<[PathSegment]>,
    /// The sources of its inputs, in order.
    pub inputs: Box<[FusedSource]>,
    /// Per output of the task: the output of the node that it becomes, if any.
    pub outputs: Box<[Option<PortIndex>]>,
}

/// The source of an input inside a fused step.
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

    /// A flow of half a million modules starts with less than 500 bytes a step beyond its description. These types take
    /// most of that, and a few numbers per step the rest.
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
