//! Brings changed settings to a run that has begun: retry, timeout, class and resources of its steps, and what follows a
//! failure. Nothing runs again for them; steps that are claimed keep what they started with.
//!
//! ```text
//! write    one batch: the settings, and the state of the run that names them
//! refuse   a commit that rests on the state before is refused, and decided again: its deliveries go to the new queues
//! move     steps that stand in a queue of their former class, and are not claimed, go to their new one
//! ```
//! A crash in between leaves steps in former queues: the next start moves them, and so does a worker that claims one.

use super::{CheckedStart, Engine};
use crate::{Error, runs::Run};
use onceflow_core::{
    Batch, Row,
    limits::ROW_BYTES_MAX,
    model::Program,
    protocol::{
        claim,
        draft::Draft,
        keys,
        rows::{self, Phase, RunState},
        settings::{ChangedSettings, Settings},
    },
};

/// Bytes of the row of settings: far below the limit of a row.
const SETTINGS_BYTES_MAX: usize = ROW_BYTES_MAX / 2;

/// The settings that a run would have with this flow, and what it would not take up.
pub(super) fn settings_for(run: &Run, program: &Program, finish_independent: bool) -> (Settings, ChangedSettings) {
    let now = run.plan.settings();
    let changed = ChangedSettings::between(&run.plan.program, program);
    let mut former_classes = now.former_classes.clone();
    former_classes.extend(now.steps.values().map(|step| step.class.clone()));
    let next = Settings {
        revision: now.revision,
        finish_independent: (finish_independent != run.header.finish_independent).then_some(finish_independent),
        steps: changed.steps.clone(),
        former_classes: if changed.steps == now.steps { now.former_classes.clone() } else { former_classes },
    };
    if rows::write(&next).len() <= SETTINGS_BYTES_MAX {
        return (next, changed);
    }
    let ignored = changed.ignored.into_iter().chain(changed.addresses).collect();
    ((*now).clone(), ChangedSettings { ignored, ..ChangedSettings::default() })
}

impl Engine {
    /// Takes up the settings of this start. False if the run has changed in between.
    pub(super) async fn take_up_settings(&self, asked: &CheckedStart, run: &Run) -> Result<bool, Error> {
        let state = run.state();
        if !matches!(state.phase, Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting) {
            return Ok(true);
        }
        let now = run.plan.settings();
        let (next, _) = settings_for(run, &asked.program, asked.start.finish_independent);
        if next != *now {
            let next = Settings { revision: now.revision + 1, ..next };
            let seen = (now.revision > 0).then(|| rows::write(&*now));
            let named = RunState { settings: next.revision, ..state };
            let mut draft = Draft::new(&run.plan, state);
            draft.batch.require_seen(run.plan.keys.settings(), seen);
            draft.batch.put(run.plan.keys.settings(), rows::write(&next)).put(run.plan.keys.state(), named.to_row());
            if !self.shared.commit_outside(draft, &[]).await?.is_applied() {
                return Ok(false);
            }
            run.plan.set_settings(next);
            run.set_state(named);
        }
        self.move_to_their_queues(run).await?;
        Ok(true)
    }

    /// Moves unclaimed steps that stand in a queue of a former class to the queue of their class.
    async fn move_to_their_queues(&self, run: &Run) -> Result<(), Error> {
        let (shared, plan) = (&self.shared, &run.plan);
        let settings = plan.settings();
        if settings.steps.is_empty() && settings.former_classes.is_empty() {
            return Ok(());
        }
        let is_reclassed = |block: u32, node: u32| {
            let class = settings.steps.get(&(block, node)).map(|step| &step.class);
            class.is_some_and(|class| plan.own_class(block, node) != Some(class))
        };
        let mut moved = 0;
        for (key, step, ready_step) in shared.ready_steps(plan).await? {
            let queue = plan.queue(ready_step.block, step.node);
            let is_in_class_queue = keys::class_of(&key.group).is_some();
            // A step of an unserved task stands in a queue of its task and class.
            let is_unserved = !is_in_class_queue && key.group != keys::internal_queue();
            let is_misplaced = is_in_class_queue || is_unserved && is_reclassed(ready_step.block, step.node);
            if queue == key.group || !is_misplaced {
                continue;
            }
            let Some(row): Option<Row> = shared.row(key.clone()).await? else { continue };
            let mut batch = Batch::new(shared.shard());
            // While a new plan is made, steps stay where they are: planning reads them.
            batch.require_equals(plan.keys.state(), run.state().to_row());
            batch.require_equals(key.clone(), row.clone()).require_absent(claim::claim_key(&key));
            batch.put(queue.key(&key.name), row).delete(key);
            moved += usize::from(shared.records.commit(batch).await?.is_applied());
        }
        if moved > 0 {
            tracing::debug!(key = %run.key, moved, "moved steps to the queues of their new classes");
        }
        Ok(())
    }
}
