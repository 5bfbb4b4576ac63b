//! Steps as the kernel will commit them: a run whose steps follow each other, each commit doing away with what the step
//! before left, so that a chain of any length holds the same few rows.
//!
//! Six operations and a claim (design §3): the queue's row, its claim and its deadline go, the checkpoint comes, an arrival
//! at the consumer makes it ready, an acknowledgement to the producer lets its checkpoint go, and the consumer is claimed.

use super::journal::SHARD;
use anyhow::ensure;
use onceflow_core::{Batch, Claim, Fence, Fences, Group, Inbox, Key, Name, Op, Pick, Row, limits::LANE_BYTES};
use onceflow_store::{CommitResult, Committed, Records, state::StoreState};

/// A checkpoint: the outputs' ids and digests.
const CHECKPOINT_BYTES: usize = 100;
const TTL_MS: u64 = 60_000;
/// What stands in the run's row, and what every commit requires.
const RUNNING: &[u8] = b"running@1";
/// Rows a chain holds between two commits that must outlive a crash: the run, a checkpoint, a queue's row.
pub(super) const DURABLE_ROWS: u64 = 3;

/// A run that has one step in flight.
pub(super) struct Chain {
    run: Group,
    queue: Group,
    lane: [u8; LANE_BYTES],
    fences: Fences,
    /// The step in flight, and the fence it is claimed under.
    step: u64,
    fence: Fence,
}

impl Chain {
    /// Starts a run and claims its first step.
    pub(super) async fn start(records: &dyn Records, number: u64) -> anyhow::Result<Chain> {
        let fences = Fences::new(u128::from(number));
        let fence = fences.next();
        let lane = number.to_be_bytes();
        let chain = Chain { run: Group::rows(run_id(number)), queue: Group::queue("q"), lane, fences, step: 0, fence };
        let mut batch = Batch::new(SHARD);
        batch.require_absent(chain.status());
        batch.put(chain.status(), Row::new(RUNNING)).put(chain.checkpoint(0), chain.content(0));
        batch.put(chain.ready(0), chain.inbox(0)).claim(chain.claim());
        let outcome = records.commit(batch).await?;
        chain.check(&outcome, 0)?;
        Ok(chain)
    }

    /// What commits the step in flight and claims the next.
    pub(super) fn batch(&mut self) -> Batch {
        let (step, next) = (self.step, self.step + 1);
        let ready = self.ready(step);
        let claim = self.queue.claims().key(&ready.name);
        let deadline = self.queue.deadlines().key(&ready.name);
        let mut batch = Batch::new(SHARD);
        batch.require_equals(claim.clone(), Row::new(self.fence.to_bytes()));
        batch.require_equals(self.status(), Row::new(RUNNING));
        batch.delete(ready).delete(claim).delete(deadline);
        batch.put(self.checkpoint(next), self.content(next));
        batch.set_bit(self.arrivals(next), 0, 1, vec![Op::Put(self.ready(next), self.inbox(next))]);
        batch.set_bit(self.acks(step), 0, 1, vec![Op::Delete(self.checkpoint(step))]);
        self.step = next;
        self.fence = self.fences.next();
        batch.claim(self.claim());
        batch
    }

    /// Whether the answer to [`Chain::batch`] is right: it was applied, both triggers fired, and the next step was claimed
    /// with its input.
    pub(super) fn check_step(&self, outcome: &CommitResult) -> anyhow::Result<()> {
        self.check(outcome, 2)
    }

    fn check(&self, outcome: &CommitResult, fired: usize) -> anyhow::Result<()> {
        let CommitResult::Applied(Committed { claimed: Some(claimed), fired: did, .. }) = outcome else {
            anyhow::bail!("step {} of {:?}: {outcome:?}", self.step, self.run);
        };
        ensure!(did.len() == fired, "step {} of {:?} fired {did:?}", self.step, self.run);
        let step = self.step.to_be_bytes();
        let mine = |bytes: &[u8]| bytes.len() >= 16 && bytes[..8] == self.lane && bytes[8..16] == step;
        ensure!(mine(claimed.name.as_bytes()), "claimed the step of another chain: {claimed:?}");
        let [(_, input)] = &claimed.inputs[..] else { anyhow::bail!("claimed without its input: {claimed:?}") };
        ensure!(mine(input) && input.len() == CHECKPOINT_BYTES, "claimed with another step's input: {claimed:?}");
        Ok(())
    }

    /// Whether the chain's rows are what its last commit left. Claims are not looked at if the store forgot them.
    pub(super) fn check_rows(&self, state: &StoreState, claimed: bool) -> anyhow::Result<()> {
        let holds = |key: &Key, row: Option<Row>| {
            let found = state.get(SHARD, key);
            ensure!(found == row.as_ref(), "{key} holds {found:?} and should hold {row:?}");
            Ok(())
        };
        let step = self.step;
        holds(&self.status(), Some(Row::new(RUNNING)))?;
        holds(&self.checkpoint(step), Some(self.content(step)))?;
        holds(&self.ready(step), Some(self.inbox(step)))?;
        let claim = self.queue.claims().key(&self.ready(step).name);
        holds(&claim, claimed.then(|| Row::new(self.fence.to_bytes())))?;
        if step > 0 {
            holds(&self.checkpoint(step - 1), None)?;
            holds(&self.ready(step - 1), None)?;
        }
        Ok(())
    }

    fn claim(&self) -> Claim {
        Claim { queues: vec![self.queue.clone()], fence: self.fence, ttl_ms: TTL_MS, pick: Pick::EnabledFirst }
    }

    fn status(&self) -> Key {
        self.run.key("run")
    }

    fn checkpoint(&self, step: u64) -> Key {
        self.run.key(Name::join(&[b"c", &step.to_be_bytes()]))
    }

    fn arrivals(&self, step: u64) -> Key {
        self.run.key(Name::join(&[b"a", &step.to_be_bytes()]))
    }

    fn acks(&self, step: u64) -> Key {
        self.run.key(Name::join(&[b"k", &step.to_be_bytes()]))
    }

    fn ready(&self, step: u64) -> Key {
        self.queue.key(Name::join(&[&self.lane, &step.to_be_bytes()]))
    }

    fn inbox(&self, step: u64) -> Row {
        Inbox { group: self.run.clone(), prefix: self.checkpoint(step).name, note: vec![] }.to_row()
    }

    fn content(&self, step: u64) -> Row {
        let mut bytes = [0x5a; CHECKPOINT_BYTES];
        bytes[..8].copy_from_slice(&self.lane);
        bytes[8..16].copy_from_slice(&step.to_be_bytes());
        Row::new(bytes)
    }
}

/// Sixteen bytes, as a run's id has.
fn run_id(number: u64) -> [u8; 16] {
    let mut id = *b"run-----........";
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}
