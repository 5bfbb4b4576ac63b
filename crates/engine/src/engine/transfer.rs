//! A run that has ended, as one stream of bytes that another store can import: its request, status, outputs, kept
//! values, program, reasons, logs and event log.
//!
//! ```text
//! "onceflow run 1\n" · length and digest of the manifest · manifest · contents, one after the other
//! ```
//! The manifest lists length and digest of every content. An import checks everything before it uses it; rows put by an
//! import that was killed half-way are removed at their deadline, and the run exists once its head row does.

mod export;
mod import;

pub use import::ImportOptions;

use onceflow_core::{
    Digest,
    protocol::rows::{Header, Status},
};
use serde::{Deserialize, Serialize};

/// The first bytes of such a stream.
const MAGIC: &[u8] = b"onceflow run 1\n";

/// Bytes of a manifest, without the contents.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The name of the event log among the data that is carried beside a run. Versions without event logs ignore it.
const EVENTS_NAME: &str = "events";

/// The manifest of an exported run: everything but the contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedRun {
    /// Its request.
    pub header: Header,
    /// Its status at the end.
    pub status: Status,
    /// The generation of its last plan.
    pub generation: u32,
    /// The time of its end, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Its outputs, by name.
    outputs: Vec<(String, Whole)>,
    /// Its kept rows, and the values that they hold.
    kept: Vec<(Vec<u8>, Vec<Whole>)>,
    /// The indices of the contents that are the program and the sealed record.
    program: Option<u32>,
    sealed: Option<u32>,
    /// The rows of its reasons and of its logs.
    reasons: Vec<(Vec<u8>, Vec<u8>)>,
    logs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Data that the caller added, by name; and the event log.
    pub beside: Vec<(String, Vec<u8>)>,
    /// Digest and length of every content, in the order of the stream.
    contents: Vec<(Digest, u64)>,
}

/// A complete value, and the digest it must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    digest: Digest,
    tree: Tree,
}

/// The parts of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Tree {
    None,
    Failed(String),
    /// Small bytes.
    Bytes(Vec<u8>),
    /// The index of its content.
    Content(u32),
    List(#[serde(deserialize_with = "onceflow_core::model::program::nested::deeper")] Vec<Tree>),
    File {
        name: String,
        content: u32,
    },
}
