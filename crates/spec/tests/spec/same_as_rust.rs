//! A flow file and the same flow in Rust become the same graph. Names differ, so graphs are compared by the derivation
//! of every output: the kinds of modules, their types, and their connections.

use super::support::load_files;
use onceflow::prelude::*;
use onceflow_core::model::{Endpoint, Graph, Library, graph::ModuleKind};
use std::collections::BTreeMap;

/// Describes the derivation of every output of a flow.
fn meaning(library: &Library, flow: &str) -> Vec<String> {
    let graph = &library.flows[flow];
    let inputs =
        graph.inputs.iter().enumerate().map(|(at, port)| (port.name.clone(), format!("input{at}: {}", port.ty)));
    outputs(library, graph, &inputs.collect(), &|_| true)
}

fn outputs(
    library: &Library,
    graph: &Graph,
    inputs: &BTreeMap<String, String>,
    wanted: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let given = graph.outputs.iter().filter(|port| wanted(&port.name));
    given.map(|port| format!("{} = {}", port.ty, fed(library, graph, None, &port.name, inputs))).collect()
}

/// Describes the source of a port.
fn fed(
    library: &Library,
    graph: &Graph,
    module: Option<&str>,
    port: &str,
    inputs: &BTreeMap<String, String>,
) -> String {
    let to = Endpoint { module: module.map(String::from), port: port.to_owned() };
    let connection = graph.connections.iter().find(|connection| connection.to == to);
    connection.map_or("nothing".into(), |connection| term(library, graph, &connection.from, inputs))
}

fn term(library: &Library, graph: &Graph, from: &Endpoint, inputs: &BTreeMap<String, String>) -> String {
    let Some(name) = &from.module else { return inputs[&from.port].clone() };
    let module = graph.modules.iter().find(|module| module.name == *name).unwrap();
    let outer = |port: &str| fed(library, graph, Some(name), port, inputs);
    let attempt = if module.attempt { "attempt " } else { "" };
    // An output is identified by its position; the one that an attempt adds, by its name.
    let nth = |body: &Graph| match body.outputs.iter().position(|port| port.name == from.port) {
        Some(at) => at.to_string(),
        None => from.port.clone(),
    };
    let inside = |body: &Graph, own: &[(String, String)], wanted: &dyn Fn(&str) -> bool| {
        let own: BTreeMap<_, _> = own.iter().cloned().collect();
        let inner = body.inputs.iter().map(|port| {
            let term = own.get(&port.name).cloned().unwrap_or_else(|| outer(&port.name));
            (port.name.clone(), term)
        });
        outputs(library, body, &inner.collect(), wanted).join("; ")
    };
    match &module.kind {
        ModuleKind::Constant(port, payload) => format!("{} {payload:?}", port.ty),
        ModuleKind::Task(spec) => {
            let taken: Vec<_> = spec.inputs.iter().map(|port| format!("{}: {}", port.ty, outer(&port.name))).collect();
            let given: Vec<_> = spec.outputs.iter().map(|port| port.ty.to_string()).collect();
            let at = spec.outputs.iter().position(|port| port.name == from.port);
            let at = at.map_or(from.port.clone(), |at| at.to_string());
            format!("{attempt}task({}) -> ({}) [{at}]", taken.join(", "), given.join(", "))
        }
        ModuleKind::Composite(body) => format!("{attempt}({}) [{}]", inside(body, &[], &|_| true), nth(body)),
        ModuleKind::Call { flow } => {
            let body = &library.flows[flow];
            format!("{attempt}call({}) [{}]", inside(body, &[], &|_| true), nth(body))
        }
        ModuleKind::Each { body, over, concurrency } => {
            let own: Vec<_> = over.iter().map(|port| (port.clone(), format!("element of {}", outer(port)))).collect();
            format!("each {concurrency:?} {{ {} }} [{}]", inside(body, &own, &|_| true), nth(body))
        }
        ModuleKind::Loop { body, carried, condition } => {
            let own: Vec<_> =
                carried.iter().map(|(_, input)| (input.clone(), format!("carried from {}", outer(input)))).collect();
            let state = inside(body, &own, &|port| port != condition);
            let again = inside(body, &own, &|port| port == condition);
            format!("loop {{ {state} }} while {{ {again} }} [{}]", nth(body))
        }
        ModuleKind::Choice { arms } => {
            let arm = |arm: &onceflow_core::model::Arm| {
                let guard = arm.guard.as_ref().map_or("else".into(), |guard| outer(guard));
                format!("if {guard} {{ {} }}", inside(&arm.body, &[], &|_| true))
            };
            let arms: Vec<_> = arms.iter().map(arm).collect();
            format!("choice {} [{}]", arms.join(" "), from.port.replace("value", "x"))
        }
    }
}

fn same<I: onceflow::Ports, O: onceflow::Ports>(rust: &Flow<I, O>, files: &[(&str, &str)]) {
    let flow = load_files(files).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(meaning(flow.checked.library(), flow.name()), meaning(&rust.library(), rust.name()));
}

#[task]
fn count(text: File) -> u64 {
    text.name().len() as u64
}

#[task]
fn sum(numbers: Vec<u64>, extra: u64) -> u64 {
    numbers.iter().sum::<u64>() + extra
}

#[task(effect = pure)]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[task(effect = pure)]
fn less(a: u64, b: u64) -> bool {
    a < b
}

#[test]
fn an_each_that_feeds_a_sum() {
    let rust = Flow::new("words", ["texts", "extra"], ["total"], |f, (texts, extra): (Port<Vec<File>>, Port<u64>)| {
        let counts = f.at_most(8).each(texts, |f, text| f.add(count(text)));
        f.add(sum(counts, extra))
    });
    let yaml = "
flow: words
inputs: { texts: list<file>, extra: int }
steps:
  total: { run: 'sum ${{ count.n }} ${{ inputs.extra }}', out: { n: int } }
  count: { each: text in inputs.texts, at_most: 8, run: 'wc ${{ text }}', out: { n: int } }
outputs: { total: total }
";
    same(&rust, &[("flow.yaml", yaml)]);
}

#[test]
fn a_loop_with_captured_names() {
    let rust = Flow::new("fibonacci", ["limit"], ["number"], |f, limit: Port<u64>| {
        let (zero, one) = (f.constant(0), f.constant(1));
        let (_, last) = f.repeat((zero, one), |f, (a, b)| {
            let next = f.add(add(a, b));
            ((b, next), f.add(less(next, limit)))
        });
        last
    });
    let yaml = "
flow: fibonacci
inputs: { limit: int }
steps:
  numbers:
    loop: { carry: { a: 0, b: 1 }, while: out.b < inputs.limit }
    steps:
      sum: { expr: { b: a + b } }
    out: { a: b, b: sum.b }
outputs: { number: numbers.b }
";
    same(&rust, &[("flow.yaml", yaml)]);
}

#[test]
fn choices_attempts_and_composites() {
    let rust = Flow::new("choice", ["n", "m"], ["chosen", "maybe", "why"], |f, (n, m): (Port<u64>, Port<u64>)| {
        let small = f.add(less(n, m));
        let chosen = f.when(small, |f| f.add(add(n, m))).otherwise(|f| {
            let twice = f.add(add(m, m));
            f.add(add(twice, n))
        });
        let maybe = f.when(small, |f| f.add(add(chosen, n))).or_none();
        let (_, why) = f.attempt(sum(vec![1, 2], m));
        (chosen, maybe, why)
    });
    let yaml = "
flow: choice
inputs: { n: int, m: int }
steps:
  small: { expr: { x: inputs.n < inputs.m } }
  chosen:
    choose:
      - { when: small.x, run: 'add ${{ inputs.n }} ${{ inputs.m }}', out: { x: int } }
      - steps:
          twice: { run: 'twice ${{ inputs.m }}', in: { again: inputs.m }, out: { x: int } }
          more: { run: 'add ${{ twice.x }} ${{ inputs.n }}', out: { x: int } }
        out: { x: more.x }
  maybe: { when: small, run: 'add ${{ chosen.x }} ${{ inputs.n }}', out: { x: int } }
  tried: { attempt: true, in: { numbers: '[1, 2]' }, run: 'sum ${{ numbers }} ${{ inputs.m }}', out: { x: int } }
outputs: { chosen: chosen.x, maybe: maybe.x, why: tried.error }
";
    same(&rust, &[("flow.yaml", yaml)]);
}

#[test]
fn calls_between_flows() {
    let inner = Flow::new("inner", ["a", "b"], ["x"], |f, (a, b): (Port<u64>, Port<u64>)| f.add(add(a, b)));
    let rust = Flow::new("outer", ["xs", "n"], ["all"], |f, (xs, n): (Port<Vec<u64>>, Port<u64>)| {
        f.each(xs, |f, x| f.add(inner.call((x, n))))
    });
    let files = [
        (
            "outer.yaml",
            "
flow: outer
inputs: { xs: list<int>, n: int }
steps: { all: { each: x in inputs.xs, flow: inner.yaml, in: { b: inputs.n, a: x } } }
outputs: { all: all.x }
",
        ),
        (
            "inner.yaml",
            "
flow: inner
inputs: { a: int, b: int }
steps: { add: { run: 'add ${{ inputs.a }} ${{ inputs.b }}', out: { x: int } } }
outputs: { x: add.x }
",
        ),
    ];
    same(&rust, &files);
}
