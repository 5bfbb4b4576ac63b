//! What steps do: a little computing, and one line in the file of effects each.

use crate::effects::happen;
use onceflow::prelude::*;
use std::{
    fs, io,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Where tasks make files.
static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn use_scratch(path: PathBuf) {
    SCRATCH.set(path).expect("a process has one place for files");
}

#[task]
pub(crate) fn bump(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "bump", false)?;
    Ok(n + 1)
}

#[task]
pub(crate) async fn square(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "square", false)?;
    Ok(n * n)
}

#[task(effect = pure)]
pub(crate) fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

#[task(effect = pure)]
pub(crate) fn upto(n: u64) -> Vec<u64> {
    (0..n).collect()
}

#[task(effect = pure, inline)]
pub(crate) fn less(a: u64, than: u64) -> bool {
    a < than
}

#[task(effect = pure, inline)]
pub(crate) fn is_even(n: u64) -> bool {
    n.is_multiple_of(2)
}

#[task]
pub(crate) fn even(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "even", false)?;
    Ok(n / 2)
}

#[task]
pub(crate) fn odd(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "odd", false)?;
    Ok(3 * n + 1)
}

/// Fails twice before it succeeds.
#[task(retry(attempts = 60, backoff = "2ms", backoff_max = "20ms"))]
pub(crate) fn flaky(step: &Step, job: u64, n: u64) -> Result<u64, anyhow::Error> {
    let fails = step.attempt() < 3;
    happen(step, job, "flaky", fails)?;
    anyhow::ensure!(!fails, "not yet");
    Ok(n + 100)
}

/// The content of a file of so many bytes.
pub(crate) fn content(job: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 257 + job) as u8).collect()
}

pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(14_695_981_039_346_656_037, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211))
}

#[task]
pub(crate) fn make(step: &Step, job: u64, bytes: u64) -> io::Result<File> {
    happen(step, job, "make", false)?;
    let place = SCRATCH.get().expect("the worker has said where");
    // One process may be at one step twice: what it had taken may be forgotten with the owner of the store.
    static MADE: AtomicU64 = AtomicU64::new(0);
    let path = place.join(format!("{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed)));
    fs::write(&path, content(job, bytes))?;
    Ok(File::from_path(path)?.named("made.bin"))
}

#[task]
pub(crate) fn measure(step: &Step, job: u64, file: File) -> io::Result<u64> {
    happen(step, job, "measure", false)?;
    Ok(digest(&file.read()?))
}

#[task(undo = refund)]
pub(crate) fn charge(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "charge", false)?;
    Ok(n)
}

#[task(retry(attempts = 60, backoff = "2ms", backoff_max = "20ms"))]
pub(crate) fn refund(step: &Step, job: u64, n: u64) -> io::Result<()> {
    let _given_as_it_was = n;
    happen(step, job, "refund", false)
}

#[task(undo = unreserve)]
pub(crate) fn reserve(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "reserve", false)?;
    Ok(n)
}

#[task(retry(attempts = 60, backoff = "2ms", backoff_max = "20ms"))]
pub(crate) fn unreserve(step: &Step, job: u64, n: u64) -> io::Result<()> {
    let _given_as_it_was = n;
    happen(step, job, "unreserve", false)
}

/// Fails for good.
#[task(retry(attempts = 9, backoff = "2ms"))]
pub(crate) fn ship(step: &Step, job: u64, n: u64) -> Result<u64, anyhow::Error> {
    happen(step, job, "ship", true)?;
    Err(fatal(anyhow::anyhow!("no road leads to {n}")))?
}

#[task]
pub(crate) fn tick(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "tick", false)?;
    Ok(n + 1)
}

/// Must not start twice.
#[task(effect = at_most_once)]
pub(crate) fn pay(step: &Step, job: u64, n: u64) -> io::Result<u64> {
    happen(step, job, "pay", false)?;
    Ok(paid(n))
}

pub(crate) fn paid(n: u64) -> u64 {
    n + 7
}
