//! From a checked graph to the program that is run. Every stage takes a program and gives one that means the same:
//!
//! | stage | what it does |
//! |---|---|
//! | [`flatten`] | composites and calls become nodes of the block around them; containers become blocks |
//! | [`prune`] | what no requested output needs goes |
//! | [`pipeline`] | an each over what another each gives joins it, so that elements need not wait for each other |
//! | [`relay`] | no commit, opening or end is wider than a batch |
//! | [`order`] | nodes stand after what feeds them; what nothing refers to any more goes |
//! | [`digest`] | a name for what each block means |

mod digest;
mod flatten;
mod order;
mod pipeline;
mod prune;
mod relay;

pub(crate) use prune::bodies;

use super::{Library, Program};
use std::collections::BTreeSet;

/// The program for these outputs of a flow that has been checked. `everything`: they are all its outputs, so tasks
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
