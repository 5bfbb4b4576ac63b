//! The request to start a run: which flow, with which inputs, under which key.

use super::inputs;
use crate::{Error, task::Data};
use onceflow_core::{
    Digest, limits,
    model::{Identity, Library},
    protocol::rows::Header,
};
use std::sync::Arc;

/// A request to start a run.
#[derive(Clone, Debug)]
pub struct Start {
    /// The key of the run. Starting the same key again is the same run.
    pub key: String,
    /// The flow, and those it calls.
    pub library: Arc<Library>,
    /// The name of the flow in the library.
    pub flow: String,
    /// The result of checking the flow for the requested outputs, if the caller knows it: then the flow is not checked
    /// again only to compare it with a run.
    pub identity: Option<Identity>,
    /// The inputs, by name.
    pub inputs: Vec<(String, Data)>,
    /// Inputs that cannot be given any more, by the digest that an existing run knows them by
    /// ([`Handle::input_digests`](crate::Handle::input_digests)): for [`Engine::preview`](crate::Engine::preview). No
    /// run starts with them.
    pub assumed: Vec<(String, Digest)>,
    /// The requested outputs; `None` is all.
    pub outputs: Option<Vec<String>>,
    /// How long inner values outlive the run, in milliseconds; `None` is not at all.
    pub keep_ms: Option<u64>,
    /// How long the result can be read after the run, in milliseconds.
    pub history_ms: u64,
    /// After a failure, continue with steps that do not depend on it.
    pub finish_independent: bool,
    /// If an existing run gets a new plan, steps that were done or started may run again even if they are at-most-once,
    /// or committed their writes with their step.
    pub accept_reruns: bool,
    /// The time of the first try of this start, on the store's clock, if it was tried before.
    pub first_tried: Option<onceflow_core::Timestamp>,
    /// The history of the run ends with the last handle of this start, or with the run if that is later: for runs whose
    /// key is known to no other caller. `history_ms` then applies only if the process dies.
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

    /// Adds an input.
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

    /// The run was started with the same flow, of this digest, and the same inputs and requested outputs.
    pub(super) fn is_of(&self, header: &Header, digest: &Digest, inputs: &inputs::Inputs) -> bool {
        header.asked == *digest && header.inputs == inputs.digests() && header.requested == self.outputs
    }
}

/// The request a handle was made for, to be compared with the run's present one.
pub(crate) struct Request {
    /// The digest of the flow, checked for the requested outputs.
    pub(super) digest: Digest,
    /// The digests of the inputs, by name.
    pub(super) inputs: Vec<(String, Digest)>,
    /// The requested outputs; `None` is all.
    pub(super) outputs: Option<Vec<String>>,
}

impl Request {
    /// The run has exactly this request.
    pub(crate) fn is_of(&self, header: &Header) -> bool {
        header.asked == self.digest && header.inputs == self.inputs && header.requested == self.outputs
    }
}
