//! Tests of the executors, one file for each topic. One binary, so that it is linked once.

mod commands;
mod guard;
mod others;
mod support;
