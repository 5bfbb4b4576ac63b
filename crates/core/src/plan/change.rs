//! Compares each node with the one that the stored values were computed by: the first half of *why* a node runs.

use super::validity::ProvenanceKeys;
use crate::model::{
    Block, Node, PathSegment, Program, Source,
    program::{BlockIndex, NodeIndex, NodeOp},
};
use std::collections::BTreeMap;

/// The difference between a node and its predecessor at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its code and all its inputs are unchanged.
    Nothing,
    /// There was no node at this path.
    New,
    /// The node is another task, another version of the task, or a container with another body.
    Code {
        /// The code before.
        from: String,
        /// The code now.
        to: String,
    },
    /// An input has other content, or is connected to another source.
    Input {
        /// Its name, or its number where it has none.
        port: String,
    },
    /// Only a node that it depends on changed.
    Source,
}

/// A program, one block of it, and the keys of its values.
#[derive(Clone, Copy, Debug)]
pub struct KeyedBlock<'p> {
    /// The program.
    pub program: &'p Program,
    /// The block.
    pub block: BlockIndex,
    /// The keys of that block's values.
    pub keys: &'p ProvenanceKeys,
}

impl<'p> KeyedBlock<'p> {
    fn block(&self) -> &'p Block {
        &self.program.blocks[self.block as usize]
    }
}

/// Returns the change of every node of the new block.
pub fn changes(old: KeyedBlock<'_>, new: KeyedBlock<'_>) -> Vec<Change> {
    let before: BTreeMap<&[PathSegment], &Node> = old.block().nodes.iter().map(|node| (&*node.path, node)).collect();
    let change = |(at, node): (NodeIndex, &Node)| match before.get(&*node.path) {
        None => Change::New,
        Some(was) => changed((old, was), (new, node, at)),
    };
    (0..).zip(&new.block().nodes).map(change).collect()
}

fn changed((old, was): (KeyedBlock<'_>, &Node), (new, node, at): (KeyedBlock<'_>, &Node, NodeIndex)) -> Change {
    let (from, to) = (code(old.program, was), code(new.program, node));
    if from != to {
        return Change::Code { from, to };
    }
    let mut source = false;
    for (port, is) in node.inputs.iter().enumerate() {
        let Some(had) = was.inputs.get(port) else { return Change::Input { port: input_name(new, at, port) } };
        if old.keys.source(*had) == new.keys.source(*is) {
            continue;
        }
        if where_from(old.block(), *had) != where_from(new.block(), *is) || !matches!(is, Source::Node(..)) {
            return Change::Input { port: input_name(new, at, port) };
        }
        source = true;
    }
    if source { Change::Source } else { Change::Nothing }
}

/// Returns the node behind a source, by its path and the name of the port; `None` if the source is not a node.
pub(super) fn where_from(block: &Block, source: Source) -> Option<(&[PathSegment], &str)> {
    match source {
        Source::Node(node, port) => Some(super::validity::output_address(&block.nodes[node as usize], port)),
        Source::Input(_) | Source::Constant(_) | Source::None => None,
    }
}

/// Returns the code of a node in readable form: a task's name and version, or a container and its body's digest.
pub(super) fn code(program: &Program, node: &Node) -> String {
    let task = |task: u32| {
        let task = &program.tasks[task as usize];
        format!("{}@{}", task.name, task.version)
    };
    let body = |body: BlockIndex| {
        let digest = program.blocks[body as usize].digest;
        digest.as_bytes()[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    match &node.op {
        NodeOp::Task(at) => task(*at),
        NodeOp::Fused(tasks) => tasks.iter().map(|at| task(at.task)).collect::<Vec<_>>().join("+"),
        NodeOp::Relay => String::from("relay"),
        NodeOp::Each { body: at, .. } => format!("each {}", body(*at)),
        NodeOp::Loop { body: at, .. } => format!("loop {}", body(*at)),
        NodeOp::Choice { arms } => {
            format!("choice {}", arms.iter().map(|arm| body(arm.body)).collect::<Vec<_>>().join(" "))
        }
        NodeOp::Call { body: at } => format!("call {}", body(*at)),
    }
}

/// Returns the name of an input of a node of the block, or its number where it has none.
fn input_name(of: KeyedBlock<'_>, node: NodeIndex, port: usize) -> String {
    let program = of.program;
    let ports = |body: BlockIndex| program.blocks[body as usize].inputs.get(port).map(|input| &input.port);
    let named = match &of.block().nodes[node as usize].op {
        NodeOp::Task(task) => program.tasks[*task as usize].inputs.get(port),
        NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => ports(*body),
        NodeOp::Choice { arms } => arms.first().and_then(|arm| ports(arm.body)),
        NodeOp::Fused(_) | NodeOp::Relay => None,
    };
    named.map_or_else(|| port.to_string(), |port| port.name.clone())
}
