//! An error must be one.
#![allow(unused)]
use onceflow::prelude::*;

struct NoError;

#[task]
fn fails(n: u64) -> Result<u64, NoError> {
    Err(NoError)
}

fn main() {}
