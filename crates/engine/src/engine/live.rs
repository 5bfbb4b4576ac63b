//! The part of a run that is under way: its frames, the steps with deliveries that have not committed, and the
//! registered compensations. Read page by page, so it is a snapshot of the run only while nothing of it commits.

use crate::{Error, runs::Run, shared::Shared};
use onceflow_core::{
    Key, Name,
    protocol::{
        ids::{FrameId, LANE, StepId},
        rows::{self, Elements, Frame, Parked, ReadyStep, Received, Undo, Why},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// The frames, uncommitted steps and registered compensations of a run.
pub(super) struct Live {
    pub(super) frames: BTreeMap<FrameId, Frame>,
    /// The steps that are ready, or parked.
    pub(super) ready_steps: BTreeMap<StepId, ReadyStep>,
    /// The row of every step that stands in a queue.
    pub(super) queued: BTreeMap<StepId, Key>,
    /// The reason of every step that is parked.
    pub(super) parked: BTreeMap<StepId, Why>,
    /// The registered compensations, in the order of their registration.
    pub(super) undos: Vec<Undo>,
    /// Deliveries in inboxes; others stand in `ready_steps`.
    inboxes: Vec<(StepId, Received)>,
    /// Every uncommitted step that has deliveries or an open frame.
    steps: BTreeSet<StepId>,
}

impl Live {
    /// Reads the part of a run that is under way.
    pub(super) async fn read(shared: &Shared, run: &Run) -> Result<Self, Error> {
        let keys = &run.plan.keys;
        let damaged = || Error::damaged(format!("a row of run `{}`", run.key));
        let own = shared.rows_of(keys);
        let frames: BTreeMap<_, _> = own.frames().await?.into_iter().collect();
        let mut steps: BTreeSet<StepId> = frames.values().filter_map(|frame| Some(frame.opened_by?.0)).collect();
        let step_of = |name: &Name| name.as_bytes().get(1..1 + StepId::BYTES).and_then(StepId::from_bytes);
        let inboxes = own.inboxes().await?;
        steps.extend(inboxes.iter().map(|(step, _)| *step));
        let (mut ready_steps, mut queued, mut parked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (name, row) in shared.kernel.all_rows(keys.rows.clone(), b"p").await? {
            let (step, row) = step_of(&name).zip(rows::read::<Parked>(&row)).ok_or_else(damaged)?;
            ready_steps.insert(step, row.ready_step);
            parked.insert(step, row.why);
        }
        for (key, step, ready_step) in shared.queues().ready_steps(&run.plan).await? {
            ready_steps.insert(step, ready_step);
            queued.insert(step, key);
        }
        let undos = own.registrations().await?.into_iter().map(|registration| registration.undo).collect();
        steps.extend(ready_steps.keys());
        Ok(Live { frames, ready_steps, queued, parked, undos, inboxes, steps })
    }

    /// The step is uncommitted, and has deliveries or an open frame.
    pub(super) fn has(&self, step: StepId) -> bool {
        self.steps.contains(&step)
    }

    /// Everything that was delivered to uncommitted steps: in inboxes, in queues, in parked rows.
    pub(super) fn received(&self) -> impl Iterator<Item = (StepId, &Received)> {
        let inboxes = self.inboxes.iter().map(|(step, received)| (*step, received));
        let with_row = self
            .ready_steps
            .iter()
            .flat_map(|(step, ready_step)| ready_step.inputs.iter().map(|received| (*step, received)));
        inboxes.chain(with_row)
    }

    /// The instances of a frame that have steps at work or waiting.
    pub(super) fn instances(&self, frame: FrameId) -> BTreeSet<u32> {
        let first = StepId { frame, index: 0, node: 0 };
        let last = StepId { frame, index: u32::MAX, node: u32::MAX };
        self.steps.range(first..=last).filter(|step| step.node != LANE).map(|step| step.index).collect()
    }

    /// The number of elements of an each that have not ended.
    pub(super) fn left(&self, frame: FrameId, elements: Elements) -> u32 {
        let open = self.instances(frame).into_iter().filter(|index| *index < elements.n).collect();
        let next = |lane: u32| {
            self.ready_steps.get(&StepId { frame, index: lane, node: LANE }).map(|ready_step| ready_step.cursor)
        };
        // The run may go on while it is read.
        left(elements, &open, next).min(elements.n)
    }
}

/// The number of elements that have not ended: those with steps at work or waiting, and those of chunks that are not
/// open yet. Chunks take turns on lanes; `next` is the chunk that a lane is about to open.
fn left(elements: Elements, live: &BTreeSet<u32>, next: impl Fn(u32) -> Option<u32>) -> u32 {
    let size = |chunk: u32| elements.of_chunk(chunk).len() as u32;
    let mut left = live.len() as u32;
    let mut open = BTreeMap::new();
    for chunk in live.iter().map(|index| elements.chunk_of(*index)) {
        open.insert(chunk % elements.lanes, chunk);
    }
    for lane in 0..elements.lanes {
        let from = match (next(lane), open.get(&lane)) {
            (Some(next), _) => next,
            (None, Some(open)) => open.saturating_add(elements.lanes),
            (None, None) => continue,
        };
        left += (from..elements.chunks()).step_by(elements.lanes as usize).map(size).sum::<u32>();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_elements_and_those_to_be_opened_are_left() {
        // Chunks of three on two lanes: 0-2 and 6-8 on the first, 3-5 and 9 on the second.
        let elements = Elements { n: 10, chunk: 3, lanes: 2 };
        for (live, next, expected) in [
            (vec![], [Some(0), Some(1)], 10),
            (vec![0, 1, 2], [None, Some(1)], 10),
            (vec![1, 3, 4, 5], [None, None], 8),
            (vec![4], [Some(2), None], 5),
            (vec![7], [None, None], 1),
            (vec![], [None, Some(3)], 1),
            (vec![], [None, None], 0),
        ] {
            let live: BTreeSet<u32> = live.into_iter().collect();
            assert_eq!(left(elements, &live, |lane| next[lane as usize]), expected, "{live:?} {next:?}");
        }
    }
}
