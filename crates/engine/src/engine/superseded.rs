//! Removes what a newer plan or run has replaced: what earlier lives of a run gave, and all of a run that is not at its key
//! any more. What a run keeps (`keep`) stays as long as the run is there: going back to earlier inputs is what it is for.

use crate::{Error, shared::Shared};
use onceflow_core::{
    Batch, Name,
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, State},
    },
};

/// The part of a run that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// What this life of it holds, and later ones.
    From(Generation),
    /// Nothing: it was replaced by another run, or removed.
    Nothing,
    /// All: what stands at its key cannot be read.
    All,
}

impl Shared {
    /// Does what [`run::supersede`](onceflow_core::protocol::run::supersede) wrote down. Safe to repeat, and beside others who
    /// do the same: what earlier lives hold nobody asks for any more, and a run that left its key never comes back.
    pub(super) async fn remove_superseded(&self, due: &Name, key: &[u8], run: RunId) -> Result<(), Error> {
        let stays = self.stays(key, run).await?;
        let goes = |name: &[u8]| match stays {
            Stays::From(current) => keys::generation_of_result_edge(name).is_some_and(|of| of < current),
            Stays::Nothing => true,
            Stays::All => false,
        };
        if stays != Stays::All {
            self.values.clear_roots(keys::results_of(run).as_bytes(), goes).await?;
        }
        let due = keys::dues().key(due);
        let mut batch = Batch::new(self.shard());
        batch.require_present(due.clone()).delete(due);
        if stays == Stays::Nothing {
            self.remove_all_kept(&Keys::new(run, Generation(0))).await?;
            batch.delete_group(keys::logs(run)).delete_group(keys::reasons(run));
        }
        // Done by another if refused.
        if self.records.commit(batch).await?.is_applied() && stays == Stays::Nothing {
            self.was_removed(run);
        }
        Ok(())
    }

    async fn stays(&self, key: &[u8], run: RunId) -> Result<Stays, Error> {
        /// Looks at a run that ends between a look at its key and one at its state.
        const LOOKS_MAX: usize = 100;
        for _ in 0..LOOKS_MAX {
            let Some(row) = self.row(keys::heads().key(key)).await? else { return Ok(Stays::Nothing) };
            match rows::read::<Head>(&row) {
                Some(Head::Finished(finished)) if finished.run == run => return Ok(Stays::From(finished.generation)),
                Some(Head::Active(id)) if id == run => {
                    let state = self.row(Keys::new(run, Generation(0)).state()).await?;
                    if let Some(state) = state.as_deref().and_then(rows::read::<State>) {
                        return Ok(Stays::From(state.generation));
                    }
                }
                Some(_) => return Ok(Stays::Nothing),
                None => break,
            }
        }
        tracing::error!(%run, "what stands at the key of a run cannot be read, so nothing of its earlier lives is removed");
        Ok(Stays::All)
    }
}
