//! `onceflow check FLOW…`: all that is wrong with flow files, without running anything.

use crate::{args, exit::Exit, fault, flows, printer::Printer};
use serde_json::json;

/// Checks flow files.
pub(crate) fn run(args: &args::Check, printer: &Printer) -> Exit {
    let mut wrong = Vec::new();
    let mut right = Vec::new();
    let mut unused = Vec::new();
    for path in &args.flows {
        match flows::read(path) {
            Ok(flow) => {
                right.push(format!("{}: flow `{}` is sound", path.display(), flow.name));
                unused.extend(flow.unused);
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
            "warnings": unused.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }));
    }
    right.iter().for_each(|line| printer.say(line));
    unused.iter().for_each(|unused| printer.say(format!("warning: {unused}")));
    // A file that is not there is a wrong name, and comes before what others say.
    let Some(exit) = wrong.iter().map(|(_, fault)| fault.exit).min() else {
        let first = args.flows.first().map(|path| path.display().to_string()).unwrap_or_default();
        printer.next(format!("onceflow run {first}"));
        return Exit::Done;
    };
    if !printer.json {
        wrong.iter().for_each(|(_, fault)| printer.warn(fault.to_string()));
    }
    printer.next(format!("{}; `onceflow error CODE` explains one", crate::words::count(problems, "problem")));
    exit
}
