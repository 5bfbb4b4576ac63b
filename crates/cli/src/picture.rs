//! Pictures of flows and runs: their content, their layout, and their file formats.
//!
//! | module | responsibility |
//! |---|---|
//! | `trace` | which step reads from which, in a program |
//! | `scene` | the content: boxes, groups and arrows |
//! | `scope` | the inside of scopes, and what their open sessions wait for |
//! | `states` | the state of each box in a run |
//! | `layout` | positions |
//! | `svg`, `dot`, `mermaid`, `tree` | file formats |
//! | `style` | colours, and escaping of text |

pub(crate) mod dot;
pub(crate) mod layout;
pub(crate) mod mermaid;
pub(crate) mod scene;
mod scope;
pub(crate) mod states;
mod stream;
pub(crate) mod style;
pub(crate) mod svg;
mod trace;
pub(crate) mod tree;

pub(crate) use scene::Scene;
