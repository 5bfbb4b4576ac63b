//! A store that fails on demand, over any other. What a crash at the n-th call leaves behind is then a loop:
//!
//! ```
//! use onceflow_store::{Records, backend::memory::Memory, testing::{fault::{self, Fault, Faulty}, world::TestWorld}};
//! use std::sync::Arc;
//! # use onceflow_store::core::{Batch, Group, Row, Shard};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//!
//! fault::for_every_n(Fault::StopAfter, async |plan| {
//!     let store: Arc<dyn Records> = Arc::new(Memory::new(TestWorld::new(1)));
//!     let worker = Faulty::new(store.clone(), plan);
//!     // Work on `worker` until it fails; then look at what it left, on `store`.
//!     let mut batch = Batch::new(Shard(0));
//!     batch.put(Group::rows("g").key("a"), Row::new("1"));
//!     let _ = worker.commit(batch).await;
//! }).await;
//! # }
//! ```
//!
//! Every call counts, reads too, but not [`Records::position`], which cannot fail. All stores that share a plan
//! share its count and stop together: they are one process.

mod plan;

use crate::{
    records::{
        CommitResult, Error, Page, Position, Records, Scan, ServerRecords, SweepReport, SweepRequest, UnorderedPage,
    },
    world::BoxFuture,
};
use onceflow_core::{Batch, Group, Key, Name, Row, Shard, Timestamp, batch::BatchLimits};
pub(crate) use plan::Verdict;
pub use plan::{Fault, FaultPlan, Odds};
use std::sync::Arc;

/// A store that fails as planned.
pub struct Faulty {
    records: Arc<dyn Records>,
    plan: FaultPlan,
}

impl Faulty {
    /// Over this store, by this plan.
    pub fn new(records: Arc<dyn Records>, plan: FaultPlan) -> Arc<Self> {
        Arc::new(Faulty { records, plan })
    }

    /// A call that changes nothing, so that a lost reply is as good as no call.
    async fn read<T>(&self, call: BoxFuture<'_, Result<T, Error>>) -> Result<T, Error> {
        match self.plan.next_call() {
            Verdict::Go => call.await,
            Verdict::StopAfter(why) => call.await.and(Err(why)),
            Verdict::LoseReply(why) | Verdict::Refuse(why) => Err(Error::Unavailable(why.to_string().into())),
            Verdict::Stopped(why) => Err(why),
        }
    }

    /// A call that changes something, and may do so before its future is polled.
    async fn write<'a, T>(&self, call: impl FnOnce() -> BoxFuture<'a, Result<T, Error>>) -> Result<T, Error> {
        match self.plan.next_call() {
            Verdict::Go => call().await,
            Verdict::LoseReply(why) | Verdict::StopAfter(why) => call().await.and(Err(why)),
            Verdict::Refuse(why) | Verdict::Stopped(why) => Err(why),
        }
    }
}

impl Records for Faulty {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(self.read(self.records.get(shard, keys)))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.read(self.records.scan(shard, scan)))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(self.write(move || self.records.commit(batch)))
    }

    /// An error here means that the store takes nothing more, so whatever was planned, it has stopped.
    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match self.plan.next_call() {
                Verdict::Go => self.records.durable(position).await,
                Verdict::LoseReply(why) | Verdict::StopAfter(why) => {
                    self.plan.stop();
                    self.records.durable(position).await.and(Err(why))
                }
                Verdict::Refuse(why) | Verdict::Stopped(why) => {
                    self.plan.stop();
                    Err(why)
                }
            }
        })
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(self.read(self.records.now()))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.read(self.records.wait(shard, seen, until)))
    }

    fn batch_limits(&self) -> BatchLimits {
        self.records.batch_limits()
    }

    fn server(&self) -> Option<&dyn ServerRecords> {
        self.records.server().map(|_| self as &dyn ServerRecords)
    }
}

impl Faulty {
    fn inner_server(&self) -> &dyn ServerRecords {
        self.records.server().expect("asked of a store on a server only")
    }
}

impl ServerRecords for Faulty {
    fn check_store(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.read(self.inner_server().check_store()))
    }

    fn walk(
        &self,
        shard: Shard,
        group: Group,
        from: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UnorderedPage, Error>> {
        Box::pin(self.read(self.inner_server().walk(shard, group, from, limit)))
    }

    fn inconsistencies(&self, shard: Shard) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        Box::pin(self.read(self.inner_server().inconsistencies(shard)))
    }

    fn concurrent_sweeps(&self) -> usize {
        self.inner_server().concurrent_sweeps()
    }

    fn sweep(&self, shard: Shard, ask: SweepRequest) -> BoxFuture<'_, Result<Option<SweepReport>, Error>> {
        Box::pin(self.write(move || self.inner_server().sweep(shard, ask)))
    }
}

/// Runs a scenario with the fault at its first call, then at its second, until one ends without having come so far.
/// Answers how many calls there were.
///
/// # Panics
/// If the first scenario makes no call: the plan it was given is not in use. If there is no end to the calls.
pub async fn for_every_n(fault: Fault, scenario: impl AsyncFn(FaultPlan)) -> u64 {
    const CALLS_MAX: u64 = 100_000;
    for n in 1..CALLS_MAX {
        let plan = FaultPlan::at(n, fault);
        scenario(plan.clone()).await;
        if !plan.reached() {
            assert!(n > 1, "the scenario made no call: is its store made with the plan it was given?");
            return n - 1;
        }
    }
    panic!("a scenario of {CALLS_MAX} calls is too long to fail at every one of them");
}

/// [`for_every_n`] for every kind of fault.
pub async fn for_every_fault(scenario: impl AsyncFn(FaultPlan)) {
    for fault in Fault::ALL {
        for_every_n(fault, &scenario).await;
    }
}

#[cfg(test)]
mod tests;
