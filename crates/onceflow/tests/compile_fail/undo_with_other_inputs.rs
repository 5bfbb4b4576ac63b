//! The undo of a task takes the same inputs.
#![allow(unused)]
use onceflow::prelude::*;

#[task(undo = refund)]
fn charge(cents: u64) -> String {
    String::new()
}

#[task]
fn refund(receipt: String) {}

fn main() {}
