//! Small flows, started; whether a run of one has ended as it should.

use super::apply;
use onceflow_core::{
    Name, Row, Shard, Timestamp,
    model::{
        Connection, Endpoint, Graph, Library, Module, Port, Source, TaskSpec, Type, Wiring, check, graph::ModuleKind,
        program::NodeOp,
    },
    payload::{Outcome, Payload, Stored},
    protocol::{
        draft::InstalledProgram,
        ids::{Generation, RunId, StepId},
        keys::{self, Keys},
        rows::{self, Frame, Head, Header, Held, Parked, Phase, RunState, Shape, Status},
        run,
    },
};
use onceflow_store::{CommitResult, records::Scan, state::StoreState};
use std::sync::Arc;

/// Shapes of a few steps: which module feeds which. `x` is the input, `y` and `z` are outputs. The first letter of a
/// module says what it is: `s` is a task that gives a list of two, `f` a task that fails until the run is retried, `E` an
/// each over a list, `F` an each whose elements fail at first, `O` an each with one element at a time, `L` a loop of two iterations; others are tasks.
pub const SHAPES: [(&str, &str); 12] = [
    ("one step", "x>a a>y"),
    ("chain of 3", "x>a a>b b>c c>y"),
    ("chain of 5", "x>a a>b b>c c>d d>e e>y"),
    ("diamond", "x>a a>b a>c b>d c>d d>y"),
    ("each of 2", "x>s s>E E>y"),
    ("each, one by one", "x>s s>O O>c c>y"),
    ("loop of 2", "x>L L>y"),
    ("failure", "x>f f>y"),
    ("failure beside a step", "x>a x>f a>d f>d d>y"),
    ("failure in an each", "x>s s>F F>y"),
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
            "y" | "z" => graph.outputs.push(Port::new(name, type_of(feeds[0]))),
            _ => graph.modules.push(module(name, &feeds)),
        }
        let join = |from: &&str| Connection { from: end(from, "out"), to: end(name, from), origin: None };
        graph.connections.extend(feeds.iter().map(join));
    }
    graph
}

/// The type of a module's output.
fn type_of(name: &str) -> Type {
    match name {
        "s" | "E" | "F" | "O" => Type::list(Type::Text),
        "q" => Type::Bool,
        _ => Type::Text,
    }
}

fn module(name: &str, feeds: &[&str]) -> Module {
    let body = |task: &str| {
        let from = feeds[0];
        let mut body = graph(&format!("x>{task} {task}>y"));
        (body.inputs[0].name, body.outputs[0].name) = (from.into(), "out".into());
        for connection in &mut body.connections {
            for (end, outer) in [(&mut connection.from, from), (&mut connection.to, "out")] {
                if end.module.is_none() {
                    end.port = outer.into();
                }
            }
        }
        body
    };
    let each =
        |task: &str, concurrency| ModuleKind::Each { body: body(task), over: vec![feeds[0].into()], concurrency };
    let kind = match name {
        "E" => each("p", None),
        "F" => each("f", None),
        "O" => each("p", Some(1)),
        "L" => {
            let mut body = body("t");
            let own = |port: &str| Endpoint { module: None, port: port.into() };
            let of_q = |port: &str| Endpoint { module: Some("q".into()), port: port.into() };
            body.modules.push(module("q", feeds));
            body.outputs.push(Port::new("more", Type::Bool));
            body.connections.push(Connection { from: own(feeds[0]), to: of_q(feeds[0]), origin: None });
            body.connections.push(Connection { from: of_q("out"), to: own("more"), origin: None });
            ModuleKind::Loop { body, carried: vec![("out".into(), feeds[0].into())], condition: "more".into() }
        }
        _ => {
            let ports = feeds.iter().map(|from| Port::new(*from, type_of(from))).collect();
            ModuleKind::Task(TaskSpec::new(name, ports, vec![Port::new("out", type_of(name))]).into())
        }
    };
    Module { name: name.into(), kind, origin: None, attempt: false }
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

/// Returns the output of a task: its name, and its inputs. A task `s` gives two elements; `q` says whether a loop goes on.
pub(super) fn given(task: &str, inputs: &[Held]) -> Outcome {
    let inputs: Vec<_> = inputs.iter().map(|held| text(held.outcome.value())).collect();
    let said = format!("{task}({})", inputs.join(","));
    Outcome::Value(match task {
        "s" => Payload::List([0, 1].map(|index| Some(Payload::inline(format!("{said}{index}")))).into()),
        "q" if inputs[0].starts_with("t(") => Payload::inline([0xc2]),
        "q" => Payload::inline([0xc3]),
        _ => Payload::inline(said),
    })
}

fn text(payload: Option<&Payload>) -> String {
    match payload {
        Some(Payload::Inline(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Payload::List(elements)) => {
            let elements: Vec<_> = elements.iter().map(|element| text(element.as_ref())).collect();
            format!("[{}]", elements.join(","))
        }
        other => panic!("{other:?} is not what tasks give here"),
    }
}

/// A user cancels the run. False if there is nothing to cancel.
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

/// A user retries a run that has failed. False if it has not.
pub(super) fn retry(plan: &InstalledProgram, rows: &mut StoreState) -> Result<bool, String> {
    let Some(row) = rows.get(Shard(0), &plan.keys.state()) else { return Ok(false) };
    let state = rows::read::<RunState>(row).expect("the state of a run");
    if !state.phase.is_failed() {
        return Ok(false);
    }
    let parked = parked(plan, rows)?;
    let (batch, _) = run::unpark(plan, state, &parked).finish();
    Ok(apply(rows, &batch)?.is_applied())
}

/// All parked steps.
pub(super) fn parked(plan: &InstalledProgram, rows: &StoreState) -> Result<Vec<(StepId, Row, Parked)>, String> {
    let scan = Scan::of(plan.keys.rows.clone(), 1000).prefix(b"p");
    let read = |(name, row): (Name, Row)| {
        let step = StepId::from_bytes(&name.as_bytes()[1..]).ok_or("the name of a parked step")?;
        let parked = rows::read(&row).ok_or("a parked step")?;
        Ok((step, row, parked))
    };
    rows.scan(Shard(0), &scan).rows.into_iter().map(read).collect()
}

/// Evaluates the flow plainly, to the output that a run must give.
fn expected(plan: &InstalledProgram, output: &str) -> Outcome {
    let root = &plan.program.blocks[0];
    let at = root.outputs.iter().position(|known| known.port.name == output).expect("an output");
    evaluate(plan, 0, &[Outcome::Value(Payload::inline("input"))]).swap_remove(at)
}

/// Evaluates a block plainly, to the outputs that a run of it must give.
fn evaluate(plan: &InstalledProgram, block: u32, inputs: &[Outcome]) -> Vec<Outcome> {
    let block = &plan.program.blocks[block as usize];
    let mut made: Vec<Vec<Outcome>> = Vec::new();
    let read = |made: &[Vec<Outcome>], source: Source| match source {
        Source::Node(node, port) => made[node as usize][usize::from(port)].clone(),
        Source::Input(port) => inputs[usize::from(port)].clone(),
        other => panic!("{other:?} is not explored"),
    };
    for node in &block.nodes {
        let given_to: Vec<_> = node.inputs.iter().map(|source| read(&made, *source)).collect();
        made.push(match &node.op {
            NodeOp::Task(task) => {
                let held: Vec<_> = given_to.into_iter().map(|outcome| Held { owned: false, outcome }).collect();
                vec![given(&plan.program.tasks[*task as usize].name, &held)]
            }
            NodeOp::Each { body, .. } => {
                let Some(Payload::List(elements)) = given_to[0].value() else { panic!("no list") };
                let one = |element: &Option<Payload>| {
                    let element = Outcome::Value(element.clone().expect("elements have values here"));
                    evaluate(plan, *body, &[element]).swap_remove(0).value().cloned()
                };
                vec![Outcome::Value(Payload::List(elements.iter().map(one).collect()))]
            }
            NodeOp::Loop { body, .. } => {
                let mut given_to = given_to;
                loop {
                    let mut made = evaluate(plan, *body, &given_to);
                    let goes_on = made.pop().expect("a loop has a condition").is_true();
                    if !goes_on {
                        break made;
                    }
                    given_to = made;
                }
            }
            other => panic!("{other:?} is not explored"),
        });
    }
    block.outputs.iter().map(|output| read(&made, output.from)).collect()
}
