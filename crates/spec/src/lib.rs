//! The flow file.
pub mod codes;
mod limits;
mod problem;
mod source;
mod syntax;
mod types;
mod words;
pub use problem::{Place, Problem, Problems};
pub use types::Shape;
