//! Plans a run: the least work that still gives correct outputs. Pure; the caller answers which values are known.
//!
//! | module | what it owns |
//! |---|---|
//! | [`graph`] | the dependencies inside one parent module, port by port |
//! | [`resume`] | which steps run again, and which values they read: the frontier |
//! | [`validity`] | provenance keys, which tell whether a stored value is still valid |
//! | [`change`] | the change of each node since the values were computed |
//! | [`specialise`](mod@specialise) | a plan as a program: only the nodes that run, with reused values as inputs |
//! | [`explain`] | the fate of every node, and the reason |
//! | `joined` | eaches that were joined into one node, shown to users as separate steps |
//! | [`fuse`](mod@fuse) | merges neighbouring steps that need no checkpoint between them |

mod block;
pub mod change;
pub mod explain;
pub mod fuse;
pub mod graph;
mod joined;
pub mod resume;
pub mod specialise;
pub mod validity;

#[cfg(test)]
mod tests;

pub use change::{Change, KeyedBlock, changes};
pub use explain::{Explanation, Fate, Reason};
pub use fuse::{Fusion, fuse};
pub use graph::{DependencyGraph, DependencyGraphBuilder, PortSource, PortTarget, Vertex, VertexKind};
pub use joined::{producer_address, separate_joined_eaches};
pub use resume::{Frontier, MissingValues, Order, Policy, Resume, VertexState};
pub use specialise::{Plan, explain_all, specialise};
pub use validity::{ProvenanceKey, ProvenanceKeys, still_valid};
