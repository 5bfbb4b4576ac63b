//! Calls: work outside of the pipeline that a record causes, and whose result is a record again. A call takes its time,
//! outlives the process that began it, and has its result once.

use crate::{data::StreamData, error::StreamError};
use onceflow_core::Key;
use onceflow_store::{BoxFuture, World};
use std::{fmt, sync::Arc};

/// Identifies a call for ever. It is stored with the record before the call begins, so that a call that begins again
/// after a crash is the same call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) [u8; 16]);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A call that is to begin, to be met again, or to be forgotten.
#[derive(Clone)]
pub struct RecordCall {
    /// Its id.
    pub id: CallId,
    /// A row that is in the store as long as the result is wanted. A worker that lost its partition may begin a call
    /// that another one has finished: a target that keeps what it did in the same store requires this row when it begins.
    pub open_row: Key,
    /// The world that the pipeline runs in.
    pub world: Arc<dyn World>,
}

/// The reason why a call has no result.
#[derive(Clone, Debug)]
pub enum CallFailure {
    /// The record is left out, and counted as skipped.
    Skip,
    /// The pipeline stops with this error; run again, it calls again, with the same id.
    Stop(StreamError),
    /// The result is not wanted any more: another worker has taken it.
    Unwanted,
}

/// Something that records call. The contract:
///
/// - calls with the same id are one call: the second meets the first, or has its result;
/// - a result that was given is given again until [`CallTarget::forget`], which may come more than once;
/// - a call that is dropped goes on, or begins again when it is called again.
pub trait CallTarget<T>: Send + Sync + 'static {
    /// The results.
    type Out: StreamData;

    /// Calls for a record, or meets the call of this id. The record is durable.
    fn call(&self, call: RecordCall, record: T) -> BoxFuture<'static, Result<Self::Out, CallFailure>>;

    /// The result is durable in the pipeline, so nothing asks for it any more. Ends when the target has let it go.
    fn forget(&self, call: RecordCall) -> BoxFuture<'static, ()>;
}
