//! Steps of the engine against a bare log, one fdatasync, durare and duroxide; plans of a million steps; loops.
//!
//! Durable steps and steps in memory; plans of a million steps; loops that must not grow. With `BENCH_SCALE=0.05` it is a
//! run of two minutes.

mod chain;
mod child;
mod durable;
mod loops;
mod memory;
mod peers;
mod plan;
mod start;

use onceflow_bench::{
    bed, flows,
    program::{Part, Program, runtime, scaled},
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parts: &[Part] = &[
        ("durable", durable::measure),
        ("peers", peers::measure),
        ("chain", chain::measure),
        ("memory", memory::measure),
        ("each", memory::measure_each),
        ("start", start::measure),
        ("curve", memory::measure_curve),
        ("plan", plan::measure),
        ("loop", loops::measure),
    ];
    Program { name: "kernel", parts, children: &[(child::CHILD, child::be)] }.main()
}
