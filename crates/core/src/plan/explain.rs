//! Explains the plan: the fate of every node of the root block, and the reason. Printed by `onceflow explain`, and
//! stored with a run.

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

/// The fate of a node in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fate {
    /// One of its stored outputs is read.
    Reused,
    /// The node runs.
    Run,
    /// The node neither runs nor is read.
    Skipped,
}

/// The reason for a fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// There was no such node before.
    New,
    /// The node has no stored value, or no longer has one.
    NoValue,
    /// Its code has changed.
    CodeChanged {
        /// The code before.
        from: String,
        /// The code now.
        to: String,
    },
    /// An input has other content, or comes from another source.
    InputChanged {
        /// Its name.
        port: String,
    },
    /// A node that it reads from runs.
    SourceReruns {
        /// The address of that node.
        address: String,
    },
    /// Its value is known and valid.
    Kept,
    /// No node that runs, and no requested output, reads from it.
    NotNeeded,
    /// Its stored output is damaged.
    Damaged,
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationLine {
    /// The node.
    pub node: NodeIndex,
    /// Its address, as users see it.
    pub address: String,
    /// Its fate.
    pub fate: Fate,
    /// The reason.
    pub reason: Reason,
    /// The number of its steps is known only when it runs: the node is an each, a loop or a call.
    pub is_open: bool,
}

/// The explanation of a plan: one line for every node but relays.
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

/// The number of the node's steps is known only when it runs.
pub fn is_open(node: &Node) -> bool {
    matches!(node.op, NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Call { .. })
}

/// Returns why a node runs: its own change; else the source that reruns; else that there is no value to reuse.
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

/// Returns the explanation for a completed run that is requested again: nothing runs, and only its result is read.
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
