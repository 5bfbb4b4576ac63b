//! Arbitrary bytes, thrown at every door that takes bytes.
//!
//! | module | what it owns |
//! |---|---|
//! | [`targets`] | the doors: what each promises, whatever it is given |
//! | [`corpus`] | the inputs to begin with, and where those that failed are kept |
//! | [`mutate`] | from an input to another one, by a seed |
//! | [`drive`] | the loop: change, try, keep what is new |
//! | [`reduce`] | a failing input made as short as it can be |
//! | [`watch`] | each target in a process of its own, so that a stack that overflows and a loop without end are failures too |

#![forbid(unsafe_code)]

pub mod corpus;
pub mod drive;
pub mod mutate;
pub mod reduce;
pub mod targets;
pub mod watch;
