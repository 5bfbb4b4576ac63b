//! Workers find a task by its name, so there is one of it.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn same<T>(it: T) -> T {
    it
}

#[task]
fn any(it: impl Into<u64>) -> u64 {
    it.into()
}

struct S;

impl S {
    #[task]
    fn method(&self) -> u64 {
        1
    }
}

fn main() {}
