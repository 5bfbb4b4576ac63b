//! Computes a digest of the meaning of a block: equal for blocks that do the same, regardless of the modules' names,
//! order, retries and limits, and of the relays between them.
//!
//! A node is first named by its operation and everything that leads to it. Nodes are sorted by these names, and by
//! their order only where names are equal; this numbers them, and the digest covers the exact wiring between the
//! numbers. So blocks with equal digests are wired alike, and two that are wired alike have equal digests unless
//! identical steps on identical inputs were reordered.

use crate::{
    digest::Digest,
    model::{
        Block, Program, Source,
        check::components::{components, is_cycle},
        program::{NodeOp, PortIndex},
    },
};
use blake3::Hasher;

/// Computes the digests of all blocks.
pub(super) fn digest(program: &mut Program) {
    let bodies = |block: &Block| {
        let bodies = block.nodes.iter().flat_map(|node| super::prune::bodies(&node.op));
        bodies.map(|body| body as usize).collect()
    };
    let edges: Vec<Vec<usize>> = program.blocks.iter().map(bodies).collect();
    let mut digests = vec![Digest::default(); program.blocks.len()];
    for component in components(&edges) {
        // Recursive blocks are hashed once more than their component has blocks: as many rounds of calls as can
        // distinguish them.
        let rounds = if is_cycle(&edges, &component) { component.len() + 1 } else { 1 };
        for _ in 0..rounds {
            let next: Vec<_> = component.iter().map(|at| of(program, &program.blocks[*at], &digests)).collect();
            component.iter().zip(next).for_each(|(at, digest)| digests[*at] = digest);
        }
    }
    program.blocks.iter_mut().zip(digests).for_each(|(block, digest)| block.digest = digest);
}

fn text(hasher: &mut Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
}

fn number(hasher: &mut Hasher, number: usize) {
    hasher.update(&(number as u64).to_le_bytes());
}

/// Returns the source behind all relays, which pass their input on unchanged.
fn behind(block: &Block, mut source: Source) -> Source {
    while let Source::Node(node, _) = source
        && block.nodes[node as usize].op == NodeOp::Relay
    {
        source = block.nodes[node as usize].inputs[0];
    }
    source
}

fn of(program: &Program, block: &Block, digests: &[Digest]) -> Digest {
    // One hasher is reset and reused: creating or copying one costs as much as hashing a node.
    let mut node_hasher = Hasher::new_derive_key("onceflow node");
    let mut names: Vec<Digest> = Vec::with_capacity(block.nodes.len());
    for at in 0..block.nodes.len() {
        let by_name = |node: usize, hasher: &mut Hasher| {
            hasher.update(names[node].as_bytes());
        };
        node(&mut node_hasher, program, block, at, digests, by_name);
        names.push(node_hasher.finalize().into());
    }
    let is_step = |at: &u32| block.nodes[*at as usize].op != NodeOp::Relay;
    let mut order: Vec<u32> = (0..names.len() as u32).filter(is_step).collect();
    order.sort_unstable_by(|one, other| (&names[*one as usize], one).cmp(&(&names[*other as usize], other)));
    let mut numbers = vec![0_u32; names.len()];
    drop(names);
    (0..).zip(&order).for_each(|(number, at)| numbers[*at as usize] = number);

    let mut hasher = Hasher::new_derive_key("onceflow block");
    number(&mut hasher, block.inputs.len());
    for input in &block.inputs {
        text(&mut hasher, &input.port.name);
        number(&mut hasher, usize::from(input.varying));
    }
    number(&mut hasher, order.len());
    let by_number = |node: usize, hasher: &mut Hasher| number(hasher, numbers[node] as usize);
    for at in order {
        node(&mut node_hasher, program, block, at as usize, digests, by_number);
        hasher.update(node_hasher.finalize().as_bytes());
    }
    for output in block.outputs.iter().filter(|output| !output.hidden) {
        text(&mut hasher, &output.port.name);
        source(program, block, output.from, &mut hasher, by_number);
    }
    hasher.finalize().into()
}

/// Hashes the operation of a node and the sources of its inputs; `name` hashes a reference to another node.
fn node(
    hasher: &mut Hasher,
    program: &Program,
    block: &Block,
    at: usize,
    digests: &[Digest],
    name: impl Fn(usize, &mut Hasher) + Copy,
) {
    hasher.reset();
    let node = &block.nodes[at];
    op(program, &node.op, digests, hasher);
    number(hasher, usize::from(node.attempt));
    number(hasher, node.inputs.len());
    for input in &node.inputs {
        source(program, block, *input, hasher, name);
    }
}

fn op(program: &Program, op: &NodeOp, digests: &[Digest], hasher: &mut Hasher) {
    match op {
        NodeOp::Task(at) => {
            text(hasher, "task");
            task(program, *at, hasher);
        }
        NodeOp::Fused(tasks) => {
            text(hasher, "fused");
            for fused in tasks {
                task(program, fused.task, hasher);
                text(hasher, &format!("{:?} {:?}", fused.inputs, fused.outputs));
            }
        }
        NodeOp::Relay => text(hasher, "relay"),
        NodeOp::Each { body, .. } => {
            text(hasher, "each");
            hasher.update(digests[*body as usize].as_bytes());
        }
        NodeOp::Loop { body, carried } => {
            text(hasher, "loop");
            hasher.update(digests[*body as usize].as_bytes());
            for (output, input) in carried {
                ports(hasher, &[*output, *input]);
            }
        }
        NodeOp::Choice { arms } => {
            text(hasher, "choice");
            for arm in arms {
                ports(hasher, &[PortIndex::from(arm.guard.is_some()), arm.guard.unwrap_or_default()]);
                hasher.update(digests[arm.body as usize].as_bytes());
            }
        }
        NodeOp::Call { body } => {
            text(hasher, "call");
            hasher.update(digests[*body as usize].as_bytes());
        }
    }
}

fn ports(hasher: &mut Hasher, ports: &[PortIndex]) {
    ports.iter().for_each(|port| number(hasher, usize::from(*port)));
}

/// Hashes the name and version of a task, and the names of its ports.
fn task(program: &Program, at: u32, hasher: &mut Hasher) {
    let spec = &program.tasks[at as usize];
    text(hasher, &spec.name);
    text(hasher, &spec.version);
    for ports in [&spec.inputs, &spec.outputs] {
        number(hasher, ports.len());
        ports.iter().for_each(|port| text(hasher, &port.name));
    }
}

fn source(
    program: &Program,
    block: &Block,
    from: Source,
    hasher: &mut Hasher,
    name: impl Fn(usize, &mut Hasher) + Copy,
) {
    match behind(block, from) {
        Source::Input(input) => {
            text(hasher, "input");
            ports(hasher, &[input]);
        }
        Source::Node(node, port) => {
            text(hasher, "node");
            name(node as usize, hasher);
            ports(hasher, &[port]);
        }
        Source::Constant(constant) => {
            text(hasher, "constant");
            hasher.update(program.constants[constant as usize].digest().as_bytes());
        }
        Source::None => text(hasher, "none"),
    }
}
