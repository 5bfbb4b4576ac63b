//! The typed front end, one file an idea. One binary, so that it is linked once.

mod bodies;
mod compile_fail;
mod examples;
mod graphs;
mod run;
mod support;
mod values;
