//! What undoes a task is given the same inputs.
#![allow(unused)]
use onceflow::prelude::*;

#[task(undo = refund)]
fn charge(cents: u64) -> String {
    String::new()
}

#[task]
fn refund(receipt: String) {}

fn main() {}
