//! The sessions that hosts have opened for callers of their own, outside any run, as rows: each stands there from the batch that
//! opens it to the one that forgets its end, so `fsck` finds them all.

use super::{keys::SessionId, open_sessions};
use onceflow_core::{Group, Key, Name};
use serde::{Deserialize, Serialize};

/// A session that a host has opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostedSession {
    pub(super) scope: String,
    pub(super) key: String,
}

/// The group of hosted sessions and their ends.
pub(super) fn hosted() -> Group {
    Group::rows("scope/hosted")
}

impl SessionId {
    /// The row of a hosted session.
    pub(super) fn hosted(self) -> Key {
        hosted().key(Name::join(&[open_sessions::OPEN, format!("{self:?}").as_bytes()]))
    }

    /// The row of its end.
    pub(super) fn end(self) -> Key {
        hosted().key(Name::join(&[open_sessions::END, format!("{self:?}").as_bytes()]))
    }
}
