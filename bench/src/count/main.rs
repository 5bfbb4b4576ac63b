//! A fixed amount of work for tools that count instead of timing: use bench/count.
//!
//! `bench/count` runs it under valgrind and strace, with one amount and with twice as much, so that the difference is the
//! work alone: instructions, allocations and calls of the system do not depend on what else the machine does.

use anyhow::{Context, bail};
use onceflow_bench::{
    bed::{Bed, Did, several},
    disk::Scratch,
    flows,
    program::runtime,
    report,
};
use onceflow_store::backend::journal::Durability;
use serde_json::{Value, json};
use std::process::ExitCode;
use tokio::runtime::Runtime;

const STEPS: usize = 1_000;
const CHAINS: usize = 1_000;
const CHAIN_STEPS: usize = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [what, times] => times.parse().context("TIMES").and_then(|times| work(what, times)),
        _ => Err(anyhow::anyhow!("usage: count WORK TIMES")),
    };
    match done {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Does some work `times` times, and says how many steps that was and what a step took of the processor.
fn work(what: &str, times: usize) -> anyhow::Result<Value> {
    let runtime = runtime()?;
    let scratch = Scratch::new("count")?;
    let journal = |durability, until| Bed::journal(&runtime, &scratch.join("journal"), durability, false, until);
    let bed = match what {
        "fused" => Bed::memory(&runtime, true),
        "loop" => journal(Durability::Flushed, (times * STEPS) as i64)?,
        "durable-each" | "durable-runs" => journal(Durability::Synced, 0)?,
        _ => Bed::memory(&runtime, false),
    };
    let before = bed.log();
    let did = match what {
        "loop" => {
            let start = bed.start(flows::count_up(), ("x", flows::int(0)));
            runtime.block_on(bed.run(start, (times * STEPS) as u64))?
        }
        _ => several(times, || once(what, &runtime, &bed))?,
    };
    let log = bed.log().since(before);
    bed.close(&runtime)?;
    let per_step = |figure: f64| report::rounded(figure / did.steps as f64);
    Ok(json!({
        "steps": did.steps,
        "cpu_us_per_step": report::rounded(did.cpu_us_per_step()),
        "us_per_step": report::rounded(did.us_per_step()),
        "start_us": report::rounded(did.start_seconds * 1e6 / times as f64),
        "syncs_per_step": per_step(log.syncs as f64),
        "log_bytes_per_step": per_step(log.bytes as f64),
    }))
}

fn once(what: &str, runtime: &Runtime, bed: &Bed) -> anyhow::Result<Did> {
    let chain = |steps: usize, pure: bool| {
        let start = bed.start(flows::chain(steps, pure), ("x", flows::int(0)));
        runtime.block_on(bed.run(start, steps as u64))
    };
    let each = |elements: usize, steps: usize| {
        let start = bed.start(flows::each(steps, false), ("xs", flows::int_list(elements)));
        runtime.block_on(bed.run(start, (elements * steps) as u64))
    };
    match what {
        "step" => chain(STEPS, false),
        "pure" | "fused" => chain(STEPS, true),
        // A step here is a third of a run: its start, its steps, its end.
        "start" => chain(3, false),
        "each" => each(STEPS, 1),
        "durable-each" => each(CHAINS, CHAIN_STEPS),
        "durable-runs" => bed.runs(runtime, CHAINS, CHAIN_STEPS),
        _ => bail!("no work is called {what}"),
    }
}
