//! Only values travel.
#![allow(unused)]
use onceflow::prelude::*;

struct Opaque;

#[task]
fn takes(it: Opaque) -> u64 {
    1
}

#[task]
fn gives(n: u64) -> Opaque {
    Opaque
}

fn main() {}
