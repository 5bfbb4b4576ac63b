//! How far the eaches of a run are: how many elements are still to be done, for those who ask before it goes on.

use crate::{
    Error, Handle,
    shared::{Run, Shared},
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    model::{Place, Program, program::Op},
    protocol::{
        ids::FrameId,
        rows::{Frame, Shape},
    },
};
use std::collections::BTreeMap;

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
        let (program, live) = (&run.plan.program, self.live(run).await?);
        let mut found = Vec::new();
        for (id, frame) in &live.frames {
            let (Shape::Each(elements), Some((opener, block))) = (frame.shape, frame.opened_by) else { continue };
            let Some(place) = place(&live.frames, program, opener.frame) else { continue };
            let node = &program.blocks[block as usize].nodes[opener.node as usize];
            let left = live.left(*id, elements);
            found.push(Unfinished { address: place.address(&node.path), elements: elements.n, left });
        }
        Ok(found)
    }
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
