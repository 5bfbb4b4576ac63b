//! The root block of a program, seen as a graph to plan over.
//!
//! Relays are looked through: they copy nothing, and to send one again must not overtake who got its value already.
//! Containers are single sub-modules. A task is given every input that is not optional, whatever is asked of it (kernel
//! rule 25), so here its outputs depend on all of those; declared dependencies matter for optional inputs, and for
//! `validity`.

use super::graph::{DependencyGraph, DependencyGraphBuilder, PortSource, PortTarget};
use crate::model::{
    Block, Node, Program, Source, Type,
    program::{NodeIndex, NodeOp, PortIndex, ROOT},
};

const NO_MODULE: u32 = u32::MAX;

/// See the module.
pub(super) struct BlockGraph<'p> {
    pub(super) block: &'p Block,
    pub(super) graph: DependencyGraph,
    /// What the graph's out-ports stand for: outputs of the block, by index, hidden ones once for every step they
    /// wait for.
    pub(super) wanted: Vec<PortIndex>,
    module_of: Vec<u32>,
    node_of: Vec<NodeIndex>,
}

impl<'p> BlockGraph<'p> {
    /// The root block, with these of its outputs and all hidden ones as out-ports; those that are constants need nothing
    /// and are left out.
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

    /// The node that a sub-module is.
    pub(super) fn node(&self, module: u32) -> NodeIndex {
        self.node_of[module as usize]
    }

    /// The sub-module that a node is, unless it is a relay.
    pub(super) fn module(&self, node: NodeIndex) -> Option<u32> {
        Some(self.module_of[node as usize]).filter(|module| *module != NO_MODULE)
    }

    /// What is really behind a source, past all relays.
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

/// All that is waited for behind a source. Not deep: joins are wide.
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
