//! Options have names.
#![allow(unused)]
use onceflow::prelude::*;

#[task(timout = "30s")]
fn near(n: u64) -> u64 {
    n
}

#[task(colour = "blue")]
fn far(n: u64) -> u64 {
    n
}

#[task(backoff = "1s")]
fn elsewhere(n: u64) -> u64 {
    n
}

#[task(effect = harmless)]
fn effect(n: u64) -> u64 {
    n
}

#[task(version = "1", version = "2")]
fn twice(n: u64) -> u64 {
    n
}

fn main() {}
