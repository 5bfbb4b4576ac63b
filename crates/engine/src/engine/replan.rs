//! Plans a run anew after its flow, inputs or requested outputs changed: the new plan reuses known values, and is
//! installed while the run is frozen.
//!
//! ```text
//! freeze    nothing of the old plan commits any more
//! plan      over the values that are held or kept, and still valid
//! install   one batch: the new rows, holding every value they read; the run goes on
//! remove    the rows of the old plan, in small batches, by the workers of the run
//! ```
//! A crash in between leaves the run frozen, and the next start plans again.

use super::{
    CheckedStart,
    again::thaw,
    facts::Facts,
    known::{KnownValues, PreviousPlan},
    live::Live,
    not_undone::FailedUndos,
    preview::PreviewedPlan,
    reasons::write_reasons,
    reruns::{Marks, no_reruns},
    starting::Starting,
};
use crate::{Error, Handle, events::EventKind, runs::Run};
use onceflow_core::{
    Key,
    model::{
        Program,
        program::{NodeIndex, PortIndex, ROOT},
    },
    payload::{Outcome, Payload, Stored},
    plan::{Explanation, Fusion, explain_all, fuse, separate_joined_eaches, specialise},
    protocol::{
        draft::{Draft, stored},
        ids::{Generation, StepId, TEARDOWN},
        keys::{self, Keys},
        rows::{self, Header, Held, Phase, Received, RunState},
        run,
    },
};
use std::{borrow::Cow, sync::Arc};

/// Values that a plan may reuse at its outermost level: each takes a few operations of the batch that installs the
/// plan. If there are more, the plan contains all steps, and kept outputs are found when their steps are claimed.
const REUSED_MAX: usize = 120;

/// A plan for a run, made over the known values.
pub(super) struct PlannedRun {
    /// The program to install.
    pub(super) program: Arc<Program>,
    /// The values that the program reads beside its inputs.
    pub(super) reused: Vec<Held>,
    /// The sources in the full program of the values that the plan reads, even if there are too many to be inputs.
    pub(super) reads: Vec<(NodeIndex, PortIndex)>,
    /// Rows that must exist for these values to exist.
    pub(super) while_there: Vec<Key>,
    /// `program` is only a part of the requested one.
    pub(super) is_partial: bool,
    pub(super) explanation: Explanation,
    /// Steps done by earlier plans that must not be repeated without consent.
    pub(super) done_before: Marks,
}

/// A plan, with the known values that it was made over.
pub(super) struct PlannedFrom {
    pub(super) planned: PlannedRun,
    pub(super) known: KnownValues,
}

impl PlannedRun {
    /// A plan of everything that was requested.
    fn whole(asked: &CheckedStart, explanation: Explanation, fuses: bool) -> Self {
        PlannedRun {
            program: fused(asked.program.clone(), fuses),
            reused: vec![],
            reads: vec![],
            while_there: vec![],
            is_partial: false,
            explanation,
            done_before: Marks::new(),
        }
    }
}

/// The first plan of a run: no values are known. The reasons of its steps are not recorded, so they are not computed
/// either.
pub(super) fn first(asked: &CheckedStart, fuses: bool) -> PlannedRun {
    PlannedRun::whole(asked, Explanation::default(), fuses)
}

/// Plans over the known values.
pub(super) fn plan(
    asked: &CheckedStart,
    known: &KnownValues,
    before: Option<&PreviousPlan>,
    fuses: bool,
) -> Result<PlannedRun, Error> {
    tracing::debug!(key = asked.terms.key, known = known.len(), "planning a run");
    let outputs = &asked.program.blocks[ROOT as usize].outputs;
    let requested: Vec<_> = (0..).zip(outputs).filter(|(_, output)| !output.hidden).map(|(port, _)| port).collect();
    let changes = before.map(|before| before.changes(asked));
    let no_plan = |error| Error::damaged(format!("no plan: {error}"));
    let separate_joined_eaches = |explanation| match before {
        Some(before) => before.separate_joined_eaches(asked, explanation),
        None => separate_joined_eaches(explanation, &asked.program, None),
    };
    if known.is_empty() {
        let explanation = explain_all(&asked.program, &requested, changes.as_deref()).map_err(no_plan)?;
        return Ok(PlannedRun::whole(asked, separate_joined_eaches(explanation), fuses));
    }
    let plan = specialise(&asked.program, known, &requested, changes.as_deref()).map_err(no_plan)?;
    let (reads, explanation) =
        (plan.reuse.iter().map(|(_, at)| *at).collect(), separate_joined_eaches(plan.explanation));
    if plan.reuse.len() > REUSED_MAX {
        return Ok(PlannedRun { reads, ..PlannedRun::whole(asked, explanation, fuses) });
    }
    assert!(plan.reuse.iter().map(|(port, _)| port).is_sorted(), "reused values follow the inputs in their order");
    let value = |(_, at): &(PortIndex, (u32, PortIndex))| &known[at];
    let held = |(outcome, _): &(Outcome, _)| Held { owned: stored(outcome).is_some(), outcome: outcome.clone() };
    Ok(PlannedRun {
        reused: plan.reuse.iter().map(value).map(held).collect(),
        reads,
        while_there: plan.reuse.iter().map(value).filter_map(|(_, key)| key.clone()).collect(),
        program: fused(Arc::new(plan.program), fuses),
        is_partial: true,
        explanation,
        done_before: Marks::new(),
    })
}

fn fused(program: Arc<Program>, fuses: bool) -> Arc<Program> {
    if !fuses {
        return program;
    }
    match fuse(&program, Fusion::On) {
        Cow::Borrowed(_) => program,
        Cow::Owned(fused) => Arc::new(fused),
    }
}

impl Starting<'_> {
    /// Gives an unfinished run a new plan. `None` if the run changed in between.
    pub(super) async fn replan(
        &self,
        run: &Arc<Run>,
        previewed: Option<PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let shared = self.shared;
        let seen = run.state();
        match seen.phase {
            Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting | Phase::Frozen => {}
            Phase::NotUndone { .. } => return Err(FailedUndos::of(shared, run).error().await?),
            _ => return Err(Error::Busy { key: self.asked.terms.key.clone() }),
        }
        let frozen = RunState { phase: Phase::Frozen, ..seen };
        if seen != frozen {
            let draft = run::turn_to(&run.plan, seen, Phase::Frozen);
            if !shared.commit_outside(draft, &[]).await?.is_applied() {
                return Ok(None);
            }
            run.set_state(frozen);
        }
        let planned = self.plan_frozen(run, frozen, previewed).await;
        if planned.is_err() {
            let before = if seen.phase == Phase::Frozen { Phase::Running } else { seen.phase };
            thaw(shared, run, frozen, before).await?;
        }
        planned
    }

    /// Plans and installs, while nothing of the old plan commits. The plan of a preview is installed if the facts it
    /// rests on still stand.
    async fn plan_frozen(
        &self,
        run: &Arc<Run>,
        frozen: RunState,
        previewed: Option<PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let shared = self.shared;
        let before = PreviousPlan::read(&shared.values, &run.header).await?;
        let before = before.ok_or_else(|| Error::damaged(format!("the program of run `{}`", run.key)))?;
        let facts = Facts::read(shared, self.asked, run, &Live::read(shared, run).await?, &before).await?;
        if let Some(refused) = facts.refusal(self.asked) {
            return Err(refused);
        }
        let planned = match previewed {
            Some(previewed) if previewed.facts.as_ref() == Some(&facts) => previewed.planned,
            _ => self.planning().plan_unfinished(&facts, Some(&before)).await?,
        };
        no_reruns(self.asked, &planned)?;
        self.install(run, frozen, planned).await
    }

    async fn install(&self, old: &Arc<Run>, frozen: RunState, planned: PlannedRun) -> Result<Option<Handle>, Error> {
        let shared = self.shared;
        let generation = Generation(frozen.generation.0 + 1);
        let plan = shared.runs.plan(Keys::new(old.plan.keys.run, generation), planned.program.clone());
        let inputs = self.stored().await?;
        let mut changes = inputs.changes.clone();
        let mut header = self.header(&planned, &mut changes).await?;
        header.started = old.header.started;
        let frame = super::starting::root_frame(self.asked, &inputs, planned.reused);
        let mut draft = Draft::new(&plan, frozen);
        write_reasons(self.shared, &mut draft.batch, (plan.keys.run, generation), (&planned.explanation, true)).await?;
        for key in planned.while_there {
            draft.batch.require_present(key);
        }
        run::install(&plan, &mut draft, &header, &frame);
        draft.batch.ops.push(removal(&old.plan, &old.header));
        let _order = shared.events.order_if_wanted().await;
        let Some(position) = self.commit_beginning(draft, &changes).await? else { return Ok(None) };
        let run = shared.runs.remember(plan, header, RunState::begins(generation));
        shared.signals.look.notify_one();
        let what = EventKind::DidStart { generation: generation.0 };
        shared.events.tell(position, &run, what);
        Ok(Some(self.handle(run.plan.keys.run)))
    }

    /// Stores the full program beside a plan that is only a part of it.
    pub(super) async fn full(
        &self,
        planned: &PlannedRun,
        changes: &mut Vec<onceflow_store::values::ValueChange>,
    ) -> Result<Option<Stored>, Error> {
        if !planned.is_partial {
            return Ok(None);
        }
        let bytes = rows::bytes(&*self.asked.program);
        let (change, stored) = self.shared.values.put_bytes(bytes).await?;
        changes.push(change);
        Ok(Some(stored))
    }
}

/// The step that removes a replaced plan. It carries the references that it needs: the old programs.
fn removal(old: &onceflow_core::protocol::draft::InstalledProgram, header: &Header) -> onceflow_core::Op {
    let draft = Draft::of_new_run(old);
    let programs = [Some(&header.program), header.full.as_ref()];
    let input = |(port, stored): (u16, &Stored)| Received {
        port,
        owned: false,
        outcome: Outcome::Value(Payload::Stored(stored.clone())),
    };
    let inputs = (0..).zip(programs).filter_map(|(port, stored)| Some(input((port, stored?)))).collect();
    let step = StepId { index: old.keys.generation.0, ..StepId::of_run(TEARDOWN) };
    draft.ready(step, &keys::internal_queue(), &draft.ready_step(ROOT, inputs))
}
