//! Scopes as steps of flows: the step enters a scope with a session of its own, and its commit takes the end of the
//! session from the store. So a step that is taken up again goes on with the session that it has opened.

use super::{
    body::DurableScope,
    host::ScopeHost,
    keys::{DurableEnd, SessionId},
    open_sessions::{OpenSession, end_key, open_key, session_name},
};
use crate::{Error, data::SmallFiles, engine::WeakEngine, kernel::Kernel, task::Step, tx::Tx};
use onceflow_core::{Key, Row, Shard, protocol::rows::write, scope::CancelCause};
use onceflow_store::{Records, World, values::Values};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use tokio::sync::Semaphore;

/// The pause before a step that could not open its session looks again.
const LOOK_MS: u64 = 50;

/// The store of an engine, for hosts of scopes: a resource that every step finds.
pub(crate) struct ScopeStore {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) shard: Shard,
    pub(crate) lease_ms: u64,
    /// The places for activities of all scopes that steps of this engine have entered.
    pub(crate) activities: Arc<Semaphore>,
    /// The engine, for operations that call flows; set when it starts.
    pub(crate) engine: OnceLock<WeakEngine>,
    /// The files of this process that no later one needs.
    pub(crate) small: Arc<SmallFiles>,
    pub(crate) scratch: PathBuf,
}

impl ScopeStore {
    /// A kernel that only reads.
    pub(crate) fn kernel(&self) -> Kernel {
        ScopeHost::kernel_of(self)
    }
}

/// A host for one step. Dropped, it stops its work: the session goes on when the step is taken up again. If the step's run
/// is on its way out, it first lets the session come to its end: [`end_scope`] waits for that.
struct StepHost {
    host: Arc<ScopeHost>,
    world: Arc<dyn World>,
    tx: Tx,
    step: Step,
    /// The name of the scope, the session, and the row of its end.
    name: String,
    id: SessionId,
    end: Key,
    is_open: bool,
}

fn outside() -> Error {
    Error::Inputs(String::from("a scope is entered by a transactional step of a run"))
}

impl StepHost {
    fn start(step: &Step, scope: Arc<DurableScope>) -> Result<Self, Error> {
        let store = step.resource::<ScopeStore>().ok_or_else(outside)?;
        let tx = step.tx().ok_or_else(outside)?.clone();
        let name = session_name(step);
        let host = ScopeHost::of_store(&store, Some(step.run()), [(name.clone(), scope)]);
        let world = store.world.clone();
        let (id, end) = (SessionId::of_key(&name, ""), end_key(step.run(), &name));
        Ok(StepHost { host, world, tx, step: step.clone(), name, id, end, is_open: false })
    }

    /// Opens the session, unless an earlier attempt has, and puts it among those that the run has open. Does not return
    /// while the run lets nothing begin, or once the step is lost: its worker drops this attempt then.
    async fn open(&self, first: &Row) -> Result<(), Error> {
        // Before sessions were rows of their run, the step's key alone named them.
        for name in [&self.name, &self.step.key()] {
            self.host.check_format(name, SessionId::of_key(name, "")).await?;
        }
        let task = self.step.spec().ok_or_else(outside)?.clone();
        let open = OpenSession { address: self.step.address(), session: self.name.clone(), task };
        while !self.host.is_known(&self.name, self.id, &self.end).await? {
            let mut batch = self.host.opening(&self.name, self.id, first.clone(), self.end.clone())?;
            batch.put(open_key(self.step.run(), &self.name), write(&open));
            if !(self.tx.require_step(&mut batch).await? && self.host.commit_opening(batch).await?) {
                self.world.sleep(LOOK_MS).await;
            }
        }
        Ok(())
    }

    async fn forget(&self) -> Result<(), Error> {
        self.host.forget_with(&self.end, [open_key(self.step.run(), &self.name)]).await
    }
}

/// Enters a scope for a transactional step, and waits for the end of the session. The rows of the end are deleted by
/// the commit of the step, or here if the session was cancelled.
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn enter_scope(step: &Step, scope: Arc<DurableScope>, first: Row) -> Result<DurableEnd, Error> {
    let mut own = StepHost::start(step, scope)?;
    own.open(&first).await?;
    own.is_open = true;
    let ended = own.host.end_at(own.id, &own.end).await?;
    own.is_open = false;
    match ended.result.is_ok() {
        true => {
            let rows = ended.rows.iter().map(|name| own.end.group.key(name));
            rows.chain([open_key(step.run(), &own.name)]).for_each(|key| own.tx.delete_key(key));
        }
        false => own.forget().await?,
    }
    own.host.close().await;
    Ok(ended)
}

/// The sessions that steps at this address have left open and that this step does not continue, because its inputs or its
/// scope are others: each as the step that opened it, for [`end_scope`].
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn sessions_left_open(step: &Step) -> Result<Vec<Step>, Error> {
    let store = step.resource::<ScopeStore>().ok_or_else(outside)?;
    let tx = step.tx().ok_or_else(outside)?;
    let (address, session) = (step.address(), session_name(step));
    let all = OpenSession::all(&ScopeHost::kernel_of(&store), step.run()).await?;
    let left = all.into_iter().filter(|(_, open)| open.address == address && open.session != session);
    let resources = step.resources();
    Ok(left.map(|(_, open)| Step { tx: Some(tx.clone()), ..open.step(step.run(), resources.clone()) }).collect())
}

/// Cancels a session that is left open, waits until it is cleaned, and deletes its end. `None` if there is no session.
/// Repeating it is harmless.
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn end_scope(step: &Step, scope: Arc<DurableScope>) -> Result<Option<DurableEnd>, Error> {
    let own = StepHost::start(step, scope)?;
    own.host.check_format(&own.name, own.id).await?;
    own.host.cancel(&own.name, own.id, CancelCause::ParentEnded).await?;
    let ended = match own.host.is_known(&own.name, own.id, &own.end).await? {
        true => Some(own.host.end_at(own.id, &own.end).await?),
        false => None,
    };
    own.forget().await?;
    own.host.close().await;
    Ok(ended)
}

impl Drop for StepHost {
    fn drop(&mut self) {
        let (host, tx, step) = (self.host.clone(), self.tx.clone(), self.step.clone());
        if !self.is_open {
            return host.stop();
        }
        let (name, id, end) = (self.name.clone(), self.id, self.end.clone());
        let left = async move {
            // A run that cannot be read may go on: its session is left to the one who takes up the step.
            if !tx.goes_on(&step).await.unwrap_or(true) {
                let ended = async {
                    host.cancel(&name, id, CancelCause::ParentEnded).await?;
                    host.end_or_gone(&name, id, &end).await
                };
                if let Err(error) = ended.await {
                    tracing::warn!(%error, "the session of a cancelled step is left to the worker that ends the run");
                }
            }
            host.stop();
        };
        self.world.spawn("onceflow scope of a dropped step", Box::pin(left));
    }
}
