//! `onceflow check FLOW…`: reports all problems of flow files, without running anything.

use crate::{args, exit::Exit, fault, flows, printer::Printer, streams, verbs::ls::shell_word};
use onceflow_spec::{LoadedFlow, LoadedStream};
use serde_json::json;
use std::path::Path;

/// Returns the command that runs a flow, with a placeholder for every required input.
fn command(path: &Path, flow: &LoadedFlow) -> String {
    let inputs = flow.inputs.iter().filter(|input| input.is_required());
    let inputs: String = inputs.map(|input| format!(" -i {}=…", input.name)).collect();
    format!("onceflow run {}{inputs}", shell_word(&path.display().to_string()))
}

/// The content of a file that was checked.
enum Checked {
    Flow(Box<LoadedFlow>),
    Stream(Box<LoadedStream>),
}

fn read(path: &Path) -> Result<Checked, fault::Fault> {
    match streams::read(path)? {
        Some(stream) => Ok(Checked::Stream(Box::new(stream))),
        None => flows::read(path).map(|flow| Checked::Flow(Box::new(flow))),
    }
}

/// Checks flow files.
pub(crate) fn run(args: &args::Check, printer: &Printer) -> Exit {
    let mut wrong = Vec::new();
    let mut right = Vec::new();
    let (mut unused, mut runs) = (Vec::<String>::new(), None);
    for path in &args.flows {
        match read(path) {
            Ok(Checked::Stream(stream)) => {
                right.push(format!("{}: stream `{}` is sound", path.display(), stream.name));
                runs.get_or_insert_with(|| format!("onceflow run {}", shell_word(&path.display().to_string())));
                unused.extend(stream.warnings.iter().map(ToString::to_string));
            }
            Ok(Checked::Flow(flow)) => {
                right.push(format!("{}: flow `{}` is sound", path.display(), flow.name()));
                runs.get_or_insert_with(|| command(path, &flow));
                unused.extend(flow.unused.iter().map(ToString::to_string));
                unused.extend(flow.warnings.iter().map(ToString::to_string));
            }
            Err(fault) => wrong.push((path, fault)),
        }
    }
    let problems: usize = wrong.iter().map(|(_, fault)| fault.problems.len().max(1)).sum();
    if printer.json {
        let one = |(path, fault): &(&std::path::PathBuf, fault::Fault)| {
            let problems: Vec<_> = fault.problems.iter().map(fault::problem).collect();
            json!({"file": path.display().to_string(), "message": fault.message, "problems": problems})
        };
        printer.pretty(&json!({
            "ok": wrong.is_empty(), "checked": args.flows.len(), "wrong": wrong.iter().map(one).collect::<Vec<_>>(),
            "warnings": unused,
        }));
    }
    right.iter().for_each(|line| printer.say(line));
    unused.iter().for_each(|unused| printer.say(format!("warning: {unused}")));
    // A file that does not exist is an error of usage, which takes precedence over errors in other files.
    let Some(exit) = wrong.iter().map(|(_, fault)| fault.exit).min() else {
        printer.next(runs.unwrap_or_else(|| String::from("onceflow run FLOW.yaml")));
        return Exit::Done;
    };
    if !printer.json {
        wrong.iter().for_each(|(_, fault)| printer.warn(fault.to_string()));
    }
    printer.next(format!("{}; `onceflow error CODE` explains one", crate::words::count(problems, "problem")));
    exit
}
