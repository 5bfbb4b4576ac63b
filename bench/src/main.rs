//! Measures onceflow against its peers, side by side in one run.
//!
//! | module | what it owns |
//! |---|---|
//! | [`rounds`] | fairness: sides take turns, and what counts is the median of their per-round ratios |
//! | [`report`] | what was found, as a table for people or one JSON object for programs |
//! | [`disk`] | directories on a real disk, and how much of it is used and written |
//! | [`store`] | one bench: the store against a bare log, redb and SQLite |
//! | [`kernel`] | one bench: the engine against a bare log, one fdatasync, durare and duroxide |
//! | [`tool`] | one bench: the command against GNU make and Snakemake |
//! | [`redis`] | one bench: a store on a Redis server against a bare client and against one giant script |
//!
//! A new bench is a module with `fn run() -> anyhow::Result<Report>` and a line in [`BENCHES`].
//!
//! Exit code 0 although a target is missed, 1 if an answer was wrong or a peer did not run, 2 on bad usage.

mod disk;
mod kernel;
mod redis;
mod report;
mod rounds;
mod store;
mod tool;

use report::Report;
use std::process::ExitCode;

/// A bench by name, what it compares, and how it runs.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn() -> anyhow::Result<Report>,
}

const BENCHES: &[Bench] = &[
    Bench { name: "store", about: "the journal against a bare log, redb and SQLite", run: store::run },
    Bench { name: "kernel", about: "steps against a bare log, durare and duroxide; plans; loops", run: kernel::run },
    Bench { name: "tool", about: "the command against GNU make and Snakemake", run: tool::run },
    Bench { name: "redis", about: "a store on Redis against a bare client and one giant script", run: redis::run },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, rest @ ..] = &arguments[..]
        && child == store::reopen::CHILD
    {
        return finish(store::reopen::fill(rest));
    }
    if let [child, rest @ ..] = &arguments[..]
        && child == kernel::child::CHILD
    {
        return finish(kernel::child::be(rest));
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let names: Vec<&String> = arguments.iter().filter(|argument| *argument != "--json").collect();
    let [name] = names[..] else { return usage("one bench at a time") };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        return usage(&format!("there is no bench `{name}`"));
    };
    finish((bench.run)().map(|report| if json { report.print_json() } else { report.print_table() }))
}

fn finish(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn usage(wrong: &str) -> ExitCode {
    eprintln!("error: {wrong}\nusage: bench/run NAME [--json]\nbenches:");
    for Bench { name, about, .. } in BENCHES {
        eprintln!("  {name:<8} {about}");
    }
    ExitCode::from(2)
}
