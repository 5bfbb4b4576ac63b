//! Removes the remains of replaced plans and runs: the outputs of earlier generations of a run, and everything of a run
//! that has left its key. Kept values (`keep`) stay as long as the run does: they serve returning to earlier inputs.

use crate::{Error, shared::Shared};
use onceflow_core::{
    Batch, Name,
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, RunState},
        run,
    },
};

/// The part of a run that is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// The results of this generation, and of later ones.
    From(Generation),
    /// Nothing: the run was replaced by another, or removed.
    Nothing,
    /// Everything: the row at its key cannot be read.
    All,
}

impl Shared {
    /// Performs the removal that [`run::supersede`](onceflow_core::protocol::run::supersede) scheduled. Safe to repeat,
    /// and to do concurrently: results of earlier generations are not read any more, and a run that left its key never
    /// comes back.
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
            run::delete_history(&mut batch, run);
        }
        // A refused batch means that another process has done it.
        if self.records.commit(batch).await?.is_applied() && stays == Stays::Nothing {
            self.runs.was_removed(run);
        }
        Ok(())
    }

    async fn stays(&self, key: &[u8], run: RunId) -> Result<Stays, Error> {
        /// Looks at a run that ends between the read of its key and that of its state.
        const LOOKS_MAX: usize = 100;
        for _ in 0..LOOKS_MAX {
            let Some(row) = self.row(keys::heads().key(key)).await? else { return Ok(Stays::Nothing) };
            match rows::read::<Head>(&row) {
                Some(Head::Finished(finished)) if finished.run == run => return Ok(Stays::From(finished.generation)),
                Some(Head::Active(id)) if id == run => {
                    let state = self.row(Keys::new(run, Generation(0)).state()).await?;
                    if let Some(state) = state.as_deref().and_then(rows::read::<RunState>) {
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
