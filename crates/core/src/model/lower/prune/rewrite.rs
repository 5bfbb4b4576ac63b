//! Removes the nodes and ports that are not needed from a program, and renumbers the rest.

use super::Needs;
use crate::{
    model::{
        Block, BlockOutput, Node, Port, Program, Source, TaskSpec, Type,
        check::face::optional,
        program::{NodeOp, PortIndex},
        task::DONE,
    },
    payload::Payload,
};
use std::collections::BTreeMap;

/// The new index of each port, by its old index; `None` if it was removed.
type Map = Vec<Option<PortIndex>>;

fn map(keep: impl Iterator<Item = bool>) -> Map {
    let mut next = 0;
    let number = |keep: bool| {
        keep.then(|| {
            next += 1;
            next - 1
        })
    };
    keep.map(number).collect()
}

fn retain<T>(items: &mut Vec<T>, map: &Map) {
    let mut at = 0;
    items.retain(|_| {
        at += 1;
        map[at - 1].is_some()
    });
}

/// The ports of every block that remain.
struct Ports {
    /// Per block: a needed node opens it.
    opened: Vec<bool>,
    inputs: Vec<Map>,
    outputs: Vec<Map>,
    /// Per block: no output but a loop's condition is needed, so it gets the output `done`.
    done: Vec<bool>,
}

/// Rewrites all blocks.
pub(super) fn rewrite(program: &mut Program, needs: &Needs) {
    let ports = ports(program, needs);
    program.constants.push(Payload::unit());
    let unit = Source::Constant(program.constants.len() as u32 - 1);
    let Program { blocks, tasks, .. } = program;
    for (at, block) in blocks.iter_mut().enumerate() {
        if !ports.opened[at] {
            (block.inputs, block.outputs, block.nodes) = (vec![], vec![], vec![]);
            continue;
        }
        rewrite_block(block, at, tasks, needs, &ports);
        if ports.done[at] {
            let done = BlockOutput { port: Port::new(DONE, Type::Unit), from: unit, hidden: false };
            block.outputs.insert(0, done);
        }
    }
}

/// Decides which ports remain. The arms of a choice keep the same inputs and outputs; so do a loop or each and its
/// body.
fn ports(program: &Program, needs: &Needs) -> Ports {
    let count = program.blocks.len();
    let all = |ports: usize| map(std::iter::repeat_n(true, ports));
    let none = || vec![vec![]; count];
    let mut ports = Ports { opened: vec![false; count], inputs: none(), outputs: none(), done: vec![false; count] };
    ports.opened[0] = true;
    ports.inputs[0] = all(program.blocks[0].inputs.len());
    ports.outputs[0] = all(program.blocks[0].outputs.len());
    for (at, block) in program.blocks.iter().enumerate() {
        for (number, node) in block.nodes.iter().enumerate() {
            let Some(outputs) = needs.nodes[at].of(number) else { continue };
            let bodies = super::bodies(&node.op);
            if bodies.is_empty() {
                continue;
            }
            let reads = map((0..node.inputs.len()).map(|input| needs.reads(&program.tasks, node, outputs, input)));
            for body in bodies.iter().map(|body| *body as usize).filter(|body| *body != 0) {
                ports.opened[body] = true;
                let gives = map(needs.outputs[body].iter().copied());
                let condition = usize::from(matches!(node.op, NodeOp::Loop { .. }));
                ports.done[body] = gives.iter().flatten().count() == condition;
                (ports.inputs[body], ports.outputs[body]) = (reads.clone(), gives);
            }
        }
    }
    ports
}

fn rewrite_block(block: &mut Block, at: usize, tasks: &[TaskSpec], needs: &Needs, ports: &Ports) {
    // The new number of each needed node: the count of needed nodes before it.
    let mut next = 0;
    let number = |needed: &bool| {
        next += u32::from(*needed);
        next - u32::from(*needed)
    };
    let node_needs = &needs.nodes[at];
    let numbers: Vec<u32> = node_needs.needed.iter().map(number).collect();
    let outputs = Outputs::of(block, ports);
    let moved = |source: Source| match source {
        Source::Input(input) => ports.inputs[at][usize::from(input)].map_or(Source::None, Source::Input),
        Source::Node(node, _) if !node_needs.needed[node as usize] => Source::None,
        Source::Node(node, port) => {
            outputs.moved(node, port).map_or(Source::None, |port| Source::Node(numbers[node as usize], port))
        }
        other => other,
    };
    retain(&mut block.inputs, &ports.inputs[at]);
    retain(&mut block.outputs, &ports.outputs[at]);
    block.outputs.iter_mut().for_each(|output| output.from = moved(output.from));
    let old_nodes = std::mem::take(&mut block.nodes).into_iter().enumerate();
    for (number, mut node) in old_nodes {
        let Some(needed) = node_needs.of(number) else { continue };
        for input in 0..node.inputs.len() {
            let reads = needs.reads(tasks, &node, needed, input);
            node.inputs[input] = if reads { moved(node.inputs[input]) } else { Source::None };
        }
        if let Some(outputs) = outputs.0.get(&(number as u32)) {
            let reads = (0..node.inputs.len()).map(|input| needs.reads(tasks, &node, needed, input));
            let reads = map(reads);
            rewrite_container(&mut node, outputs, &reads, ports);
        }
        block.nodes.push(node);
    }
}

/// The new indices of the outputs of containers. Other nodes keep all their outputs.
struct Outputs(BTreeMap<u32, Map>);

impl Outputs {
    fn of(block: &Block, ports: &Ports) -> Self {
        let moved = |(at, node): (u32, &Node)| Some((at, node_outputs(node, ports)?));
        Outputs((0..).zip(&block.nodes).filter_map(moved).collect())
    }

    fn moved(&self, node: u32, port: PortIndex) -> Option<PortIndex> {
        self.0.get(&node).map_or(Some(port), |outputs| outputs[usize::from(port)])
    }
}

/// Returns the new indices of the outputs of a container; `None` if the node is not a container.
fn node_outputs(node: &Node, ports: &Ports) -> Option<Map> {
    let body = super::bodies(&node.op).first().map(|body| *body as usize)?;
    let own = node.outputs.len() - usize::from(node.attempt);
    // A body that is not needed has no map; its node is not needed then either.
    let kept = |output: usize| ports.outputs[body].get(output).is_some_and(Option::is_some);
    let mut moved = map((0..own).map(kept).chain(node.attempt.then_some(true)));
    if ports.done[body] {
        moved.iter_mut().flatten().for_each(|port| *port += 1);
    }
    Some(moved)
}

fn rewrite_container(node: &mut Node, outputs: &Map, inputs: &Map, ports: &Ports) {
    let Some(body) = super::bodies(&node.op).first().map(|body| *body as usize) else { return };
    let mut read = std::mem::take(&mut node.inputs).into_vec();
    retain(&mut read, inputs);
    node.inputs = read.into();
    let mut left = node.outputs.to_vec();
    retain(&mut left, outputs);
    if ports.done[body] {
        let ty = match &node.op {
            NodeOp::Each { .. } => Type::list(Type::Unit),
            NodeOp::Choice { arms } if arms.iter().all(|arm| arm.guard.is_some()) => Type::option(Type::Unit),
            _ => Type::Unit,
        };
        left.insert(0, Port::new(DONE, if node.attempt { optional(ty) } else { ty }));
    }
    node.outputs = left.into();
    let moved = |port: &mut PortIndex| *port = inputs[usize::from(*port)].expect("guards are always read");
    match &mut node.op {
        NodeOp::Choice { arms } => arms.iter_mut().filter_map(|arm| arm.guard.as_mut()).for_each(moved),
        NodeOp::Loop { body, carried } => {
            let shift = PortIndex::from(ports.done[*body as usize]);
            let pair = |(output, input): &(PortIndex, PortIndex)| {
                let output = ports.outputs[*body as usize][usize::from(*output)]? + shift;
                Some((output, inputs[usize::from(*input)]?))
            };
            *carried = carried.iter().filter_map(pair).collect();
        }
        _ => {}
    }
}
