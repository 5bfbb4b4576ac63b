//! Parses the text of a file into declarations, each part with its place. Names are not resolved yet.
//!
//! | module | what it owns |
//! |---|---|
//! | [`tree`] | YAML and JSON values with their spans |
//! | `yaml` | text to tree: duplicates, aliases, depth |
//! | [`fields`] | reading the keys of a map, and reporting its problems |
//! | [`flow`] | the parts of a flow |
//! | [`diagram`] | diagrams of crossflow, as flows |
//! | [`step`] | the parts of a step |
//! | [`scope`] | the parts of a scope |

pub(crate) mod diagram;
pub(crate) mod fields;
pub(crate) mod flow;
pub(crate) mod http;
pub(crate) mod kinds;
pub(crate) mod outs;
pub(crate) mod scope;
pub(crate) mod step;
pub(crate) mod tree;
mod yaml;

pub(crate) use tree::{MapKey, NodeKind, YamlNode};
pub(crate) use yaml::{NodeBudget, parse};
