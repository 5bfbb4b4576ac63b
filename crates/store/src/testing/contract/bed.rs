//! The bed a promise is tested in: a new store and its world, and the calls that every test makes on them.

use crate::{
    records::{CommitResult, Committed, Error, Records, Refused, Scan},
    testing::{
        batches::{SHARD, batch, group, inputs, once, queue},
        world::TestWorld,
    },
};
use onceflow_core::{
    Batch, Claim, Claimed, Fence, Fences, Group, Key, Name, Op, Pick, Row, Shard, batch::Invalid, limits,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A new store, and its world.
pub struct Bed {
    /// The store.
    pub records: Arc<dyn Records>,
    /// Its world, unless it has one of its own.
    pub world: Arc<TestWorld>,
    fences: Fences,
    permits: AtomicU64,
}

impl Bed {
    /// Over this store.
    pub fn new(records: Arc<dyn Records>, world: Arc<TestWorld>) -> Self {
        Bed { records, world, fences: Fences::new(7), permits: AtomicU64::new(0) }
    }

    /// Commits; the store must answer. Lets others go first, or a store that never waits would never be shared.
    pub async fn commit(&self, batch: Batch) -> CommitResult {
        tokio::task::yield_now().await;
        self.records.commit(batch).await.expect("the store answers")
    }

    /// Commits; it must happen.
    pub async fn apply(&self, batch: Batch) -> Committed {
        match self.commit(batch).await {
            CommitResult::Applied(committed) => committed,
            CommitResult::Refused(refused) => panic!("should have happened, but: {refused:?}"),
        }
    }

    /// Commits; a require must not hold.
    pub async fn refuse(&self, batch: Batch) -> Refused {
        match self.commit(batch).await {
            CommitResult::Refused(refused) => refused,
            CommitResult::Applied(committed) => panic!("should have been refused, but: {committed:?}"),
        }
    }

    /// Commits; the batch must be wrong.
    pub async fn wrong(&self, batch: Batch) -> Invalid {
        match self.records.commit(batch).await {
            Err(Error::Invalid(invalid)) => invalid,
            other => panic!("should have been invalid, but: {other:?}"),
        }
    }

    /// Does these operations, as a batch with a permission of its own.
    pub async fn run(&self, ops: impl IntoIterator<Item = Op>) -> Committed {
        self.apply(self.once(ops)).await
    }

    /// A batch of these operations with a permission of its own.
    pub fn once(&self, ops: impl IntoIterator<Item = Op>) -> Batch {
        once(self.permits.fetch_add(1, Relaxed).to_be_bytes(), ops)
    }

    /// The content of a row.
    pub async fn get(&self, key: Key) -> Option<Row> {
        crate::records::get_one(&*self.records, SHARD, key).await.expect("the store answers")
    }

    /// All rows of a group, read page by page.
    pub async fn rows(&self, shard: Shard, group: Group) -> Vec<(Key, Row)> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan::of(group.clone(), limits::SCAN_ROWS_MAX).after(after.clone());
            let page = self.records.scan(shard, scan).await.expect("the store answers");
            let last = page.rows.last().map(|(name, _)| name.clone());
            assert!(!page.more || last > after, "there is more, and no way to go on");
            after = last;
            rows.extend(page.rows.into_iter().map(|(name, row)| (Key { group: group.clone(), name }, row)));
            if !page.more {
                return rows;
            }
        }
    }

    /// The names in a group, with spaces between.
    pub async fn names(&self, group: Group) -> String {
        let rows = self.rows(SHARD, group).await;
        rows.iter().map(|(key, _)| format!("{:?}", key.name)).collect::<Vec<_>>().join(" ")
    }

    /// All rows of the groups that promises use.
    pub async fn everything(&self, shard: Shard) -> Vec<(Key, Row)> {
        let mut all = Vec::new();
        for group in [group(), Group::rows("permits"), inputs(), queue(), queue().claims(), queue().deadlines()] {
            all.extend(self.rows(shard, group).await);
        }
        all
    }

    /// A fence that was never used before.
    pub fn fence(&self) -> Fence {
        self.fences.next()
    }

    /// A claim on the queue.
    pub fn claim(&self, pick: Pick) -> Claim {
        Claim { queues: vec![queue()], fence: self.fence(), ttl_ms: 1000, pick }
    }

    /// Claims a row of the queue.
    pub async fn take(&self, pick: Pick) -> Option<Claimed> {
        self.take_by(self.claim(pick)).await
    }

    /// Claims a row.
    pub async fn take_by(&self, claim: Claim) -> Option<Claimed> {
        let mut batch = batch([]);
        batch.claim(claim);
        self.apply(batch).await.claimed
    }

    /// Claims rows of the queue in turn until there is none; their names.
    pub async fn take_until_none(&self) -> Vec<Name> {
        const ROWS_MAX: usize = 1000;
        let mut names = Vec::new();
        while let Some(claimed) = self.take(Pick::InTurn).await {
            names.push(claimed.name);
            assert!(names.len() < ROWS_MAX, "there is no end to the rows that can be claimed");
        }
        names
    }

    /// Claims rows of the queue in turn until there is none; their names, with spaces between.
    pub async fn take_all(&self) -> String {
        let names = self.take_until_none().await;
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ")
    }
}

/// The name of a claimed row, to compare with.
pub(super) fn name_of(claimed: &Claimed) -> String {
    format!("{:?}", claimed.name)
}
