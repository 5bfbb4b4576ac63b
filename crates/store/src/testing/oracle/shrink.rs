//! Makes a script that shows a disagreement as short as it can: fewer batches, then smaller ones.

use super::{Mismatch, play::play};
use crate::testing::contract::Make;
use onceflow_core::Batch;

/// How often a shorter script is tried. Every try makes a store.
const TRIES_MAX: usize = 2000;

pub(super) async fn shrink(make: Make<'_>, mut script: Vec<Batch>, mismatch: Mismatch) -> (Vec<Batch>, Mismatch) {
    script.truncate(mismatch.at + 1);
    let mut best = Best { script, mismatch, tries: 0 };
    // Looking at all rows after every batch may find it earlier.
    best.try_script(make, best.script.clone()).await;
    let mut before = usize::MAX;
    while best.size() < before {
        before = best.size();
        best.drop_batches(make).await;
        for at in (0..best.script.len()).rev() {
            best.shrink_batch(make, at).await;
        }
    }
    (best.script, best.mismatch)
}

struct Best {
    script: Vec<Batch>,
    mismatch: Mismatch,
    tries: usize,
}

impl Best {
    /// Keeps a script if it too shows a disagreement.
    async fn try_script(&mut self, make: Make<'_>, mut script: Vec<Batch>) -> bool {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return false;
        }
        let Err(mismatch) = play(make, &script, 1).await else { return false };
        script.truncate(mismatch.at + 1);
        (self.script, self.mismatch) = (script, mismatch);
        true
    }

    fn size(&self) -> usize {
        let parts = |batch: &Batch| 1 + batch.requires.len() + batch.ops.len() + usize::from(batch.claim.is_some());
        self.script.iter().map(parts).sum()
    }

    /// Drops batches that are not needed: many at once, then fewer.
    async fn drop_batches(&mut self, make: Make<'_>) {
        let mut size = self.script.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.script.len() {
                let mut shorter = self.script.clone();
                shorter.drain(at..(at + size).min(self.script.len()));
                if !self.try_script(make, shorter).await {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Drops whatever part of a batch is not needed.
    async fn shrink_batch(&mut self, make: Make<'_>, at: usize) {
        let Some(batch) = self.script.get(at).cloned() else { return };
        let without = |change: &dyn Fn(&mut Batch)| {
            let mut batch = batch.clone();
            change(&mut batch);
            batch
        };
        let mut smaller = vec![without(&|batch| batch.claim = None)];
        smaller.extend((0..batch.ops.len()).map(|n| without(&|batch| drop(batch.ops.remove(n)))));
        smaller.extend((0..batch.requires.len()).map(|n| without(&|batch| drop(batch.requires.remove(n)))));
        for smaller in smaller.into_iter().filter(|smaller| *smaller != batch) {
            let mut script = self.script.clone();
            script[at] = smaller;
            if self.try_script(make, script).await {
                return Box::pin(self.shrink_batch(make, at)).await;
            }
        }
    }
}
