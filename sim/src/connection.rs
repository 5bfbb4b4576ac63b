//! One incarnation of a node and the store: every call is a point where others may go first, where it may take its time,
//! fail, happen twice, or lose its reply.

use crate::{
    executor::{NodeId, OUTSIDE},
    store::SimStore,
};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use onceflow_store::{
    BoxFuture, CommitResult, Error, Page, Position, Records, backend::held::HeldClaims, records::Scan,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use tokio::sync::oneshot;

/// A node's way to the store.
pub struct Connection {
    store: Arc<SimStore>,
    node: NodeId,
    /// The latest position it was told of.
    seen: AtomicU64,
    /// What it holds, by what it was answered.
    held: Arc<HeldClaims>,
}

fn unavailable() -> Error {
    Error::Unavailable("simulated".into())
}

fn unknown() -> Error {
    Error::Unknown("simulated".into())
}

impl Connection {
    /// Of this node.
    pub fn new(store: Arc<SimStore>, node: NodeId) -> Arc<Self> {
        let held = Arc::new(HeldClaims::default());
        if node != OUTSIDE {
            store.member(node, held.clone());
        }
        Arc::new(Connection { store, node, seen: AtomicU64::new(0), held })
    }

    /// Others go first, and maybe much happens before.
    async fn travel(&self) {
        let faults = &self.store.faults;
        let ms = if self.store.harm(faults.delayed) { self.store.sim.below(faults.delay_ms + 1) } else { 0 };
        self.store.sim.sleep(ms).await;
    }

    fn saw(&self, position: Position) {
        self.seen.fetch_max(position.0, Relaxed);
    }

    /// What an answer rests on is durable, unless this node has the store open.
    async fn lasting(&self, position: Position, epoch: u64) -> Result<(), Error> {
        if !self.store.is_owner(self.node) && !self.store.lasts_at_once() {
            self.store.until_durable(position, epoch).await?;
        }
        Ok(())
    }

    async fn reading<T>(&self, read: impl FnOnce(&SimStore) -> T) -> Result<T, Error> {
        self.travel().await;
        self.store.is_welcome(self.node)?;
        let epoch = self.store.epoch()?;
        if self.store.harm(self.store.faults.call_failed) {
            return Err(unavailable());
        }
        let (answer, position) = (read(&self.store), self.store.position());
        self.lasting(position, epoch).await?;
        if self.store.harm(self.store.faults.delayed) {
            self.travel().await;
        }
        if self.store.opening() != epoch {
            return Err(unavailable());
        }
        self.saw(position);
        Ok(answer)
    }

    async fn try_commit(&self, batch: Batch) -> Result<CommitResult, Error> {
        self.travel().await;
        let (store, node) = (self.store.clone(), self.node);
        let faults = &store.faults;
        store.is_welcome(node)?;
        let (epoch, sent_at) = (store.epoch()?, store.position());
        if store.harm(faults.call_failed) {
            return Err(unavailable());
        }
        let mut outcome = if store.harm(faults.delayed) {
            // On its own way, so that it may happen when the node is dead.
            let (sender, receiver) = oneshot::channel();
            let there = store.clone();
            let sent = async move {
                there.sim.sleep(there.sim.below(20)).await;
                if matches!(there.epoch(), Ok(now) if now == epoch) {
                    let _dead = sender.send(there.apply(node, &batch));
                }
            };
            store.sim.spawn(OUTSIDE, "a batch on its way", Box::pin(sent));
            receiver.await.map_err(|_| unknown())??
        } else {
            let outcome = store.apply(node, &batch)?;
            if store.harm(faults.duplicated) {
                self.travel().await;
                if store.opening() != epoch {
                    return Err(unknown());
                }
                store.sim.tell(|| format!("node {node}: a batch is delivered twice"));
                let again = store.apply(node, &batch);
                // The first answer may be the one that is lost.
                if store.sim.per_mille(300) { again? } else { outcome }
            } else {
                outcome
            }
        };
        if self.lasting(outcome.position(), epoch).await.is_err() {
            return Err(unknown());
        }
        if store.harm(faults.delayed) {
            self.travel().await;
        }
        if store.opening() != epoch {
            return Err(unknown());
        }
        if store.harm(faults.reply_lost) {
            store.sim.tell(|| format!("node {node}: a reply is lost"));
            return Err(unknown());
        }
        if store.has_positions_of_senders() {
            match &mut outcome {
                CommitResult::Applied(committed) => committed.position = sent_at,
                CommitResult::Refused(refused) => refused.position = sent_at,
            }
        }
        self.saw(outcome.position());
        Ok(outcome)
    }

    async fn wait_for(&self, shard: Shard, seen: Position, until: Timestamp) -> Result<(), Error> {
        self.travel().await;
        let store = &self.store;
        let epoch = store.epoch()?;
        let ms = until.ms_since(store.now());
        let timeout = std::pin::pin!(store.sim.sleep(ms.max(1)));
        let free = async {
            loop {
                let enabled = store.enabled.notified();
                let mut enabled = std::pin::pin!(enabled);
                enabled.as_mut().enable();
                if store.read(|state| state.enabled_at(shard)) > seen || store.opening() != epoch {
                    return;
                }
                enabled.await;
            }
        };
        futures_util::future::select(timeout, std::pin::pin!(free)).await;
        if store.opening() == epoch { Ok(()) } else { Err(unavailable()) }
    }
}

impl Records for Connection {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        let read =
            move |store: &SimStore| store.read(|state| keys.iter().map(|key| state.get(shard, key).cloned()).collect());
        Box::pin(self.reading(read))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.reading(move |store: &SimStore| store.read(|state| state.scan(shard, &scan))))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            let expected = self.held.expect(&batch);
            let answer = self.try_commit(batch.clone()).await;
            match (&answer, expected) {
                (Ok(outcome), Some(expected)) => self.held.answered(expected, outcome),
                (Err(Error::Unknown(_)), Some(expected)) => self.held.unanswered(expected),
                _ => {}
            }
            if matches!(answer, Err(Error::Unknown(_))) {
                self.store.watch.unanswered(&batch);
            }
            answer
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.travel().await;
            if self.store.is_owner(self.node) {
                let epoch = self.store.epoch()?;
                return self.store.until_durable(position, epoch).await;
            }
            Ok(())
        })
    }

    fn position(&self) -> Position {
        match self.store.is_owner(self.node) {
            true => self.store.position(),
            false => Position(self.seen.load(Relaxed)),
        }
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(self.reading(SimStore::now))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.wait_for(shard, seen, until))
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }
}

/// A way to the store on which nothing goes wrong and no call waits: for checks.
pub struct Direct(pub Arc<SimStore>);

impl Records for Direct {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        let rows = self.0.read(|state| keys.iter().map(|key| state.get(shard, key).cloned()).collect());
        Box::pin(std::future::ready(Ok(rows)))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(std::future::ready(Ok(self.0.read(|state| state.scan(shard, &scan)))))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(std::future::ready(self.0.apply(OUTSIDE, &batch)))
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Position {
        self.0.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(std::future::ready(Ok(self.0.now())))
    }

    fn wait(&self, _: Shard, _: Position, _: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
