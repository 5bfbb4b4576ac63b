//! The request to start a run: which flow, with which inputs, under which key.

use super::inputs::Inputs;
use crate::{Error, task::Data};
use onceflow_core::{Digest, Key, limits, model::CheckedFlow, protocol::rows::Header};

/// A request to start a run.
#[derive(Clone, Debug)]
pub struct Start {
    /// The key of the run. Starting the same key again is the same run.
    pub key: String,
    /// The flow, checked for the requested outputs.
    pub flow: CheckedFlow,
    /// Tasks of the first class are of the second in the run. No result depends on it.
    pub classes: Vec<(String, String)>,
    /// The inputs, by name.
    pub inputs: Vec<(String, Data)>,
    /// Inputs that cannot be given any more, by the digest that an existing run knows them by
    /// ([`RunRequest::input_digests`](crate::RunRequest::input_digests)): for [`Engine::preview`](crate::Engine::preview).
    /// No run starts with them.
    pub assumed: Vec<(String, Digest)>,
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
    /// The run begins only in a batch that finds these rows of its shard: so a caller that has lost its right to call
    /// begins nothing.
    pub while_there: Vec<Key>,
}

/// A week.
pub const HISTORY_MS: u64 = 7 * 24 * 60 * 60 * 1000;

impl Start {
    /// A run of a flow, with all defaults.
    pub fn new(key: impl Into<String>, flow: CheckedFlow) -> Self {
        Start {
            key: key.into(),
            flow,
            classes: vec![],
            inputs: vec![],
            assumed: vec![],
            keep_ms: None,
            history_ms: HISTORY_MS,
            finish_independent: false,
            accept_reruns: false,
            first_tried: None,
            ends_with_handle: false,
            while_there: vec![],
        }
    }

    /// Adds an input.
    pub fn input(mut self, name: impl Into<String>, data: Data) -> Self {
        self.inputs.push((name.into(), data));
        self
    }
}

/// A start without its flow and inputs: of a run that is forked or compared, these are in the store.
pub(super) struct Terms {
    pub(super) key: String,
    pub(super) assumed: Vec<(String, Digest)>,
    pub(super) keep_ms: Option<u64>,
    pub(super) history_ms: u64,
    pub(super) finish_independent: bool,
    pub(super) accept_reruns: bool,
    pub(super) first_tried: Option<onceflow_core::Timestamp>,
    pub(super) ends_with_handle: bool,
    pub(super) while_there: Vec<Key>,
}

impl Terms {
    /// The terms of a start.
    pub(super) fn asked(start: &Start) -> Self {
        Terms {
            key: start.key.clone(),
            assumed: start.assumed.clone(),
            keep_ms: start.keep_ms,
            history_ms: start.history_ms,
            finish_independent: start.finish_independent,
            accept_reruns: start.accept_reruns,
            first_tried: start.first_tried,
            ends_with_handle: start.ends_with_handle,
            while_there: start.while_there.clone(),
        }
    }

    /// The terms of a run as its header has them.
    pub(super) fn of(header: &Header) -> Self {
        Terms {
            key: header.key.clone(),
            assumed: vec![],
            keep_ms: header.keep_ms,
            history_ms: header.history_ms,
            finish_independent: header.finish_independent,
            accept_reruns: false,
            first_tried: None,
            ends_with_handle: false,
            while_there: vec![],
        }
    }
}

/// Fails if a key is empty or too long.
pub(super) fn check_key(key: &str) -> Result<(), Error> {
    let bytes = key.len();
    if bytes > 0 && bytes <= limits::RUN_KEY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("has a key of {bytes} bytes, not of 1 to {}", limits::RUN_KEY_BYTES_MAX);
    Err(Error::Refused { key: key.to_owned(), why })
}

/// The request a run was started with, to be compared with another: the same flow, inputs and outputs are the same run.
pub(crate) struct Request {
    /// The digest of the flow, checked for the requested outputs.
    pub(super) digest: Digest,
    /// The digests of the inputs, by name.
    pub(super) inputs: Vec<(String, Digest)>,
    /// The requested outputs; `None` is all.
    pub(super) outputs: Option<Vec<String>>,
}

impl Request {
    /// The request for a program, with these inputs and requested outputs.
    pub(super) fn new(digest: Digest, inputs: &Inputs, outputs: Option<&[String]>) -> Self {
        Request { digest, inputs: inputs.digests(), outputs: outputs.map(<[_]>::to_vec) }
    }

    /// The run has exactly this request.
    pub(crate) fn is_of(&self, header: &Header) -> bool {
        header.asked == self.digest && header.inputs == self.inputs && header.requested == self.outputs
    }
}
