//! Starts workers, gives them jobs, kills them at moments that chance chooses, and starts others in their places.

use crate::{
    effects::append,
    jobs::{End, effects_file},
};
use futures_util::future::{Either, select};
use onceflow_store::{World, testing::random::Random, world::RealWorld};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
};

/// Jobs under way at a time, for each worker.
const JOBS_EACH: usize = 5;

/// What is under way when no more is killed must have ended by then: far more than it takes.
const END_MS_MAX: u64 = 180_000;

/// The outcomes of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    pub(crate) ended: BTreeMap<u64, End>,
    pub(crate) wrong: Vec<String>,
    pub(crate) kills: u64,
    pub(crate) restarts: u64,
    /// Calls that a job repeated, because the store was between two owners.
    pub(crate) repeats: u64,
}

/// A worker, and what it was told to do.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    incarnation: Option<String>,
    jobs: BTreeSet<u64>,
    /// Which process this is; what an earlier one in its place said may still come.
    number: u64,
    /// The process is killed after so many effects.
    fuse: usize,
}

/// What a worker said; `None` when it has ended.
type Said = (usize, u64, Option<String>);

struct Driver {
    directory: PathBuf,
    seed: u64,
    random: Random,
    workers: Vec<Worker>,
    tell: mpsc::UnboundedSender<Said>,
    next_job: u64,
    next_worker: u64,
    told: Driven,
}

/// Soaks for so many seconds, and then lets everything end.
pub(crate) async fn drive(directory: &Path, seed: u64, seconds: u64, workers: usize) -> anyhow::Result<Driven> {
    let (tell, mut said) = mpsc::unbounded_channel();
    let (random, told) = (Random::new(seed), Driven::default());
    let directory = directory.to_owned();
    let mut driver = Driver { directory, seed, random, workers: vec![], tell, next_job: 0, next_worker: 0, told };
    for at in 0..workers.max(1) {
        let worker = driver.spawn(at)?;
        driver.workers.push(worker);
    }
    let world = RealWorld::here();
    let stop_at = world.clock().plus_ms(seconds * 1000);
    while world.clock() < stop_at {
        driver.give_jobs().await;
        let patience = 100 + driver.random.below(900) as u64;
        match select(pin!(said.recv()), world.sleep(patience)).await {
            Either::Left((said, _)) => {
                if let Some(burnt) = driver.hear(said)? {
                    driver.kill_some(burnt).await?;
                }
            }
            // Nothing happens for a while, or it happens slowly.
            Either::Right(_) => {
                let at = driver.random.below(driver.workers.len());
                driver.kill_some(at).await?;
            }
        }
    }
    driver.finish(&mut said).await?;
    Ok(driver.told)
}

impl Driver {
    fn spawn(&mut self, at: usize) -> anyhow::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").arg(&self.directory).args(["--seed", &self.seed.to_string()]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (number, tell) = (self.next_worker, self.tell.clone());
        self.next_worker += 1;
        let listen = async move {
            let mut lines = BufReader::new(stdout.expect("its output is ours")).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(tell.send((at, number, Some(line))));
            }
            drop(tell.send((at, number, None)));
        };
        RealWorld::here().spawn("listen", Box::pin(listen));
        let fuse = self.fuse();
        Ok(Worker { child, stdin, incarnation: None, jobs: BTreeSet::new(), number, fuse })
    }

    /// Effects until the next kill: often few, so that kills fall into the beginning of things too.
    fn fuse(&mut self) -> usize {
        let most = *self.random.pick(&[3, 40, 300]);
        1 + self.random.below(most)
    }

    async fn give_jobs(&mut self) {
        for worker in &mut self.workers {
            while worker.jobs.len() < JOBS_EACH {
                worker.jobs.insert(self.next_job);
                worker.say(&format!("run {}", self.next_job)).await;
                self.next_job += 1;
            }
        }
    }

    /// Takes note of what was said; answers whose fuse has burnt down.
    fn hear(&mut self, said: Option<Said>) -> anyhow::Result<Option<usize>> {
        let Some((at, number, line)) = said else { return Ok(None) };
        let worker = &mut self.workers[at];
        if worker.number != number {
            return Ok(None);
        }
        let Some(line) = line else {
            // It was not killed.
            let why = format!("a worker ended by itself: {:?}", worker.child.try_wait()?);
            self.told.wrong.push(why);
            worker.fuse = 0;
            return Ok(Some(at));
        };
        match line.split_once(' ').unwrap_or((line.as_str(), "")) {
            ("@", _) => {
                worker.fuse = worker.fuse.saturating_sub(1);
                return Ok((worker.fuse == 0).then_some(at));
            }
            ("hello", incarnation) => worker.incarnation = Some(incarnation.to_owned()),
            ("trouble", _) => self.told.repeats += 1,
            ("ended", rest) => {
                let (job, end) = rest.split_once(' ').unwrap_or((rest, ""));
                let (job, end) = (job.parse()?, read_end(end)?);
                worker.jobs.remove(&job);
                self.told.ended.insert(job, end);
            }
            ("wrong", rest) => {
                let (job, why) = rest.split_once(' ').unwrap_or((rest, ""));
                worker.jobs.remove(&job.parse()?);
                self.told.wrong.push(why.to_owned());
            }
            _ => self.told.wrong.push(format!("a worker said {line:?}")),
        }
        Ok(None)
    }

    /// Kills one worker, now and then all at once, and starts others in their places.
    async fn kill_some(&mut self, at: usize) -> anyhow::Result<()> {
        let which = if self.random.percent(15) { (0..self.workers.len()).collect() } else { vec![at] };
        let effects = effects_file(&self.directory);
        append(&effects, "k")?;
        for at in &which {
            // It may have ended by itself.
            drop(self.workers[*at].child.start_kill());
        }
        for at in &which {
            self.workers[*at].child.wait().await?;
        }
        append(&effects, "K")?;
        self.told.kills += which.len() as u64;
        for at in which {
            self.replace(at).await?;
        }
        Ok(())
    }

    /// Starts another worker in the place of a dead one. It takes over its jobs; all others hear that it is dead.
    async fn replace(&mut self, at: usize) -> anyhow::Result<()> {
        let fresh = self.spawn(at)?;
        self.told.restarts += 1;
        let dead = std::mem::replace(&mut self.workers[at], fresh);
        for job in &dead.jobs {
            self.workers[at].say(&format!("run {job}")).await;
        }
        self.workers[at].jobs = dead.jobs;
        if let Some(incarnation) = dead.incarnation {
            for worker in &mut self.workers {
                worker.say(&format!("gone {incarnation}")).await;
            }
        }
        Ok(())
    }

    /// Kills no more, and waits until everything has ended.
    async fn finish(&mut self, said: &mut mpsc::UnboundedReceiver<Said>) -> anyhow::Result<()> {
        let world = RealWorld::here();
        let patience = world.clock().plus_ms(END_MS_MAX);
        while self.workers.iter().any(|worker| !worker.jobs.is_empty()) {
            let left = patience.ms_since(world.clock());
            match select(pin!(said.recv()), world.sleep(left)).await {
                Either::Left((line, _)) => drop(self.hear(line)?),
                Either::Right(_) => {
                    let left: Vec<_> = self.workers.iter().flat_map(|worker| worker.jobs.iter()).collect();
                    self.told.wrong.push(format!("jobs that do not end: {left:?}"));
                    return Ok(());
                }
            }
        }
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for worker in &mut self.workers {
            let status = worker.child.wait().await?;
            if !status.success() {
                self.told.wrong.push(format!("a worker that was to end ended with {status}"));
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Says something. One that has just died does not hear it; its successor is told.
    async fn say(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            drop(stdin.write_all(format!("{line}\n").as_bytes()).await);
        }
    }
}

fn read_end(word: &str) -> anyhow::Result<End> {
    let all = [End::Done, End::Lapsed, End::Undone, End::Cancelled, End::Decided];
    let found = all.into_iter().find(|end| format!("{end:?}") == word);
    found.ok_or_else(|| anyhow::anyhow!("no end is called {word:?}"))
}
