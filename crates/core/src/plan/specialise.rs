//! Specialises a program to a plan: a program without the nodes that need not run, with one more input for each reused
//! value.
//!
//! Given a program, the outputs of its root block whose values are known and valid, and the outputs that are requested,
//! [`specialise`] decides by `Provenance` which nodes run, and writes the program that runs just those. Containers run
//! or do not run as a whole. The inputs of the root block stay as they are; reused values come after them, named
//! `reuse:/align:bam`. Outputs that were not requested are dropped; so are hidden ones whose steps have all run.
//!
//! The root keeps the digest of the flow's root block, because the plan means the same.

use super::{
    block::BlockGraph,
    change::Change,
    explain::{Explanation, explain},
    graph::{PortSource, VertexKind},
    resume::{Frontier, MissingValues, Order, Policy, Resume, VertexState},
    validity::output_address,
};
use crate::{
    limits::BATCH_OPS_MAX,
    model::{
        Block, BlockInput, BlockOutput, InstancePath, Node, PathSegment, Port, Program, Source, Type,
        program::{NodeIndex, NodeOp, PortIndex, ROOT},
    },
    payload::Payload,
};
use std::collections::BTreeMap;

/// The most nodes that the opening of a block, or one relay, enables: each costs a few operations of a batch.
const ENABLED_MAX: usize = BATCH_OPS_MAX / 4;

/// A known value: an output of a node of the root block.
pub type NodeOutput = (NodeIndex, PortIndex);

/// A program that runs only the nodes that are needed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program to run.
    pub program: Program,
    /// Pairs of a new input of the root block and the known value that feeds it, in order of the inputs.
    pub reuse: Vec<(PortIndex, NodeOutput)>,
    /// Per output of the plan, the output of the root block it was.
    pub outputs: Vec<PortIndex>,
    /// Per node of the plan, the node of the root block it was; `None` is a relay that had to be inserted.
    pub nodes: Vec<Option<NodeIndex>>,
    /// The fate of every node, and the reason.
    pub explanation: Explanation,
}

/// The reasons why a plan cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A needed value cannot be obtained. This does not happen for a checked program.
    #[error(transparent)]
    MissingValues(#[from] MissingValues),
    /// More values are reused than a block can have inputs.
    #[error("the plan would read {0} values, more than a block can have inputs")]
    TooWide(usize),
}

/// Plans a run. `known` has the valid values (of a type of the caller's choice), `requested` the requested outputs,
/// none of them hidden, `changes` the change of every node since the values were computed, if that is known.
pub fn specialise<V>(
    program: &Program,
    known: &BTreeMap<NodeOutput, V>,
    requested: &[PortIndex],
    changes: Option<&[Change]>,
) -> Result<Plan, Error> {
    let of = BlockGraph::new(program, requested);
    let known = by_source(&of, known);
    let frontier = frontier(&of, &known)?;
    let explanation = explain(program, &of, &frontier, &known, changes);
    let mut plan = Writer::new(program, &of, &frontier, requested, known)?.write();
    gate(&mut plan);
    let mut constants = program.constants.clone();
    if plan.unit_needed {
        constants.push(Payload::inline("null"));
    }
    let blocks = std::iter::once(plan.block).chain(program.blocks[ROOT as usize + 1..].iter().cloned());
    let specialised = Program { blocks: blocks.collect(), tasks: program.tasks.clone(), constants };
    Ok(Plan { program: specialised, reuse: plan.reuse, outputs: plan.outputs, nodes: plan.nodes, explanation })
}

/// Returns the explanation for a run without any known value, for which [`specialise`] would return the program as it
/// is.
///
/// # Errors
/// As [`specialise`].
pub fn explain_all(
    program: &Program,
    requested: &[PortIndex],
    changes: Option<&[Change]>,
) -> Result<Explanation, Error> {
    let (of, known) = (BlockGraph::new(program, requested), BTreeMap::new());
    Ok(explain(program, &of, &frontier(&of, &known)?, &known, changes))
}

/// Computes which nodes run, and which values are read.
fn frontier<'g>(of: &'g BlockGraph<'_>, known: &BTreeMap<NodeOutput, NodeOutput>) -> Result<Frontier<'g>, Error> {
    let all: Vec<_> = (0..of.graph.outputs()).collect();
    let resume = Resume::new(&of.graph, Policy::Provenance, Order::Lifo, &[], &all);
    let frontier = resume.run(|port| match of.graph.value_at(port) {
        Some(PortSource::Input(_)) => true,
        Some(PortSource::Port(module, port)) => known.contains_key(&(of.node(module), port as PortIndex)),
        None => false,
    })?;
    Ok(frontier)
}

/// Maps each source to the node output whose known value it has: a relay's value is that of the source it relays.
fn by_source<V>(of: &BlockGraph<'_>, known: &BTreeMap<NodeOutput, V>) -> BTreeMap<NodeOutput, NodeOutput> {
    let mut found = BTreeMap::new();
    for (node, port) in known.keys() {
        if let Source::Node(source, source_port) = of.resolve(Source::Node(*node, *port)) {
            found.entry((source, source_port)).or_insert((*node, *port));
        }
    }
    let itself = known.keys().filter(|(node, _)| of.module(*node).is_some()).map(|known| (*known, *known));
    found.extend(itself);
    found
}

struct Written {
    block: Block,
    reuse: Vec<(PortIndex, NodeOutput)>,
    outputs: Vec<PortIndex>,
    nodes: Vec<Option<NodeIndex>>,
    /// The constant that inserted relays pass on.
    unit: Source,
    unit_needed: bool,
}

struct Writer<'a> {
    of: &'a BlockGraph<'a>,
    frontier: &'a Frontier<'a>,
    requested: &'a [PortIndex],
    /// Per node: it runs, or is a relay with an input from one that runs.
    live: Vec<bool>,
    /// Per value that is read: its new input, and the node output under which it is known.
    reuse: BTreeMap<NodeOutput, (PortIndex, NodeOutput)>,
    unit: Source,
}

impl<'a> Writer<'a> {
    fn new(
        program: &Program,
        of: &'a BlockGraph<'a>,
        frontier: &'a Frontier<'a>,
        requested: &'a [PortIndex],
        known: BTreeMap<NodeOutput, NodeOutput>,
    ) -> Result<Self, Error> {
        let unit = Source::Constant(program.constants.len() as u32);
        let mut writer = Writer { of, frontier, requested, live: Vec::new(), reuse: BTreeMap::new(), unit };
        for (node, at) in of.block.nodes.iter().zip(0..) {
            let live = match of.module(at) {
                Some(module) => frontier.runs(module),
                None => node.inputs.iter().any(|source| writer.is_live(*source)),
            };
            writer.live.push(live);
        }
        let read: Vec<_> = writer.read().collect();
        let first = of.block.inputs.len();
        if first + read.len() > usize::from(PortIndex::MAX) {
            return Err(Error::TooWide(read.len()));
        }
        writer.reuse = (first as PortIndex..).zip(read).map(|(input, at)| (at, (input, known[&at]))).collect();
        Ok(writer)
    }

    /// Returns the values that are read, each once, in order: by steps that run, and as requested outputs.
    fn read(&self) -> impl Iterator<Item = NodeOutput> {
        let graph = &self.of.graph;
        let visible = |port: u32| !self.of.block.outputs[usize::from(self.of.wanted[port as usize])].hidden;
        let ports = (0..graph.vertices()).filter(|port| self.frontier.state(*port) == VertexState::Ready);
        let read = ports.filter(|port| match graph.kind(*port) {
            VertexKind::Output(at) => visible(at),
            VertexKind::Port(..) => true,
            VertexKind::Input(_) | VertexKind::Module(_) => false,
        });
        let mut places: Vec<_> = read
            .filter_map(|port| match graph.source(port)? {
                PortSource::Port(module, port) => Some((self.of.node(module), port as PortIndex)),
                PortSource::Input(_) => None,
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter()
    }

    fn is_live(&self, source: Source) -> bool {
        match source {
            Source::Node(node, _) => self.live[node as usize],
            Source::Input(_) | Source::Constant(_) | Source::None => true,
        }
    }

    fn write(self) -> Written {
        let outputs: Vec<_> = self.outputs().collect();
        let mut nodes: Vec<Option<Node>> =
            (0..).zip(&self.of.block.nodes).map(|(at, node)| self.node(at, node)).collect();
        drop_unused(&mut nodes, outputs.iter().map(|(_, output)| output.from));
        let mut new_index = vec![0; nodes.len()];
        let mut next = 0;
        for (index, node) in new_index.iter_mut().zip(&nodes) {
            *index = next;
            next += u32::from(node.is_some());
        }
        let renumber = |source: &mut Source| {
            if let Source::Node(node, _) = source {
                *node = new_index[*node as usize];
            }
        };
        let kept: Vec<_> = nodes.iter().zip(0..).filter_map(|(node, at)| node.is_some().then_some(Some(at))).collect();
        let mut nodes: Vec<Node> = nodes.into_iter().flatten().collect();
        nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.gate)).for_each(renumber);
        let (numbers, mut outputs): (Vec<_>, Vec<BlockOutput>) = outputs.into_iter().unzip();
        outputs.iter_mut().for_each(|output| renumber(&mut output.from));
        let inputs = self.of.block.inputs.iter().cloned().chain(self.reuse.keys().map(|at| self.input(*at))).collect();
        Written {
            block: Block { inputs, outputs, nodes, digest: self.of.block.digest },
            reuse: self.reuse.values().copied().collect(),
            outputs: numbers,
            nodes: kept,
            unit: self.unit,
            unit_needed: false,
        }
    }

    /// Returns the input that stands for a reused value.
    fn input(&self, (node, port): NodeOutput) -> BlockInput {
        let node = &self.of.block.nodes[node as usize];
        let (path, name) = output_address(node, port);
        let name = format!("reuse:{}:{name}", InstancePath::root().address(path));
        BlockInput { port: Port::new(name, node.outputs[usize::from(port)].ty.clone()), varying: false }
    }

    /// Returns the outputs of the plan, with their old indices.
    fn outputs(&self) -> impl Iterator<Item = (PortIndex, BlockOutput)> {
        let left = |at: PortIndex, output: &BlockOutput| match output.hidden {
            true => matches!(output.from, Source::Node(..)) && self.is_live(output.from),
            false => self.requested.contains(&at),
        };
        (0..).zip(&self.of.block.outputs).filter(move |(at, output)| left(*at, output)).map(|(at, output)| {
            let from = if self.is_live(output.from) { output.from } else { self.reused(output.from) };
            (at, BlockOutput { from, ..output.clone() })
        })
    }

    /// Returns a node as it is in the plan, with the old numbers; `None` if it is not in the plan.
    fn node(&self, at: NodeIndex, node: &Node) -> Option<Node> {
        if !self.live[at as usize] {
            return None;
        }
        let inputs = match self.of.module(at) {
            Some(module) => (0..).zip(&node.inputs).map(|(port, source)| self.source(module, port, *source)).collect(),
            None => node.inputs.iter().copied().filter(|source| self.is_live(*source)).collect(),
        };
        Some(Node { inputs, ..node.clone() })
    }

    /// Returns the source of an input of a node that runs.
    fn source(&self, module: u32, port: u32, source: Source) -> Source {
        match self.frontier.state(self.of.graph.vertex(VertexKind::Port(module, port))) {
            VertexState::Recompute => source,
            VertexState::Ready => self.reused(source),
            VertexState::Irrelevant if matches!(self.of.resolve(source), Source::Node(..)) => Source::None,
            VertexState::Irrelevant => self.of.resolve(source),
        }
    }

    /// Returns the input of the plan that has the value of this source.
    fn reused(&self, source: Source) -> Source {
        match self.of.resolve(source) {
            Source::Node(node, port) => Source::Input(self.reuse[&(node, port)].0),
            held => held,
        }
    }
}

/// Drops relays without consumers.
fn drop_unused(nodes: &mut [Option<Node>], outputs: impl Iterator<Item = Source>) {
    let mut used = vec![false; nodes.len()];
    let mark = |used: &mut [bool], source: Source| {
        if let Source::Node(node, _) = source {
            used[node as usize] = true;
        }
    };
    outputs.for_each(|source| mark(&mut used, source));
    for at in (0..nodes.len()).rev() {
        nodes[at].take_if(|node| node.op == NodeOp::Relay && !used[at]);
        nodes[at].iter().flat_map(Node::sources).for_each(|source| mark(&mut used, source));
    }
}

/// Inserts relays before steps that wait for nothing. The frame holds all inputs of a step that reads only reused
/// values, so the opening enables it; if one batch cannot enable all such steps, relays gate them.
fn gate(plan: &mut Written) {
    let delivered = |node: &Node| node.sources().any(|source| matches!(source, Source::Node(..)));
    let mut waiting: Vec<_> = (0..plan.block.nodes.len()).filter(|at| !delivered(&plan.block.nodes[*at])).collect();
    // Relays, those next to the steps first, each with its own gate as an index into `relays`; in the block their order
    // is reversed.
    let mut relays: Vec<(Node, Option<usize>)> = Vec::new();
    let mut gates: BTreeMap<usize, usize> = BTreeMap::new();
    let mut level = 0..0;
    while waiting.len() > ENABLED_MAX {
        let first = relays.len();
        for (chunk, members) in waiting.chunks(ENABLED_MAX).enumerate() {
            for member in members {
                match level.is_empty() {
                    true => drop(gates.insert(*member, first + chunk)),
                    false => relays[*member].1 = Some(first + chunk),
                }
            }
            relays.push((relay(plan.unit, first + chunk), None));
        }
        level = first..relays.len();
        waiting = level.clone().collect();
    }
    if relays.is_empty() {
        return;
    }
    plan.unit_needed = true;
    let count = relays.len();
    let index = |relay: usize| Source::Node((count - 1 - relay) as NodeIndex, 0);
    for (at, node) in plan.block.nodes.iter_mut().enumerate() {
        shift(node.inputs.iter_mut().chain(&mut node.gate), count as u32);
        if let Some(relay) = gates.get(&at) {
            node.gate = Some(index(*relay));
        }
    }
    shift(plan.block.outputs.iter_mut().map(|output| &mut output.from), count as u32);
    let relays = relays.into_iter().rev().map(|(node, by)| Node { gate: by.map(index), ..node });
    plan.block.nodes.splice(0..0, relays);
    plan.nodes.splice(0..0, std::iter::repeat_n(None, count));
}

fn shift<'s>(sources: impl Iterator<Item = &'s mut Source>, by: u32) {
    for source in sources {
        if let Source::Node(node, _) = source {
            *node += by;
        }
    }
}

fn relay(unit: Source, number: usize) -> Node {
    Node {
        path: [PathSegment::Name(format!("~gate{number}").into())].into(),
        op: NodeOp::Relay,
        inputs: [unit].into(),
        outputs: [Port::new("value", Type::Unit)].into(),
        attempt: false,
        gate: None,
    }
}
