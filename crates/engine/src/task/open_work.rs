//! Work that a step has open in the store beside its run, such as a pipeline of records. A row of the run says so from
//! before the work begins until the commit of the step, so that the worker that takes up the step, or ends the run, finds it.

use super::{Failure, Step};
use crate::{
    Error,
    data::SmallFiles,
    scope::{OpenSession, ScopeStore, session_name, work_key},
    tx::Tx,
};
use onceflow_core::{Batch, Key, protocol::rows::write};
use onceflow_store::{BoxFuture, Records, World, records::commit_durably};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The pause before a step that may not open its work now looks again.
const LOOK_MS: u64 = 50;

/// The directory below the engine's scratch directory that has a directory for each open work.
const DIRECTORY: &str = "onceflow-open";

/// Work that a step has open in the store. It has a name of its own, the same for every attempt at the step with these
/// inputs, and a directory on this machine. Only a step whose body [opens work](super::Body::opens_work) can have some.
///
/// It ends with the step: [`OpenWork::end_with_commit`] before a body returns its outputs, [`OpenWork::end`] before it
/// returns a failure. An attempt that was stopped leaves it open for the next; if there is none,
/// [`Body::end_left_open`](super::Body::end_left_open) ends it, or [`EndOpenWork`].
pub struct OpenWork {
    step: Step,
    tx: Tx,
    records: Arc<dyn Records>,
    world: Arc<dyn World>,
    small: Arc<SmallFiles>,
    name: String,
    scratch: PathBuf,
}

/// Ends work that tasks have left open: a resource of the engine, for bodies that do not end it themselves. It is called
/// as [`Body::end_left_open`](super::Body::end_left_open) is.
#[derive(Clone)]
pub struct EndOpenWork(pub Arc<EndLeftOpen>);

/// The function of an [`EndOpenWork`].
pub type EndLeftOpen = dyn Fn(Step) -> BoxFuture<'static, Result<Vec<String>, Failure>> + Send + Sync;

fn outside() -> Error {
    Error::Inputs(String::from("work is opened by a step of a run whose body opens work"))
}

fn scratch_error(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::Scratch(format!("{}: {error}", path.display()))
}

impl OpenWork {
    /// Opens the work of a step, or meets what an earlier attempt has opened. Durable when it returns. Does not return
    /// while the run lets nothing begin, or once the step is lost: its worker drops this attempt then.
    ///
    /// # Errors
    /// If the store does not answer, or the body of the step opens no work.
    pub async fn begin(step: &Step) -> Result<Self, Error> {
        let work = OpenWork::left_open(step)?;
        let task = step.spec().ok_or_else(outside)?.clone();
        let row = OpenSession { address: step.address(), session: work.name.clone(), task };
        loop {
            // Repeating it is harmless: the row of an earlier attempt is the same.
            let mut batch = work.own_batch().await?;
            batch.put(work.row(), write(&row));
            if commit_durably(&*work.records, batch).await?.is_applied() {
                return Ok(work);
            }
            work.world.sleep(LOOK_MS).await;
        }
    }

    /// A batch that is refused unless the step is still claimed here and its run goes on. Waits while the run lets nothing
    /// begin, such as for a new plan.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn own_batch(&self) -> Result<Batch, Error> {
        loop {
            let mut batch = Batch::new(self.shard());
            if self.tx.require_step(&mut batch).await? {
                return Ok(batch);
            }
            self.world.sleep(LOOK_MS).await;
        }
    }

    /// Waits until the step is seen to be claimed here, with its work open. Does not return once the step is lost, or its run
    /// ends: its worker drops this attempt then.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn until_ours(&self) -> Result<(), Error> {
        loop {
            let mut batch = self.own_batch().await?;
            batch.require_present(self.row());
            if self.records.commit(batch).await?.is_applied() {
                return Ok(());
            }
            self.world.sleep(LOOK_MS).await;
        }
    }

    /// The work that a step has left open, to be ended.
    ///
    /// # Errors
    /// If the step cannot have opened work.
    pub fn left_open(step: &Step) -> Result<Self, Error> {
        let store = step.resource::<ScopeStore>().ok_or_else(outside)?;
        let tx = step.tx().ok_or_else(outside)?.clone();
        Ok(OpenWork {
            step: step.clone(),
            tx,
            records: store.records.clone(),
            world: store.world.clone(),
            small: store.small.clone(),
            name: session_name(step),
            scratch: store.scratch.clone(),
        })
    }

    /// The work that steps at the address of this one have left open and that this one does not go on with, because its
    /// inputs or its task are others.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn of_earlier_plans(&self) -> Result<Vec<OpenWork>, Error> {
        let store = self.step.resource::<ScopeStore>().ok_or_else(outside)?;
        let all = OpenSession::all_work(&store.kernel(), self.step.run()).await?;
        let address = self.step.address();
        let others = all.into_iter().filter(|(_, open)| open.address == address && open.session != self.name);
        let step = |open: &OpenSession| Step {
            tx: Some(self.tx.clone()),
            ..open.step(self.step.run(), self.step.resources())
        };
        others.map(|(_, open)| OpenWork::left_open(&step(&open))).collect()
    }

    /// Notes that the store did not answer. A failure of the body is none of the step then: it costs time and no attempt.
    pub fn note_trouble(&self, trouble: &onceflow_store::Error) {
        self.tx.note_trouble(trouble);
    }

    /// Its name: letters and digits, the same for no other step.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The row that is there while the work is open.
    pub fn row(&self) -> Key {
        work_key(self.step.run(), &self.name)
    }

    /// The store's records.
    pub fn records(&self) -> Arc<dyn Records> {
        self.records.clone()
    }

    /// Clock and chance, as the engine has them.
    pub fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    /// The engine's scratch directory.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Its directory on this machine, for files that the next attempt goes on with. It may not be there.
    pub fn directory(&self) -> PathBuf {
        self.scratch.join(DIRECTORY).join(&self.name)
    }

    /// Moves a file of its directory to where the engine takes outputs from. If this process ends before it did, the file
    /// goes with the process's scratch directory.
    ///
    /// # Errors
    /// If the file cannot be moved.
    pub fn give(&self, path: &Path) -> Result<PathBuf, Error> {
        let to = self.small.outgoing()?;
        fs::rename(path, &to).map_err(scratch_error(path))?;
        Ok(to)
    }

    /// Removes its directory.
    ///
    /// # Errors
    /// If something in it cannot be removed.
    pub fn remove_directory(&self) -> Result<(), Error> {
        let path = self.directory();
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(scratch_error(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Ends it with the commit of the step. What it had in the store and in its directory must be gone by then.
    pub fn end_with_commit(&self) {
        self.tx.delete_key(self.row());
    }

    /// Ends it now. What it had in the store and in its directory must be gone. Repeating it is harmless.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn end(&self) -> Result<(), Error> {
        let mut batch = Batch::new(self.shard());
        batch.delete(self.row());
        let _always_applied = commit_durably(&*self.records, batch).await?;
        Ok(())
    }

    fn shard(&self) -> onceflow_core::Shard {
        self.step.resource::<ScopeStore>().map_or(onceflow_core::Shard(0), |store| store.shard)
    }
}

impl std::fmt::Debug for OpenWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenWork({} of {})", self.name, self.step.address())
    }
}
