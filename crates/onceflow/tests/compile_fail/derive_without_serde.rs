//! The derive needs serde's.
use onceflow::prelude::*;

#[derive(Value)]
struct Order {
    id: u64,
}

fn main() {}
