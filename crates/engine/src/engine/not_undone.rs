//! Runs whose compensations failed. Such a run is at rest: its effects are still there, so it neither starts again nor
//! is removed. Its failed compensations are retried, resolved one by one, or given up; then it ends.

use crate::{
    Error, Handle, Resolution,
    run_rows::{NOTED, Noted, RegisteredUndo},
    runs::Run,
    shared::Shared,
};
use futures_util::future::BoxFuture;
use onceflow_core::protocol::{
    draft::Draft,
    rows::{self, Failed, Phase, RunState},
    run,
};

/// The compensations of a run that failed.
pub(crate) struct FailedUndos<'a> {
    shared: &'a Shared,
    run: &'a Run,
}

impl<'a> FailedUndos<'a> {
    pub(crate) fn of(shared: &'a Shared, run: &'a Run) -> Self {
        FailedUndos { shared, run }
    }

    /// The registrations that are left, by rising numbers.
    async fn left(&self) -> Result<Vec<RegisteredUndo>, Error> {
        self.shared.rows_of(&self.run.plan.keys).registrations().await
    }

    /// The error for any other request to such a run.
    pub(crate) async fn error(&self) -> Result<Error, Error> {
        Ok(Error::NotUndone {
            key: self.run.key.to_string(),
            steps: self.shared.rows_of(&self.run.plan.keys).noted().await?.1,
        })
    }

    /// Retries the failed compensations, the last first; returns their number.
    pub(crate) async fn retry(&self) -> Result<usize, Error> {
        let registered = self.left().await?;
        let last = registered.last().map(|last| last.number);
        let draft = run::go_on_undoing(&self.run.plan, self.run.state(), last);
        self.decide(draft, |_, not_undone| not_undone.clear()).await?;
        Ok(registered.len())
    }

    /// Commits a decision about failed compensations, with the changed notes of failures.
    async fn decide(
        &self,
        mut draft: Draft<'_>,
        change: impl FnOnce(&mut Vec<Failed>, &mut Vec<Failed>),
    ) -> Result<(), Error> {
        let key = self.run.plan.keys.rows.key(NOTED);
        let seen = self.shared.row(key.clone()).await?;
        let (mut failures, mut not_undone) = seen.as_deref().and_then(rows::read::<Noted>).unwrap_or_default();
        change(&mut failures, &mut not_undone);
        draft.batch.require_seen(key.clone(), seen).put(key, rows::write(&(failures, not_undone)));
        let applied = self.shared.commit_outside(draft, &[]).await?.is_applied();
        self.shared.runs.read_run(self.run.plan.keys.run).await?;
        self.shared.signals.progress(self.run.plan.keys.run).notify_waiters();
        self.shared.records.durable(self.shared.records.position()).await?;
        let why = || String::from("went on meanwhile; look again at what could not be undone");
        if applied { Ok(()) } else { Err(Error::Refused { key: self.run.key.to_string(), why: why() }) }
    }
}

impl Handle {
    /// Gives up the failed compensations: the run ends, and its report names what was not undone. Returns their number.
    /// A worker must serve the run for it to end; then its key can be started again.
    ///
    /// # Errors
    /// [`Error::Ended`] if the run has ended; [`Error::Refused`] if none of its compensations failed.
    pub fn abandon(&self) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(async move {
            let Some(run) = self.shared.runs.read_run(self.id()).await? else {
                return Err(Error::Ended { key: self.key.clone() });
            };
            let Phase::NotUndone { .. } = run.state().phase else {
                let why = String::from("has nothing that could not be undone");
                return Err(Error::Refused { key: self.key.clone(), why });
            };
            let failed = FailedUndos::of(&self.shared, &run);
            let left = failed.left().await?.len();
            let draft = run::go_on_undoing(&run.plan, run.state(), None);
            failed.decide(draft, |_, _| {}).await?;
            Ok(left)
        })
    }

    /// Reports the outcome of a compensation that failed.
    pub(crate) async fn resolve_undo(&self, run: &Run, address: &str, resolution: Resolution) -> Result<(), Error> {
        let failed_undos = FailedUndos::of(&self.shared, run);
        let registered = failed_undos.left().await?;
        let Some(left) = registered.iter().find(|left| *left.undo.address == *address) else {
            let why = format!("has no step {address} that could not be undone");
            return Err(Error::Refused { key: self.key.clone(), why });
        };
        let state: RunState = run.state();
        let is_last = registered.len() == 1;
        let forget = || run::drop_registration(&run.plan, state, (left.number, &left.row, &left.undo), is_last);
        let is_it = |failed: &Failed| *failed.address == *address;
        match resolution {
            Resolution::Redo => failed_undos.retry().await.map(drop),
            Resolution::Done(_) => {
                let undone = |_: &mut Vec<Failed>, left: &mut Vec<Failed>| left.retain(|failed| !is_it(failed));
                failed_undos.decide(forget(), undone).await
            }
            Resolution::Fail(why) => {
                let given_up = |_: &mut Vec<Failed>, left: &mut Vec<Failed>| {
                    left.iter_mut().filter(|failed| is_it(failed)).for_each(|failed| failed.causes.push(why.clone()));
                };
                failed_undos.decide(forget(), given_up).await
            }
        }
    }
}
