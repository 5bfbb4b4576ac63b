//! The progress of a run in the store: the steps under way, the outermost ones that are done, and the elements left in
//! its eaches. Read from the rows in flight, so the cost does not grow with the number of steps done.

use super::live::Live;
use crate::{
    Error, RunSteps,
    runs::{Run, Runs},
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    model::{
        InstancePath, Program,
        program::{NodeIndex, NodeOp, ROOT, Source},
    },
    protocol::{
        ids::{FrameId, StepId},
        rows::{Frame, Shape},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// An each that has begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachProgress {
    /// Its address.
    pub address: String,
    /// Elements of its list.
    pub elements: u32,
    /// Elements that have not ended.
    pub left: u32,
    /// The tasks of an element, with `*` for its number; `None` if they depend on choices, loops or other containers.
    pub tasks: Option<Vec<String>>,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// The tasks that are ready, running or parked.
    pub under_way: BTreeSet<String>,
    /// The outermost tasks that have committed under the present plan.
    pub done: Vec<String>,
    /// The eaches that have begun and have not ended; not those inside of others, or of loops.
    pub eaches: Vec<EachProgress>,
}

impl<'a> RunSteps<'a> {
    /// The progress of the run; `None` if it has ended. The rows are not read as one snapshot: for an active run the
    /// answer is an estimate.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn progress(self) -> BoxFuture<'a, Result<Option<RunProgress>, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(None) };
            let live = Live::read(&self.handle.shared, &run).await?;
            let under_way = under_way(&self.handle.shared.runs, &run, &live).await?;
            Ok(Some(RunProgress {
                under_way,
                done: done(&run.plan.program, &live),
                eaches: each_progress(&run, &live),
            }))
        })
    }

    /// The eaches of the run that have begun and have not ended; not those inside of others, or of loops. None if the
    /// run has ended.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn each_progress(self) -> BoxFuture<'a, Result<Vec<EachProgress>, Error>> {
        Box::pin(async move {
            match self.handle.shared.runs.read_run(self.handle.id()).await? {
                Some(run) => Ok(each_progress(&run, &Live::read(&self.handle.shared, &run).await?)),
                None => Ok(vec![]),
            }
        })
    }
}

/// The addresses of tasks that are ready, running or parked.
async fn under_way(runs: &Runs, run: &Run, live: &Live) -> Result<BTreeSet<String>, Error> {
    let program = &run.plan.program;
    let mut found = BTreeSet::new();
    for (step, ready_step) in &live.ready_steps {
        let Some(node) = program.blocks[ready_step.block as usize].nodes.get(step.node as usize) else { continue };
        if !matches!(node.op, NodeOp::Task(_) | NodeOp::Fused(_)) || !live.frames.contains_key(&step.frame) {
            continue;
        }
        match runs.place(run, step.frame, step.index).await {
            Ok(place) => drop(found.insert(place.address(&node.path))),
            // The run went on meanwhile, and the frame of the step has closed.
            Err(_) if runs.frame(run, step.frame).await?.is_none() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The outermost tasks that are done: neither they nor any they read from are under way.
fn done(program: &Program, live: &Live) -> Vec<String> {
    let (mut to_come, mut done) = (BTreeSet::<NodeIndex>::new(), Vec::new());
    // Nodes are sorted: each stands behind those it reads from.
    for (at, node) in (0..).zip(&program.blocks[ROOT as usize].nodes) {
        let step = StepId { frame: FrameId::ROOT, index: 0, node: at };
        let waits = |source: &Source| matches!(source, Source::Node(from, _) if to_come.contains(from));
        if live.has(step) || node.inputs.iter().chain(&node.gate).any(waits) {
            to_come.insert(at);
        } else if matches!(node.op, NodeOp::Task(_) | NodeOp::Fused(_)) {
            done.push(InstancePath::root().address(&node.path));
        }
    }
    done
}

pub(super) fn each_progress(run: &Run, live: &Live) -> Vec<EachProgress> {
    let program = &run.plan.program;
    let mut found = Vec::new();
    for (id, frame) in &live.frames {
        let (Shape::Each(elements), Some((opener, block))) = (frame.shape, frame.opened_by) else { continue };
        let Some(place) = place(&live.frames, program, opener.frame) else { continue };
        let node = &program.blocks[block as usize].nodes[opener.node as usize];
        let left = live.left(*id, elements);
        let tasks = tasks(program, frame.block, &place);
        found.push(EachProgress { address: place.address(&node.path), elements: elements.n, left, tasks });
    }
    found
}

/// The tasks of a block; `None` if it contains containers.
fn tasks(program: &Program, block: u32, place: &InstancePath) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for node in &program.blocks[block as usize].nodes {
        match &node.op {
            NodeOp::Relay => {}
            NodeOp::Task(_) | NodeOp::Fused(_) => found.push(place.address(&node.path)),
            NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Call { .. } | NodeOp::Choice { .. } => return None,
        }
    }
    Some(found)
}

/// The place of a frame's instance, unless it is in an each or a loop.
fn place(frames: &BTreeMap<FrameId, Frame>, program: &Program, id: FrameId) -> Option<InstancePath> {
    if id == FrameId::ROOT {
        return Some(InstancePath::root());
    }
    let (opener, block) = frames.get(&id)?.opened_by?;
    let node = &program.blocks[block as usize].nodes[opener.node as usize];
    let outer = place(frames, program, opener.frame)?;
    match node.op {
        NodeOp::Choice { .. } => Some(outer),
        NodeOp::Call { .. } => Some(outer.called(node)),
        _ => None,
    }
}
