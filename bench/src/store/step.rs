//! What one step's commit costs in memory: no disk, no waiting, one task. The least any engine on this store can take.
//!
//! Two requires (the run runs, the claim is mine), the queue's row goes with its claim and its deadline, the next step's
//! row comes into the same queue, and is claimed.

use super::journal::SHARD;
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Turn, median},
};
use onceflow_core::{Batch, Claim, Fence, Fences, Group, Inbox, Name, Pick, Row};
use onceflow_store::{CommitResult, Committed, Records, backend::memory::Memory, world::RealWorld};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Runs that have a step in flight, so that the queue is not empty.
const RUNS: usize = 100;
/// Steps of each run in a turn.
const STEPS: usize = 5000;
const TTL_MS: u64 = 60_000;
const RUNNING: &[u8] = b"running@1";
/// With the lengths before it, a queue's row of about 60 bytes.
const NOTE_BYTES: usize = 24;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let world = {
        let _inside = runtime.enter();
        RealWorld::here()
    };
    let memory = Memory::new(world);
    let mut runs: Vec<Run> = (0..RUNS as u64).map(Run::new).collect();
    for run in &mut runs {
        let started = runtime.block_on(memory.commit(run.start()))?;
        run.check(&started)?;
    }
    let mut least_us = f64::INFINITY;
    let (mut made_us, mut batches, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    let mut turn = || {
        let start = Instant::now();
        let each_us = |took: Duration| took.as_secs_f64() * 1e6 / RUNS as f64;
        let (mut making, mut committing) = (Vec::with_capacity(STEPS), Vec::with_capacity(STEPS));
        for _ in 0..STEPS {
            // A few at a time, as a worker has them: not so many that memory is what is measured. And the median of a
            // turn: what others take from the machine meanwhile is not ours.
            let made = Instant::now();
            batches.extend(runs.iter_mut().map(Run::batch));
            making.push(each_us(made.elapsed()));
            let begun = Instant::now();
            runtime.block_on(commit_all(&memory, &mut batches, &mut outcomes))?;
            committing.push(each_us(begun.elapsed()));
            runs.iter().zip(&outcomes).try_for_each(|(run, outcome)| run.check(outcome))?;
        }
        made_us.push(median(making));
        least_us = committing.iter().copied().fold(least_us, f64::min);
        Ok(Turn { figure: median(committing), seconds: start.elapsed().as_secs_f64() })
    };
    let rounds = Rounds::run("one step's commit in memory (µs)", 0, &mut [&mut turn])?;
    report.key(
        "step_us",
        Line {
            what: "one step's commit in memory".into(),
            ours: format!("{:.2} µs", rounds.median(0)),
            theirs: String::new(),
            figure: rounds.median(0),
            target: Target::AtMost(1.0),
        },
    );
    let detail = json!({
        "median_us": report::rounded(rounds.median(0)),
        "least_us": report::rounded(least_us),
        "making_the_batch_us": report::rounded(median(made_us)),
    });
    report.detail("step", detail);
    Ok(())
}

async fn commit_all(memory: &Memory, batches: &mut Vec<Batch>, outcomes: &mut Vec<CommitResult>) -> anyhow::Result<()> {
    outcomes.clear();
    for batch in batches.drain(..) {
        outcomes.push(memory.commit(batch).await?);
    }
    Ok(())
}

/// A run with one step in flight.
struct Run {
    rows: Group,
    queue: Group,
    claims: Group,
    deadlines: Group,
    lane: [u8; 8],
    fences: Fences,
    step: u64,
    fence: Fence,
}

impl Run {
    fn new(number: u64) -> Run {
        let fences = Fences::new(u128::from(number));
        let (queue, fence) = (Group::queue("q"), fences.next());
        let rows = Group::rows(Name::join(&[b"run/", &number.to_be_bytes()]));
        let (claims, deadlines) = (queue.claims(), queue.deadlines());
        Run { rows, queue, claims, deadlines, lane: number.to_be_bytes(), fences, step: 0, fence }
    }

    fn start(&self) -> Batch {
        let mut batch = Batch::new(SHARD);
        batch.require_absent(self.rows.key("run")).put(self.rows.key("run"), Row::new(RUNNING));
        batch.put(self.queue.key(self.name(0)), self.inbox(0)).claim(self.claim());
        batch
    }

    fn batch(&mut self) -> Batch {
        let (done, next) = (self.name(self.step), self.name(self.step + 1));
        let mut batch = Batch::new(SHARD);
        batch.require_equals(self.rows.key("run"), Row::new(RUNNING));
        batch.require_equals(self.claims.key(&done), Row::new(self.fence.to_bytes()));
        batch.delete(self.queue.key(&done)).delete(self.claims.key(&done)).delete(self.deadlines.key(&done));
        batch.put(self.queue.key(&next), self.inbox(self.step + 1));
        self.step += 1;
        self.fence = self.fences.next();
        batch.claim(self.claim());
        batch
    }

    fn check(&self, outcome: &CommitResult) -> anyhow::Result<()> {
        let CommitResult::Applied(Committed { claimed: Some(claimed), .. }) = outcome else {
            anyhow::bail!("step {} of {:?}: {outcome:?}", self.step, self.rows);
        };
        ensure!(claimed.name == self.name(self.step), "claimed another step: {claimed:?}");
        Ok(())
    }

    fn claim(&self) -> Claim {
        Claim { queues: vec![self.queue.clone()], fence: self.fence, ttl_ms: TTL_MS, pick: Pick::EnabledFirst }
    }

    fn name(&self, step: u64) -> Name {
        Name::join(&[&self.lane, &step.to_be_bytes()])
    }

    fn inbox(&self, step: u64) -> Row {
        let prefix = Name::join(&[b"i/", &step.to_be_bytes()]);
        Inbox { group: self.rows.clone(), prefix, note: vec![0x5a; NOTE_BYTES] }.to_row()
    }
}
