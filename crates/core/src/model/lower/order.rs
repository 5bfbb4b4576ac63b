//! Puts every node after the nodes that feed it, and drops blocks, tasks and constants without a reference.

use crate::model::{
    Block, Program, Source,
    check::links,
    program::{BlockIndex, NodeIndex, NodeOp},
};
use std::collections::BTreeMap;

/// Sorts the nodes of all blocks.
pub(super) fn order(program: &mut Program) {
    program.blocks.iter_mut().for_each(sort);
}

fn sort(block: &mut Block) {
    let links = (0..).zip(&block.nodes).flat_map(|(to, node)| {
        node.inputs.iter().chain(&node.gate).filter_map(move |source| match source {
            Source::Node(from, _) => Some((*from, to)),
            Source::Input(_) | Source::Constant(_) | Source::None => None,
        })
    });
    let Some(order) = links::order(block.nodes.len(), links) else { return };
    assert_eq!(order.len(), block.nodes.len(), "lowering made a cycle");
    let mut place = vec![0; order.len()];
    for (at, node) in order.iter().enumerate() {
        place[*node as usize] = at as NodeIndex;
    }
    let mut nodes: Vec<_> = std::mem::take(&mut block.nodes).into_iter().map(Some).collect();
    block.nodes = order.iter().filter_map(|node| nodes[*node as usize].take()).collect();
    each_source(block, |source| {
        if let Source::Node(node, _) = source {
            *node = place[*node as usize];
        }
    });
}

/// Calls `change` on every source that the nodes and outputs of a block read from.
pub(super) fn each_source(block: &mut Block, mut change: impl FnMut(&mut Source)) {
    for node in &mut block.nodes {
        node.inputs.iter_mut().chain(&mut node.gate).for_each(&mut change);
    }
    block.outputs.iter_mut().for_each(|output| change(&mut output.from));
}

/// Returns the bodies of an operation.
pub(super) fn bodies(op: &mut NodeOp) -> Vec<&mut BlockIndex> {
    match op {
        NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => vec![],
        NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => vec![body],
        NodeOp::Choice { arms } => arms.iter_mut().map(|arm| &mut arm.body).collect(),
    }
}

/// Assigns new numbers in the order in which they are first requested.
#[derive(Default)]
struct Numbers {
    new: BTreeMap<u32, u32>,
    old: Vec<u32>,
}

impl Numbers {
    fn get(&mut self, old: u32) -> u32 {
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            self.old.len() as u32 - 1
        })
    }
}

/// Keeps only the blocks, tasks and constants that can be reached from the root.
pub(super) fn compact(program: &mut Program) {
    let (mut blocks, mut tasks, mut constants) = (Numbers::default(), Numbers::default(), Numbers::default());
    let mut old: Vec<_> = std::mem::take(&mut program.blocks).into_iter().map(Some).collect();
    blocks.get(0);
    let mut at = 0;
    while let Some(index) = blocks.old.get(at).copied() {
        let mut block = old[index as usize].take().expect("every block is moved once");
        for node in &mut block.nodes {
            if let NodeOp::Task(task) = &mut node.op {
                *task = tasks.get(*task);
            }
            bodies(&mut node.op).into_iter().for_each(|body| *body = blocks.get(*body));
        }
        each_source(&mut block, |source| {
            if let Source::Constant(constant) = source {
                *constant = constants.get(*constant);
            }
        });
        program.blocks.push(block);
        at += 1;
    }
    // A task that is kept keeps its compensation.
    let mut at = 0;
    while let Some(index) = tasks.old.get(at).copied() {
        let spec = &program.tasks[index as usize];
        if let Some(undo) = program.undo_of(spec) {
            tasks.get(undo);
        }
        at += 1;
    }
    program.tasks = tasks.old.iter().map(|task| program.tasks[*task as usize].clone()).collect();
    program.constants = constants.old.iter().map(|at| program.constants[*at as usize].clone()).collect();
}
