//! What becomes of every node of the root block, and why: what `onceflow explain` prints, and what is stored with a run.

use super::{
    block::BlockGraph,
    change::Change,
    graph::{PortSource, VertexKind},
    resume::{Frontier, VertexState},
};
use crate::model::{
    InstancePath, Node, Program,
    program::{NodeIndex, NodeOp, PortIndex},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fate {
    /// A value it gave is read.
    Reused,
    /// It runs.
    Run,
    /// Neither.
    Skipped,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// There was no such node before.
    New,
    /// It has no value, or no longer.
    NoValue,
    /// Its code is not what it was.
    CodeChanged {
        /// What it was.
        from: String,
        /// What it is.
        to: String,
    },
    /// An input has another content, or comes from elsewhere.
    InputChanged {
        /// Its name.
        port: String,
    },
    /// Something it reads from runs.
    SourceReruns {
        /// Where that is.
        address: String,
    },
    /// Its value is known and valid.
    Kept,
    /// Nothing that runs, and nothing requested, reads from it.
    NotNeeded,
    /// What it gave is in the store, and is damaged.
    Damaged,
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationLine {
    /// The node.
    pub node: NodeIndex,
    /// Where people see it.
    pub address: String,
    /// What becomes of it.
    pub fate: Fate,
    /// Why.
    pub reason: Reason,
    /// How many steps it is, is only known when it runs: it is an each, a loop or a call.
    pub is_open: bool,
}

/// What becomes of every node but relays, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// In the order of the nodes.
    pub lines: Vec<ExplanationLine>,
}

pub(super) fn explain(
    program: &Program,
    of: &BlockGraph<'_>,
    frontier: &Frontier<'_>,
    known: &BTreeMap<(NodeIndex, PortIndex), (NodeIndex, PortIndex)>,
    changes: Option<&[Change]>,
) -> Explanation {
    assert!(changes.is_none_or(|changes| changes.len() == of.block.nodes.len()), "a change for every node");
    let read: BTreeSet<_> = frontier
        .reads()
        .filter_map(|place| if let PortSource::Port(module, _) = place { Some(module) } else { None })
        .collect();
    let line = |module: u32| {
        let node = of.node(module);
        let (fate, reason) = if frontier.runs(module) {
            let change = changes.map(|changes| &changes[node as usize]);
            (Fate::Run, why(of, frontier, known, module, change))
        } else if read.contains(&module) {
            (Fate::Reused, Reason::Kept)
        } else {
            (Fate::Skipped, Reason::NotNeeded)
        };
        let address = program.address(crate::model::program::ROOT, node, &InstancePath::root());
        ExplanationLine { node, address, fate, reason, is_open: is_open(&of.block.nodes[node as usize]) }
    };
    Explanation { lines: (0..of.graph.modules()).map(line).collect() }
}

/// Whether how many steps a node is, is only known when it runs.
pub fn is_open(node: &Node) -> bool {
    matches!(node.op, NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Call { .. })
}

/// Why a node runs: what changed about it; else what overtook it; else that there is nothing to reuse.
fn why(
    of: &BlockGraph<'_>,
    frontier: &Frontier<'_>,
    known: &BTreeMap<(NodeIndex, PortIndex), (NodeIndex, PortIndex)>,
    module: u32,
    change: Option<&Change>,
) -> Reason {
    match change {
        Some(Change::New) => return Reason::New,
        Some(Change::Code { from, to }) => return Reason::CodeChanged { from: from.clone(), to: to.clone() },
        Some(Change::Input { port }) => return Reason::InputChanged { port: port.clone() },
        Some(Change::Nothing | Change::Source) | None => {}
    }
    let delivers = (0..of.graph.module_outputs(module)).filter(|port| frontier.delivers(module, *port));
    let has_all = delivers.into_iter().all(|port| known.contains_key(&(of.node(module), port as PortIndex)));
    let reruns = (0..of.graph.module_inputs(module)).find_map(|port| {
        let port = of.graph.vertex(VertexKind::Port(module, port));
        match of.graph.source(port) {
            Some(PortSource::Port(source, _)) if frontier.state(port) == VertexState::Recompute => Some(source),
            _ => None,
        }
    });
    match reruns {
        Some(source) if has_all || change == Some(&Change::Source) => {
            let path = &of.block.nodes[of.node(source) as usize].path;
            Reason::SourceReruns { address: InstancePath::root().address(path) }
        }
        _ => Reason::NoValue,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for ExplanationLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.fate {
            Fate::Reused => "reuse",
            Fate::Run => "run",
            Fate::Skipped => "skip",
        };
        write!(f, "{fate} {}: {}", self.address, self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::New => f.write_str("new"),
            Reason::NoValue => f.write_str("no value"),
            Reason::CodeChanged { from, to } => write!(f, "code changed from {from} to {to}"),
            Reason::InputChanged { port } => write!(f, "input {port} changed"),
            Reason::SourceReruns { address } => write!(f, "{address} reruns"),
            Reason::Kept => f.write_str("kept"),
            Reason::NotNeeded => f.write_str("not needed"),
            Reason::Damaged => f.write_str("its stored output is damaged"),
        }
    }
}

/// A run that is done, asked for the same again: nothing is read but its result.
pub fn all_done(program: &Program) -> Explanation {
    let nodes = (0..).zip(&program.blocks[crate::model::program::ROOT as usize].nodes);
    let lines = |(at, node): (NodeIndex, &Node)| {
        let mut addresses = super::joined::addresses(program, node);
        if addresses.is_empty() {
            addresses.push(program.address(crate::model::program::ROOT, at, &InstancePath::root()));
        }
        let is_open = is_open(node);
        let line =
            move |address| ExplanationLine { node: at, address, fate: Fate::Reused, reason: Reason::Kept, is_open };
        addresses.into_iter().map(line)
    };
    let steps = nodes.filter(|(_, node)| node.op != NodeOp::Relay);
    Explanation { lines: steps.flat_map(lines).collect() }
}
