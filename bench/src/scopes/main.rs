//! Scopes against crossflow: chains, requests, fan-outs; how soon a session is cancelled, what a disposal costs.

mod cancel;
mod compare;
mod disposal;
mod durable;
mod peer;
mod shapes;

use onceflow_bench::program::{Part, Program};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parts: &[Part] = &[
        ("chain", compare::chain),
        ("requests", compare::requests),
        ("fanout", compare::fanout),
        ("cancel", cancel::measure),
        ("disposal", disposal::measure),
        ("durable", durable::measure),
    ];
    Program { name: "scopes", parts, children: &[] }.main()
}
