//! Durations and sizes have units.
#![allow(unused)]
use onceflow::prelude::*;

#[task(timeout = "soon")]
fn duration(n: u64) -> u64 {
    n
}

#[task(retry(attempts = 3, backoff = "1.5s"))]
fn backoff(n: u64) -> u64 {
    n
}

#[task(memory = "2 elephants")]
fn memory(n: u64) -> u64 {
    n
}

#[task(retry(attempts = 0))]
fn never(n: u64) -> u64 {
    n
}

#[task(cpus = "two")]
fn cpus(n: u64) -> u64 {
    n
}

fn main() {}
