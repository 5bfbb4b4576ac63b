//! Executors, one file an idea. One binary, so that it is linked once.

mod commands;
mod guard;
mod others;
mod support;
