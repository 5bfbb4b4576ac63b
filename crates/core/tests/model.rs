//! Flows: what is wrong with them is said, all at once; what is right with them becomes a program that is sound.

#[path = "model/digests.rs"]
mod digests;
#[path = "model/meaning.rs"]
mod meaning;
#[path = "model/mistakes.rs"]
mod mistakes;
#[path = "model/mistakes_inside.rs"]
mod mistakes_inside;
#[path = "model/notation.rs"]
mod notation;
#[path = "model/pipelines.rs"]
mod pipelines;
#[path = "model/print.rs"]
mod print;
#[path = "model/pruned.rs"]
mod pruned;
#[path = "model/random.rs"]
mod random;
#[path = "model/shapes.rs"]
mod shapes;
#[path = "model/wide.rs"]
mod wide;
