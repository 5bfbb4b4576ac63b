//! A plan is a program: what need not run is gone, and each value that is read instead is one more input.
//!
//! Given a program, the outputs of its root block whose values are known and valid, and the outputs that are requested,
//! [`specialise`] decides by `Provenance` what runs, and writes the program that runs just that. Containers run or do
//! not run as a whole. The inputs of the root block stay as they are; reused values come after them, named
//! `reuse:/align:bam`. Outputs that were not requested go; so do hidden ones whose steps have all run.
//!
//! The root's digest stays that of the flow: the plan means the same.

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

/// Nodes that the opening of a block, or one relay, enables: each costs a few operations of a batch.
const ENABLED_MAX: usize = BATCH_OPS_MAX / 4;

/// A known value: an output of a node of the root block.
pub type NodeOutput = (NodeIndex, PortIndex);

/// A program that does only what is needed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to run.
    pub program: Program,
    /// Which known value feeds which of the new inputs of the root block, in order of the inputs.
    pub reuse: Vec<(PortIndex, NodeOutput)>,
    /// Which output of the root block each of the plan's was.
    pub outputs: Vec<PortIndex>,
    /// Which node of the root block each of the plan's was; `None` is a relay that had to be put in.
    pub nodes: Vec<Option<NodeIndex>>,
    /// What becomes of every node, and why.
    pub explanation: Explanation,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something is needed and can be had from nowhere. A checked program has no such place.
    #[error(transparent)]
    MissingValues(#[from] MissingValues),
    /// More values are reused than a block can have inputs.
    #[error("the plan would read {0} values, more than a block can have inputs")]
    TooWide(usize),
}

/// Plans. `known` has the valid values (what they are is the caller's business), `requested` the outputs that are not
/// hidden, `changes` what is different about every node since the values were computed, if that is known.
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

/// What becomes of every node if nothing is known: as [`specialise`], which would give the program as it is.
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

/// What runs, and what is read.
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

/// Where each known value is, by what it really is: a relay has the value of what it relays.
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
    /// The constant that relays which were put in give.
    unit: Source,
    unit_needed: bool,
}

struct Writer<'a> {
    of: &'a BlockGraph<'a>,
    frontier: &'a Frontier<'a>,
    requested: &'a [PortIndex],
    /// Per node: it runs, or relays something that does.
    live: Vec<bool>,
    /// The new input for every value that is read, and where that is known.
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

    /// The values that are read, each once, in order: by steps that run, and as requested outputs.
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

    /// The input that stands for a value.
    fn input(&self, (node, port): NodeOutput) -> BlockInput {
        let node = &self.of.block.nodes[node as usize];
        let (path, name) = output_address(node, port);
        let name = format!("reuse:{}:{name}", InstancePath::root().address(path));
        BlockInput { port: Port::new(name, node.outputs[usize::from(port)].ty.clone()), varying: false }
    }

    /// The outputs that are left, with what they were.
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

    /// A node as it is in the plan, with the old numbers; `None` if it is not.
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

    /// What feeds an input of a node that runs.
    fn source(&self, module: u32, port: u32, source: Source) -> Source {
        match self.frontier.state(self.of.graph.vertex(VertexKind::Port(module, port))) {
            VertexState::Recompute => source,
            VertexState::Ready => self.reused(source),
            VertexState::Irrelevant if matches!(self.of.resolve(source), Source::Node(..)) => Source::None,
            VertexState::Irrelevant => self.of.resolve(source),
        }
    }

    /// The input of the plan that has the value of this source.
    fn reused(&self, source: Source) -> Source {
        match self.of.resolve(source) {
            Source::Node(node, port) => Source::Input(self.reuse[&(node, port)].0),
            held => held,
        }
    }
}

/// Drops relays that nobody hears.
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

/// What feeds a step that reads only reused values is held by the frame: the opening enables it. If those are more than
/// one batch can enable, relays stand between.
fn gate(plan: &mut Written) {
    let delivered = |node: &Node| node.sources().any(|source| matches!(source, Source::Node(..)));
    let mut waiting: Vec<_> = (0..plan.block.nodes.len()).filter(|at| !delivered(&plan.block.nodes[*at])).collect();
    // Relays, innermost first, as places in `relays`; those at the end stand first in the block.
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
