//! Memory with a flaw.

mod changed;

use changed::{change_batch, change_outcome};
use onceflow_store::{
    BoxFuture, CommitResult, Committed, Error, Page, Position, Records, World,
    core::{
        Batch, Claim, Claimed, Group, Inbox, Key, Op, Row, Shard, Timestamp, batch::BatchLimits, limits::CLAIM_ROWS_MAX,
    },
    records::Scan,
    testing::world::TestWorld,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Declares the flaws, and whether a script can show each.
macro_rules! flaws {
    ($($flaw:ident $shown:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw { None, $($flaw),* }
        pub(crate) const FLAWS: &[(Flaw, bool)] = &[$((Flaw::$flaw, $shown)),*];
    };
}

flaws! {
    AppliesOperationsOneByOne true
    LeavesHalfOfAWrongBatch true
    ForgetsWhatItFound true
    NamesTheLastRequire true
    TakesEqualsForPresent true
    IgnoresTurns true
    NeverTakesFreshRowsFirst true
    AlwaysTakesFreshRowsFirst true
    AsksLaterQueuesFirst true
    ForgetsClaims true
    KeepsClaimsOfAGroup true
    HalvesDeadlines true
    AnswersNoInputs true
    NeverSaysThatAnInboxHasMore false
    ForgetsEmptyRows true
    DoesNotFireOnNothing true
    FiresCountersWithBitmaps true
    AnswersFiredBackwards true
    AnswersNothingFired true
    MixesShards true
    SendsEveryBatchTwice true
    SkipsARowInScans true
    NeverSaysThatAScanHasMore true
    IgnoresPrefixes true
    ReadsRowsOneByOne false
    MissesWhatCameBeforeTheWait false
    WaitsForEver false
    GoesBackInTime false
    AnswersTheFirstPosition true
}

pub(crate) struct Flawed {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) world: Arc<TestWorld>,
    pub(crate) flaw: Flaw,
}

static PERMITS: AtomicU64 = AtomicU64::new(0);

/// These operations, in a batch that may be repeated.
fn permitted(shard: Shard, ops: &[Op]) -> Batch {
    let permit = Group::rows("hidden").key(PERMITS.fetch_add(1, Relaxed).to_be_bytes());
    let mut batch = Batch::new(shard);
    batch.require_absent(permit.clone()).put(permit, Row::default());
    batch.ops.extend_from_slice(ops);
    batch
}

impl Flawed {
    async fn one_by_one(&self, batch: Batch) -> Result<CommitResult, Error> {
        batch.check_within(self.batch_limits())?;
        let mut asks = permitted(batch.shard, &[]);
        asks.requires.splice(0..0, batch.requires);
        let mut outcome = self.records.commit(asks).await?;
        let CommitResult::Applied(all) = &mut outcome else { return Ok(outcome) };
        for op in batch.ops {
            let CommitResult::Applied(one) = self.records.commit(permitted(batch.shard, &[op])).await? else {
                continue;
            };
            all.fired.extend(one.fired);
        }
        let mut claims = Batch::new(batch.shard);
        claims.claim = batch.claim;
        if let CommitResult::Applied(Committed { claimed, position, .. }) = self.records.commit(claims).await? {
            (all.claimed, all.position) = (claimed, position);
        }
        Ok(outcome)
    }

    /// Fires counters that are zero after the plain operations, before the trigger of a full bitmap applies.
    async fn counters_too_early(&self, batch: Batch) -> Result<CommitResult, Error> {
        let (mut early, mut triggers) = (batch.clone(), BTreeMap::new());
        early.claim = None;
        for op in &mut early.ops {
            if let Op::SetBit { key, when_full, .. } = op {
                triggers.insert(key.clone(), std::mem::take(when_full));
            }
        }
        if triggers.is_empty()
            || batch.check_within(self.batch_limits()).is_err()
            || early.check_within(self.batch_limits()).is_err()
        {
            return self.records.commit(batch).await;
        }
        let mut outcome = self.records.commit(early).await?;
        let CommitResult::Applied(done) = &mut outcome else { return Ok(outcome) };
        let follows: Vec<_> = done.fired.iter().filter_map(|key| triggers.get(key)).flatten().cloned().collect();
        let mut late = permitted(batch.shard, &follows);
        late.claim = batch.claim;
        if let CommitResult::Applied(late) = self.records.commit(late).await? {
            done.fired.extend(late.fired);
            (done.claimed, done.position) = (late.claimed, late.position);
        }
        Ok(outcome)
    }

    async fn half_if_wrong(&self, batch: Batch) -> Result<CommitResult, Error> {
        let answer = self.records.commit(batch.clone()).await;
        if matches!(answer, Err(Error::Invalid(_))) && batch.check_within(self.batch_limits()).is_ok() {
            let half = &batch.ops[..batch.ops.len() / 2];
            let _ = self.records.commit(permitted(batch.shard, half)).await;
        }
        answer
    }

    /// Claims the first free row by name, whichever lane has the turn.
    async fn ignoring_turns(&self, mut batch: Batch) -> Result<CommitResult, Error> {
        let (shard, claim) = (batch.shard, batch.claim.take());
        let mut outcome = self.records.commit(batch).await?;
        if let (CommitResult::Applied(done), Some(claim)) = (&mut outcome, claim) {
            for queue in &claim.queues {
                done.claimed = self.first_free(shard, queue, &claim).await?;
                if done.claimed.is_some() {
                    break;
                }
            }
        }
        Ok(outcome)
    }

    async fn first_free(&self, shard: Shard, queue: &Group, claim: &Claim) -> Result<Option<Claimed>, Error> {
        let claims = self.records.scan(shard, Scan::of(queue.claims(), 1000)).await?;
        let taken: BTreeSet<_> = claims.rows.into_iter().map(|(name, _)| name).collect();
        let rows = self.records.scan(shard, Scan::of(queue.clone(), 1000)).await?.rows;
        let Some((name, row)) = rows.into_iter().find(|(name, _)| !taken.contains(name)) else { return Ok(None) };
        let deadline = self.records.now().await?.plus_ms(claim.ttl_ms);
        let mut puts = Batch::new(shard);
        puts.put(queue.claims().key(&name), Row::new(claim.fence.to_bytes()));
        puts.put(queue.deadlines().key(&name), Row::new(deadline.to_sortable()));
        let _ = self.records.commit(puts).await?;
        let inbox = Inbox::from_row(&row).expect("a queue holds inboxes");
        let Page { rows: inputs, more } =
            self.records.scan(shard, Scan::of(inbox.group, CLAIM_ROWS_MAX).prefix(inbox.prefix)).await?;
        Ok(Some(Claimed { queue: queue.clone(), name, row, inputs, more, deadline }))
    }

    async fn forgetting_claims(&self, batch: Batch) -> Result<CommitResult, Error> {
        let shard = batch.shard;
        let outcome = self.records.commit(batch).await?;
        if let CommitResult::Applied(Committed { claimed: Some(claimed), .. }) = &outcome {
            let forgets = permitted(shard, &[Op::Delete(claimed.queue.claims().key(&claimed.name))]);
            let _ = self.records.commit(forgets).await?;
        }
        Ok(outcome)
    }
}

impl Records for Flawed {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        if self.flaw != Flaw::ReadsRowsOneByOne || keys.len() > 100 {
            return self.records.get(self.shard(shard), keys);
        }
        Box::pin(async move {
            let mut rows = vec![];
            for key in keys {
                rows.extend(self.records.get(shard, std::slice::from_ref(key)).await?);
                tokio::task::yield_now().await;
            }
            Ok(rows)
        })
    }

    fn scan(&self, shard: Shard, mut scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            if self.flaw == Flaw::IgnoresPrefixes {
                scan.prefix = Default::default();
            }
            let mut page = self.records.scan(self.shard(shard), scan).await?;
            match self.flaw {
                Flaw::SkipsARowInScans if page.rows.len() == 3 => drop(page.rows.remove(1)),
                Flaw::NeverSaysThatAScanHasMore => page.more = false,
                _ => {}
            }
            Ok(page)
        })
    }

    fn commit(&self, mut batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        let requires = batch.requires.len();
        batch.shard = self.shard(batch.shard);
        change_batch(self.flaw, &mut batch);
        Box::pin(async move {
            let mut outcome = match self.flaw {
                Flaw::AppliesOperationsOneByOne => self.one_by_one(batch).await?,
                Flaw::LeavesHalfOfAWrongBatch => self.half_if_wrong(batch).await?,
                Flaw::FiresCountersWithBitmaps => self.counters_too_early(batch).await?,
                Flaw::IgnoresTurns => self.ignoring_turns(batch).await?,
                Flaw::ForgetsClaims => self.forgetting_claims(batch).await?,
                Flaw::SendsEveryBatchTwice => {
                    let outcome = self.records.commit(batch.clone()).await?;
                    let _ = self.records.commit(batch).await?;
                    outcome
                }
                _ => self.records.commit(batch).await?,
            };
            change_outcome(self.flaw, &mut outcome, requires);
            Ok(outcome)
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        match self.flaw {
            Flaw::GoesBackInTime => Box::pin(std::future::ready(Ok(self.world.clock()))),
            _ => self.records.now(),
        }
    }

    fn wait(&self, shard: Shard, mut seen: Position, mut until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        match self.flaw {
            Flaw::MissesWhatCameBeforeTheWait => seen = self.records.position(),
            Flaw::WaitsForEver => until = Timestamp::NEVER,
            _ => {}
        }
        self.records.wait(self.shard(shard), seen, until)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.records.batch_limits()
    }
}

impl Flawed {
    fn shard(&self, shard: Shard) -> Shard {
        if self.flaw == Flaw::MixesShards { Shard(0) } else { shard }
    }
}
