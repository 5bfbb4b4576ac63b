//! Scopes as steps of flows: the step enters a scope with a session of its own, and its commit takes the end of the
//! session from the store. So a step that is taken up again goes on with the session that it has opened.

use super::{
    body::DurableScope,
    host::{ScopeHost, ScopeHostOptions},
    keys::{DurableEnd, SessionId},
};
use crate::{Error, task::Step, tx::Tx};
use onceflow_core::{Row, Shard, scope::CancelCause};
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

/// A host for one step. Dropped, it stops its work: the session goes on when the step is taken up again, and is
/// cancelled if the step's run is on its way out.
struct StepHost {
    host: Arc<ScopeHost>,
    world: Arc<dyn World>,
    tx: Tx,
    step: Step,
    session: Option<(String, SessionId, onceflow_core::Key)>,
}

/// Enters a scope for a transactional step, and waits for the end of the session. The rows of the end are deleted by
/// the commit of the step, or here if the session was cancelled.
///
/// # Errors
/// If the store does not answer, or the step is not transactional.
pub async fn enter_scope(step: &Step, scope: Arc<DurableScope>, first: Row) -> Result<DurableEnd, Error> {
    let outside = || Error::Inputs(String::from("a scope is entered by a transactional step of a run"));
    let store = step.resource::<ScopeStore>().ok_or_else(outside)?;
    let tx = step.tx().ok_or_else(outside)?.clone();
    let name = step.key();
    let options = ScopeHostOptions { shard: store.shard, lease_ms: store.lease_ms, ..ScopeHostOptions::default() };
    let (records, values, world) = (store.records.clone(), store.values.clone(), store.world.clone());
    let host = ScopeHost::start(records, values, world.clone(), options, [(name.clone(), scope)]);
    let mut own = StepHost { host: host.clone(), world, tx: tx.clone(), step: step.clone(), session: None };
    let row = format!("scope/{name}");
    let end = tx.key(&row);
    let id = host.open_at(&name, "", first, end.clone()).await?;
    own.session = Some((name, id, end.clone()));
    let ended = host.end_at(id, &end).await?;
    own.session = None;
    match ended.result.is_ok() {
        true => {
            tx.get(&row).await?;
            ended.rows.iter().for_each(|name| tx.delete_name(name));
        }
        false => host.forget_at(&end).await?,
    }
    host.close().await;
    Ok(ended)
}

impl Drop for StepHost {
    fn drop(&mut self) {
        let (host, tx, step) = (self.host.clone(), self.tx.clone(), self.step.clone());
        let Some((scope, id, end)) = self.session.take() else { return host.stop() };
        let left = async move {
            // A run that cannot be read may go on: its session is left to the one who takes up the step.
            if tx.goes_on(&step).await.unwrap_or(true) {
                return host.stop();
            }
            let cause = CancelCause::ParentEnded;
            let cleaned = async {
                host.cancel(&scope, id, cause).await?;
                host.end_at(id, &end).await?;
                host.forget_at(&end).await
            };
            if let Err(error) = cleaned.await {
                tracing::warn!(%error, "a scope of a cancelled run was not cleaned");
            }
            host.stop();
        };
        self.world.spawn("onceflow scope of a dropped step", Box::pin(left));
    }
}
