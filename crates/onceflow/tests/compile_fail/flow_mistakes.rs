//! A flow takes a builder and ports, and names what it gives.
#![allow(unused)]
use onceflow::prelude::*;

#[flow]
fn no_builder(n: Port<u64>) -> Port<u64> {
    n
}

#[flow]
fn no_port(f: &mut Builder, n: u64) -> Port<u64> {
    f.constant(n)
}

#[flow]
fn no_names(f: &mut Builder, n: Port<u64>) -> (Port<u64>, Port<u64>) {
    (n, n)
}

#[flow(outputs(a, b))]
fn too_many(f: &mut Builder, n: Port<u64>) -> Port<u64> {
    n
}

fn main() {}
