//! Flows: what is wrong with them is said, all at once; what is right with them becomes a program that is sound.

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
