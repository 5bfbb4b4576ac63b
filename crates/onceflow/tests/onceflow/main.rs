//! Tests of the typed front end, one file for each topic. One binary, so that it is linked once.

mod bodies;
mod compile_fail;
mod examples;
mod graphs;
mod run;
mod scope;
mod streams;
mod support;
mod values;
