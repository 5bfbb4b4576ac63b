//! How far the eaches of a run are: how many elements are still to be done, for those who ask before it goes on.

use crate::{
    Error, Handle,
    shared::{Run, Shared},
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Name,
    model::{Place, Program, program::Op},
    protocol::{
        ids::{FrameId, LANE, StepId},
        rows::{self, Elements, Frame, Parked, Shape},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// An each that has begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Where it is.
    pub address: String,
    /// How many elements it goes over.
    pub elements: u32,
    /// How many of them have not ended.
    pub left: u32,
}

impl Handle {
    /// The eaches of the run that have begun and have not ended; not those inside of others, or of loops. None if the run
    /// has ended.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn unfinished(&self) -> BoxFuture<'_, Result<Vec<Unfinished>, Error>> {
        Box::pin(async move {
            match self.shared.read_run(self.id()).await? {
                Some(run) => self.shared.unfinished(&run).await,
                None => Ok(vec![]),
            }
        })
    }
}

impl Shared {
    async fn unfinished(&self, run: &Run) -> Result<Vec<Unfinished>, Error> {
        let (keys, program) = (&run.plan.keys, &run.plan.program);
        let damaged = || Error::damaged(format!("a row of run `{}`", run.key));
        let mut frames = BTreeMap::new();
        for (name, frame) in self.all_frames(run).await? {
            frames.insert(FrameId::from_bytes(&name.as_bytes()[1..]).ok_or_else(damaged)?, frame);
        }
        let mut live: BTreeSet<StepId> = frames.values().filter_map(|frame| Some(frame.opened_by?.0)).collect();
        let step_of = |name: &Name| name.as_bytes().get(1..1 + StepId::BYTES).and_then(StepId::from_bytes);
        for (name, _) in self.all_rows(keys.rows.clone(), b"i").await? {
            live.insert(step_of(&name).ok_or_else(damaged)?);
        }
        let mut tickets: Vec<(StepId, u32)> = vec![];
        for (name, row) in self.all_rows(keys.rows.clone(), b"p").await? {
            let parked: Parked = rows::read(&row).ok_or_else(damaged)?;
            tickets.push((step_of(&name).ok_or_else(damaged)?, parked.ticket.cursor));
        }
        let ready = self.ready_steps(program, keys).await?;
        tickets.extend(ready.into_iter().map(|(_, step, ticket)| (step, ticket.cursor)));
        let mut chunks = BTreeMap::new();
        for (step, cursor) in tickets {
            match step.node {
                LANE => drop(chunks.insert((step.frame, step.index), cursor)),
                _ => drop(live.insert(step)),
            }
        }
        let mut found = Vec::new();
        for (id, frame) in &frames {
            let (Shape::Each(elements), Some((opener, block))) = (frame.shape, frame.opened_by) else { continue };
            let Some(place) = place(&frames, program, opener.frame) else { continue };
            let indices = live.iter().filter(|step| step.frame == *id && step.node != LANE).map(|step| step.index);
            let indices: BTreeSet<_> = indices.filter(|index| *index < elements.n).collect();
            let next = |lane: u32| chunks.get(&(*id, lane)).copied();
            let node = &program.blocks[block as usize].nodes[opener.node as usize];
            let left = left(elements, &indices, next);
            found.push(Unfinished { address: place.address(&node.path), elements: elements.n, left });
        }
        Ok(found)
    }
}

/// Elements that have not ended: those at which something is at work or waits, and those of chunks that are not open yet.
/// Chunks take turns on lanes; `next` is the chunk that a lane is about to open.
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

/// Where the instance of a frame is, if it is in no each and no loop.
fn place(frames: &BTreeMap<FrameId, Frame>, program: &Program, id: FrameId) -> Option<Place> {
    if id == FrameId::ROOT {
        return Some(Place::root());
    }
    let (opener, block) = frames.get(&id)?.opened_by?;
    let node = &program.blocks[block as usize].nodes[opener.node as usize];
    let outer = place(frames, program, opener.frame)?;
    match node.op {
        Op::Choice { .. } => Some(outer),
        Op::Call { .. } => Some(outer.called(node)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_and_what_is_to_be_opened_is_left() {
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
