//! From the text of a file to what it says, each part with its place. Nothing is looked up yet.
//!
//! | module | what it owns |
//! |---|---|
//! | [`tree`] | values with their spans, as YAML and JSON know them |
//! | `yaml` | text to tree: duplicates, aliases, depth |
//! | [`fields`] | taking a map apart, with all that is wrong about it |
//! | [`flow`] | the parts of a flow |
//! | [`step`] | the parts of a step |

pub(crate) mod fields;
pub(crate) mod flow;
pub(crate) mod http;
pub(crate) mod kinds;
pub(crate) mod outs;
pub(crate) mod step;
pub(crate) mod tree;
mod yaml;

pub(crate) use tree::{MapKey, NodeKind, YamlNode};
pub(crate) use yaml::{NodeBudget, parse};
