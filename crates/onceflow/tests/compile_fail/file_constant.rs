//! A file is no constant.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn size(file: File) -> u64 {
    1
}

fn main() {
    let file = File::from_path("a.txt").unwrap();
    Flow::new("wrong", [], ["size"], |f, (): ()| f.add(size(file)));
}
