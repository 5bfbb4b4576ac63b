//! What a start would do, and why, before it does anything.

use super::{Engine, Start, known::Known, replan};
use crate::{Error, shared::Shared};
use onceflow_core::{
    plan::Explanation,
    protocol::{
        keys,
        rows::{Head, Status},
    },
};

impl Engine {
    /// What [`Engine::start`] would do with this: every outermost step reused, run or skipped, and why. Changes nothing.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn explain(&self, start: Start) -> Result<Explanation, Error> {
        let asked = self.ask(start).await?;
        let shared: &Shared = &self.shared;
        let row = shared.row(keys::heads().key(&asked.start.key)).await?;
        let head = row.as_deref().and_then(onceflow_core::protocol::rows::read::<Head>);
        let (known, before) = match head {
            None => (Known::new(), None),
            Some(Head::Active(id)) => match shared.read_run(id).await? {
                None => (Known::new(), None),
                Some(run) => match shared.before(&run.header).await? {
                    None => (Known::new(), None),
                    Some(before) => (shared.known_of(&run, &asked, &before).await?, Some(before)),
                },
            },
            Some(Head::Finished(finished)) if finished.status == Status::Done && asked.is(&finished.header) => {
                return Ok(onceflow_core::plan::explain::all_done(&asked.program));
            }
            Some(Head::Finished(finished)) => self.kept_by(&asked, &finished).await?,
        };
        Ok(replan::plan(&asked, &known, before.as_ref(), false)?.explanation)
    }
}
