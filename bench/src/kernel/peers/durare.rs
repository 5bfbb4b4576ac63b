//! durare: a workflow is a function, each step of it one row.

use super::super::durable::{CHAIN_STEPS, CHAINS};
use durare::{DurableContext, DurableEngine, Result, SqliteProvider, WorkflowOptions};
use onceflow_bench::disk::Scratch;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// As many as it has by default.
const CONNECTIONS: u32 = 5;

/// Starts all workflows.
pub(super) fn run(runtime: Runtime, count: &Arc<AtomicU64>) -> anyhow::Result<(Runtime, Scratch)> {
    let scratch = Scratch::new("durare")?;
    let path = scratch.join("durare.db");
    let count = count.clone();
    let engine = runtime.block_on(async {
        // As `SqliteProvider::connect` does, but synced.
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
        let mut engine = DurableEngine::new(Arc::new(SqliteProvider::from_pool(pool))).await?;
        engine.register("chain", move |context, x| chain(context, x, count.clone()));
        engine.launch().await?;
        anyhow::Ok(Arc::new(engine))
    })?;
    for number in 0..CHAINS {
        let engine = engine.clone();
        runtime.spawn(async move {
            let options = WorkflowOptions::with_id(format!("chain-{number}"));
            engine.start::<_, i64>("chain", 0_i64, options).await?.result().await
        });
    }
    Ok((runtime, scratch))
}

async fn chain(context: DurableContext, mut x: i64, count: Arc<AtomicU64>) -> Result<i64> {
    for _ in 0..CHAIN_STEPS {
        x = context.step("noop", || async { Ok(x) }).await?;
        count.fetch_add(1, Relaxed);
    }
    Ok(x)
}
