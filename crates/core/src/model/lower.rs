//! Lowers a checked graph to the program that is run. Every stage takes a program and returns one that means the same:
//!
//! | stage | what it does |
//! |---|---|
//! | [`flatten`] | composites and calls become nodes of the block around them; containers become blocks |
//! | [`prune`] | drops nodes and ports that no requested output needs |
//! | [`pipeline`] | joins an each with the each whose output it iterates, so that elements need not wait for each other
//! |
//! | [`relay`] | splits every commit, opening or end that is wider than a batch |
//! | [`order`] | puts nodes after the nodes that feed them; drops blocks, tasks and constants without a reference |
//! | [`digest`] | computes a digest of the meaning of each block |

mod digest;
mod flatten;
mod order;
mod pipeline;
mod prune;
mod relay;

pub(crate) use prune::bodies;

use super::{Library, Program};
use std::collections::BTreeSet;

/// Returns the program for the `requested` outputs of a checked flow. `everything`: these are all its outputs, so tasks
/// without outputs run too.
pub(crate) fn lower(library: &Library, main: &str, requested: &BTreeSet<&str>, everything: bool) -> Program {
    let mut program = flatten::flatten(library, main, requested);
    prune::prune(&mut program, everything);
    pipeline::pipeline(&mut program);
    relay::relay(&mut program);
    order::order(&mut program);
    order::compact(&mut program);
    digest::digest(&mut program);
    #[cfg(debug_assertions)]
    program.assert_sound();
    program
}
