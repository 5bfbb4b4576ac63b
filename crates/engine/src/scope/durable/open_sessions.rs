//! The sessions that a run has open, as rows of the run. A session is put there by the batch that opens it and deleted
//! with its end, so none can be forgotten: not by a new plan, which may lack its step, nor by a changed scope. Each row
//! has the task that the session was opened with, and a session is only ever driven with that.

use crate::{Error, kernel::Kernel, resources::Resources, task::Step};
use onceflow_core::{
    Key, Name,
    model::TaskSpec,
    protocol::{ids::RunId, keys, rows::read},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The names of the rows of open sessions begin with this.
pub(super) const OPEN: &[u8] = b"o";
/// The names of the rows of work of other kinds, which steps have open, begin with this.
pub(super) const WORK: &[u8] = b"w";
/// The names of the rows of their ends begin with this.
pub(super) const END: &[u8] = b"e";

/// A session that a step has opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenSession {
    /// The address of the step.
    pub(crate) address: String,
    /// The name of the session: see [`session_name`].
    pub(crate) session: String,
    /// The task of the step, with the scope as its parameters.
    pub(crate) task: TaskSpec,
}

impl OpenSession {
    /// The sessions that a run has open, or whose end was not taken yet, each with the key of its row.
    pub(crate) async fn all(kernel: &Kernel, run: RunId) -> Result<Vec<(Key, Self)>, Error> {
        OpenSession::of_prefix(kernel, run, OPEN).await
    }

    /// The work of other kinds that steps of a run have open: see [`OpenWork`](crate::task::OpenWork).
    pub(crate) async fn all_work(kernel: &Kernel, run: RunId) -> Result<Vec<(Key, Self)>, Error> {
        OpenSession::of_prefix(kernel, run, WORK).await
    }

    async fn of_prefix(kernel: &Kernel, run: RunId, prefix: &[u8]) -> Result<Vec<(Key, Self)>, Error> {
        let group = keys::sessions(run);
        let rows = kernel.all_rows(group.clone(), prefix).await?;
        let open = |(name, row): &(Name, onceflow_core::Row)| {
            let open = read(row).ok_or_else(|| Error::damaged("a session that a run has open"))?;
            Ok((group.key(name), open))
        };
        rows.iter().map(open).collect()
    }

    /// The step as it was when it opened the session: with its address, the session's name as its key, and its task.
    pub(crate) fn step(&self, run: RunId, resources: Arc<Resources>) -> Step {
        Step::of_open_session((run, resources), (&self.address, &self.session), self.task.clone())
    }
}

/// The name of the session that a step enters its scope with. It stands for the scope too: a step whose scope was changed
/// enters another session.
pub(crate) fn session_name(step: &Step) -> String {
    if step.is_part() {
        return step.key();
    }
    let mut hasher = blake3::Hasher::new_derive_key("onceflow scope session of a step");
    hasher.update(step.key().as_bytes());
    if let Some(task) = step.spec() {
        hasher.update(&(task.name.len() as u64).to_le_bytes()).update(task.name.as_bytes()).update(&task.params);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The row of an open session.
pub(super) fn open_key(run: RunId, session: &str) -> Key {
    keys::sessions(run).key(Name::join(&[OPEN, session.as_bytes()]))
}

/// The row of open work of another kind.
pub(crate) fn work_key(run: RunId, name: &str) -> Key {
    keys::sessions(run).key(Name::join(&[WORK, name.as_bytes()]))
}

/// The row of its end.
pub(super) fn end_key(run: RunId, session: &str) -> Key {
    keys::sessions(run).key(Name::join(&[END, session.as_bytes()]))
}
