//! Flows: all mistakes of a flow are reported at once, and a correct flow lowers to a sound program.

mod checked;
mod digests;
mod meaning;
mod mistakes;
mod mistakes_inside;
mod notation;
mod pipelines;
mod print;
mod pruned;
mod random;
mod shapes;
mod wide;
