//! Fused programs compute the same, under the same keys, in as few steps as the rules allow.

use super::{
    interpret::{Value, run},
    programs::{Kinds, assert_sound, ports, random},
    rng::{Rng, seeds},
};
use crate::{
    model::{
        Block, BlockInput, BlockOutput, Effect, Node, PathSegment, Port, Program, Source, TaskSpec, Type,
        program::{NodeIndex, NodeOp},
    },
    plan::{Fusion, ProvenanceKeys, fuse, fuse::FUSED_TASKS_MAX, still_valid},
};

fn pure(name: &str, ins: usize) -> TaskSpec {
    let mut task = TaskSpec::new(name, ports("i", ins), ports("o", 1));
    task.effect = Effect::Pure;
    task
}

/// Returns a chain of these tasks: x -> n0 -> n1 -> … -> p.
fn chain(tasks: Vec<TaskSpec>) -> Program {
    let node = |at: usize| Node {
        path: [PathSegment::Name(format!("n{at}").into())].into(),
        op: NodeOp::Task(at as u32),
        inputs: [if at == 0 { Source::Input(0) } else { Source::Node(at as NodeIndex - 1, 0) }].into(),
        outputs: ports("o", 1).into(),
        attempt: false,
        gate: None,
    };
    let last = Source::Node(tasks.len() as NodeIndex - 1, 0);
    let block = Block {
        inputs: vec![BlockInput { port: Port::new("x", Type::Int), varying: false }],
        outputs: vec![BlockOutput { port: Port::new("p", Type::Int), from: last, hidden: false }],
        nodes: (0..tasks.len()).map(node).collect(),
        digest: crate::Digest::default(),
    };
    Program { blocks: vec![block], tasks, constants: vec![] }
}

/// Returns the number of tasks of each step of the root.
fn sizes(program: &Program) -> Vec<usize> {
    let size = |node: &Node| if let NodeOp::Fused(tasks) = &node.op { tasks.len() } else { 1 };
    program.blocks[0].nodes.iter().map(size).collect()
}

fn chain_with(count: usize, change: impl Fn(usize, &mut TaskSpec)) -> Vec<usize> {
    let task = |at| {
        let mut task = pure(&format!("t{at}"), 1);
        change(at, &mut task);
        task
    };
    sizes(&fuse(&chain((0..count).map(task).collect()), Fusion::On))
}

#[test]
fn a_chain_of_pure_tasks_is_one_step_and_no_step_has_more_than_sixty_four() {
    assert_eq!(chain_with(5, |_, _| {}), [5]);
    assert_eq!(chain_with(64, |_, _| {}), [64]);
    assert_eq!(chain_with(150, |_, _| {}), [64, 64, 22]);
}

#[test]
fn tasks_that_differ_in_how_they_are_run_stay_apart() {
    let at_two = |change: fn(&mut TaskSpec)| {
        chain_with(4, move |at, task| {
            if at == 2 {
                change(task);
            }
        })
    };
    assert_eq!(at_two(|task| task.class = "gpu".into()), [2, 1, 1]);
    assert_eq!(at_two(|task| task.retry.attempts = 7), [2, 1, 1]);
    assert_eq!(at_two(|task| task.timeout_ms = Some(1)), [2, 1, 1]);
    assert_eq!(at_two(|task| task.resources.cpu_milli = 1), [2, 1, 1]);
    assert_eq!(
        at_two(|task| task.compensation = Some(Box::new(crate::model::TaskSpec::new("undo", vec![], vec![])))),
        [2, 1, 1]
    );
    for effect in [Effect::Idempotent, Effect::AtMostOnce, Effect::Transactional] {
        assert_eq!(chain_with(4, |at, task| task.effect = if at == 2 { effect } else { Effect::Pure }), [2, 1, 1]);
    }
    assert_eq!(at_two(|task| task.version = "2".into()), [4], "versions may differ");
}

#[test]
fn a_value_with_a_second_reader_keeps_its_checkpoint() {
    let program = |change: fn(&mut Block)| {
        let mut program = chain((0..3).map(|at| pure(&format!("t{at}"), 1)).collect());
        change(&mut program.blocks[0]);
        sizes(&fuse(&program, Fusion::On))
    };
    assert_eq!(program(|_| {}), [3]);
    assert_eq!(program(|block| block.nodes[1].attempt = true), [1, 1, 1]);
    let seen = |block: &mut Block| {
        let port = Port::new("q", Type::Int);
        block.outputs.push(BlockOutput { port, from: Source::Node(0, 0), hidden: false });
    };
    assert_eq!(program(seen), [1, 2]);
    assert_eq!(program(|block| block.nodes[2].inputs = [Source::Node(0, 0)].into()), [1, 1, 1], "two readers");
}

#[test]
fn a_diamond_inside_one_reader_is_one_step() {
    // a -> b, a -> c, b -> c: once b has joined c, all readers of a are c.
    let mut program = chain(vec![pure("a", 1), pure("b", 1), pure("c", 2)]);
    program.blocks[0].nodes[2].inputs = [Source::Node(0, 0), Source::Node(1, 0)].into();
    let fused = fuse(&program, Fusion::On);
    assert_eq!(sizes(&fused), [3]);
    assert_eq!(*fused.blocks[0].nodes[0].inputs, [Source::Input(0)], "equal inputs are one");
    assert_eq!(*fuse(&program, Fusion::Off), program);
}

/// Two nodes of a block could still be merged, by the rules as documented.
fn could_merge(program: &Program, block: &Block, producer: usize, consumer: usize) -> bool {
    let (from, to) = (&block.nodes[producer], &block.nodes[consumer]);
    let tasks = |node: &Node| match &node.op {
        NodeOp::Task(task) => vec![*task],
        NodeOp::Fused(tasks) => tasks.iter().map(|task| task.task).collect(),
        _ => vec![],
    };
    let of = |node: &Node| tasks(node).into_iter().map(|task| &program.tasks[task as usize]).collect::<Vec<_>>();
    let all: Vec<_> = of(from).into_iter().chain(of(to)).collect();
    let reads =
        |node: &Node| node.sources().any(|source| matches!(source, Source::Node(at, _) if at as usize == producer));
    let only = (0..block.nodes.len()).all(|at| at == consumer || !reads(&block.nodes[at]))
        && !block.outputs.iter().any(|output| matches!(output.from, Source::Node(at, _) if at as usize == producer));
    let same = all.windows(2).all(|pair| {
        pair[0].class == pair[1].class && pair[0].retry == pair[1].retry && pair[0].timeout_ms == pair[1].timeout_ms
    });
    !of(from).is_empty()
        && !of(to).is_empty()
        && reads(to)
        && only
        && same
        && all.iter().all(|task| task.effect == Effect::Pure)
        && all.len() <= FUSED_TASKS_MAX
}

#[test]
fn fused_programs_compute_the_same_under_the_same_keys_and_nothing_more_can_be_fused() {
    let mut merged = 0;
    for seed in seeds(3_000) {
        let rng = &mut Rng::new(seed);
        let kinds = Kinds { nodes: 14, containers: true, relays: true, pure: 9 };
        let program = random(rng, kinds);
        let fused = fuse(&program, Fusion::On);
        assert_sound(&fused);
        assert_eq!(fuse(&fused, Fusion::On), fused, "seed {seed}: fused again, nothing changes");
        assert_eq!(fuse(&program, Fusion::On), fused, "seed {seed}: always the same");
        let inputs = [Value::Number(rng.next()), Value::Number(rng.next())];
        assert_eq!(run(&program, 0, &inputs).outputs, run(&fused, 0, &inputs).outputs, "seed {seed}");
        for block in &fused.blocks {
            for consumer in 0..block.nodes.len() {
                let producer = (0..consumer).find(|producer| could_merge(&fused, block, *producer, consumer));
                assert_eq!(producer, None, "seed {seed}: {producer:?} could still join {consumer}");
            }
        }
        let digests = [1, 2].map(|n| Some(crate::Digest::from_bytes([n; 32])));
        let (before, after) = (ProvenanceKeys::new(&program, 0, &digests), ProvenanceKeys::new(&fused, 0, &digests));
        let valid = still_valid((&program.blocks[0], &before), (&fused.blocks[0], &after));
        let outputs: usize = fused.blocks[0].nodes.iter().map(|node| node.outputs.len()).sum();
        assert_eq!(valid.len(), outputs, "seed {seed}: every value of the one is valid in the other");
        merged += program.blocks[0].nodes.len() - fused.blocks[0].nodes.len();
    }
    assert!(merged > 1_000, "only {merged} nodes were merged: the programs are too dull");
}
