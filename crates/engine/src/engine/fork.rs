//! A new run from an old one's values: the same program, some inputs changed. Steps that do not depend on the changed
//! inputs are reused, as far as the old run still holds or keeps their values, or gave them as outputs.
//!
//! Kept values of the old run are copied first, row by row, under the new run's id, with a row that says when they are
//! due for removal: if this process is killed before the new run begins, they are removed like the kept values of any
//! run.

use super::{
    CheckedStart, Engine, Request,
    facts::known_of,
    inputs,
    kept::KeptValues,
    known::{KnownValues, PreviousPlan, given_out, still_right},
    live::Live,
    planning::Planning,
    replan::PlannedRun,
    start::{Terms, check_key},
    starting::Starting,
};
use crate::{Error, Handle, shared::Shared, task::Data};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Digest,
    limits::REMOVE_ROWS_MAX,
    model::{Program, TaskSpec},
    protocol::{
        draft::stored,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, Header, Memo, Status},
        run::Due,
    },
};
use onceflow_store::{CommitResult, records::Scan, values::ValueChange};
use std::sync::Arc;

/// How long copies for a new run stay if this process is killed before the run begins.
const COPIED_MS: u64 = 3_600_000;

/// The settings of a new run that is forked from another.
#[derive(Clone, Debug, Default)]
pub struct Fork {
    /// The key of the new run. There must be no run of this key.
    pub key: String,
    /// All inputs of the new run, by name.
    pub inputs: Vec<(String, Data)>,
    /// The inputs that may differ from the old run's. A difference in any other is an error.
    pub changed: Vec<String>,
    /// Tasks of the first class are of the second in the new run.
    pub classes: Vec<(String, String)>,
    /// How long inner values outlive the run, in milliseconds; `None` is as in the old run.
    pub keep_ms: Option<u64>,
}

/// A fork that is planned: nothing has changed yet.
pub(super) struct PlannedFork {
    asked: CheckedStart,
    old: Old,
    pub(super) planned: PlannedRun,
}

/// The forked run, with its program and the values that can be reused.
struct Old {
    header: Header,
    before: PreviousPlan,
    known: KnownValues,
    keys: Keys,
}

impl Engine {
    /// Starts a new run with the program of an old one. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is a run of the new key, or the program of the old one is not kept any more;
    /// [`Error::Inputs`] if the inputs do not match the program, or others differ than were named.
    pub fn fork<'a>(&'a self, from: &'a str, fork: Fork) -> BoxFuture<'a, Result<Handle, Error>> {
        Box::pin(async move { Forking { engine: self, shared: &self.shared, from, fork: &fork }.begin(None).await })
    }
}

/// A fork of the run of key `from`.
pub(super) struct Forking<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shared: &'a Shared,
    pub(super) from: &'a str,
    pub(super) fork: &'a Fork,
}

impl Forking<'_> {
    /// Begins a forked run with the plan of a preview, or plans it.
    pub(super) async fn begin(&self, mut previewed: Option<PlannedFork>) -> Result<Handle, Error> {
        let mut copied = None;
        let handle = loop {
            let planned = match previewed.take() {
                Some(planned) => planned,
                None => self.plan().await?,
            };
            let PlannedFork { asked, old, planned } = planned;
            let id = match copied {
                Some(id) => id,
                None => {
                    let id = self.engine.new_run();
                    if asked.terms.keep_ms.is_some() && old.header.keep_ms.is_some() {
                        self.copy_kept(&old.keys, id, &asked.terms.key).await?;
                    }
                    copied = Some(id);
                    id
                }
            };
            if let Some(handle) = Starting::new(self.engine, &asked).begin(None, id, Generation(0), planned).await? {
                break handle;
            }
        };
        self.shared.records.durable(self.shared.records.position()).await?;
        Ok(handle)
    }

    /// Plans the forked run.
    pub(super) async fn plan(&self) -> Result<PlannedFork, Error> {
        if self.shared.row(keys::heads().key(&self.fork.key)).await?.is_some() {
            return Err(Error::Refused { key: self.fork.key.clone(), why: String::from("is there already") });
        }
        loop {
            let (header, before) = self.forked().await?;
            let asked = self.ask(&header, &before).await?;
            // The old run may have been planned anew while its inputs were digested.
            let Some(old) = self.old(header, before, &asked).await? else { continue };
            let planned =
                Planning { shared: self.shared, asked: &asked }.plan_over(&old.known, Some(&old.before)).await?;
            return Ok(PlannedFork { asked, old, planned });
        }
    }

    async fn forked(&self) -> Result<(Header, PreviousPlan), Error> {
        let header = self.engine.find(self.from).await?.request().header().await?;
        let gone =
            || Error::Refused { key: self.from.to_owned(), why: String::from("does not keep its program any more") };
        let before = PreviousPlan::read(&self.shared.values, &header).await?.ok_or_else(gone)?;
        Ok((header, before))
    }

    /// Builds the request of the new run: the old program, with classes renamed, and the new inputs.
    async fn ask(&self, header: &Header, before: &PreviousPlan) -> Result<CheckedStart, Error> {
        let (mut program, mut fork) = (before.program.clone(), self.fork.clone());
        rename_classes(&mut program, &fork.classes);
        let taken = inputs::take(&program.identity().inputs, &mut fork.inputs, &[]).await?;
        taken.note_sources(&self.shared.values);
        let digests = taken.digests();
        let was = |name: &str| header.inputs.iter().find(|(input, _)| input == name).map(|(_, digest)| digest);
        let is_odd = |(name, digest): &&(String, Digest)| was(name) != Some(digest) && !fork.changed.contains(name);
        if let Some((name, _)) = digests.iter().find(is_odd) {
            return Err(Error::Inputs(format!("input `{name}` is not what it was when run `{}` began", header.key)));
        }
        check_key(&fork.key)?;
        let terms = Terms { key: fork.key, keep_ms: fork.keep_ms.or(header.keep_ms), ..Terms::of(header) };
        let request = Request::new(header.asked, &taken, header.requested.as_deref());
        Ok(CheckedStart::new((header.flow.clone(), Arc::new(program)), request, taken, terms))
    }

    /// Reads the values of the old run that are valid for the new request; `None` if the old run is for another request
    /// by now.
    async fn old(&self, header: Header, before: PreviousPlan, asked: &CheckedStart) -> Result<Option<Old>, Error> {
        let shared = self.shared;
        let row = shared.row(keys::heads().key(self.from)).await?;
        match row.as_deref().and_then(rows::read::<Head>) {
            Some(Head::Active(id)) => {
                let Some(run) = shared.runs.read_run(id).await?.filter(|run| run.header == header) else {
                    return Ok(None);
                };
                let known = known_of(shared, asked, &run, &Live::read(shared, &run).await?, &before).await?;
                Ok(Some(Old { header, before, known, keys: run.plan.keys.clone() }))
            }
            Some(Head::Finished(finished)) if finished.header != header => Ok(None),
            Some(Head::Finished(finished)) => {
                let keys = Keys::new(finished.run, finished.generation);
                let mut known = KnownValues::new();
                // The effects of an undone run are gone.
                if finished.status == Status::Done {
                    known = still_right(given_out(&before, &finished.outputs), &before, asked);
                    if header.keep_ms.is_some() {
                        known.extend(KeptValues::new(&shared.kernel, &keys).valid_for(asked).await?);
                    }
                }
                Ok(Some(Old { header, before, known, keys }))
            }
            None => Err(Error::NoRun(self.from.to_owned())),
        }
    }

    /// Copies the kept values of a run for a run that is about to begin.
    async fn copy_kept(&self, old: &Keys, id: RunId, key: &str) -> Result<(), Error> {
        let shared = self.shared;
        let until = shared.records.now().await?.plus_ms(COPIED_MS);
        let mut batch = Batch::new(shared.shard());
        let due = keys::due(until, b'k', id, key);
        batch.require_absent(due.clone()).put(due, rows::write(&Due::Keep(id)));
        let _there = shared.records.commit(batch).await?;
        let new = Keys::new(id, Generation(0));
        let mut after = None;
        loop {
            let scan = Scan::of(old.kept.clone(), REMOVE_ROWS_MAX).prefix(b"m").after(after.clone());
            let page = shared.records.scan(shared.shard(), scan).await?;
            let Some((last, _)) = page.rows.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, row) in &page.rows {
                let memo: Memo = rows::read(row).ok_or_else(|| Error::damaged("the kept outputs of a step"))?;
                let mut changes = Vec::new();
                for (port, stored) in (0_u16..).zip(&memo.outputs).filter_map(|(port, out)| Some((port, stored(out)?)))
                {
                    let edge = new.kept_edge(name.as_bytes(), port);
                    changes.push(ValueChange::set(edge, stored.clone()));
                }
                let mut batch = Batch::new(shared.shard());
                batch.require_equals(old.kept.key(name), row.clone()).require_absent(new.kept.key(name));
                batch.put(new.kept.key(name), row.clone());
                // A value that was removed meanwhile is computed again.
                match shared.values.add_changes(&mut batch, &changes).await {
                    Ok(()) => {}
                    Err(onceflow_store::values::Error::Missing { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                if let CommitResult::Applied(committed) = shared.records.commit(batch).await? {
                    shared.values.notify_committed(&committed);
                }
            }
        }
    }
}

/// Renames the classes of tasks, so that other workers take them.
pub(super) fn rename_classes(program: &mut Program, classes: &[(String, String)]) {
    fn one(task: &mut TaskSpec, classes: &[(String, String)]) {
        if let Some((_, to)) = classes.iter().find(|(from, _)| *from == task.class) {
            task.class.clone_from(to);
        }
        if let Some(undo) = &mut task.compensation {
            one(undo, classes);
        }
    }
    program.tasks.iter_mut().for_each(|task| one(task, classes));
}
