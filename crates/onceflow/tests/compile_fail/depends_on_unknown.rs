//! `depends` names outputs and inputs that exist.
#![allow(unused)]
use onceflow::prelude::*;

#[task(outputs(a, b), depends(a = [x], b = [z]))]
fn input(x: u64, y: u64) -> (u64, u64) {
    (x, y)
}

#[task(depends(a = [x]))]
fn output(x: u64) -> u64 {
    x
}

fn main() {}
