//! Undoes a run: one compensation after the other, the last first; failed compensations keep their registrations.

use super::{
    super::{
        draft::{Draft, InstalledProgram},
        ids::{StepId, TEARDOWN, UNDO},
        rows::{Phase, RunState, Undo},
        step::Taken,
    },
    enqueue, set_phase,
};
use crate::row::Row;

/// The next action after a compensation was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUndo {
    /// Run the registration with this number, the one before it.
    Undo(u32),
    /// All registered steps are undone: the run is removed.
    Remove,
    /// Some steps could not be undone: an operator must decide.
    Stop,
}

/// Ends an attempt of a compensation. If it failed, `undo` is `None` and its registration stays.
pub fn undone<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    undo: Option<(u32, Option<&Undo>)>,
    next: AfterUndo,
) -> Draft<'a> {
    let mut draft = taken.leaving(plan, state);
    if let Some((number, undo)) = undo {
        drop_undo(plan, &mut draft, number, undo);
    }
    match next {
        AfterUndo::Undo(number) => enqueue(&mut draft, StepId { index: number, ..StepId::of_run(UNDO) }),
        AfterUndo::Remove => enqueue(&mut draft, StepId::of_run(TEARDOWN)),
        AfterUndo::Stop => {
            let cancelled = state.phase == Phase::UndoingCancelled;
            set_phase(plan, &mut draft, state, Phase::NotUndone { cancelled });
        }
    }
    draft
}

/// Continues a run that could not be undone: retries the registrations from that number down, or removes the run as it
/// is.
pub fn go_on_undoing<'a>(plan: &'a InstalledProgram, state: RunState, from: Option<u32>) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    let cancelled = state.phase == Phase::NotUndone { cancelled: true };
    let next = if cancelled { Phase::UndoingCancelled } else { Phase::UndoingFailed };
    set_phase(plan, &mut draft, state, next);
    enqueue(
        &mut draft,
        from.map_or(StepId::of_run(TEARDOWN), |number| StepId { index: number, ..StepId::of_run(UNDO) }),
    );
    draft
}

/// Deletes the registration of a step that could not be undone, by an operator's decision. After the last one the run
/// is removed.
pub fn drop_registration<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    (number, row, undo): (u32, &Row, &Undo),
    is_last: bool,
) -> Draft<'a> {
    let mut draft = if is_last { go_on_undoing(plan, state, None) } else { Draft::new(plan, state) };
    draft.batch.require_equals(plan.keys.undo(number), row.clone());
    drop_undo(plan, &mut draft, number, Some(undo));
    draft
}

fn drop_undo(plan: &InstalledProgram, draft: &mut Draft<'_>, number: u32, undo: Option<&Undo>) {
    let key = plan.keys.undo(number);
    for (port, held) in undo.iter().flat_map(|undo| &undo.inputs).enumerate() {
        draft.release(&key, port as u16, &held.outcome);
    }
    draft.batch.delete(key);
}
