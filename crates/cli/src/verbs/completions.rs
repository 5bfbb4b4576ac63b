//! `onceflow completions SHELL`: the completion script of a shell.

use crate::{
    args::{Cli, tools},
    exit::Exit,
    printer::Printer,
};
use clap::CommandFactory;
use serde_json::json;

/// Prints the script.
pub(crate) fn run(args: &tools::Completions, printer: &Printer) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onceflow", &mut script);
    let script = String::from_utf8_lossy(&script);
    match printer.json {
        true => printer.data(&json!({"shell": args.shell.to_string(), "script": script})),
        false => printer.exact(script),
    }
    Exit::Done
}
