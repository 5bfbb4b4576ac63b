//! Durable commits by many who wait, against a bare log with the same bytes, runtime, waiters and group commit.
//! `BENCH_WAITERS` (1, 32 or 1000) names the only case, for a profile.

use super::{
    chain::{self, Chain},
    journal::Ours,
};
use anyhow::ensure;
use onceflow_bench::{
    barelog::BareLog,
    disk::Scratch,
    report::{self, Line, Report, Target, per_second},
    rounds::{Rounds, Turn, cpu_seconds},
};
use onceflow_store::Records;
use serde_json::json;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const WAITERS: [usize; 3] = [1, 32, 1000];
const TURN: Duration = Duration::from_millis(500);

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let only: Option<usize> = std::env::var("BENCH_WAITERS").ok().and_then(|waiters| waiters.parse().ok());
    for waiters in WAITERS.into_iter().filter(|waiters| only.is_none_or(|only| only == *waiters)) {
        let Compared { rounds, bytes, group_sizes, cpu_us } = compare(runtime, waiters)?;
        let ratio = rounds.ratio(0, 1);
        let line = Line {
            what: format!("durable commits, {waiters} waiters, against a bare log"),
            ours: per_second(rounds.median(0)),
            theirs: per_second(rounds.median(1)),
            figure: ratio,
            target: if waiters == 1000 { Target::AtLeast(0.4) } else { Target::None },
        };
        if waiters == 1000 {
            report.key("commits_vs_log", line);
        } else {
            report.line(line);
        }
        let detail = json!({
            "ratio": report::rounded(ratio),
            "ours_per_s": report::figures(rounds.figures(0)),
            "log_per_s": report::figures(rounds.figures(1)),
            "bytes_per_commit": bytes,
            "commits_per_sync": report::rounded(group_sizes[0]),
            "log_commits_per_sync": report::rounded(group_sizes[1]),
            "ours_cpu_us": report::rounded(cpu_us[0]),
            "log_cpu_us": report::rounded(cpu_us[1]),
        });
        report.detail(&format!("commits_{waiters}"), detail);
    }
    Ok(())
}

struct Compared {
    rounds: Rounds,
    /// What our log takes for a commit.
    bytes: usize,
    /// How many commits one sync served, ours and the log's.
    group_sizes: [f64; 2],
    /// Processor time for one commit, ours and the log's.
    cpu_us: [f64; 2],
}

fn compare(runtime: &Runtime, waiters: usize) -> anyhow::Result<Compared> {
    let scratch = Scratch::new("commits")?;
    let path = scratch.join("journal");
    let ours = Ours::open(runtime, &path)?;
    let start = async |number| Chain::start(&*ours.journal, number).await;
    let mut chains = Vec::new();
    for number in 0..waiters as u64 {
        chains.push(runtime.block_on(start(number))?);
    }
    // What our log takes for a commit is what the bare log takes for one.
    let before = ours.written.so_far();
    let (warm, returned) = run_chains(runtime, &ours, chains)?;
    let mut chains = returned;
    let bytes = ours.written.so_far().since(before).bytes;
    let record = vec![0x5a; bytes.div_ceil(warm.commits.max(1)) as usize];
    let before = ours.written.so_far();

    let log = Arc::new(BareLog::create(&scratch.join("log"))?);
    let (mut committed, mut appended) = (Did::default(), Did::default());
    let mut journal_turn = || {
        let (did, returned) = run_chains(runtime, &ours, std::mem::take(&mut chains))?;
        chains = returned;
        Ok(committed.and(did))
    };
    let mut log_turn = || Ok(appended.and(run_records(runtime, &log, waiters, &record)?));
    let what = format!("commits, {waiters} waiters, ours : bare log (per second)");
    let rounds = Rounds::run(&what, 0, &mut [&mut journal_turn, &mut log_turn])?;
    let log = Arc::into_inner(log).expect("all who append have ended");
    let totals = log.close()?;
    ensure!(totals.bytes == appended.commits * record.len() as u64, "the bare log lost a record: {totals:?}");
    let group_size = committed.commits as f64 / ours.written.so_far().since(before).syncs as f64;
    let log_group_size = appended.commits as f64 / totals.syncs as f64;
    check(runtime, ours, &chains, &path)?;
    let cpu_us = [committed, appended].map(|did| did.cpu_seconds * 1e6 / did.commits as f64);
    Ok(Compared { rounds, bytes: record.len(), group_sizes: [group_size, log_group_size], cpu_us })
}

/// Every chain's rows are right, nothing else is there, and all of it is there again when the journal is reopened.
fn check(runtime: &Runtime, ours: Ours, chains: &[Chain], path: &std::path::Path) -> anyhow::Result<()> {
    for reopened in [false, true] {
        let state = if reopened {
            runtime.block_on(ours.journal.close())?;
            Ours::open(runtime, path)?.journal.state()
        } else {
            ours.journal.state()
        };
        let (rows, expected) = (state.durable_rows(), chains.len() as u64 * chain::DURABLE_ROWS);
        ensure!(rows == expected, "{rows} rows are left, not {expected}");
        chains.iter().try_for_each(|chain| chain.check_rows(&state, !reopened))?;
    }
    Ok(())
}

/// What was done in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    commits: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Did {
    /// Adds a turn, and answers it.
    fn and(&mut self, turn: Did) -> Turn {
        self.commits += turn.commits;
        self.seconds += turn.seconds;
        self.cpu_seconds += turn.cpu_seconds;
        Turn { figure: turn.commits as f64 / turn.seconds, seconds: turn.seconds }
    }
}

/// Every chain commits as fast as it can for a turn.
fn run_chains(runtime: &Runtime, ours: &Ours, chains: Vec<Chain>) -> anyhow::Result<(Did, Vec<Chain>)> {
    let tasks = |stop: &Arc<AtomicBool>| {
        let task = |mut chain: Chain| {
            let (stop, journal) = (stop.clone(), ours.journal.clone());
            async move {
                let mut commits = 0;
                while !stop.load(Relaxed) {
                    let batch = chain.batch();
                    let outcome = journal.commit(batch).await?;
                    journal.durable(outcome.position()).await?;
                    chain.check_step(&outcome)?;
                    commits += 1;
                }
                Ok((commits, chain))
            }
        };
        chains.into_iter().map(task).collect()
    };
    run_tasks(runtime, tasks)
}

/// As many append as fast as they can for a turn.
fn run_records(runtime: &Runtime, log: &Arc<BareLog>, waiters: usize, record: &[u8]) -> anyhow::Result<Did> {
    let tasks = |stop: &Arc<AtomicBool>| {
        let task = |_| {
            let (stop, log, record) = (stop.clone(), log.clone(), record.to_vec());
            async move {
                let mut commits = 0;
                while !stop.load(Relaxed) {
                    log.append(&record).await;
                    commits += 1;
                }
                Ok((commits, ()))
            }
        };
        (0..waiters).map(task).collect()
    };
    run_tasks(runtime, tasks).map(|(did, _)| did)
}

/// Runs tasks that count what they do until they are told to stop.
fn run_tasks<T: Send + 'static, F: Future<Output = anyhow::Result<(u64, T)>> + Send + 'static>(
    runtime: &Runtime,
    make: impl FnOnce(&Arc<AtomicBool>) -> Vec<F>,
) -> anyhow::Result<(Did, Vec<T>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = make(&stop);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let running: Vec<_> = tasks.into_iter().map(|task| runtime.spawn(task)).collect();
    std::thread::sleep(TURN);
    stop.store(true, Relaxed);
    let (mut commits, mut left) = (0, Vec::new());
    for task in running {
        let (did, returned) = runtime.block_on(task)??;
        commits += did;
        left.push(returned);
    }
    let did = Did { commits, seconds: start.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu };
    Ok((did, left))
}
