//! The support graph of a scope: which operation may make which other one reachable, cut into strongly connected
//! components. Made once per scope; sessions copy its counts.

use crate::{
    adjacency::Adjacency,
    model::check::components::{components, is_cycle},
    scope::{
        check::ScopeFault,
        definition::{GateAction, OpId, OpKind, Operation},
        operation::{self, Support},
    },
};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ReachGraph {
    /// Per operation: those it supports.
    pub(crate) supports: Adjacency,
    /// Per operation: its component.
    pub(crate) component: Vec<u32>,
    /// Per component: its operations.
    pub(crate) members: Adjacency,
    /// The shape of each component.
    pub(crate) shape: Vec<Shape>,
    /// Per operation: edges into it from other components, one more for the start.
    pub(crate) outside: Vec<u32>,
    /// Per component: the sum of those.
    pub(crate) outside_sum: Vec<u32>,
    /// Per operation that is a buffer: the gates that may open it.
    pub(crate) openers: Vec<u32>,
    /// Operations that end a session as its author meant: terminate, and cancels that are not implicit.
    pub(crate) goals: u32,
}

/// The shape of a component decides how much of it must be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One operation that does not support itself.
    Single,
    /// A cycle on which everything is reachable or nothing is.
    Cycle,
    /// A cycle with a join, or with a gate between a buffer and its listener: parts of it may be dead.
    Mixed,
}

impl ReachGraph {
    pub(crate) fn new(ops: &[Operation], start: OpId, edges: &[Vec<usize>]) -> ReachGraph {
        let number = |at: usize| u32::try_from(at).expect("operations are numbered in 32 bits");
        let found = components(edges);
        let mut component = vec![0; ops.len()];
        for (at, members) in found.iter().enumerate() {
            members.iter().for_each(|op| component[*op] = number(at));
        }
        let gated: BTreeSet<OpId> = ops.iter().flat_map(gated_buffers).collect();
        let shape = |members: &Vec<usize>| match members.iter().any(|op| is_mixed(&ops[*op], &gated)) {
            _ if !is_cycle(edges, members) => Shape::Single,
            true => Shape::Mixed,
            false => Shape::Cycle,
        };
        let mut graph = ReachGraph {
            supports: Adjacency::new(ops.len(), pairs(edges)),
            members: Adjacency::new(found.len(), pairs(&found)),
            shape: found.iter().map(shape).collect(),
            outside: vec![0; ops.len()],
            outside_sum: vec![0; found.len()],
            openers: vec![0; ops.len()],
            goals: number(ops.iter().filter(|op| is_goal(&op.kind)).count()),
            component,
        };
        graph.add_outside(start.at());
        for (from, to) in pairs(edges).map(|(from, to)| (from as usize, to as usize)) {
            if graph.component[from] != graph.component[to] {
                graph.add_outside(to);
            }
        }
        for op in ops {
            if let OpKind::Gate { buffers, action: GateAction::Open | GateAction::Dynamic } = &op.kind {
                buffers.iter().for_each(|buffer| graph.openers[buffer.at()] += 1);
            }
        }
        graph
    }

    fn add_outside(&mut self, op: usize) {
        self.outside[op] += 1;
        self.outside_sum[self.component[op] as usize] += 1;
    }

    /// Finds faults that no session could overcome.
    pub(crate) fn find_faults(
        &self,
        ops: &[Operation],
        start: OpId,
        edges: &[Vec<usize>],
        faults: &mut BTreeSet<ScopeFault>,
    ) {
        for at in 0..self.members.rows() {
            let members = self.members.row(at).iter().map(|op| &ops[*op as usize]);
            let collects: Vec<_> = members.filter(|op| matches!(op.kind, OpKind::Collect { .. })).collect();
            if collects.len() > 1 {
                faults.insert(ScopeFault::CircularCollects(collects.iter().map(|op| op.name.clone()).collect()));
            }
        }
        let reachable = from_start(ops, start, edges);
        if !ops.iter().zip(reachable).any(|(op, is_reachable)| is_reachable && is_goal(&op.kind)) {
            faults.insert(ScopeFault::TerminateUnreachable);
        }
    }
}

/// The operation ends a session as its author meant.
pub(crate) fn is_goal(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Terminate | OpKind::Cancel { implicit: false })
}

fn pairs(lists: &[Vec<usize>]) -> impl Iterator<Item = (u32, u32)> + Clone {
    let number = |at: usize| u32::try_from(at).expect("operations are numbered in 32 bits");
    lists.iter().enumerate().flat_map(move |(row, list)| list.iter().map(move |to| (number(row), number(*to))))
}

fn gated_buffers(op: &Operation) -> Vec<OpId> {
    match &op.kind {
        OpKind::Gate { buffers, .. } => buffers.clone(),
        _ => Vec::new(),
    }
}

fn is_mixed(op: &Operation, gated: &BTreeSet<OpId>) -> bool {
    match &op.kind {
        OpKind::Join { .. } => true,
        OpKind::Listen { buffers, .. } => buffers.iter().any(|buffer| gated.contains(buffer)),
        _ => false,
    }
}

/// Decides for every operation whether a message at the start may lead to one there: the least fixpoint for a session
/// in which nothing has happened yet.
fn from_start(ops: &[Operation], start: OpId, edges: &[Vec<usize>]) -> Vec<bool> {
    let mut reachable = vec![false; ops.len()];
    let mut open = vec![start.at()];
    reachable[start.at()] = true;
    while let Some(op) = open.pop() {
        for to in &edges[op] {
            let holds = match operation::reachable(&ops[*to].kind) {
                Support::All(inputs) => inputs.iter().all(|input| reachable[input.buffer.at()]),
                Support::Any => true,
            };
            if holds && !std::mem::replace(&mut reachable[*to], true) {
                open.push(*to);
            }
        }
    }
    reachable
}
