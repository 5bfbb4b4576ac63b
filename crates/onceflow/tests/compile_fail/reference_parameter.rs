//! A task owns its inputs. All mistakes are told at once.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn count(text: &str, words: &[String], (a, b): (u64, u64)) -> u64 {
    1
}

fn main() {}
