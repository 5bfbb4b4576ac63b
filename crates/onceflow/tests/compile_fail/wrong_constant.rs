//! Nor does a plain value of another type.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn double(n: u64) -> u64 {
    n * 2
}

fn main() {
    Flow::new("wrong", [], ["n"], |f, (): ()| f.add(double("two")));
}
