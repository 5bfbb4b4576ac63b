//! duroxide: an orchestration schedules activities, and is replayed for each that ends.

use super::super::durable::{CHAIN_STEPS, CHAINS};
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry,
    providers::sqlite::SqliteProvider,
    runtime::{self, RuntimeOptions, registry::ActivityRegistry},
};
use onceflow_bench::disk::Scratch;
use sqlx::{Sqlite, pool::PoolConnection};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// As many as it opens.
const CONNECTIONS: usize = 5;
const POLL: Duration = Duration::from_millis(1);
const DISPATCHERS: usize = 2;

/// For the reader of the table.
pub(super) const SETTING: &str = "duroxide polls: dispatcher_min_poll_interval is 1 ms (100 by default), and it always has work; two dispatchers of \
     each kind; one of its five connections (on several it meets locks and backs off, and is slower); its orchestrations are enqueued before the clock starts";

/// Enqueues all orchestrations, then lets it work.
pub(super) fn run(runtime: Runtime, count: &Arc<AtomicU64>) -> anyhow::Result<(Runtime, Scratch)> {
    let scratch = Scratch::new("duroxide")?;
    let path = scratch.join("duroxide.db");
    fs::File::create(&path)?;
    let count = count.clone();
    let (store, held) = runtime.block_on(async {
        let store = SqliteProvider::new(&format!("sqlite:{}", path.display()), None).await?;
        let store = Arc::new(store);
        // All are there before a worker begins: starting them meanwhile makes its dispatchers back off.
        let client = Client::new(store.clone());
        for number in 0..CHAINS {
            client.start_orchestration(&format!("chain-{number}"), "chain", "0").await?;
        }
        let held = only_one_synced(&store).await?;
        anyhow::Ok((store, held))
    })?;
    let activities = ActivityRegistry::builder()
        .register("noop", move |_: ActivityContext, x: String| {
            count.fetch_add(1, Relaxed);
            async move { Ok(x) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("chain", chain).build();
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: POLL,
        orchestration_concurrency: DISPATCHERS,
        worker_concurrency: DISPATCHERS,
        ..RuntimeOptions::default()
    };
    let started = runtime::Runtime::start_with_options(store, activities, orchestrations, options);
    let working = runtime.block_on(started);
    runtime.spawn(async move {
        let _working = (working, held);
        std::future::pending::<()>().await;
    });
    Ok((runtime, scratch))
}

async fn chain(context: OrchestrationContext, mut x: String) -> Result<String, String> {
    for _ in 0..CHAIN_STEPS {
        x = context.schedule_activity("noop", x).await?;
    }
    Ok(x)
}

/// It asks for `synchronous = WAL`, which SQLite does not know and takes for NORMAL: no sync at a commit. And it begins
/// transactions that read before they write, so that on several connections they meet, fail at once with "database is
/// locked", and are tried again after a fifth of a second or more. Here it gets one connection that syncs, which is much
/// faster: the others are answered, to be held.
async fn only_one_synced(store: &SqliteProvider) -> Result<Vec<PoolConnection<Sqlite>>, sqlx::Error> {
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = store.get_pool().acquire().await?;
        sqlx::query("PRAGMA synchronous = FULL").execute(&mut *connection).await?;
        all.push(connection);
    }
    all.pop();
    Ok(all)
}
