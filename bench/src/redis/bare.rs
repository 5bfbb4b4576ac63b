//! The batches of a real chain, sent by a bare client: nothing is decided, nothing is read of the answers but whether they
//! are right. Each chain has a shard of its own, so the batches that one run committed can be sent for any number of them.

use super::{
    server::Bench,
    workers::{self, Workers},
};
use anyhow::{Context, ensure};
use onceflow_core::{Batch, Shard};
use onceflow_store::{
    backend::redis::{Address, Redis},
    world::RealWorld,
};
use redis::{Cmd, Value, aio::MultiplexedConnection};
use std::{sync::Arc, time::Instant};

/// Batches around a chain that are no steady state: those that start it and those that end it.
const EDGE: usize = 8;

/// What one run committed.
pub(super) struct Tape {
    /// Sent before anything is measured.
    before: Vec<Batch>,
    steps: Vec<Batch>,
}

impl Tape {
    /// Runs a chain and keeps what it commits.
    pub(super) async fn record(server: &Bench, steps: usize) -> anyhow::Result<Tape> {
        let workers = Workers::start(server, 1).await?;
        workers.calls.keep();
        workers::end(workers.chains(1, steps, 3_600_000).await?).await?;
        let mut before = workers.calls.kept();
        workers.close().await?;
        server.flush().await?;
        let is_step = |batch: &Batch| batch.claim.is_some() && !batch.ops.is_empty();
        let first = before.iter().position(is_step).context("a chain commits steps")?;
        let mut steps = before.split_off((first + EDGE).min(before.len()));
        steps.truncate(steps.len().saturating_sub(EDGE));
        steps.retain(is_step);
        Ok(Tape { before, steps })
    }

    /// Batches that count.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The bytes of a step's call.
    pub(super) fn bytes_per_step(&self, redis: &Redis) -> f64 {
        let bytes: usize = self.steps.iter().map(|batch| redis.command(batch).get_packed_command().len()).sum();
        bytes as f64 / self.steps.len() as f64
    }
}

/// Only to make commands.
pub(super) async fn maker(server: &Bench) -> anyhow::Result<Redis> {
    Ok(Redis::connect(Address::parse(&server.url())?, RealWorld::here()).await?)
}

/// So many chains at once, on so many connections: steps in all, and the seconds they took.
pub(super) async fn play(
    server: &Bench,
    maker: &Redis,
    tape: &Arc<Tape>,
    runs: usize,
    connections: usize,
) -> anyhow::Result<(u64, f64)> {
    let mut links = vec![];
    for _ in 0..connections {
        links.push(server.connect().await?);
    }
    let mut chains = vec![];
    for run in 0..runs {
        let shard = Shard(u16::try_from(run + 1)?);
        let commands = |batches: &[Batch]| -> Vec<Cmd> {
            batches.iter().map(|batch| maker.command(&Batch { shard, ..batch.clone() })).collect()
        };
        let mut link = links[run % connections].clone();
        send(&mut link, &commands(&tape.before)).await?;
        chains.push((link, commands(&tape.steps)));
    }
    let start = Instant::now();
    let running: Vec<_> = chains
        .into_iter()
        .map(|(mut link, commands)| tokio::spawn(async move { send(&mut link, &commands).await }))
        .collect();
    for chain in running {
        chain.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    server.flush().await?;
    Ok(((runs * tape.steps()) as u64, seconds))
}

async fn send(link: &mut MultiplexedConnection, commands: &[Cmd]) -> anyhow::Result<()> {
    for (at, command) in commands.iter().enumerate() {
        let answer = link.send_packed_command(command).await?;
        let applied = matches!(&answer, Value::Array(parts) if parts.first() == Some(&Value::Int(0)));
        ensure!(applied, "batch {at} of {} was not applied: {answer:?}", commands.len());
    }
    Ok(())
}
