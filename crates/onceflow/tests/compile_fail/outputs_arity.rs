//! As many names as parts of the tuple.
#![allow(unused)]
use onceflow::prelude::*;

#[task(outputs(words, lines, letters))]
fn measure(text: String) -> (u64, u64) {
    (1, 2)
}

#[task(outputs(words, lines))]
fn count(text: String) -> Result<u64, String> {
    Ok(1)
}

fn main() {}
