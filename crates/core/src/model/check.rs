//! From a flow as it was described to the program that is run: all its mistakes at once, or none and a program that
//! cannot wait for what never comes.

pub(crate) mod calls;
pub(crate) mod components;
pub(crate) mod face;
pub mod mistakes;
pub(crate) mod siblings;

pub use mistakes::{Errors, Mistake, What};

use super::{Library, Program, lower::lower};
use std::collections::BTreeSet;

/// Checks the flow `main` and all it calls, and makes the program that gives the `requested` outputs (`None`: all).
pub fn check(library: &Library, main: &str, requested: Option<&[String]>) -> Result<Program, Errors> {
    let graph = &library.flows[main];
    let all: BTreeSet<_> = graph.outputs.iter().map(|port| port.name.as_str()).collect();
    let wanted = requested.map_or_else(|| all.clone(), |names| names.iter().map(String::as_str).collect());
    Ok(lower(library, main, &wanted, wanted == all))
}
