//! The runtime: partitions of stages on a store.
//!
//! | module | owns |
//! |---|---|
//! | [`partition`] | one bundle of a partition: input, work, one commit |
//! | [`input`] | where records come from, and which of them are new |
//! | [`admission`] | the catalog of ids between stages |
//! | [`client_ids`] | the catalog of ids that clients chose, with its filters |
//! | [`outbox`] | what leaves a commit, and when |
//! | [`sink_bytes`], [`sink_parts`] | the bytes that sinks were given; the parts of a sink, such as the files of days |
//! | [`slow_writes`] | chunks on their way to sinks that take their time |
//! | [`transport`] | the way between partitions that do not share a store |
//! | [`cells`], [`bundle`], [`chain`] | keyed state, outputs and steps of a bundle under way |
//! | [`calls`] | work outside that records cause: begun and forgotten after commits |
//! | [`claim`] | who writes a partition |
//! | [`control`], [`status`] | draining; how far a pipeline is, and its removal |
//! | [`worker`] | takes partitions and works on them until the pipeline ends |
//! | [`rest`] | when a partition lets input gather |
//! | [`timing`], [`waiting`] | how long commits take; how long input has waited |
//! | [`keys`], [`meta`] | the rows |

pub(crate) mod admission;
pub(crate) mod bundle;
pub(crate) mod calls;
pub(crate) mod cells;
pub(crate) mod chain;
pub(crate) mod claim;
pub(crate) mod client_ids;
pub(crate) mod control;
pub(crate) mod hashed;
pub(crate) mod input;
pub(crate) mod keys;
pub(crate) mod layout;
mod load;
pub(crate) mod meta;
pub(crate) mod options;
pub(crate) mod outbox;
pub(crate) mod partition;
pub(crate) mod rest;
pub(crate) mod sink_bytes;
pub(crate) mod sink_parts;
pub(crate) mod slow_writes;
pub(crate) mod status;
pub(crate) mod timing;
pub(crate) mod transport;
mod waiting;
pub(crate) mod worker;
pub(crate) mod worker_row;

pub(crate) use bundle::KEY_BYTES_MAX;

use crate::{error::StreamError, pipeline::sink::SinkWriter};
use control::StreamControl;
use keys::{Station, StreamKeys};
use layout::StageLayout;
use onceflow_store::{Records, World};
use options::StreamOptions;
use partition::Program;
use rest::Backlog;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};
use transport::Transport;

/// Makes the program of a partition and the writers of its sinks.
pub(crate) type BuildProgram =
    dyn Fn(Station, Option<&[u8]>) -> Result<(Program, Vec<Box<dyn SinkWriter>>), StreamError> + Send + Sync;

/// Everything the partitions of a pipeline share within a process.
pub(crate) struct Runtime {
    pub(crate) name: String,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) keys: StreamKeys,
    pub(crate) stages: Vec<StageLayout>,
    pub(crate) stage_names: Vec<String>,
    /// For each stage, the names of its sinks.
    pub(crate) sink_names: Vec<Vec<String>>,
    /// Where the workers of this machine have their lock files, if they have any.
    pub(crate) locks: Option<PathBuf>,
    pub(crate) options: StreamOptions,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) build: Box<BuildProgram>,
    pub(crate) control: StreamControl,
    /// Records of a bundle of partitions whose state did not fit a batch with as many as the options allow.
    pub(crate) lowered_bundles: Mutex<BTreeMap<Station, usize>>,
    /// Whether the sources that this worker reads have a backlog.
    pub(crate) backlog: Backlog,
    /// The plan this runs, to refuse another one.
    pub(crate) fingerprint: String,
}
