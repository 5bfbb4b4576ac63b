//! An optional value does not fit an input that needs one.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn double(n: u64) -> u64 {
    n * 2
}

fn main() {
    Flow::new("wrong", ["n"], ["n"], |f, n: Port<Option<u64>>| f.add(double(n)));
}
