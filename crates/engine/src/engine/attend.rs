//! The attendant of a run: the worker that plans and starts it, if only one process at a time takes its steps.
//!
//! A row under the run's key names the worker. The row is written on the condition that it was absent, or that the
//! worker it named is gone, so of two concurrent processes one becomes the attendant and the other learns which worker
//! is. The row does not guard the steps: claims do. It keeps two processes from planning one run for different inputs,
//! and shows people which worker serves the run. It is deleted with the registration of its worker.

use super::{Engine, workers::WorkerInfo};
use crate::Error;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Key, Row,
    protocol::{keys, rows},
};
use serde::{Deserialize, Serialize};

/// The row of a run that a worker attends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attended {
    /// The incarnation of the worker.
    pub(crate) by: u128,
    /// The worker has planned and started the run, so the run's rows are those of this attempt.
    pub(crate) has_started: bool,
}

/// The worker that attends a run, as of the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attendant {
    /// The worker, as it registered.
    pub worker: WorkerInfo,
    /// The run in the store is the one that the worker works on; before that it may still get a new plan.
    pub has_started: bool,
}

impl Engine {
    /// Makes this worker the attendant of the run it is limited to ([`About::run`](crate::About::run)); returns the
    /// present attendant if that is another worker which is not gone. Atomic; the same worker may call this again.
    /// Attendance ends with [`Engine::close`], or when this process ends.
    ///
    /// # Errors
    /// If the store does not answer.
    ///
    /// # Panics
    /// If this engine does not work, or is not limited to a run.
    pub fn attend(&self) -> BoxFuture<'_, Result<Option<Attendant>, Error>> {
        Box::pin(async move {
            let worker = self.worker.as_ref().expect("an engine that works attends a run");
            worker.register().await?;
            let ours = Attended { by: self.incarnation(), has_started: false };
            loop {
                let seen = self.shared.row(keys::attended().key(self.limited_to())).await?;
                if let Some(attended) = seen.as_deref().and_then(rows::read::<Attended>) {
                    if attended.by == ours.by {
                        return Ok(None);
                    }
                    if let Some(other) = self.shared.registry.attendant(&attended).await? {
                        return Ok(Some(other));
                    }
                }
                if self.put_attended(seen, &ours).await? {
                    self.shared.event_logs.note_attendance(&self.shared, self.limited_to()).await?;
                    return Ok(None);
                }
            }
        })
    }

    /// Records that the run which this worker attends is started, and takes its steps from now on.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn begin_attended(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let by = self.incarnation();
            let seen = self.shared.row(keys::attended().key(self.limited_to())).await?;
            if seen.as_deref().and_then(rows::read::<Attended>).is_some_and(|attended| attended.by == by) {
                let _taken_over_if_refused = self.put_attended(seen, &Attended { by, has_started: true }).await?;
            }
            self.shared.event_logs.log_resumed(self.limited_to());
            self.start_work();
            Ok(())
        })
    }

    /// The worker that attends the run of a key, unless it is gone.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn attendant<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Attendant>, Error>> {
        Box::pin(async move {
            let row = self.shared.row(keys::attended().key(key)).await?;
            match row.as_deref().and_then(rows::read::<Attended>) {
                Some(attended) => self.shared.registry.attendant(&attended).await,
                None => Ok(None),
            }
        })
    }

    /// The row that says who attends a run, and its attendant, if that is another worker which is not gone.
    pub(super) async fn attended_by_another(&self, key: &Key) -> Result<(Option<Row>, Option<Attendant>), Error> {
        let seen = self.shared.row(key.clone()).await?;
        let by_another = match seen.as_deref().and_then(rows::read::<Attended>) {
            Some(attended) if attended.by != self.incarnation() => self.shared.registry.attendant(&attended).await?,
            _ => None,
        };
        Ok((seen, by_another))
    }

    fn limited_to(&self) -> &str {
        let about = self.shared.options.about.as_ref();
        about.and_then(|about| about.run.as_deref()).expect("a worker that attends a run is limited to it")
    }

    async fn put_attended(&self, seen: Option<Row>, attended: &Attended) -> Result<bool, Error> {
        let key = keys::attended().key(self.limited_to());
        let mut batch = Batch::new(self.shared.shard());
        match seen {
            Some(seen) => batch.require_equals(key.clone(), seen),
            None => batch.require_absent(key.clone()),
        };
        batch.put(key, rows::write(attended));
        Ok(self.shared.records.commit(batch).await?.is_applied())
    }
}
