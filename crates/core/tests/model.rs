//! Flows: what is wrong with them is said, all at once; what is right with them becomes a program that is sound.

#[path = "model/notation.rs"]
mod notation;
#[path = "model/print.rs"]
mod print;
#[path = "model/shapes.rs"]
mod shapes;
