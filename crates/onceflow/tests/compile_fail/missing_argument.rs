//! Every input must be given.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn main() {
    Flow::new("wrong", ["n"], ["n"], |f, n: Port<u64>| f.add(add(n)));
}
