//! Joins an each with the each whose output it iterates: one each remains, whose body is that of the first followed by
//! that of the second. Elements then go through both one by one, and none waits for the slowest of the others.
//!
//! The second may iterate only outputs of the first, and lists that the first iterates (so that elements match). None
//! of its other inputs may come from the first, not even through other nodes: it would wait for all of the each that it
//! is now part of. Outputs of the first that other nodes read as whole lists stay outputs. The lower limit on elements
//! in flight holds for both.

use super::order::each_source;
use crate::{
    limits::MODULE_PORTS_MAX,
    model::{
        Block, BlockInput, InstancePath, Node, PathSegment, Port, Program, Source,
        program::{BlockIndex, NodeIndex, NodeOp, PortIndex},
    },
};

/// Joins all eaches that can be joined, in all blocks.
pub(super) fn pipeline(program: &mut Program) {
    // Bodies stand after the blocks that open them, so a joined body is visited after it was joined.
    for block in 0..program.blocks.len() {
        while let Some(pair) = find(program, block) {
            join(program, block, &pair);
        }
    }
}

/// Two eaches that can be joined, by their nodes and bodies.
struct Pair {
    first: NodeIndex,
    second: NodeIndex,
    bodies: (BlockIndex, BlockIndex),
    concurrency: Option<u32>,
}

/// Returns the body and concurrency of a node that is an each and may be joined with another.
fn each(node: &Node) -> Option<(BlockIndex, Option<u32>)> {
    match node.op {
        NodeOp::Each { body, concurrency } if !node.attempt => Some((body, concurrency)),
        _ => None,
    }
}

fn find(program: &Program, block: usize) -> Option<Pair> {
    let nodes = &program.blocks[block].nodes;
    let eaches = nodes.iter().enumerate().filter_map(|(at, node)| Some((at as NodeIndex, node, each(node)?)));
    for (second, node, (body, limit)) in eaches {
        for source in iterated(program, node, body) {
            let Source::Node(first, _) = source else { continue };
            let Some((first_body, first_limit)) = each(&nodes[first as usize]) else { continue };
            let concurrency = limit.into_iter().chain(first_limit).min();
            let pair = Pair { first, second, bodies: (first_body, body), concurrency };
            if matches(program, block, &pair) && fits(program, block, &pair) && is_free(program, block, &pair) {
                return Some(pair);
            }
        }
    }
    None
}

/// Returns the lists that an each iterates.
fn iterated<'a>(program: &'a Program, node: &'a Node, body: BlockIndex) -> impl Iterator<Item = Source> {
    by_varying(program, node, body, true)
}

/// Returns the other inputs of an each, which all elements share.
fn captured<'a>(program: &'a Program, node: &'a Node, body: BlockIndex) -> impl Iterator<Item = Source> {
    by_varying(program, node, body, false)
}

fn by_varying<'a>(
    program: &'a Program,
    node: &'a Node,
    body: BlockIndex,
    varying: bool,
) -> impl Iterator<Item = Source> + 'a {
    let inputs = program.blocks[body as usize].inputs.iter().zip(&node.inputs);
    inputs.filter(move |(input, _)| input.varying == varying).map(|(_, source)| *source)
}

/// Every list that the second iterates is an output of the first, or iterated by the first.
fn matches(program: &Program, block: usize, pair: &Pair) -> bool {
    let nodes = &program.blocks[block].nodes;
    let first = &nodes[pair.first as usize];
    iterated(program, &nodes[pair.second as usize], pair.bodies.1).all(|source| {
        let given = matches!(source, Source::Node(node, _) if node == pair.first);
        given || iterated(program, first, pair.bodies.0).any(|other| other == source)
    })
}

/// The joined each has no more ports than a module may have.
fn fits(program: &Program, block: usize, pair: &Pair) -> bool {
    let nodes = &program.blocks[block].nodes;
    let (first, second) = (&nodes[pair.first as usize], &nodes[pair.second as usize]);
    first.inputs.len() + second.inputs.len() <= MODULE_PORTS_MAX
        && first.outputs.len() + second.outputs.len() <= MODULE_PORTS_MAX
}

/// No input that the elements of the second share comes from the first, directly or through other nodes.
fn is_free(program: &Program, block: usize, pair: &Pair) -> bool {
    let nodes = &program.blocks[block].nodes;
    let taken = captured(program, &nodes[pair.second as usize], pair.bodies.1);
    let mut seen = vec![false; nodes.len()];
    let mut todo: Vec<_> = taken.collect();
    while let Some(source) = todo.pop() {
        let Source::Node(node, _) = source else { continue };
        if node == pair.first {
            return false;
        }
        if !std::mem::replace(&mut seen[node as usize], true) {
            todo.extend(nodes[node as usize].sources());
        }
    }
    true
}

fn join(program: &mut Program, block: usize, pair: &Pair) {
    let kept = still_read(&program.blocks[block], pair);
    let second_node = program.blocks[block].nodes[pair.second as usize].clone();
    let mut first_node = program.blocks[block].nodes[pair.first as usize].clone();
    // The second body is left empty: its nodes have moved, and must not be joined there once more.
    let gone = Block { inputs: vec![], outputs: vec![], nodes: vec![], digest: crate::Digest::default() };
    let mut second_body = std::mem::replace(&mut program.blocks[pair.bodies.1 as usize], gone);
    let body = &mut program.blocks[pair.bodies.0 as usize];

    let moved = inputs(&mut first_node, body, &second_node, &second_body, pair.first);
    let offset = body.nodes.len() as NodeIndex;
    each_source(&mut second_body, |source| match *source {
        Source::Input(input) => *source = moved[usize::from(input)],
        Source::Node(node, port) => *source = Source::Node(node + offset, port),
        Source::Constant(_) | Source::None => {}
    });
    body.nodes.append(&mut second_body.nodes);
    body.outputs = keep(std::mem::take(&mut body.outputs), &kept).chain(second_body.outputs).collect();
    let own: Vec<_> = keep(first_node.outputs.to_vec(), &kept).collect();
    let joined = told_apart(&own, second_node.outputs.to_vec(), &second_node.path);
    first_node.outputs = own.into_iter().chain(joined).collect();
    first_node.op = NodeOp::Each { body: pair.bodies.0, concurrency: pair.concurrency };

    let block = &mut program.blocks[block];
    block.nodes[pair.first as usize] = first_node;
    block.nodes.remove(pair.second as usize);
    renumber(block, pair, &kept);
}

/// Renames the outputs that move to another each, prefixed with their address, where that each has an output of the
/// same name: a run's values are found again by the names of outputs.
fn told_apart(own: &[Port], joined: Vec<Port>, path: &[PathSegment]) -> Vec<Port> {
    let is_taken = |name: &str| own.iter().any(|port| port.name == name);
    let apart = |port: Port| match is_taken(&port.name) {
        true => Port { name: format!("{}:{}", InstancePath::root().address(path), port.name), ..port },
        false => port,
    };
    joined.into_iter().map(apart).collect()
}

fn keep<T>(items: Vec<T>, kept: &[bool]) -> impl Iterator<Item = T> {
    items.into_iter().zip(kept.to_vec()).filter_map(|(item, keep)| keep.then_some(item))
}

/// Returns, per output of the first, whether a node other than the second, or the block's end, reads it.
fn still_read(block: &Block, pair: &Pair) -> Vec<bool> {
    let mut read = vec![false; block.nodes[pair.first as usize].outputs.len()];
    let others = block.nodes.iter().enumerate().filter(|(at, _)| *at as NodeIndex != pair.second);
    let sources = others.flat_map(|(_, node)| node.sources()).chain(block.outputs.iter().map(|output| output.from));
    for source in sources {
        if let Source::Node(node, port) = source
            && node == pair.first
        {
            read[usize::from(port)] = true;
        }
    }
    read
}

/// Adds the shared inputs of the second to the first; returns, per input of the second's body, its source in the joined
/// body.
fn inputs(node: &mut Node, body: &mut Block, second: &Node, second_body: &Block, first: NodeIndex) -> Vec<Source> {
    let mut moved = Vec::with_capacity(second.inputs.len());
    let mut own = std::mem::take(&mut node.inputs).into_vec();
    for (input, source) in second_body.inputs.iter().zip(&second.inputs) {
        let same = |(own, other): (&BlockInput, &Source)| own.varying == input.varying && other == source;
        let known = body.inputs.iter().zip(&own).position(same);
        moved.push(match (*source, known) {
            (Source::Node(from, port), _) if from == first => body.outputs[usize::from(port)].from,
            (_, Some(at)) => Source::Input(at as PortIndex),
            (source, None) => {
                own.push(source);
                body.inputs.push(input.clone());
                Source::Input(body.inputs.len() as PortIndex - 1)
            }
        });
    }
    node.inputs = own.into();
    moved
}

/// Redirects sources after the join: the second is gone, and its outputs follow the kept outputs of the first.
fn renumber(block: &mut Block, pair: &Pair, kept: &[bool]) {
    let before = |port: PortIndex| kept[..usize::from(port)].iter().filter(|kept| **kept).count() as PortIndex;
    let all = before(kept.len() as PortIndex);
    each_source(block, |source| {
        let Source::Node(node, port) = source else { return };
        if *node == pair.second {
            (*node, *port) = (pair.first, all + *port);
        } else if *node == pair.first {
            *port = before(*port);
        }
        *node -= NodeIndex::from(*node > pair.second);
    });
}
