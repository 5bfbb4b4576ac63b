//! Scopes as steps of flows: the step enters a scope with a session of its own, and its commit takes the end of the
//! session from the store. So a step that is taken up again goes on with the session that it has opened.

use super::{
    body::DurableScope,
    host::{ScopeHost, ScopeHostOptions},
    keys::{DurableEnd, SessionId},
};
use crate::{Error, task::Step, tx::Tx};
use onceflow_core::{Key, Row, Shard, scope::CancelCause};
use onceflow_store::{Records, World, values::Values};
use std::sync::Arc;

/// The store of an engine, for hosts of scopes: a resource that every step finds.
pub(crate) struct ScopeStore {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) shard: Shard,
    pub(crate) lease_ms: u64,
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

impl StepHost {
    fn start(step: &Step, scope: Arc<DurableScope>) -> Result<Self, Error> {
        let outside = || Error::Inputs(String::from("a scope is entered by a transactional step of a run"));
        let store = step.resource::<ScopeStore>().ok_or_else(outside)?;
        let tx = step.tx().ok_or_else(outside)?.clone();
        let name = step.key();
        let options = ScopeHostOptions { shard: store.shard, lease_ms: store.lease_ms, ..ScopeHostOptions::default() };
        let (records, values, world) = (store.records.clone(), store.values.clone(), store.world.clone());
        let host = ScopeHost::start(records, values, world.clone(), options, [(name.clone(), scope)]);
        let (id, end) = (SessionId::of_key(&name, ""), tx.key(&row_of(&name)));
        Ok(StepHost { host, world, tx, step: step.clone(), name, id, end, is_open: false })
    }
}

fn row_of(name: &str) -> String {
    format!("scope/{name}")
}

/// Enters a scope for a transactional step, and waits for the end of the session. The rows of the end are deleted by
/// the commit of the step, or here if the session was cancelled.
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn enter_scope(step: &Step, scope: Arc<DurableScope>, first: Row) -> Result<DurableEnd, Error> {
    let mut own = StepHost::start(step, scope)?;
    let id = own.host.open_at(&own.name, "", first, own.end.clone()).await?;
    assert_eq!(id, own.id, "the session of a step is named by the step's key");
    own.is_open = true;
    let ended = own.host.end_at(id, &own.end).await?;
    own.is_open = false;
    match ended.result.is_ok() {
        true => {
            own.tx.get(&row_of(&own.name)).await?;
            ended.rows.iter().for_each(|name| own.tx.delete_name(name));
        }
        false => own.host.forget_at(&own.end).await?,
    }
    own.host.close().await;
    Ok(ended)
}

/// Cancels the session that stopped attempts at a step have left open, waits until it is cleaned, and deletes its end.
/// `None` if there is no session. Repeating it is harmless.
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn end_scope(step: &Step, scope: Arc<DurableScope>) -> Result<Option<DurableEnd>, Error> {
    let own = StepHost::start(step, scope)?;
    own.host.cancel(&own.name, own.id, CancelCause::ParentEnded).await?;
    let ended = match own.host.is_known(&own.name, own.id, &own.end).await? {
        true => Some(own.host.end_at(own.id, &own.end).await?),
        false => None,
    };
    own.host.forget_at(&own.end).await?;
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
