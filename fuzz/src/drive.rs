//! The loop: takes an input, changes it, tries it, and keeps it if it led somewhere new. The same seed tries the same
//! inputs in the same order.

use crate::{corpus, mutate::mutate, reduce::reduce, targets::Target};
use onceflow_store::testing::random::Random;
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Inputs kept because they led somewhere new.
const KEPT_MAX: usize = 1000;

/// Tries to make a failing input shorter, and how long they may take: an input that hangs is one that fails.
const REDUCE_TRIES_MAX: usize = 2000;
const REDUCE_SECONDS_MAX: u64 = 60;

/// Inputs tried by this process.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Inputs tried by this process so far, whatever for.
pub fn tried() -> u64 {
    TRIED.load(Relaxed)
}

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// So many inputs, besides those to begin with.
    Runs(u64),
    /// So long.
    Seconds(u64),
}

/// What a target did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Inputs tried.
    pub runs: u64,
    /// Ways an input came out; see [`Target::run`].
    pub classes: usize,
    /// How long it took.
    pub seconds: f64,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The shortest input that was found to break it.
    pub input: Vec<u8>,
    /// What was said.
    pub message: String,
}

/// Runs a target on what there is to begin with and on what the seed makes of it. `before` is told each input before it is
/// tried.
///
/// # Errors
/// The first promise that was broken, and its input.
pub fn drive(target: &Target, seed: u64, budget: Budget, mut before: impl FnMut(&[u8])) -> Result<Tally, Failure> {
    let started = now();
    let mut random = Random::new(seed);
    let mut inputs = (target.seeds)();
    inputs.extend(corpus::of(target.name).into_iter().map(|(_, input)| input));
    let mut seen = BTreeSet::new();
    let mut tally = Tally::default();
    let mut try_one = |input: &[u8], tally: &mut Tally| -> Result<bool, Failure> {
        before(input);
        tally.runs += 1;
        let class = attempt(target, input).map_err(|message| shortest(target, input, message))?;
        let is_new = seen.insert(class);
        tally.classes = seen.len();
        Ok(is_new)
    };
    for input in &inputs {
        try_one(input, &mut tally)?;
    }
    let begun_with = inputs.len() as u64;
    loop {
        let enough = match budget {
            Budget::Runs(runs) => tally.runs - begun_with >= runs,
            Budget::Seconds(seconds) => started.elapsed() >= Duration::from_secs(seconds),
        };
        if enough {
            tally.seconds = started.elapsed().as_secs_f64();
            return Ok(tally);
        }
        let at = random.below(inputs.len());
        let input = mutate(&mut random, &inputs[at], &inputs, target.words);
        if try_one(&input, &mut tally)? && inputs.len() < KEPT_MAX {
            inputs.push(input);
        }
    }
}

/// Tries one input: how it came out, or which promise it broke.
///
/// # Errors
/// What a broken promise said.
pub fn attempt(target: &Target, input: &[u8]) -> Result<String, String> {
    TRIED.fetch_add(1, Relaxed);
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

fn shortest(target: &Target, input: &[u8], message: String) -> Failure {
    let started = now();
    let in_time = || started.elapsed() < Duration::from_secs(REDUCE_SECONDS_MAX);
    let input = reduce(input, REDUCE_TRIES_MAX, |shorter| in_time() && attempt(target, shorter).is_err());
    Failure { message: attempt(target, &input).err().unwrap_or(message), input }
}

#[expect(clippy::disallowed_methods, reason = "what is measured is the real time of a tool, not of the engine")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
