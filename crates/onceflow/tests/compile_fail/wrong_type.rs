//! A port of text does not fit an input that is a number.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn double(n: u64) -> u64 {
    n * 2
}

fn main() {
    Flow::new("wrong", ["text"], ["n"], |f, text: Port<String>| f.add(double(text)));
}
