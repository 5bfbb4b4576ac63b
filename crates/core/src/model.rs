//! Flows: modules, ports and connections as users describe them, and the checked program that the kernel runs.
//!
//! | module | what it owns |
//! |---|---|
//! | [`types`] | the types of ports |
//! | [`task`] | a task as the kernel knows it |
//! | [`graph`] | a flow as it is described |
//! | [`mod@check`] | finds all mistakes of a flow at once, and makes the program |
//! | [`checked`] | a checked flow, which is all that an engine takes |
//! | [`program`] | a flow as it is run |
//! | [`instance_path`] | addresses of nodes, as users see them |
//! | [`wiring`] | which node waits for which in a program, computed when it is loaded |

pub mod check;
pub mod checked;
pub mod graph;
pub mod instance_path;
mod lower;
pub mod program;
mod sound;
pub mod task;
pub mod types;
pub mod wiring;

pub use check::{Errors, Mistake, check, check_within};
pub use checked::CheckedFlow;
pub use graph::{Arm, Connection, Endpoint, Graph, Library, Module, SourceLocation};
pub use instance_path::InstancePath;
pub use program::{
    Block, BlockInput, BlockOutput, FusedSource, FusedTask, Identity, Node, PathSegment, Program, Source,
};
pub use task::{Effect, Port, ResourceRequest, Retry, TaskSpec};
pub use types::Type;
pub use wiring::Wiring;
