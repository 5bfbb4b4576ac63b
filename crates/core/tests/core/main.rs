//! Tests of the pure decisions, one file per idea. One binary, so that it is linked once.

mod model;
mod protocol;
mod scope;
mod tidy;
