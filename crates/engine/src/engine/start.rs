//! What is asked of an engine: which flow, with what, under which key.

use super::inputs;
use crate::{Error, task::Data};
use onceflow_core::{
    Digest, limits,
    model::{Identity, Library},
    protocol::rows::Header,
};
use std::sync::Arc;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Start {
    /// What the run is called. Starting the same key again is the same run.
    pub key: String,
    /// The flow, and those it calls.
    pub library: Arc<Library>,
    /// Its name in the library.
    pub flow: String,
    /// What checking it for the requested outputs gives, if the caller knows: then it is not checked only to see whether a
    /// run is for the same.
    pub identity: Option<Identity>,
    /// By name.
    pub inputs: Vec<(String, Data)>,
    /// Inputs that cannot be given any more, and what they are known by in a run that is there
    /// ([`Handle::input_digests`](crate::Handle::input_digests)): for [`Engine::explain`](crate::Engine::explain). Nothing starts with them.
    pub assumed: Vec<(String, Digest)>,
    /// Which outputs are wanted; none is all.
    pub outputs: Option<Vec<String>>,
    /// How long inner values outlive the run, in milliseconds; none is not at all.
    pub keep_ms: Option<u64>,
    /// How long the result can be asked for, in milliseconds.
    pub history_ms: u64,
    /// After a failure, go on with what does not depend on it.
    pub finish_independent: bool,
    /// If the run is there and gets a new plan, steps that were done, or started, may run again though they must not start
    /// twice, or though their writes rode in their commit.
    pub accept_reruns: bool,
    /// When this start was first tried, on the store's clock, if it was tried before.
    pub first_tried: Option<onceflow_core::Timestamp>,
    /// The history of the run ends with the last handle that this start gave, or with the run if that comes later: for runs
    /// that nobody else can ask for. `history_ms` is then what remains if the process dies.
    pub ends_with_handle: bool,
}

/// A week.
pub const HISTORY_MS: u64 = 7 * 24 * 60 * 60 * 1000;

impl Start {
    /// A run of a flow, with all defaults.
    pub fn new(key: impl Into<String>, library: impl Into<Arc<Library>>, flow: impl Into<String>) -> Self {
        Start {
            key: key.into(),
            library: library.into(),
            flow: flow.into(),
            identity: None,
            inputs: vec![],
            assumed: vec![],
            outputs: None,
            keep_ms: None,
            history_ms: HISTORY_MS,
            finish_independent: false,
            accept_reruns: false,
            first_tried: None,
            ends_with_handle: false,
        }
    }

    /// One more input.
    pub fn input(mut self, name: impl Into<String>, data: Data) -> Self {
        self.inputs.push((name.into(), data));
        self
    }

    pub(super) fn check_key(&self) -> Result<(), Error> {
        let bytes = self.key.len();
        if bytes > 0 && bytes <= limits::RUN_KEY_BYTES_MAX {
            return Ok(());
        }
        let why = format!("has a key of {bytes} bytes, not of 1 to {}", limits::RUN_KEY_BYTES_MAX);
        Err(Error::Refused { key: self.key.clone(), why })
    }

    /// Whether a run is for the same, if checking this gave that digest.
    pub(super) fn is_of(&self, header: &Header, digest: &Digest, inputs: &inputs::Inputs) -> bool {
        header.asked == *digest && header.inputs == inputs.digests() && header.requested == self.outputs
    }
}

/// The request a handle was made for, compared with what its run is for by now.
pub(crate) struct Request {
    /// Of the flow, checked for the requested outputs.
    pub(super) digest: Digest,
    /// By name.
    pub(super) inputs: Vec<(String, Digest)>,
    /// Which outputs were asked for; none is all.
    pub(super) outputs: Option<Vec<String>>,
}

impl Request {
    /// The run is for this, and for nothing else.
    pub(crate) fn is_of(&self, header: &Header) -> bool {
        header.asked == self.digest && header.inputs == self.inputs && header.requested == self.outputs
    }
}
