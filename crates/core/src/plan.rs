//! What a run still has to do: the least work that is still right. Pure; what it must know it asks for.
//!
//! | module | what it owns |
//! |---|---|
//! | [`graph`] | what depends on what inside one parent module, port by port |
//! | [`resume`] | which steps run again, and which values they read: the frontier |

pub mod graph;
pub mod resume;

#[cfg(test)]
mod tests;

pub use graph::{Builder, Graph, Place, Target, Vertex, VertexKind};
pub use resume::{Frontier, Missing, Order, Policy, Resume, State};
