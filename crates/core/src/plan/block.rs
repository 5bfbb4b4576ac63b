//! The root block of a program, seen as a graph to plan over.
//!
//! Relays are skipped: they copy nothing, and running one again must not overtake the consumers that already got its
//! value. Containers are single sub-modules. A task gets every input that is not optional, whichever outputs are
//! requested (kernel rule 25), so here its outputs depend on all of those; declared dependencies matter for optional
//! inputs, and for `validity`.

use super::graph::{DependencyGraph, DependencyGraphBuilder, PortSource, PortTarget};
use crate::model::{
    Block, Node, Program, Source, Type,
    program::{NodeIndex, NodeOp, PortIndex, ROOT},
};

const NO_MODULE: u32 = u32::MAX;

/// The root block as a dependency graph; see the module.
pub(super) struct BlockGraph<'p> {
    pub(super) block: &'p Block,
    pub(super) graph: DependencyGraph,
    /// Per out-port of the graph, the output of the block it stands for; a hidden output appears once for every step it
    /// waits for.
    pub(super) wanted: Vec<PortIndex>,
    module_of: Vec<u32>,
    node_of: Vec<NodeIndex>,
}

impl<'p> BlockGraph<'p> {
    /// Builds the graph of the root block, with the `requested` outputs and all hidden ones as out-ports; outputs that
    /// are constants need nothing and are left out.
    pub(super) fn new(program: &'p Program, requested: &[PortIndex]) -> Self {
        let block = &program.blocks[ROOT as usize];
        let mut wanted = Vec::new();
        for (at, output) in (0..).zip(&block.outputs) {
            if output.hidden {
                leaves(block, output.from, &mut |leaf| wanted.push((at, leaf)));
            } else if requested.contains(&at) {
                wanted.push((at, resolve(block, output.from)));
            }
        }
        wanted.retain(|(_, source)| matches!(source, Source::Input(_) | Source::Node(..)));
        let mut builder = DependencyGraphBuilder::new(block.inputs.len() as u32, wanted.len() as u32);
        let (mut module_of, mut node_of) = (Vec::with_capacity(block.nodes.len()), Vec::new());
        for (at, node) in (0..).zip(&block.nodes) {
            let is_relay = node.op == NodeOp::Relay;
            module_of.push(if is_relay { NO_MODULE } else { add(&mut builder, program, node) });
            node_of.extend((!is_relay).then_some(at));
        }
        let place = |source| match source {
            Source::Input(input) => Some(PortSource::Input(u32::from(input))),
            Source::Node(node, port) => Some(PortSource::Port(module_of[node as usize], u32::from(port))),
            Source::Constant(_) | Source::None => None,
        };
        for (module, node) in (0..).zip(&node_of) {
            for (port, source) in (0..).zip(&block.nodes[*node as usize].inputs) {
                if let Some(place) = place(resolve(block, *source)) {
                    builder.connect(place, PortTarget::Port(module, port));
                }
            }
        }
        for (at, (_, source)) in (0..).zip(&wanted) {
            builder.connect(place(*source).expect("constants are left out"), PortTarget::Output(at));
        }
        let wanted = wanted.into_iter().map(|(output, _)| output).collect();
        BlockGraph { block, graph: builder.build(), wanted, module_of, node_of }
    }

    /// Returns the node of a sub-module.
    pub(super) fn node(&self, module: u32) -> NodeIndex {
        self.node_of[module as usize]
    }

    /// Returns the sub-module of a node, `None` for a relay.
    pub(super) fn module(&self, node: NodeIndex) -> Option<u32> {
        Some(self.module_of[node as usize]).filter(|module| *module != NO_MODULE)
    }

    /// Returns the source behind all relays.
    pub(super) fn resolve(&self, source: Source) -> Source {
        resolve(self.block, source)
    }
}

fn resolve(block: &Block, mut source: Source) -> Source {
    while let Source::Node(node, _) = source {
        let node = &block.nodes[node as usize];
        if node.op != NodeOp::Relay {
            break;
        }
        source = node.inputs[0];
    }
    source
}

/// Calls `then` for every source behind the relays that `source` waits for. The recursion is not deep: joins are wide.
fn leaves(block: &Block, source: Source, then: &mut impl FnMut(Source)) {
    match source {
        Source::Node(node, _) if block.nodes[node as usize].op == NodeOp::Relay => {
            block.nodes[node as usize].inputs.iter().for_each(|input| leaves(block, *input, then));
        }
        leaf => then(leaf),
    }
}

fn add(builder: &mut DependencyGraphBuilder, program: &Program, node: &Node) -> u32 {
    let (ins, outs) = (node.inputs.len(), node.outputs.len());
    let NodeOp::Task(task) = node.op else { return builder.module(ins as u32, outs as u32) };
    let task = &program.tasks[task as usize];
    let optional = |input: usize| task.inputs.get(input).is_some_and(|port| matches!(port.ty, Type::Option(_)));
    if task.depends.is_none() || !(0..ins).any(optional) {
        return builder.module(ins as u32, outs as u32);
    }
    let depends = |output: usize| {
        let on = (0..ins).filter(|input| !optional(*input) || task.depends(output, *input));
        on.map(|input| input as u32).collect()
    };
    let rows: Vec<Vec<u32>> = (0..outs).map(depends).collect();
    builder.module_with(ins as u32, &rows)
}
