//! Input files that changed since the run was planned. They are the user's, who may change them at any time, so they
//! are compared when a body is given them and again when it is done. If one changed in between, the body may have read
//! either version: its outputs are dropped, and the run waits to be planned with the new content.

use super::{Interrupted, TaskStep, shortened};
use crate::{Error, data::Scratch, error::SOURCE_CHANGED, events::EventKind, perform::Job, task::Data};
use onceflow_core::protocol::rows::Failed;
use onceflow_store::values::{self, SourceError};

impl TaskStep<'_> {
    /// The first input file that changed during an attempt, also a failed one, which may have failed because of it.
    pub(super) async fn inputs_changed(
        &self,
        scratch: &Scratch,
        given: &Result<Vec<Data>, Interrupted>,
    ) -> Result<Option<SourceError>, Error> {
        match given {
            // A stopped step runs again elsewhere, or not at all.
            Err(Interrupted::Stopped(_)) => return Ok(None),
            Ok(_) | Err(Interrupted::Failed(_) | Interrupted::TimedOut(..) | Interrupted::Suspended(_)) => {}
        }
        let opened = scratch.sources();
        match self.work.shared().values.sources().check_all(opened).await {
            Ok(()) => Ok(None),
            Err(values::Error::Source(changed)) => Ok(Some(*changed)),
            Err(error) => Err(error.into()),
        }
    }

    /// Parks the step because an input file changed. The failure is not delivered to a handler: the run itself is out
    /// of date.
    pub(super) async fn park_changed(
        &self,
        attempt: u32,
        (changed, interrupted): (&SourceError, Option<Interrupted>),
        started: bool,
    ) -> Result<Option<Job>, Error> {
        let hint = match changed {
            SourceError::Changed { .. } => {
                "hint: nothing of this attempt is kept; run the same command again, which plans with what the file holds now"
            }
            SourceError::Gone { .. } => "hint: nothing of this attempt is kept; bring the file back, then run it again",
        };
        let mut causes = vec![format!("{SOURCE_CHANGED}: {changed}"), String::from(hint)];
        if let Some(Interrupted::Failed(failure)) = interrupted {
            causes.extend(failure.causes);
        }
        let failed = Failed { address: self.work.address().await?.into(), attempt, causes: shortened(causes), started };
        let what = EventKind::DidFail(failed.clone());
        self.work.park_failed(failed, Some(what)).await
    }
}
