//! The store against a bare log, one fdatasync, redb and SQLite; reopening and reclaiming.

mod alone;
mod chain;
mod churn;
mod commits;
mod journal;
mod paged;
mod reclaim;
mod reopen;
mod step;

use onceflow_bench::program::{Part, Program};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parts: &[Part] = &[
        ("step", step::measure),
        ("commits", commits::measure),
        ("alone", alone::measure),
        ("churn", churn::measure),
        ("reopen", reopen::measure),
        ("reclaim", reclaim::measure),
        ("paged", paged::measure),
    ];
    Program { name: "store", parts, children: &[(reopen::CHILD, reopen::fill)] }.main()
}
