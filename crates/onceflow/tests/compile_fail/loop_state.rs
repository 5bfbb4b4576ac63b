//! A loop carries on what it began with, and each goes over lists.
#![allow(unused)]
use onceflow::prelude::*;

#[task]
fn is_long(text: String) -> bool {
    text.len() > 9
}

fn main() {
    Flow::new("state", ["text", "n"], ["text"], |f, (text, n): (Port<String>, Port<u64>)| {
        f.repeat(text, |f, text| (n, f.add(is_long(text))))
    });
    Flow::new("each", ["text"], ["text"], |f, text: Port<String>| f.each(text, |_, text| text));
}
