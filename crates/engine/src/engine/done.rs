//! Finds the steps of an unfinished run that may have been done and must not be repeated without consent. Inside an
//! each, a loop, a choice or a call that is under way, every instance is examined: a step that is still pending in all
//! of them has done nothing. Where that cannot be told, because an element or an iteration has ended and left no rows,
//! or because a flow calls itself, all steps inside may have been done.

use super::{
    known::PreviousPlan,
    live::Live,
    reruns::{Marks, Steps, bodies, inside, marks, once_only, walk},
};
use crate::runs::Run;
use onceflow_core::{
    model::{
        InstancePath, Node, Program,
        program::{NodeIndex, NodeOp, ROOT, Source},
    },
    protocol::{
        ids::{FrameId, StepId},
        rows::Shape,
    },
};
use std::collections::BTreeSet;

/// The steps that an unfinished run has done or may have done, under this plan or before, and that must not be repeated
/// without consent.
pub(super) fn done_so_far(run: &Run, live: &Live, before: &PreviousPlan) -> Marks {
    let earlier = run.header.done_before.iter().copied();
    let mut done = once_only(&before.program);
    if done.is_empty() {
        return earlier.collect();
    }
    let program = &run.plan.program;
    let mut may = MayBeDone { program, live, found: Steps::new() };
    may.instance((FrameId::ROOT, 0), ROOT, &InstancePath::root());
    let planned = once_only(program);
    // Steps that the plan did not contain were done before.
    done.retain(|step| may.found.contains(step) || !planned.contains(step));
    earlier.chain(marks(&done)).collect()
}

/// Steps that may have been done.
struct MayBeDone<'a> {
    program: &'a Program,
    live: &'a Live,
    found: Steps,
}

impl MayBeDone<'_> {
    /// Adds the steps of an instance of a block. Ready and parked steps have not begun, and neither have those that
    /// depend on them or on an open frame.
    fn instance(&mut self, (frame, index): (FrameId, u32), block: u32, place: &InstancePath) {
        let program = self.program;
        let mut to_come = BTreeSet::<NodeIndex>::new();
        // Nodes are sorted: each stands behind those it reads from.
        for (at, node) in (0..).zip(&program.blocks[block as usize].nodes) {
            let step = StepId { frame, index, node: at };
            let waits = |source: &Source| matches!(source, Source::Node(from, _) if to_come.contains(from));
            if self.live.frames.contains_key(&FrameId::opened_by(step)) {
                self.frame(FrameId::opened_by(step), node, place);
            } else if !self.live.ready_steps.contains_key(&step) && !node.inputs.iter().chain(&node.gate).any(waits) {
                self.all(node, place);
                continue;
            }
            to_come.insert(at);
        }
    }

    /// Adds the steps inside of a node that is open.
    fn frame(&mut self, id: FrameId, node: &Node, place: &InstancePath) {
        let (frame, instances) = (&self.live.frames[&id], self.live.instances(id));
        let all_are_there = match frame.shape {
            Shape::Each(elements) => self.live.left(id, elements) == elements.n,
            Shape::Single | Shape::Run => match node.op {
                NodeOp::Loop { .. } => instances.iter().eq([&0]),
                _ => instances.len() == 1,
            },
        };
        assert!(frame.depth > 0, "frame {id:?} was opened by a step, so it is inside of another one");
        // Deeper frames are inside of one that was checked.
        let is_outermost = frame.depth == 1;
        if !all_are_there || is_outermost && calls_itself(self.program, node, &mut BTreeSet::new()) {
            return self.all(node, place);
        }
        for index in instances {
            self.instance((id, index), frame.block, &inside(node, place));
        }
    }

    /// Adds all steps of a node.
    fn all(&mut self, node: &Node, place: &InstancePath) {
        walk(self.program, node, place, &mut BTreeSet::new(), &mut self.found);
    }
}

/// A flow is called inside of itself below the node: the addresses of its steps cannot be told apart then.
fn calls_itself(program: &Program, node: &Node, around: &mut BTreeSet<u32>) -> bool {
    bodies(node).into_iter().any(|body| {
        let is_new = around.insert(body);
        let nodes = &program.blocks[body as usize].nodes;
        let found = !is_new || nodes.iter().any(|node| calls_itself(program, node, around));
        if is_new {
            around.remove(&body);
        }
        found
    })
}
