//! Workers on a server, each an engine with a connection of its own, and chains of steps that do nothing on them.

use super::{
    server::Bench,
    watched::{Calls, Watched},
};
use anyhow::ensure;
use onceflow_bench::flows::{self, Count};
use onceflow_engine::{Engine, Handle, Options, RunStatus, Start};
use onceflow_store::{Records, Store, blobs::Objects, values::Values, world::RealWorld};
use std::{sync::Arc, time::Duration};

/// How often is looked how far they are.
const LOOK: Duration = Duration::from_millis(2);

/// Some workers on one store.
pub(super) struct Workers {
    engines: Vec<Engine>,
    /// Keeps the connections.
    _stores: Vec<Store>,
    pub(super) calls: Arc<Calls>,
    pub(super) count: Arc<Count>,
}

impl Workers {
    pub(super) async fn start(server: &Bench, many: usize) -> anyhow::Result<Workers> {
        let (calls, count) = (Arc::new(Calls::default()), Count::new());
        let (mut engines, mut stores) = (vec![], vec![]);
        for _ in 0..many {
            let store = Store::connect(&server.url()).await?;
            let records: Arc<dyn Records> = Arc::new(Watched { records: store.records(), calls: calls.clone() });
            let values = Values::new(records.clone(), RealWorld::here(), Default::default());
            let values = values.with_blobs(Arc::new(Objects::memory()));
            let options = Options { fuse: false, waits: true, ..Options::default() };
            let engine = Engine::new(records, Arc::new(values), RealWorld::here(), options);
            engine.add_tasks(&flows::tasks(&count, 0))?;
            engines.push(engine);
            stores.push(store);
        }
        Ok(Workers { engines, _stores: stores, calls, count })
    }

    /// Starts chains, the workers in turn. No step is taken before all of them are there.
    pub(super) async fn chains(&self, runs: usize, steps: usize, history_ms: u64) -> anyhow::Result<Vec<Handle>> {
        let starting = (0..runs).zip(self.engines.iter().cycle()).map(|(run, engine)| {
            let flow = flows::flow(flows::chain(steps, false));
            let start = Start::new(format!("run {run}"), flow).input("x", flows::int(0));
            let engine = engine.clone();
            tokio::spawn(async move { engine.start(Start { history_ms, ..start }).await })
        });
        let mut handles = Vec::with_capacity(runs);
        for start in starting.collect::<Vec<_>>() {
            handles.push(start.await??);
        }
        self.engines.iter().for_each(Engine::start_work);
        Ok(handles)
    }

    /// Ends when so many bodies ran.
    pub(super) async fn until(&self, ran: u64) {
        while self.count.ran() < ran {
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn close(self) -> anyhow::Result<()> {
        for engine in self.engines {
            engine.close().await?;
        }
        Ok(())
    }
}

/// Waits for the end of all.
pub(super) async fn end(handles: Vec<Handle>) -> anyhow::Result<()> {
    for handle in handles {
        let report = handle.wait().await?;
        ensure!(report.status == RunStatus::Done, "a run did not end well: {report}");
    }
    Ok(())
}
