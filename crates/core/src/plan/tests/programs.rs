//! Random programs, valid by construction; and a check that they are valid.

use super::{interpret::constant, rng::Rng};
use crate::model::{
    Block, BlockInput, BlockOutput, Effect, FusedSource, Node, PathSegment, Port, Program, Source, TaskSpec, Type,
    program::{BlockIndex, NodeIndex, NodeOp, PortIndex, ProgramArm},
};

/// The kinds of nodes that a random program may contain.
#[derive(Clone, Copy)]
pub(super) struct Kinds {
    pub(super) nodes: u64,
    pub(super) containers: bool,
    pub(super) relays: bool,
    /// The number of tasks in ten that are pure.
    pub(super) pure: u64,
}

pub(super) fn ports(prefix: &str, count: usize) -> Vec<Port> {
    (0..count).map(|at| Port::new(format!("{prefix}{at}"), Type::Int)).collect()
}

/// Returns a random task: some have optional inputs and declare their dependencies.
fn task(rng: &mut Rng, number: usize, kinds: Kinds) -> TaskSpec {
    let (ins, outs) = (rng.below(4) as usize, 1 + rng.below(3) as usize);
    let name = if rng.one_in(4) { "list" } else { "task" };
    let mut task = TaskSpec::new(format!("{name}{number}"), ports("i", ins), ports("o", outs));
    for port in &mut task.inputs {
        if rng.one_in(2) {
            port.ty = Type::option(Type::Int);
        }
    }
    if rng.one_in(2) {
        let row = |rng: &mut Rng| (0..ins as u16).filter(|_| rng.one_in(2)).collect();
        task.depends = Some((0..outs).map(|_| row(rng)).collect());
    }
    task.effect = if rng.below(10) < kinds.pure { Effect::Pure } else { Effect::Idempotent };
    task.class = String::from(if rng.one_in(9) { "large" } else { "default" });
    task
}

pub(super) fn random(rng: &mut Rng, kinds: Kinds) -> Program {
    let tasks: Vec<_> = (0..6).map(|number| task(rng, number, kinds)).collect();
    let constants = (0..3).map(|_| constant(rng.below(5))).collect();
    let mut program = Program { blocks: vec![], tasks, constants };
    let bodies = if kinds.containers { 3 } else { 0 };
    // Blocks are made from the inside out, so that containers find their bodies; the root is put in front at the end.
    for body in 0..=bodies {
        let is_root = body == bodies;
        let nodes = if is_root { kinds.nodes } else { 3 };
        let block = block(rng, &program, Kinds { nodes, ..kinds }, is_root);
        program.blocks.push(block);
    }
    let root = program.blocks.pop().expect("there is a root");
    program.blocks.insert(0, root);
    program
}

fn block(rng: &mut Rng, program: &Program, kinds: Kinds, is_root: bool) -> Block {
    // All bodies have two inputs and two outputs, so that any fits any container; the second output is a loop's
    // condition.
    let input = |varying| BlockInput { port: Port::new("x", Type::Int), varying };
    let mut block = Block {
        inputs: vec![input(!is_root), input(false)],
        outputs: vec![],
        nodes: vec![],
        digest: crate::Digest::default(),
    };
    let mut sources = vec![Source::Input(0), Source::Input(1), Source::Constant(0), Source::Constant(1), Source::None];
    for at in 0..1 + rng.below(kinds.nodes) {
        let node = node(rng, program, kinds, &sources, at);
        sources.extend((0..node.outputs.len()).map(|port| Source::Node(at as NodeIndex, port as PortIndex)));
        block.nodes.push(node);
    }
    let outputs = if is_root { 1 + rng.below(3) } else { 2 };
    for at in 0..outputs {
        let port = Port::new(format!("p{at}"), Type::Int);
        block.outputs.push(BlockOutput { port, from: rng.pick(&sources), hidden: false });
    }
    if is_root && rng.one_in(3) {
        let from = Source::Node(rng.below(block.nodes.len() as u64) as NodeIndex, 0);
        block.outputs.push(BlockOutput { port: Port::new("done", Type::Int), from, hidden: true });
    }
    block.digest = crate::Digest::of(format!("{block:?}").as_bytes());
    block
}

fn node(rng: &mut Rng, program: &Program, kinds: Kinds, sources: &[Source], at: u64) -> Node {
    // Inner blocks are referred to by their final index: the root is put in front of them.
    let body = |rng: &mut Rng| 1 + rng.below(program.blocks.len() as u64) as BlockIndex;
    let (op, ins, outs) = if kinds.relays && rng.one_in(5) {
        (NodeOp::Relay, 1, 1)
    } else if !program.blocks.is_empty() && rng.one_in(4) {
        match rng.below(4) {
            0 => (NodeOp::Each { body: body(rng), concurrency: None }, 2, 2),
            1 => (NodeOp::Loop { body: body(rng), carried: [(0, 0)].into() }, 2, 1),
            2 => (NodeOp::Call { body: body(rng) }, 2, 2),
            _ => {
                let guarded = ProgramArm { guard: Some(1), body: body(rng) };
                (NodeOp::Choice { arms: [guarded, ProgramArm { guard: None, body: body(rng) }].into() }, 2, 2)
            }
        }
    } else {
        let task = rng.below(program.tasks.len() as u64);
        let spec = &program.tasks[task as usize];
        (NodeOp::Task(task as u32), spec.inputs.len(), spec.outputs.len())
    };
    // Half of the inputs read from the newest nodes, so that graphs are deep.
    let newest = &sources[sources.len() - 3..];
    let inputs = (0..ins).map(|_| if rng.one_in(2) { rng.pick(newest) } else { rng.pick(sources) }).collect();
    let path = [PathSegment::Name(format!("n{at}").into())].into();
    Node { path, op, inputs, outputs: ports("o", outs).into(), attempt: false, gate: None }
}

/// Panics unless every index is in range and every node stands after the nodes that feed it.
pub(super) fn assert_sound(program: &Program) {
    for block in &program.blocks {
        let check = |source: Source, before: usize| match source {
            Source::Input(input) => assert!(usize::from(input) < block.inputs.len()),
            Source::Node(node, port) => {
                assert!((node as usize) < before, "a node stands before what feeds it");
                assert!(usize::from(port) < block.nodes[node as usize].outputs.len());
            }
            Source::Constant(constant) => assert!((constant as usize) < program.constants.len()),
            Source::None => {}
        };
        for (at, node) in block.nodes.iter().enumerate() {
            node.sources().for_each(|source| check(source, at));
            if let NodeOp::Fused(tasks) = &node.op {
                for (number, task) in tasks.iter().enumerate() {
                    task.inputs.iter().for_each(|input| match *input {
                        FusedSource::Input(input) => assert!(usize::from(input) < node.inputs.len()),
                        FusedSource::Task(before, _) => assert!(usize::from(before) < number),
                    });
                }
            }
        }
        block.outputs.iter().for_each(|output| check(output.from, block.nodes.len()));
    }
}
