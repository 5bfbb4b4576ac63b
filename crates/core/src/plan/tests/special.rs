//! Specialised programs compute the same from known values, run only the steps that are needed, and explain why.

use super::{
    interpret::{Value, run},
    programs::{Kinds, assert_sound, ports, random},
    rng::{Rng, seeds},
};
use crate::{
    model::{
        Block, BlockInput, BlockOutput, Node, PathSegment, Port, Program, Source, TaskSpec, Type,
        program::{NodeIndex, NodeOp, PortIndex},
    },
    plan::{
        Fate, Fusion, KeyedBlock, ProvenanceKeys, changes, explain::ExplanationLine, fuse, specialise,
        specialise::Plan, still_valid,
    },
};
use std::collections::{BTreeMap, BTreeSet};

fn runs(plan: &Plan) -> Vec<NodeIndex> {
    let run = plan.explanation.lines.iter().filter(|line| line.fate == Fate::Run);
    run.map(|line| line.node).collect()
}

/// Runs a plan with the values it reuses, and compares the outputs with those of the whole program.
fn check_plan(program: &Program, plan: &Plan, inputs: &[Value], what: &str) {
    assert_sound(&plan.program);
    let whole = run(program, 0, inputs);
    let reused = plan.reuse.iter().map(|(_, (node, port))| whole.nodes[*node as usize][usize::from(*port)].clone());
    let inputs: Vec<_> = inputs.iter().cloned().chain(reused).collect();
    let part = run(&plan.program, 0, &inputs);
    for (at, value) in plan.outputs.iter().zip(&part.outputs) {
        let output = &program.blocks[0].outputs[usize::from(*at)];
        assert!(output.hidden || whole.outputs[usize::from(*at)] == *value, "{what}: output {at}");
    }
    let relay = |at: &NodeIndex| program.blocks[0].nodes[*at as usize].op == NodeOp::Relay;
    let nodes: Vec<_> = plan.nodes.iter().copied().flatten().filter(|at| !relay(at)).collect();
    assert_eq!(nodes, runs(plan), "{what}: the plan has the nodes that run");
    check_nodes(program, plan, what);
}

/// Checks that every task has its required inputs, and every relay a consumer.
fn check_nodes(program: &Program, plan: &Plan, what: &str) {
    let block = &plan.program.blocks[0];
    let read: BTreeSet<_> = block
        .nodes
        .iter()
        .flat_map(Node::sources)
        .chain(block.outputs.iter().map(|output| output.from))
        .filter_map(|source| if let Source::Node(node, _) = source { Some(node) } else { None })
        .collect();
    for ((at, node), was) in (0..).zip(&block.nodes).zip(&plan.nodes) {
        assert!(node.op != NodeOp::Relay || read.contains(&at), "{what}: a relay has no reader");
        let (NodeOp::Task(task), Some(was)) = (&node.op, was) else { continue };
        let was = &program.blocks[0].nodes[*was as usize];
        for ((port, is), had) in program.tasks[*task as usize].inputs.iter().zip(&node.inputs).zip(&was.inputs) {
            let mut had = *had;
            while let Source::Node(by, _) = had
                && program.blocks[0].nodes[by as usize].op == NodeOp::Relay
            {
                had = program.blocks[0].nodes[by as usize].inputs[0];
            }
            let absent = *is == Source::None && had != Source::None;
            assert!(!absent || matches!(port.ty, Type::Option(_)), "{what}: {at} lacks an input that is not optional");
        }
    }
}

#[test]
fn specialised_programs_compute_the_same_and_run_only_what_is_needed() {
    let (mut reused, mut skipped) = (0, 0);
    for seed in seeds(4_000) {
        let rng = &mut Rng::new(seed);
        let program = random(rng, Kinds { nodes: 14, containers: true, relays: true, pure: 5 });
        let block = &program.blocks[0];
        let inputs = [Value::Number(rng.next()), Value::Number(rng.next())];
        let one_in = 1 + rng.below(4);
        let all = (0..).zip(&block.nodes);
        let outputs = all.flat_map(|(at, node)| (0..node.outputs.len() as PortIndex).map(move |port| (at, port)));
        let known: BTreeMap<_, ()> = outputs.filter(|_| rng.one_in(one_in)).map(|at| (at, ())).collect();
        let visible = (0..).zip(&block.outputs).filter(|(_, output)| !output.hidden);
        let requested: Vec<PortIndex> = visible.map(|(at, _)| at).filter(|_| !rng.one_in(3)).collect();
        let plan = specialise(&program, &known, &requested, None).expect("a plan");
        check_plan(&program, &plan, &inputs, &format!("seed {seed}"));
        assert!(plan.reuse.iter().all(|(_, at)| known.contains_key(at)));
        let shown = plan.outputs.iter().filter(|at| !block.outputs[usize::from(**at)].hidden).copied();
        assert_eq!(shown.collect::<Vec<_>>(), requested);
        // The fused plan still computes the same.
        let fused = Plan { program: fuse(&plan.program, Fusion::On).into_owned(), ..plan.clone() };
        let whole = run(&program, 0, &inputs);
        let reuse = plan.reuse.iter().map(|(_, (node, port))| whole.nodes[*node as usize][usize::from(*port)].clone());
        let given: Vec<_> = inputs.iter().cloned().chain(reuse).collect();
        assert_eq!(run(&fused.program, 0, &given).outputs, run(&plan.program, 0, &given).outputs, "seed {seed}");
        // Planning again without known values returns the same plan.
        let all: Vec<_> =
            (0..).zip(&plan.program.blocks[0].outputs).filter(|(_, o)| !o.hidden).map(|(at, _)| at).collect();
        let again = specialise(&plan.program, &BTreeMap::<_, ()>::new(), &all, None).expect("a plan");
        assert_eq!(again.program, plan.program, "seed {seed}: a plan has nothing that is not needed");
        reused += plan.reuse.len();
        skipped += plan.explanation.lines.iter().filter(|line| line.fate == Fate::Skipped).count();
    }
    assert!(reused > 2_000 && skipped > 2_000, "{reused} reused, {skipped} skipped");
}

/// Returns a flow of tasks `/a:o` and so on; every task reads the named sources and has one output `o`; the last one's
/// is the flow's output.
fn flow(nodes: &[(&str, &str, &[&str])]) -> Program {
    let mut program = Program { blocks: vec![], tasks: vec![], constants: vec![] };
    let mut block = Block {
        inputs: ["x", "y"].map(|name| BlockInput { port: Port::new(name, Type::Int), varying: false }).to_vec(),
        outputs: vec![],
        nodes: vec![],
        digest: crate::Digest::from_bytes([9; 32]),
    };
    for (name, version, inputs) in nodes {
        let mut task = TaskSpec::new(*name, ports("i", inputs.len()), vec![Port::new("o", Type::Int)]);
        task.version = (*version).to_owned();
        program.tasks.push(task);
        let source = |input: &&str| match *input {
            "x" => Source::Input(0),
            "y" => Source::Input(1),
            node => {
                let at = nodes.iter().position(|(name, ..)| *name == node).expect("a node");
                Source::Node(at as NodeIndex, 0)
            }
        };
        block.nodes.push(Node {
            path: [PathSegment::Name((*name).into())].into(),
            op: NodeOp::Task(program.tasks.len() as u32 - 1),
            inputs: inputs.iter().map(source).collect(),
            outputs: [Port::new("o", Type::Int)].into(),
            attempt: false,
            gate: None,
        });
    }
    let from = Source::Node(nodes.len() as NodeIndex - 1, 0);
    block.outputs.push(BlockOutput { port: Port::new("p", Type::Int), from, hidden: false });
    program.blocks.push(block);
    program
}

/// Plans the new flow from all valid values of the old one but those of `lost`; `x` is the input x of the new flow.
fn explain(old: &Program, new: &Program, x: u8, lost: &[&str]) -> String {
    let digests = |x: u8| [Some(crate::Digest::from_bytes([x; 32])), Some(crate::Digest::from_bytes([100; 32]))];
    let (was, is) = (ProvenanceKeys::new(old, 0, &digests(1)), ProvenanceKeys::new(new, 0, &digests(x)));
    let mut valid = still_valid((&old.blocks[0], &was), (&new.blocks[0], &is));
    let path = |node: NodeIndex| new.address(0, node, &crate::model::InstancePath::root());
    valid.retain(|(node, _), _| !lost.contains(&path(*node).as_str()));
    let keyed = |program, keys| KeyedBlock { program, block: 0, keys };
    let changes = changes(keyed(old, &was), keyed(new, &is));
    let plan = specialise(new, &valid, &[0], Some(&changes)).expect("a plan");
    check_plan(new, &plan, &[Value::Number(5), Value::Number(6)], "explained");
    plan.explanation.lines.iter().map(ExplanationLine::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_plan_says_what_runs_and_why() {
    let old = flow(&[("a", "1", &["x"]), ("b", "1", &["y"]), ("c", "1", &["a"]), ("d", "1", &["c", "b"])]);
    let all_skipped = "skip /a: not needed; skip /b: not needed; skip /c: not needed; reuse /d: kept";
    assert_eq!(explain(&old, &old, 1, &[]), all_skipped);
    assert_eq!(
        explain(&old, &old, 2, &[]),
        "run /a: input i0 changed; reuse /b: kept; run /c: /a reruns; run /d: /c reruns"
    );
    let code = flow(&[("a", "1", &["x"]), ("b", "1", &["y"]), ("c", "2", &["a"]), ("d", "1", &["c", "b"])]);
    assert_eq!(
        explain(&old, &code, 1, &[]),
        "reuse /a: kept; reuse /b: kept; run /c: code changed from c@1 to c@2; run /d: /c reruns"
    );
    assert_eq!(
        explain(&old, &old, 1, &["/d", "/b"]),
        "skip /a: not needed; run /b: no value; reuse /c: kept; run /d: no value"
    );
    let more = flow(&[("a", "1", &["x"]), ("b", "1", &["y"]), ("c", "1", &["a"]), ("e", "1", &["c", "b"])]);
    assert_eq!(explain(&old, &more, 1, &[]), "skip /a: not needed; reuse /b: kept; reuse /c: kept; run /e: new");
    let rewired = flow(&[("a", "1", &["x"]), ("b", "1", &["y"]), ("c", "1", &["b"]), ("d", "1", &["c", "b"])]);
    assert_eq!(
        explain(&old, &rewired, 1, &[]),
        "skip /a: not needed; reuse /b: kept; run /c: input i0 changed; run /d: /c reruns"
    );
}

#[test]
fn a_reused_value_is_one_more_input() {
    let program = flow(&[("a", "1", &["x"]), ("b", "1", &["a"]), ("c", "1", &["a", "b"])]);
    let known = BTreeMap::from([((0, 0), "the value of a")]);
    let plan = specialise(&program, &known, &[0], None).expect("a plan");
    let names: Vec<_> = plan.program.blocks[0].inputs.iter().map(|input| input.port.name.as_str()).collect();
    assert_eq!(names, ["x", "y", "reuse:/a:o"], "once, though two read it");
    assert_eq!(plan.reuse, [(2, (0, 0))]);
    assert_eq!(plan.nodes, [Some(1), Some(2)]);
    let none = specialise(&program, &known, &[], None).expect("a plan");
    assert!(none.program.blocks[0].nodes.is_empty() && none.reuse.is_empty(), "nothing requested, nothing done");
}

#[test]
fn no_opening_enables_more_than_a_batch_can() {
    // a feeds very many nodes without readers, so that joins stand behind them: all of them read only reused values.
    let count: NodeIndex = 200_000;
    let mut program = flow(&[("a", "1", &["x"]), ("b", "1", &["a"])]);
    let block = &mut program.blocks[0];
    for at in 2..count {
        let path = [PathSegment::Name(format!("n{at}").into())].into();
        block.nodes.push(Node { path, ..block.nodes[1].clone() });
    }
    for chunk in (2..count).collect::<Vec<_>>().chunks(256) {
        let inputs = chunk.iter().map(|at| Source::Node(*at, 0)).collect();
        let from = Source::Node(block.nodes.len() as NodeIndex, 0);
        block.nodes.push(Node { op: NodeOp::Relay, inputs, ..block.nodes[1].clone() });
        block.outputs.push(BlockOutput { port: Port::new("done", Type::Int), from, hidden: true });
    }
    let some_ran = (2..20).chain(300..600).map(|at| ((at, 0), ()));
    let known: BTreeMap<_, ()> = some_ran.chain([((0, 0), ())]).collect();
    let plan = specialise(&program, &known, &[0], None).expect("a plan");
    assert_eq!(plan.reuse, [(2, (0, 0))], "that the others ran is enough, no step reads them");
    assert_sound(&plan.program);
    let nodes = &plan.program.blocks[0].nodes;
    let mut enables = vec![0; nodes.len() + 1];
    for node in
        nodes.iter().filter(|node| node.gate.is_some() || !node.inputs.iter().any(|at| matches!(at, Source::Node(..))))
    {
        let by = if let Some(Source::Node(by, _)) = node.gate { by as usize } else { nodes.len() };
        enables[by] += 1;
    }
    assert!(enables.iter().all(|enabled| *enabled <= 256));
    assert_eq!(runs(&plan).len() as NodeIndex, count - 1 - 18 - 300);
    let joined: usize =
        nodes.iter().filter(|node| node.op == NodeOp::Relay && node.gate.is_none()).map(|n| n.inputs.len()).sum();
    assert!(joined >= runs(&plan).len() - 1, "the end waits for every step that runs");
}
