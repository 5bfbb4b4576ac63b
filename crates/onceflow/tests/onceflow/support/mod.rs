//! Graphs as text, and bodies run by hand.
#![allow(dead_code, reason = "not every test needs all of it")]

use onceflow::{
    Flow, Ports,
    model::{Endpoint, Graph, Port, graph::ModuleKind},
    task::{Attempt, Data, Failure, Step},
};
use std::fmt::Write as _;

/// A flow as text: inputs and outputs, then modules, each with what feeds it, then what feeds the outputs.
pub(crate) fn render<I: Ports, O: Ports>(flow: &Flow<I, O>) -> String {
    let mut text = String::new();
    graph(&mut text, flow.name(), flow.graph(), 0);
    text
}

/// Lines like `count: task count <- text = /texts:value`.
fn graph(text: &mut String, title: &str, of: &Graph, depth: usize) {
    let pad = "  ".repeat(depth);
    writeln!(text, "{pad}{title}({}) -> ({})", ports(&of.inputs), ports(&of.outputs)).unwrap();
    for module in &of.modules {
        let fed: String = of
            .connections
            .iter()
            .filter(|connection| connection.to.module.as_deref() == Some(&module.name))
            .map(|connection| format!(" {}={}", connection.to.port, endpoint(&connection.from)))
            .collect();
        let attempt = if module.attempt { "attempt " } else { "" };
        let (kind, bodies) = kind(&module.kind);
        writeln!(text, "{pad}  {}: {attempt}{kind}{fed}", module.name).unwrap();
        for (title, body) in bodies {
            graph(text, &title, body, depth + 2);
        }
    }
    for connection in of.connections.iter().filter(|connection| connection.to.module.is_none()) {
        writeln!(text, "{pad}  {} <- {}", connection.to.port, endpoint(&connection.from)).unwrap();
    }
}

fn kind(kind: &ModuleKind) -> (String, Vec<(String, &Graph)>) {
    match kind {
        ModuleKind::Task(spec) => (format!("task {}", spec.name), Vec::new()),
        ModuleKind::Constant(port, payload) => (format!("constant {} {payload:?}", port.ty), Vec::new()),
        ModuleKind::Composite(body) => ("composite".into(), vec![("body".into(), body)]),
        ModuleKind::Loop { body, carried, condition } => {
            let carried: Vec<_> = carried.iter().map(|(from, to)| format!("{from}->{to}")).collect();
            (format!("loop [{}] while {condition}", carried.join(" ")), vec![("body".into(), body)])
        }
        ModuleKind::Each { body, over, concurrency } => {
            let limit = concurrency.map(|limit| format!(" at most {limit}")).unwrap_or_default();
            (format!("each [{}]{limit}", over.join(" ")), vec![("body".into(), body)])
        }
        ModuleKind::Choice { arms } => {
            let title = |arm: &onceflow::model::Arm| match &arm.guard {
                Some(guard) => format!("{} if {guard}", arm.name),
                None => arm.name.clone(),
            };
            ("choice".into(), arms.iter().map(|arm| (title(arm), &arm.body)).collect())
        }
        ModuleKind::Call { flow } => (format!("call {flow}"), Vec::new()),
    }
}

fn ports(ports: &[Port]) -> String {
    ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect::<Vec<_>>().join(", ")
}

fn endpoint(endpoint: &Endpoint) -> String {
    match &endpoint.module {
        Some(module) => format!("{module}:{}", endpoint.port),
        None => endpoint.port.clone(),
    }
}

/// Runs the body of a task of a flow, once.
pub(crate) async fn attempt<I: Ports, O: Ports>(
    flow: &Flow<I, O>,
    task: &str,
    inputs: Vec<Data>,
) -> Result<Vec<Data>, Failure> {
    let (spec, body) = flow.tasks().get(task).expect("a task of the flow");
    assert_eq!(spec.inputs.len(), inputs.len(), "one for each input");
    let step = Step::detached([1; 8], 2);
    let outputs = match body.start(step, inputs) {
        Attempt::Done(outputs) => outputs,
        Attempt::Async(future) => future.await,
        Attempt::Blocking(work) | Attempt::Abandonable(work) => work(),
        Attempt::Suspended(_) | Attempt::Suspending(_) => panic!("a typed task does not suspend"),
    };
    if let Ok(outputs) = &outputs {
        assert_eq!(spec.outputs.len(), outputs.len(), "one for each output");
    }
    outputs
}
