//! Flow files in a directory of their own, and how graphs are shown.

use expect_test::Expect;
use onceflow_core::model::{Endpoint, Graph, Module, Port, graph::ModuleKind};
use onceflow_spec::{LoadOptions, LoadedFlow, Problems, load};
use std::{fs, path::Path};

/// Loads the first of some files; problems show paths as they are given here.
pub(crate) fn load_files(files: &[(&str, &str)]) -> Result<LoadedFlow, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    load_in(dir.path(), files[0].0)
}

/// Loads a file of a directory.
pub(crate) fn load_in(dir: &Path, name: &str) -> Result<LoadedFlow, String> {
    load(&dir.join(name), &LoadOptions::default()).map_err(|problems| shown(dir, &problems))
}

/// Formats problems, with paths relative to a directory.
pub(crate) fn shown(dir: &Path, problems: &Problems) -> String {
    let whole = format!("{problems}\n").replace(&format!("{}/", dir.display()), "");
    whole.replace(&dir.display().to_string(), "DIR")
}

/// Loads a flow that must load.
pub(crate) fn good(text: &str) -> LoadedFlow {
    load_files(&[("flow.yaml", text)]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Checks that a flow does not load, and the problems reported.
pub(crate) fn wrong(text: &str, expected: Expect) {
    wrong_files(&[("flow.yaml", text)], expected);
}

/// Checks that the first of these files does not load.
pub(crate) fn wrong_files(files: &[(&str, &str)], expected: Expect) {
    match load_files(files) {
        Ok(flow) => panic!("it loads: {}", render(flow.checked.library().flows.get(flow.name()).unwrap())),
        Err(problems) => expected.assert_eq(&problems),
    }
}

/// Checks the problems of a flow with these steps, and inputs to try them on.
pub(crate) fn wrong_steps(steps: &str, expected: Expect) {
    let indented: String = steps.trim_matches('\n').lines().map(|line| format!("  {line}\n")).collect();
    let inputs = "inputs: { reads: list<file>, ref: file, n: int, name: text, row: '{ id: text, r1: file }' }";
    wrong(&format!("flow: test\n{inputs}\nsteps:\n{indented}"), expected);
}

/// Formats a graph: one line for every module, with its sources.
pub(crate) fn render(graph: &Graph) -> String {
    let mut text = String::new();
    graph_lines(graph, "", &mut text);
    text
}

fn ports(ports: &[Port]) -> String {
    let ports: Vec<_> = ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect();
    ports.join(", ")
}

fn end(end: &Endpoint) -> String {
    end.module.as_ref().map_or(end.port.clone(), |module| format!("{module}:{}", end.port))
}

fn graph_lines(graph: &Graph, indent: &str, text: &mut String) {
    *text += &format!("{indent}({}) -> ({})\n", ports(&graph.inputs), ports(&graph.outputs));
    for module in &graph.modules {
        module_lines(module, graph, &format!("{indent}  "), text);
    }
    for connection in graph.connections.iter().filter(|connection| connection.to.module.is_none()) {
        *text += &format!("{indent}  {} <- {}\n", connection.to.port, end(&connection.from));
    }
}

fn module_lines(module: &Module, graph: &Graph, indent: &str, text: &mut String) {
    let fed = graph.connections.iter().filter(|connection| connection.to.module.as_ref() == Some(&module.name));
    let mut fed: Vec<_> = fed.map(|connection| format!(" {}={}", connection.to.port, end(&connection.from))).collect();
    fed.sort();
    let attempt = if module.attempt { " attempt" } else { "" };
    let head = format!("{indent}{}:{attempt}", module.name);
    let fed = fed.concat();
    match &module.kind {
        ModuleKind::Task(spec) => *text += &format!("{head} {} -> ({}){fed}\n", spec.name, ports(&spec.outputs)),
        ModuleKind::Constant(port, payload) => *text += &format!("{head} constant {} {payload:?}\n", port.ty),
        ModuleKind::Call { flow } => *text += &format!("{head} call {flow}{fed}\n"),
        ModuleKind::Composite(body) => {
            *text += &format!("{head} composite{fed}\n");
            graph_lines(body, &format!("{indent}  "), text);
        }
        ModuleKind::Loop { body, carried, condition } => {
            *text += &format!("{head} loop {carried:?} while {condition}{fed}\n");
            graph_lines(body, &format!("{indent}  "), text);
        }
        ModuleKind::Each { body, over, concurrency } => {
            let most = concurrency.map(|most| format!(" at most {most}")).unwrap_or_default();
            *text += &format!("{head} each [{}]{most}{fed}\n", over.join(", "));
            graph_lines(body, &format!("{indent}  "), text);
        }
        ModuleKind::Choice { arms } => {
            *text += &format!("{head} choice{fed}\n");
            for arm in arms {
                *text += &format!("{indent}  {} if {}\n", arm.name, arm.guard.as_deref().unwrap_or("nothing else"));
                graph_lines(&arm.body, &format!("{indent}    "), text);
            }
        }
    }
}
