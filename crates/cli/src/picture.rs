//! Pictures of flows and runs: what is drawn, where it stands, and how it is written down.
//!
//! | module | what it owns |
//! |---|---|
//! | `trace` | who reads from whom in a program |
//! | `scene` | boxes, groups and arrows: what is drawn |
//! | `states` | what became of each box in a run |
//! | `layout` | where things stand |
//! | `svg`, `dot`, `mermaid`, `tree` | how it is written down |
//! | `style` | colours, and text that may hold anything |

pub(crate) mod dot;
pub(crate) mod layout;
pub(crate) mod mermaid;
pub(crate) mod scene;
pub(crate) mod states;
pub(crate) mod style;
pub(crate) mod svg;
mod trace;
pub(crate) mod tree;

pub(crate) use scene::Scene;
