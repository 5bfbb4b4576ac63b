//! A worker process: opens the store, works on whatever is there, and brings the jobs it is told to their ends. It can be
//! killed anywhere.
//!
//! It reads lines: `run N`, and `gone I` when another worker is known to be dead. It says `hello I`, `@` for every effect,
//! `trouble WHY` when a call has to be repeated, `ended N END`, and `wrong N WHY`.

use crate::{
    effects::{self, tell},
    jobs::{Job, Place, effects_file, offer},
    tasks,
};
use futures_util::FutureExt;
use onceflow::{Engine, Error};
use onceflow_store::{World, world::RealWorld};
use std::{fs, panic::AssertUnwindSafe, path::Path, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Steps in flight at a time.
pub(crate) const STEPS_MAX: usize = 8;

/// Calls repeated for one job before it counts as one that does not end.
const REPEATS_MAX: usize = 500;

pub(crate) async fn live(directory: &Path, seed: u64) -> anyhow::Result<()> {
    let scratch = directory.join("scratch");
    fs::create_dir_all(&scratch)?;
    effects::use_file(effects_file(directory));
    effects::append(&effects_file(directory), &format!("W {}", std::process::id()))?;
    tasks::use_scratch(scratch.clone());
    let engine = Engine::builder().steps_max(STEPS_MAX).lease(Duration::from_secs(20)).scratch(scratch);
    let engine = engine.open(directory.join("store")).await?;
    offer(&engine)?;
    tell(&format!("hello {}", engine.untyped().incarnation()));
    let place = Arc::new(Place { engine: engine.clone(), directory: directory.to_owned() });
    let (done, mut all_done) = mpsc::channel::<()>(1);
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        match line.split_once(' ') {
            Some(("run", number)) => {
                let (job, place, done) = (Job::of(seed, number.parse()?), place.clone(), done.clone());
                RealWorld::here().spawn("job", Box::pin(async move { bring(job, &place).map(|()| drop(done)).await }));
            }
            Some(("gone", incarnation)) => {
                let (engine, incarnation) = (engine.clone(), incarnation.parse()?);
                // If it does not work, the deadlines of the dead do.
                let release = async move { drop(engine.untyped().release(incarnation).await) };
                RealWorld::here().spawn("release", Box::pin(release));
            }
            _ => anyhow::bail!("not understood: {line}"),
        }
    }
    drop(done);
    let None = all_done.recv().await else { anyhow::bail!("the channel that reports the end was closed") };
    engine.close().await?;
    Ok(())
}

/// What the driver says, until it says no more.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (tell, told) = mpsc::unbounded_channel();
    let listen = async move {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            drop(tell.send(line));
        }
    };
    RealWorld::here().dedicate("listen", Box::pin(listen));
    told
}

/// Brings a job to its end, and says so.
async fn bring(job: Job, place: &Place) {
    let number = job.number;
    for _ in 0..REPEATS_MAX {
        match AssertUnwindSafe(job.work(place)).catch_unwind().await {
            Ok(Ok(end)) => return tell(&format!("ended {number} {end:?}")),
            Ok(Err(error)) if is_passing(&error) => {
                tell(&format!("trouble {error}"));
                crate::pause(10).await;
            }
            Ok(Err(error)) => return tell(&format!("wrong {number} {}", in_one_line(&format!("{job:?}: {error}")))),
            Err(panic) => {
                let why = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                return tell(&format!("wrong {number} {}", in_one_line(&why)));
            }
        }
    }
    tell(&format!("wrong {number} {job:?} was repeated {REPEATS_MAX} times"));
}

fn in_one_line(text: &str) -> String {
    text.replace('\n', " | ")
}

/// Whether the same call may work in a moment: the store was between two owners.
fn is_passing(error: &Error) -> bool {
    use onceflow_store::{Error as Records, values};
    match error {
        Error::Engine(onceflow_engine::Error::Store(error)) => {
            matches!(error, Records::Unknown(_) | Records::Unavailable(_))
        }
        Error::Engine(onceflow_engine::Error::Values(values::Error::Records(error))) => {
            matches!(error, Records::Unknown(_) | Records::Unavailable(_))
        }
        _ => false,
    }
}
