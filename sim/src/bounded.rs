//! State is bounded by what is in flight: whatever a run that lives has in the store, something that is ready, taken or put
//! aside needs it. So there are at most as many instances as steps in flight times how deep they are nested, and what
//! arrives waits for one of those; nothing is there because of what has happened.

use crate::{executor::lock, room::Room};
use onceflow_core::{
    Inbox, Key, Kind, Row, Shard,
    protocol::{
        ids::{FrameId, RunId, SETTLE, StepId, TEARDOWN, UNDO},
        rows::{self, Frame, Phase, ReadyStep, RunState},
    },
};
use std::collections::{BTreeMap, BTreeSet};

type Plan = (RunId, u32);

/// The rows of one plan.
#[derive(Default)]
struct Found {
    frames: BTreeMap<FrameId, Frame>,
    /// Instances with a step that is ready, taken or put aside.
    active: BTreeSet<FrameId>,
    /// Steps that something has arrived at.
    awaited: BTreeSet<StepId>,
}

/// Looks at all plans of runs that live.
pub fn look(room: &Room, all: &[(Shard, Key, Row)]) {
    let (mut plans, mut living) = (BTreeMap::<Plan, Found>::new(), BTreeSet::<Plan>::new());
    for (_, key, row) in all {
        let (id, name) = (key.group.id(), key.name.as_bytes());
        if key.group.kind() == Kind::Queue {
            let ready_step = Inbox::from_row(row).and_then(|inbox| rows::read::<ReadyStep>(&inbox.note));
            if let (Some((run, step)), Some(ready_step)) = (StepId::from_queue_name(name), ready_step)
                && !matches!(step.node, SETTLE | TEARDOWN | UNDO)
            {
                plans.entry((run, ready_step.generation.0)).or_default().active.insert(step.frame);
            }
        } else if id.first() == Some(&b'R') && id.len() == 9 && name == b"s" {
            let run = RunId(id[1..].try_into().expect("eight bytes"));
            let lives = |state: &RunState| matches!(state.phase, Phase::Running | Phase::Failing | Phase::Waiting);
            let state = rows::read::<RunState>(row).filter(lives);
            living.extend(state.map(|state| (run, state.generation.0)));
        } else if id.first() == Some(&b'r') && id.len() == 13 {
            let run = RunId(id[1..9].try_into().expect("eight bytes"));
            let generation = u32::from_be_bytes(id[9..].try_into().expect("four bytes"));
            plans.entry((run, generation)).or_default().add(name, row);
        }
    }
    for (plan, found) in plans.iter().filter(|(plan, _)| living.contains(plan)) {
        if let Some(seen) = found.idle(room, *plan) {
            let seen = format!("run {}: {seen}", plan.0);
            lock(&room.truth).violate("state is bounded by work in flight", seen);
        }
    }
}

impl Found {
    fn add(&mut self, name: &[u8], row: &Row) {
        let step = || StepId::from_bytes(name.get(1..1 + StepId::BYTES)?);
        match name.first() {
            Some(b'f') => {
                let frame = FrameId::from_bytes(&name[1..]).zip(rows::read::<Frame>(row));
                self.frames.extend(frame);
            }
            Some(b'p') => self.active.extend(step().map(|step| step.frame)),
            Some(b'i' | b'j') => self.awaited.extend(step()),
            _ => {}
        }
    }

    /// What is there and nothing in flight needs.
    fn idle(&self, room: &Room, (run, generation): Plan) -> Option<String> {
        let mut needed = BTreeSet::from([FrameId::ROOT]);
        for active in &self.active {
            let mut at = *active;
            while needed.insert(at)
                && let Some((opener, _)) = self.frames.get(&at).and_then(|frame| frame.opened_by)
            {
                at = opener.frame;
            }
        }
        if let Some(idle) = self.frames.keys().find(|frame| !needed.contains(frame)) {
            return Some(format!("nothing of instance {idle:?} is in flight, and it is there"));
        }
        let truth = lock(&room.truth);
        let is_over =
            |step: &&StepId| !needed.contains(&step.frame) || truth.committed.contains_key(&(run, generation, **step));
        let over = self.awaited.iter().find(is_over)?;
        Some(format!("something waits for step {over:?}, which is over"))
    }
}
