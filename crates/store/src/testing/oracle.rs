//! Random batches, done by a backend and by a naive model of what a batch means, which must agree about every
//! answer and every row.
//!
//! The model shares nothing with the backends but the words (keys, rows, batches): it is a few maps that are copied
//! for every batch. A disagreement is shrunk to as few batches and operations as still show it, and printed with its
//! seed.

mod generate;
mod model;
mod play;
mod shrink;

use super::contract::{Make, runtime};
pub use generate::{script, script_of};
pub use model::{Expected, Model};
use onceflow_core::Batch;
pub use play::Mismatch;
use std::fmt;

/// How many seeds [`hold`] tries unless told otherwise.
pub const SEEDS: u64 = 300;

/// How many batches [`hold`] tries with each.
pub const BATCHES: usize = 200;

/// A backend and the model disagree.
#[derive(Debug)]
pub struct Disagreement {
    /// The seed of the script.
    pub seed: u64,
    /// As few batches as still show it; the last one shows it.
    pub batches: Vec<Batch>,
    /// The mismatch itself.
    pub mismatch: Mismatch,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: after {} batches, {}", self.seed, self.batches.len(), self.mismatch.what)?;
        for (n, batch) in self.batches.iter().enumerate() {
            writeln!(f, "batch {} on shard {}", n + 1, batch.shard.0)?;
            batch.requires.iter().try_for_each(|require| writeln!(f, "    require {require:?}"))?;
            batch.ops.iter().try_for_each(|op| writeln!(f, "    {op:?}"))?;
            batch.claim.iter().try_for_each(|claim| writeln!(f, "    {claim:?}"))?;
        }
        Ok(())
    }
}

/// Runs the script of a seed on a new store and on the model. Makes more stores if they disagree, to find the
/// shortest script that shows it.
pub async fn compare(make: Make<'_>, seed: u64, batches: usize) -> Result<(), Box<Disagreement>> {
    compare_script(make, seed, script(seed, batches)).await
}

/// As [`compare`], for a script of the caller's. The seed only names it.
pub async fn compare_script(make: Make<'_>, seed: u64, script: Vec<Batch>) -> Result<(), Box<Disagreement>> {
    const LOOK_EVERY: usize = 7;
    let Err(mismatch) = play::play(make, &script, LOOK_EVERY).await else { return Ok(()) };
    let (batches, mismatch) = shrink::shrink(make, script, mismatch).await;
    Err(Box::new(Disagreement { seed, batches, mismatch }))
}

/// Compares a backend with the model for many seeds; ten times as many if `ONCEFLOW_LONG` is set.
///
/// # Panics
/// If they disagree, with the seed and the shortest script that shows it.
pub fn hold(make: Make<'_>, seeds: u64) {
    let times = if std::env::var_os("ONCEFLOW_LONG").is_some() { 10 } else { 1 };
    let runtime = runtime();
    for seed in 0..seeds * times {
        if let Err(disagreement) = runtime.block_on(compare(make, seed, BATCHES)) {
            panic!("{disagreement}");
        }
    }
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests;
