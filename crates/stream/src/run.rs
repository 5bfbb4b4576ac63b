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
//! | [`control`], [`desired`] | what is asked of workers: in this process, and from any other |
//! | [`status`], [`quiet`] | how far a pipeline is, and its removal; whether nothing of it is on its way |
//! | [`worker`] | takes partitions and works on them until the pipeline ends |
//! | [`rest`] | when a partition lets input gather |
//! | [`timing`], [`waiting`] | how long commits take; how long input has waited |
//! | [`installed`], [`install`] | the plan of a pipeline as a row; how it gets there, and replaces an earlier one |
//! | [`savepoint`], [`copies`] | copies of a quiet pipeline, and pipelines that begin from one |
//! | [`keys`], [`meta`] | the rows |

pub(crate) mod admission;
pub(crate) mod bundle;
pub(crate) mod calls;
pub(crate) mod cells;
pub(crate) mod chain;
pub(crate) mod claim;
pub(crate) mod client_ids;
pub(crate) mod control;
pub(crate) mod copies;
pub(crate) mod desired;
pub(crate) mod hashed;
pub(crate) mod input;
pub(crate) mod install;
pub(crate) mod installed;
pub(crate) mod keys;
pub(crate) mod layout;
mod load;
pub(crate) mod meta;
pub(crate) mod options;
pub(crate) mod outbox;
pub(crate) mod partition;
mod quiet;
pub(crate) mod rest;
pub(crate) mod savepoint;
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
use installed::InstalledPlan;
use keys::{Station, StreamKeys};
use layout::StageLayout;
use onceflow_core::Row;
use onceflow_store::{Records, World};
use options::StreamOptions;
use partition::Program;
use rest::Backlog;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
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
    /// The stages by their numbers in the store.
    pub(crate) stages: Vec<StageLayout>,
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
    /// The plan that it runs, and its row: a worker stops when the store has another one.
    pub(crate) installed: InstalledPlan,
    pub(crate) plan_row: Row,
    /// Sources give nothing more: the worker drains, or the pipeline is paused.
    pub(crate) holds_sources: AtomicBool,
    /// The pipeline is paused: timers on the clock wait.
    pub(crate) is_paused: AtomicBool,
}

impl Runtime {
    /// Returns the place in the plan of a stage, for people: numbers of the store have gaps once a pipeline has changed.
    pub(crate) fn place_in_plan(&self, stage: u16) -> usize {
        self.installed.stages.iter().position(|own| own.id == stage).unwrap_or_default()
    }
}
