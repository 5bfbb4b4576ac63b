//! The life cycle of a run: its start, its ways to end, and the removal of its rows.

mod parked;
mod undo;

pub use parked::{OnTimer, decided, fail, on_timer, redo, unpark, wake};
pub use undo::{AfterUndo, drop_registration, go_on_undoing, undone};

use super::{
    draft::{Draft, InstalledProgram, Site},
    ids::{END, FrameId, Generation, RunId, StepId},
    keys,
    rows::{self, Finished, Frame, Head, Header, Parked, Phase, Received, RunState, Status, Undo, Why},
    step::Taken,
};
use crate::{
    key::{Key, Name},
    limits,
    model::program::ROOT,
    payload::Outcome,
    row::Row,
    seams,
    time::Timestamp,
    value::{EdgeName, ValueChange, ValueId},
};

/// Starts a run, if its key's row is unchanged since it was read.
pub fn start<'a>(plan: &'a InstalledProgram, header: &Header, frame: &Frame, seen: Option<Row>) -> Draft<'a> {
    assert!(!header.key.is_empty(), "run {} has no key: no user could find it again", plan.keys.run);
    let mut draft = Draft::of_new_run(plan);
    let head = keys::heads().key(&header.key);
    draft.batch.require_seen(head.clone(), seen);
    draft.batch.put(head, rows::write(&Head::Active(plan.keys.run)));
    install(plan, &mut draft, header, frame);
    draft
}

/// Puts the rows of a generation: its state, header and root frame, with its first steps ready.
pub fn install(plan: &InstalledProgram, draft: &mut Draft<'_>, header: &Header, frame: &Frame) {
    let state = RunState::begins(plan.keys.generation);
    draft.batch.put(plan.keys.state(), state.to_row());
    draft.batch.put(plan.keys.header(), rows::write(header));
    for (name, stored) in programs(plan, header) {
        draft.changes.push(ValueChange::set(name, stored));
    }
    draft.put_frame(FrameId::ROOT, frame);
    let before = draft.batch.ops.len();
    let site = Site { id: FrameId::ROOT, frame, index: 0, block: ROOT };
    draft.open(site, &|_| unreachable!("nothing varies at the root"));
    if draft.batch.ops.len() == before {
        let settle = draft.settle();
        draft.batch.ops.push(settle);
    }
}

/// Returns the edges that hold the programs of a generation.
pub fn programs(plan: &InstalledProgram, header: &Header) -> impl Iterator<Item = (EdgeName, ValueId)> {
    let stored = [Some(&header.program), header.full.as_ref()];
    program_edges(plan).into_iter().zip(stored.into_iter().flatten().map(|stored| stored.id.clone()))
}

/// Returns the names of the edges that hold the program that is run, and the whole program that was requested.
pub fn program_edges(plan: &InstalledProgram) -> [EdgeName; 2] {
    [b"program".as_slice(), b"full"].map(|what| EdgeName::Root(Name::join(&[plan.keys.rows.id(), what])))
}

/// The port that stands for the sealed record.
pub const SEALED: u16 = u16::MAX;

/// The port that stands for the program, which is kept as long as the history and the memos.
pub const PROGRAM: u16 = u16::MAX - 1;

/// The ports that stand for the sealed part of the event log, in turns: see [`keys::events_edge`].
pub const EVENTS: [u16; 2] = [u16::MAX - 2, u16::MAX - 3];

/// Deletes the rows that a run has for its history alone: logs, reasons and events.
pub fn delete_history(batch: &mut crate::Batch, run: RunId) {
    batch.delete_group(keys::logs(run)).delete_group(keys::reasons(run)).delete_group(keys::events(run));
}

/// The next action for a run that has no step in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is done: all outputs exist.
    Done,
    /// Parked steps go back to their queues: the worker that began to do this did not finish.
    Unpark,
    /// The run waits: the outcome of a step is unknown.
    Wait,
    /// The run failed, and can be retried.
    Fail,
    /// Registered compensations run first.
    Undo(Phase),
    /// The remaining rows are removed.
    Remove(Phase),
    /// Nothing: in this phase another step or an operator acts next.
    Leave,
    /// The run is damaged: no step is left and outputs are missing, so rows were lost.
    Damaged,
}

/// Decides the next action for a run that has no step in flight.
pub fn ending(phase: Phase, all_outputs: bool, parked: &[Why], undos: bool) -> Ending {
    let any = |wanted: fn(&Why) -> bool| parked.iter().any(wanted);
    match phase {
        Phase::Cancelling if undos => Ending::Undo(Phase::UndoingCancelled),
        Phase::Cancelling => Ending::Remove(Phase::RemovingCancelled),
        Phase::Expired if undos => Ending::Undo(Phase::UndoingFailed),
        Phase::Expired => Ending::Remove(Phase::RemovingFailed),
        Phase::UndoingFailed | Phase::UndoingCancelled => Ending::Leave,
        Phase::RemovingFailed | Phase::RemovingCancelled | Phase::NotUndone { .. } => Ending::Leave,
        Phase::Frozen => Ending::Leave,
        _ if any(|why| why.awaited().is_some()) => Ending::Wait,
        _ if any(|why| matches!(why, Why::Failed(_))) && undos => Ending::Undo(Phase::UndoingFailed),
        _ if any(|why| matches!(why, Why::Failed(_))) => Ending::Fail,
        _ if !parked.is_empty() => Ending::Unpark,
        _ if all_outputs => Ending::Done,
        _ => Ending::Damaged,
    }
}

/// The record that remains of a finished run.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The row.
    pub finished: Finished,
    /// Until when the record and the outputs can be read.
    pub history_until: Timestamp,
    /// Until when its memos are kept.
    pub keep_until: Option<Timestamp>,
}

/// Replaces a run by its record. Its rows are gone but for its outputs and its frame.
pub fn fold<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    frame: Option<&Frame>,
    fold: &Fold,
) -> Draft<'a> {
    let Fold { finished, history_until, keep_until } = fold;
    let mut draft = taken.leaving(plan, state);
    if let Some(frame) = frame {
        draft.drop_frame(FrameId::ROOT, frame);
    }
    for (port, (_, outcome)) in finished.outputs.iter().enumerate() {
        let port = port as u16;
        if let Some(stored) = super::draft::stored(outcome) {
            draft.changes.push(ValueChange::lease(plan.keys.result_edge(port), stored.clone(), *history_until));
        }
    }
    if let Some(sealed) = &finished.sealed {
        draft.changes.push(ValueChange::lease(plan.keys.result_edge(SEALED), sealed.id.clone(), *history_until));
    }
    for (name, stored) in programs(plan, &finished.header) {
        draft.changes.push(ValueChange::clear(name, stored));
    }
    // The program can be read as long as the run's outputs, and is compared with later plans as long as its memos are
    // kept.
    let program_until = keep_until.map_or(*history_until, |until| until.max(*history_until));
    let program = finished.header.full.as_ref().unwrap_or(&finished.header.program);
    draft.changes.push(ValueChange::lease(plan.keys.result_edge(PROGRAM), program.id.clone(), program_until));
    let key = &finished.header.key;
    draft.batch.delete_group(plan.keys.rows.clone()).delete_group(plan.keys.home.clone()).ring();
    draft.batch.put(keys::heads().key(key), rows::write(&Head::Finished(Box::new(finished.clone()))));
    let due = keys::due(*history_until, b'h', plan.keys.run, key);
    seams::schedule_history_end(&mut draft.batch, due, rows::write(&Due::History(plan.keys.run)));
    if let Some(until) = keep_until {
        draft.batch.put(keys::due(*until, b'k', plan.keys.run, key), rows::write(&Due::Keep(plan.keys.run)));
    }
    draft
}

/// Removes a failed run whose history has ended, and frees its key. Its rows are gone but for its frame.
pub fn vanish<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    frame: &Frame,
    header: &Header,
    now: Timestamp,
) -> Draft<'a> {
    assert!(state.phase.expires(), "run {} vanishes with its history in phase {:?}", plan.keys.run, state.phase);
    let mut draft = taken.leaving(plan, state);
    draft.drop_frame(FrameId::ROOT, frame);
    for (name, stored) in programs(plan, header) {
        draft.changes.push(ValueChange::clear(name, stored));
    }
    draft.batch.delete_group(plan.keys.rows.clone()).delete_group(plan.keys.home.clone()).ring();
    draft.batch.delete(keys::heads().key(&header.key));
    delete_history(&mut draft.batch, plan.keys.run);
    // No run can find its memos, or those of its earlier generations, any more.
    if header.keep_ms.is_some() || plan.keys.generation > Generation(0) {
        draft.batch.put(keys::due(now, b'k', plan.keys.run, &header.key), rows::write(&Due::Keep(plan.keys.run)));
    }
    draft
}

/// A scheduled removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Due {
    /// The row of a finished run.
    History(RunId),
    /// The memos of a finished run.
    Keep(RunId),
    /// A failed run, unless it was retried.
    Failed(RunId),
    /// The edges of earlier generations of a run; of all of them, if the key leads to another run.
    Superseded(RunId),
}

/// Schedules a finished run, or a finished generation of one, for removal now because it is replaced or removed,
/// instead of at the end of its history. Returns the key of the row that schedules it.
pub fn supersede(batch: &mut crate::Batch, finished: &Finished, now: Timestamp) -> Key {
    let (run, key) = (finished.run, &finished.header.key);
    batch.delete(keys::due(finished.ended.plus_ms(finished.header.history_ms), b'h', run, key));
    // Its memos are removed with the run, or with its next generation.
    if let Some(keep_ms) = finished.header.keep_ms {
        batch.delete(keys::due(finished.ended.plus_ms(keep_ms), b'k', run, key));
    }
    let due = keys::due(now, b's', run, key);
    batch.put(due.clone(), rows::write(&Due::Superseded(run)));
    due
}

/// Changes the phase of a run. A failed run is removed when its history ends, unless it is retried or cancelled before:
/// so its removal is scheduled, and unscheduled, together with the phase.
fn set_phase(plan: &InstalledProgram, draft: &mut Draft<'_>, state: RunState, next: Phase) {
    let due = |until: Timestamp| keys::due(until, b'f', plan.keys.run, "");
    if next == state.phase {
        return;
    }
    if let Phase::Failed { until } = state.phase {
        draft.batch.delete(due(until));
    }
    if let Phase::Failed { until } = next {
        seams::schedule_failed_end(&mut draft.batch, due(until), rows::write(&Due::Failed(plan.keys.run)));
    }
    draft.batch.put(plan.keys.state(), RunState { phase: next, ..state }.to_row()).ring();
}

/// Releases the edges that held a run's outputs while it ran; leases hold them from now on.
pub fn release_outputs(plan: &InstalledProgram, draft: &mut Draft<'_>, arrived: &[Received]) {
    for received in arrived.iter().filter(|received| received.owned) {
        let key = plan.keys.arrival(StepId::of_run(END), received.port);
        draft.release(&key, received.port, &received.outcome);
    }
}

/// Changes the phase of a run, and nothing else.
pub fn change_phase<'a>(plan: &'a InstalledProgram, state: RunState, taken: &Taken, next: Phase) -> Draft<'a> {
    let mut draft = taken.leaving(plan, state);
    set_phase(plan, &mut draft, state, next);
    draft
}

/// Changes the phase of a run on a user's request. If no step is in flight, the run is settled again.
pub fn turn<'a>(plan: &'a InstalledProgram, state: RunState, next: Phase) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    set_phase(plan, &mut draft, state, next);
    if matches!(state.phase, Phase::Failed { .. } | Phase::Waiting | Phase::Frozen) {
        let settle = draft.settle();
        draft.batch.ops.push(settle);
    }
    draft
}

/// Changes the phase of a run on a user's request; the caller does what follows.
pub fn turn_to<'a>(plan: &'a InstalledProgram, state: RunState, next: Phase) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    set_phase(plan, &mut draft, state, next);
    draft
}

/// Makes an internal step of the end of a run ready.
fn enqueue(draft: &mut Draft<'_>, step: StepId) {
    let ready_step = draft.ready_step(0, vec![]);
    let op = draft.ready(step, &keys::internal_queue(), &ready_step);
    draft.batch.ops.push(op);
}

/// Deletes rows of a run that is being removed, and releases the values they held.
pub fn remove<'a>(plan: &'a InstalledProgram, found: &[(Name, Row)]) -> Draft<'a> {
    let mut draft = Draft::of_new_run(plan);
    for (name, row) in found {
        if draft.ops() > limits::REMOVE_OPS_MAX {
            break;
        }
        drop_row(plan, &mut draft, name, row);
    }
    draft
}

/// Deletes a row of a generation, and releases the values it held.
pub fn drop_row(plan: &InstalledProgram, draft: &mut Draft<'_>, name: &Name, row: &Row) {
    let key = Key { group: plan.keys.rows.clone(), name: name.clone() };
    draft.batch.require_present(key.clone());
    release_row(plan, draft, &key, row);
    draft.batch.delete(key);
}

/// Releases the values that a row holds.
fn release_row(plan: &InstalledProgram, draft: &mut Draft<'_>, key: &Key, row: &Row) {
    let name = key.name.as_bytes();
    match name.first() {
        Some(b'f') => {
            if let Some(frame) = rows::read::<Frame>(row) {
                let held = frame.inputs.iter().enumerate().filter_map(|(port, held)| Some((port, held.as_ref()?)));
                for (port, held) in held.filter(|(_, held)| held.owned) {
                    draft.release(key, port as u16, &held.outcome);
                }
                release_elements(plan, draft, key, &frame);
            }
        }
        Some(b'i') => {
            if let Some(received) = rows::read::<Received>(row).filter(|received| received.owned) {
                draft.release(key, received.port, &received.outcome);
            }
        }
        Some(b'p') => {
            let step = StepId::from_bytes(&name[1..]);
            if let (Some(step), Some(parked)) = (step, rows::read::<Parked>(row)) {
                release_ticket(plan, draft, step, &parked.ready_step);
                if let Some((timer, _)) = draft.timer(step, &parked.why) {
                    draft.batch.delete(timer);
                }
            }
        }
        Some(b'u') => {
            if let Some(undo) = rows::read::<Undo>(row) {
                for (port, held) in undo.inputs.iter().enumerate() {
                    draft.release(key, port as u16, &held.outcome);
                }
            }
        }
        _ => {}
    }
}

/// Releases the elements that an each has gathered so far.
fn release_elements(plan: &InstalledProgram, draft: &mut Draft<'_>, key: &Key, frame: &Frame) {
    let id = FrameId::from_bytes(&key.name.as_bytes()[1..]);
    if let (rows::Shape::Each(_), Some(id)) = (frame.shape, id) {
        for port in 0..plan.program.blocks[frame.block as usize].outputs.len() {
            draft.changes.push(ValueChange::Release { prefix: plan.keys.elements(id, port as u16) });
        }
    }
}

/// Releases the deliveries that came with a ready row.
pub fn release_ticket(plan: &InstalledProgram, draft: &mut Draft<'_>, step: StepId, ready_step: &rows::ReadyStep) {
    for received in ready_step.inputs.iter().filter(|received| received.owned) {
        draft.release(&plan.keys.arrival(step, received.port), received.port, &received.outcome);
    }
}

/// Returns the outputs of a run, one outcome for each output of the root block; `None` while one is missing.
pub fn outputs(plan: &InstalledProgram, frame: &Frame, arrived: &[Received]) -> Option<Vec<(String, Outcome)>> {
    let site = Site { id: FrameId::ROOT, frame, index: 0, block: ROOT };
    let block = &plan.program.blocks[ROOT as usize];
    let output = |(port, output): (usize, &crate::model::BlockOutput)| {
        let outcome = match super::draft::standing(plan, site, output.from) {
            Some(outcome) => outcome,
            None => arrived.iter().find(|received| usize::from(received.port) == port)?.outcome.clone(),
        };
        Some((output.port.name.clone(), outcome))
    };
    block.outputs.iter().enumerate().map(output).collect()
}

/// Returns the final status of a run that is removed.
pub fn removed_status(phase: Phase, failures: Vec<rows::Failed>, undone: Vec<rows::Failed>) -> Status {
    match phase {
        Phase::RemovingCancelled | Phase::UndoingCancelled => Status::Cancelled { undone },
        _ => Status::Failed { failures, undone },
    }
}
