//! Small flows, started; whether a run of one has ended as it should.

use super::apply;
use onceflow_core::{
    Shard, Timestamp,
    model::{Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, Wiring, check, graph::ModuleKind},
    payload::{Outcome, Payload, Stored},
    protocol::{
        draft::InstalledProgram,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Frame, Head, Header, Held, Phase, RunState, Shape, Status},
        run,
    },
};
use onceflow_store::{CommitResult, state::StoreState};
use std::sync::Arc;

/// Shapes of up to five steps: which task feeds which. `x` is the input, `y` the output.
pub const SHAPES: [(&str, &str); 6] = [
    ("one step", "x>a a>y"),
    ("chain of 3", "x>a a>b b>c c>y"),
    ("chain of 5", "x>a a>b b>c c>d d>e e>y"),
    ("diamond", "x>a a>b a>c b>d c>d d>y"),
    ("fan of 3", "x>a x>b x>c a>d b>d c>d d>y"),
    ("two ends", "x>a x>b a>c b>d c>e d>e e>y a>z"),
];

/// The run that is explored.
const RUN: RunId = RunId(*b"explored");
const KEY: &str = "run";

fn graph(text: &str) -> Graph {
    let mut graph = Graph::default();
    let pairs: Vec<_> = text.split(' ').filter_map(|pair| pair.split_once('>')).collect();
    let mut names: Vec<&str> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
    names.sort_unstable();
    names.dedup();
    let is_port = |name: &str| matches!(name, "x" | "y" | "z");
    let end = |name: &str, port: &str| Endpoint {
        module: (!is_port(name)).then(|| name.into()),
        port: if is_port(name) { name.into() } else { port.into() },
    };
    for name in names {
        let feeds: Vec<_> = pairs.iter().filter(|(_, to)| *to == name).map(|(from, _)| *from).collect();
        match name {
            "x" => graph.inputs.push(Port::new(name, Type::Text)),
            "y" | "z" => graph.outputs.push(Port::new(name, Type::Text)),
            _ => {
                let ports = feeds.iter().map(|from| Port::new(*from, Type::Text)).collect();
                let task = TaskSpec::new(name, ports, vec![Port::new("out", Type::Text)]);
                let module =
                    Module { name: name.into(), kind: ModuleKind::Task(task.into()), origin: None, attempt: false };
                graph.modules.push(module);
            }
        }
        let join = |from: &&str| Connection { from: end(from, "out"), to: end(name, from), origin: None };
        graph.connections.extend(feeds.iter().map(join));
    }
    graph
}

/// A run of this shape that has just started.
pub(super) fn started(shape: &str) -> (InstalledProgram, StoreState) {
    let library = Library { flows: [(String::from("main"), graph(shape))].into() };
    let program = check(&library, "main", None).unwrap_or_else(|errors| panic!("{errors}"));
    let wiring = Arc::new(Wiring::of(&program));
    let plan = InstalledProgram::new(Shard(0), Keys::new(RUN, Generation(0)), Arc::new(program), wiring);
    let inputs = vec![Some(Held { owned: false, outcome: Outcome::Value(Payload::inline("input")) })];
    let frame = Frame { block: 0, opened_by: None, depth: 0, guarded: false, shape: Shape::Run, inputs, memo: None };
    let (batch, _) = run::start(&plan, &header(), &frame, None).finish();
    let mut rows = StoreState::new();
    let applied = apply(&mut rows, &batch);
    assert!(applied.as_ref().is_ok_and(CommitResult::is_applied), "a run does not start: {applied:?}");
    (plan, rows)
}

/// What was asked for.
pub(super) fn header() -> Header {
    Header {
        key: KEY.into(),
        flow: "main".into(),
        program: Stored { id: onceflow_core::ValueId::new("program"), digest: Default::default(), len: 1 },
        full: None,
        asked: Default::default(),
        inputs: vec![],
        requested: None,
        finish_independent: false,
        keep_ms: None,
        history_ms: 1,
        started: Timestamp::ZERO,
        done_before: vec![],
    }
}

/// What a task gives: where it is, and what it was given.
pub(super) fn given(task: &str, inputs: &[Held]) -> Outcome {
    let text = |held: &Held| match held.outcome.value() {
        Some(Payload::Inline(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?} is not what tasks give here"),
    };
    let inputs: Vec<_> = inputs.iter().map(text).collect();
    Outcome::Value(Payload::inline(format!("{task}({})", inputs.join(","))))
}

/// Somebody cancels the run. False if there is nothing to cancel.
pub(super) fn cancel(plan: &InstalledProgram, rows: &mut StoreState) -> Result<bool, String> {
    let Some(row) = rows.get(Shard(0), &plan.keys.state()) else { return Ok(false) };
    let state = rows::read::<RunState>(row).expect("the state of a run");
    if !matches!(state.phase, Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting) {
        return Ok(false);
    }
    let (batch, _) = run::turn(plan, state, Phase::Cancelling).finish();
    Ok(apply(rows, &batch)?.is_applied())
}

/// Whether the run has ended.
///
/// # Errors
/// If it ended otherwise than it must, or left something behind.
pub(super) fn has_ended(plan: &InstalledProgram, rows: &StoreState) -> Result<bool, String> {
    let row = rows.get(Shard(0), &keys::heads().key(KEY)).ok_or("the run's row is gone")?;
    let Some(Head::Finished(finished)) = rows::read::<Head>(row) else { return Ok(false) };
    if finished.status == Status::Done {
        for (name, outcome) in &finished.outputs {
            let wanted = expected(plan, name);
            if *outcome != wanted {
                return Err(format!("output {name} is {outcome:?}, and must be {wanted:?}"));
            }
        }
    }
    let left: Vec<_> = rows.all().into_iter().filter(|(_, key, _)| !key.group.id().starts_with(b"runs")).collect();
    match left.first() {
        None => Ok(true),
        Some((_, key, _)) => Err(format!("the run has ended, and {key} is left, of {}", left.len())),
    }
}

/// What an output must be, by plain evaluation.
fn expected(plan: &InstalledProgram, output: &str) -> Outcome {
    use onceflow_core::model::{Source, program::NodeOp};
    let block = &plan.program.blocks[0];
    let mut made: Vec<Outcome> = Vec::new();
    let read = |made: &[Outcome], source: Source| match source {
        Source::Node(node, _) => made[node as usize].clone(),
        _ => Outcome::Value(Payload::inline("input")),
    };
    for node in &block.nodes {
        let NodeOp::Task(task) = node.op else { panic!("only tasks are explored") };
        let held = |source: &Source| Held { owned: false, outcome: read(&made, *source) };
        let inputs: Vec<_> = node.inputs.iter().map(held).collect();
        made.push(given(&plan.program.tasks[task as usize].name, &inputs));
    }
    let output = block.outputs.iter().find(|known| known.port.name == output).expect("an output");
    read(&made, output.from)
}
