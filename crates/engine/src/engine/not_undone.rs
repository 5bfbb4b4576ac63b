//! Runs whose compensations failed. Such a run is at rest: its effects are still there, so it neither starts again nor
//! is removed. Its failed compensations are retried, resolved one by one, or given up; then it ends.

use crate::{
    Error, Handle, Resolution,
    perform::noted::{NOTED, Noted},
    runs::Run,
    shared::Shared,
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Row,
    protocol::{
        draft::Draft,
        rows::{self, Failed, Phase, RunState, Undo},
        run,
    },
};

impl Shared {
    /// The failures of a run that is being undone, and the compensations that failed.
    pub(crate) async fn noted(&self, run: &Run) -> Result<Noted, Error> {
        let row = self.row(run.plan.keys.rows.key(NOTED)).await?;
        Ok(row.as_deref().and_then(rows::read::<Noted>).unwrap_or_default())
    }

    /// The error for any other request to such a run.
    pub(crate) async fn not_undone(&self, run: &Run) -> Result<Error, Error> {
        Ok(Error::NotUndone { key: run.key.to_string(), steps: self.noted(run).await?.1 })
    }

    /// The registrations that are left, by rising numbers.
    async fn registered(&self, run: &Run) -> Result<Vec<(u32, Row, Undo)>, Error> {
        let rows = self.all_rows(run.plan.keys.rows.clone(), b"u").await?;
        let read = |(name, row): (onceflow_core::Name, Row)| {
            let number = name.as_bytes()[1..].try_into().ok().map(u32::from_be_bytes);
            let (number, undo) = number.zip(rows::read(&row)).ok_or_else(|| Error::damaged("a registration"))?;
            Ok((number, row, undo))
        };
        rows.into_iter().map(read).collect()
    }

    /// Retries the failed compensations, the last first; returns their number.
    pub(crate) async fn undo_again(&self, run: &Run) -> Result<usize, Error> {
        let registered = self.registered(run).await?;
        let last = registered.last().map(|(number, ..)| *number);
        let draft = run::go_on_undoing(&run.plan, run.state(), last);
        self.decide_undo(run, draft, |_, not_undone| not_undone.clear()).await?;
        Ok(registered.len())
    }

    /// Commits a decision about failed compensations, with the changed notes of failures.
    async fn decide_undo(
        &self,
        run: &Run,
        mut draft: Draft<'_>,
        change: impl FnOnce(&mut Vec<Failed>, &mut Vec<Failed>),
    ) -> Result<(), Error> {
        let key = run.plan.keys.rows.key(NOTED);
        let seen = self.row(key.clone()).await?;
        let (mut failures, mut not_undone) = seen.as_deref().and_then(rows::read::<Noted>).unwrap_or_default();
        change(&mut failures, &mut not_undone);
        draft.batch.require_seen(key.clone(), seen).put(key, rows::write(&(failures, not_undone)));
        let applied = self.commit_outside(draft, &[]).await?.is_applied();
        self.runs.read_run(run.plan.keys.run).await?;
        self.signals.progress(run.plan.keys.run).notify_waiters();
        self.records.durable(self.records.position()).await?;
        let why = || String::from("went on meanwhile; look again at what could not be undone");
        if applied { Ok(()) } else { Err(Error::Refused { key: run.key.to_string(), why: why() }) }
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
            let left = self.shared.registered(&run).await?.len();
            let draft = run::go_on_undoing(&run.plan, run.state(), None);
            self.shared.decide_undo(&run, draft, |_, _| {}).await?;
            Ok(left)
        })
    }

    /// Reports the outcome of a compensation that failed.
    pub(crate) async fn resolve_undo(&self, run: &Run, address: &str, resolution: Resolution) -> Result<(), Error> {
        let registered = self.shared.registered(run).await?;
        let Some((number, row, undo)) = registered.iter().find(|(.., undo)| *undo.address == *address) else {
            let why = format!("has no step {address} that could not be undone");
            return Err(Error::Refused { key: self.key.clone(), why });
        };
        let state: RunState = run.state();
        let is_last = registered.len() == 1;
        let forget = || run::drop_registration(&run.plan, state, (*number, row, undo), is_last);
        let is_it = |failed: &Failed| *failed.address == *address;
        match resolution {
            Resolution::Redo => self.shared.undo_again(run).await.map(drop),
            Resolution::Done(_) => {
                let undone = |_: &mut Vec<Failed>, left: &mut Vec<Failed>| left.retain(|failed| !is_it(failed));
                self.shared.decide_undo(run, forget(), undone).await
            }
            Resolution::Fail(why) => {
                let given_up = |_: &mut Vec<Failed>, left: &mut Vec<Failed>| {
                    left.iter_mut().filter(|failed| is_it(failed)).for_each(|failed| failed.causes.push(why.clone()));
                };
                self.shared.decide_undo(run, forget(), given_up).await
            }
        }
    }
}
