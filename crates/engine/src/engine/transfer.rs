//! A run that has ended, as one stream of bytes that another store can take in: what was asked for, how it ended, what it
//! gave and keeps, its program, why its steps ran, what they wrote.
//!
//! ```text
//! "onceflow run 1\n" · length and digest of the manifest · manifest · contents, one after the other
//! ```
//! The manifest says length and digest of every content. Taking one in, everything is checked before it is believed; what
//! was put by one who was killed half-way goes by itself, and the run is there when its row is.

mod export;
mod import;

pub use import::ImportOptions;

use onceflow_core::{
    Digest,
    protocol::rows::{Header, Status},
};
use serde::{Deserialize, Serialize};

/// How such a stream begins.
const MAGIC: &[u8] = b"onceflow run 1\n";

/// Bytes of a manifest: what it lists, not the contents.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// All but the contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedRun {
    /// What was asked for.
    pub header: Header,
    /// How it ended.
    pub status: Status,
    /// Its last plan.
    pub generation: u32,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// By name.
    outputs: Vec<(String, Whole)>,
    /// What it keeps: rows, and what they hold.
    kept: Vec<(Vec<u8>, Vec<Whole>)>,
    /// Which contents the program and the sealed record are.
    program: Option<u32>,
    sealed: Option<u32>,
    /// Rows: why its steps ran, and what they wrote.
    reasons: Vec<(Vec<u8>, Vec<u8>)>,
    logs: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the caller added, by name.
    pub beside: Vec<(String, Vec<u8>)>,
    /// Digest and length of every content, in their order.
    contents: Vec<(Digest, u64)>,
}

/// A value, all of it, and the digest it must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    digest: Digest,
    tree: Tree,
}

/// What a value is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Tree {
    None,
    Failed(String),
    /// Small bytes.
    Bytes(Vec<u8>),
    /// Which content it is.
    Content(u32),
    List(#[serde(deserialize_with = "onceflow_core::model::program::nested::deeper")] Vec<Tree>),
    File {
        name: String,
        content: u32,
    },
}
