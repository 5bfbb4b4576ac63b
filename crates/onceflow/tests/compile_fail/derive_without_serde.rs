//! The derive needs serde's.
#![allow(unused)]
use onceflow::prelude::*;

#[derive(Value)]
struct Order {
    id: u64,
}

fn main() {}
