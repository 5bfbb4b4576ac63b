//! Provenance keys are equal exactly where values are: old and new programs, compared by running both.

use super::{
    interpret::{Value, constant, run},
    programs::{Kinds, random},
    rng::{Rng, seeds},
};
use crate::{
    digest::Digest,
    model::{Program, Source, program::NodeOp},
    plan::{Fusion, ProvenanceKeys, fuse, still_valid},
};

const TASKS_ONLY: Kinds = Kinds { nodes: 14, containers: false, relays: true, pure: 5 };

fn digests(inputs: &[Value]) -> Vec<Option<Digest>> {
    inputs.iter().map(|value| Some(Digest::of(format!("{value:?}").as_bytes()))).collect()
}

/// Makes one or two random changes to the program or its inputs; returns the new inputs.
fn change(rng: &mut Rng, program: &mut Program, inputs: &[Value]) -> Vec<Value> {
    let mut inputs = inputs.to_vec();
    for _ in 0..1 + rng.below(2) {
        match rng.below(5) {
            0 => {
                let task = rng.below(program.tasks.len() as u64) as usize;
                program.tasks[task].version = String::from("2");
            }
            1 => {
                let at = rng.below(2) as usize;
                inputs[at] = Value::Number(rng.below(3));
            }
            2 => program.constants[0] = constant(rng.below(5)),
            3 => {
                // Another source for one input; only inputs and constants, so that no cycle can arise.
                let node = rng.below(program.blocks[0].nodes.len() as u64) as usize;
                let inputs = &mut program.blocks[0].nodes[node].inputs;
                if !inputs.is_empty() {
                    let at = rng.below(inputs.len() as u64) as usize;
                    inputs[at] =
                        rng.pick(&[Source::Input(0), Source::Input(1), Source::Constant(1), Source::Constant(2)]);
                }
            }
            _ => program.tasks.iter_mut().for_each(|task| task.retry.attempts += 1),
        }
    }
    inputs
}

#[test]
fn keys_are_equal_exactly_where_values_are() {
    let (mut same, mut different) = (0, 0);
    for seed in seeds(2_000) {
        let rng = &mut Rng::new(seed);
        let old = random(rng, TASKS_ONLY);
        let mut new = old.clone();
        let inputs = [Value::Number(rng.below(3)), Value::Number(rng.below(3) + 10)];
        let new_inputs = change(rng, &mut new, &inputs);
        let (old_keys, new_keys) =
            (ProvenanceKeys::new(&old, 0, &digests(&inputs)), ProvenanceKeys::new(&new, 0, &digests(&new_inputs)));
        let (before, after) = (run(&old, 0, &inputs), run(&new, 0, &new_inputs));
        let valid = still_valid((&old.blocks[0], &old_keys), (&new.blocks[0], &new_keys));
        for (node, outputs) in (0..).zip(&after.nodes) {
            // Random lists may come out equal (empty) from different sources.
            let is_list = |node: u32| {
                let task = &new.blocks[0].nodes[node as usize].op;
                matches!(task, NodeOp::Task(task) if new.tasks[*task as usize].name.starts_with("list"))
            };
            for (port, value) in (0..).zip(outputs) {
                let was = &before.nodes[node as usize][usize::from(port)];
                match valid.get(&(node, port)) {
                    Some(at) => {
                        assert_eq!(*at, (node, port));
                        assert_eq!(was, value, "seed {seed}: {node}:{port} is said to be valid");
                        same += 1;
                    }
                    None => {
                        let reads_list = (0..=node).any(is_list);
                        assert!(was != value || reads_list, "seed {seed}: {node}:{port} is the same and not reused");
                        different += 1;
                    }
                }
            }
        }
    }
    assert!(same > 1_000 && different > 1_000, "{same} and {different}");
}

#[test]
fn with_containers_what_is_said_to_be_valid_is() {
    for seed in seeds(2_000) {
        let rng = &mut Rng::new(seed);
        let old = random(rng, Kinds { containers: true, ..TASKS_ONLY });
        let mut new = old.clone();
        let inputs = [Value::Number(rng.below(3)), Value::Number(rng.below(3) + 10)];
        let new_inputs = change(rng, &mut new, &inputs);
        // The digest of a body covers its whole meaning; here, all tasks and constants.
        for program in [&mut new] {
            let meaning = format!("{:?} {:?}", program.tasks, program.constants);
            let changed = program.tasks.iter().zip(&old.tasks).any(|(new, old)| new.version != old.version)
                || program.constants != old.constants;
            for block in program.blocks[1..].iter_mut().filter(|_| changed) {
                block.digest = Digest::of(format!("{meaning} {:?}", block.digest).as_bytes());
            }
        }
        let (old_keys, new_keys) =
            (ProvenanceKeys::new(&old, 0, &digests(&inputs)), ProvenanceKeys::new(&new, 0, &digests(&new_inputs)));
        let (before, after) = (run(&old, 0, &inputs), run(&new, 0, &new_inputs));
        for ((node, port), (was, was_port)) in still_valid((&old.blocks[0], &old_keys), (&new.blocks[0], &new_keys)) {
            let is = &after.nodes[node as usize][usize::from(port)];
            assert_eq!(is, &before.nodes[was as usize][usize::from(was_port)], "seed {seed}: {node}:{port}");
        }
    }
}

#[test]
fn an_old_value_that_fits_its_old_source_is_not_valid_if_that_source_is_not() {
    // x -> a -> b: x changes; b still fits the stored output of a, but a does not fit x.
    let seed_with_chain = (0..).find_map(|seed| {
        let program = random(&mut Rng::new(seed), Kinds { nodes: 2, relays: false, ..TASKS_ONLY });
        let nodes = &program.blocks[0].nodes;
        let reads = |node: usize, source: Source| nodes.get(node).is_some_and(|node| node.inputs.contains(&source));
        let all = program.tasks.iter().all(|task| task.depends.is_none());
        (all && reads(0, Source::Input(0)) && reads(1, Source::Node(0, 0))).then_some(program)
    });
    let program = seed_with_chain.expect("some seed");
    let keys = |x: u8| ProvenanceKeys::new(&program, 0, &[Some(crate::Digest::from_bytes([x; 32])), None]);
    let block = &program.blocks[0];
    assert!(still_valid((block, &keys(1)), (block, &keys(2))).is_empty());
    assert_eq!(still_valid((block, &keys(1)), (block, &keys(1))).keys().map(|(node, _)| node).max(), Some(&1));
}

#[test]
fn how_a_program_is_run_is_not_part_of_a_key() {
    for seed in seeds(300) {
        let rng = &mut Rng::new(seed);
        let program = random(rng, TASKS_ONLY);
        let mut other = fuse(&program, Fusion::On).into_owned();
        for task in &mut other.tasks {
            (task.retry.attempts, task.timeout_ms, task.resources.cpu_milli) = (9, Some(1), 2);
            task.class = String::from("elsewhere");
        }
        let digests = [Some(crate::Digest::from_bytes([1; 32])), None];
        let (one, two) = (ProvenanceKeys::new(&program, 0, &digests), ProvenanceKeys::new(&other, 0, &digests));
        let outputs: usize = other.blocks[0].nodes.iter().map(|node| node.outputs.len()).sum();
        assert_eq!(still_valid((&program.blocks[0], &one), (&other.blocks[0], &two)).len(), outputs);
    }
}
