//! Opens frames: each, loop, choice, call. No user code runs here; the number of elements and the arm are decided from
//! the step's inputs, read after it was claimed.

use super::{Job, Work, failure, memo::StepMemo, task::TaskStep};
use crate::{Error, events::EventKind, kernel::WorkCommit, seams};
use onceflow_core::{
    Digest, limits,
    model::{
        program::{Node, NodeIndex, NodeOp, PortIndex, Source},
        wiring::Consumer,
    },
    payload::{Outcome, Payload},
    protocol::{
        draft::InstalledProgram,
        ids::StepId,
        rows::{Held, RunState, Shape},
        step,
    },
};
use std::sync::Arc;

/// Performs a node of a block: delivers a failure among its inputs, runs its task, or opens its frame.
pub(super) async fn perform_node(work: &Work<'_>) -> Result<Option<Job>, Error> {
    let plan = &work.run.plan;
    let node = work.taken.node(plan);
    let Some(inputs) = work.taken.inputs(plan, &node.inputs) else {
        return work.missing_input().await;
    };
    assert_eq!(inputs.len(), node.inputs.len(), "a step has as many inputs as its node, or it is not ready");
    if let Some(why) = failure(&inputs) {
        return work.give(&step::failed_outputs(node, why), None).await;
    }
    match &node.op {
        NodeOp::Task(_) | NodeOp::Fused(_) => TaskStep::new(work, inputs).perform().await,
        NodeOp::Relay => work.give(&vec![inputs[0].outcome.clone(); node.outputs.len()], None).await,
        NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Choice { .. } | NodeOp::Call { .. } => {
            Box::pin(Opening { work, node, inputs }.open()).await
        }
    }
}

/// A step that opens a frame.
struct Opening<'a> {
    work: &'a Work<'a>,
    node: &'a Node,
    inputs: Vec<Held>,
}

impl Opening<'_> {
    /// Opens the frame; or commits the outputs of the step, if they are kept or nothing is to be opened.
    async fn open(&self) -> Result<Option<Job>, Error> {
        let (plan, node, inputs) = (&self.work.run.plan, self.node, &self.inputs);
        let memo = StepMemo::of(self.work, inputs).await?;
        if let Some(next) = memo.reuse().await? {
            return Ok(next);
        }
        let memo = memo.digest();
        if self.work.taken.frame.depth >= limits::CALL_DEPTH_MAX {
            let why =
                format!("the flow calls itself more than {} deep (limits::CALL_DEPTH_MAX)", limits::CALL_DEPTH_MAX);
            return self.work.fail(1, vec![why]).await;
        }
        let (body, index) = match &node.op {
            NodeOp::Each { body, concurrency } => return self.each(*body, *concurrency, memo).await,
            NodeOp::Choice { arms } => {
                let holds =
                    |guard: Option<PortIndex>| guard.is_none_or(|port| inputs[usize::from(port)].outcome.is_true());
                match arms.iter().position(|arm| holds(arm.guard)) {
                    Some(arm) => (arms[arm].body, arm as u32),
                    None => return self.work.give(&vec![Outcome::None; node.outputs.len()], None).await,
                }
            }
            NodeOp::Loop { body, .. } | NodeOp::Call { body } => (*body, 0),
            NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => unreachable!("only containers open frames"),
        };
        let open = |state: RunState| step::open(plan, state, &self.work.taken, body, index, inputs, memo);
        self.work.commit(&[], None, open).await.map(WorkCommit::next)
    }

    /// Opens an each over the elements of its lists.
    async fn each(&self, body: u32, concurrency: Option<u32>, memo: Option<Digest>) -> Result<Option<Job>, Error> {
        let plan = &self.work.run.plan;
        let block = &plan.program.blocks[body as usize];
        let lists = block.inputs.iter().zip(&self.inputs).filter(|(input, _)| input.varying);
        let lens: Vec<_> = lists.map(|(_, held)| held.outcome.value().and_then(Payload::list_len)).collect();
        let Some(n) = lens.first().copied().flatten() else {
            return self.work.fail(1, vec![String::from("what an each goes over is no list")]).await;
        };
        let n = seams::each_len(n, self.places_of_inputs());
        if seams::lens_differ(&lens, n) {
            let lens: Vec<_> =
                lens.iter().map(|len| len.map_or_else(|| String::from("none"), |n| n.to_string())).collect();
            let why = format!("lists that are gone over together have different lengths: {}", lens.join(", "));
            return self.work.fail(1, vec![why]).await;
        }
        if n > limits::ELEMENTS_MAX {
            let why = format!("a list has {n} elements, more than {} (limits::ELEMENTS_MAX)", limits::ELEMENTS_MAX);
            return self.work.fail(1, vec![why]).await;
        }
        if n == 0 {
            return match seams::closes_empty_each() {
                true => self.work.give(&self.no_elements(), None).await,
                false => Ok(None),
            };
        }
        let elements = step::elements(n as u32, ops_per_element(plan, body), concurrency);
        assert_eq!(u64::from(elements.n), n, "an each is opened over another number of elements than its list has");
        let open = |state: RunState| step::open_each(plan, state, &self.work.taken, body, elements, &self.inputs, memo);
        let what = EventKind::DidOpen { address: self.work.address_if_wanted().await?, elements: elements.n };
        self.work.commit(&[], Some(what), open).await.map(WorkCommit::next)
    }

    /// The places of the outputs of other steps that this step takes as inputs.
    fn places_of_inputs(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.node.inputs.iter().filter_map(|source| match source {
            Source::Node(node, port) => Some(place_of(self.work, *node, *port)),
            _ => None,
        })
    }

    /// The outputs of an each without elements.
    fn no_elements(&self) -> Vec<Outcome> {
        let mut outputs = vec![Outcome::Value(Payload::List(Arc::new([]))); self.node.outputs.len()];
        if self.node.attempt {
            *outputs.last_mut().expect("an attempt has an output for its error") = Outcome::None;
        }
        outputs
    }
}

/// Names an output of a step of this instance, for [`seams::note_lens`].
pub(super) fn place_of(work: &Work<'_>, node: NodeIndex, port: u16) -> Vec<u8> {
    let step = StepId { node, ..work.taken.step };
    let keys = &work.run.plan.keys;
    [keys.rows.id(), &step.to_bytes(), &port.to_be_bytes()].concat()
}

/// Opens the next elements of an each.
pub(super) async fn open_chunk(work: &Work<'_>) -> Result<Option<Job>, Error> {
    let plan = &work.run.plan;
    let Shape::Each(elements) = work.taken.frame.shape else {
        return Err(Error::damaged("a lane outside an each"));
    };
    let range = elements.of_chunk(work.taken.ready_step.cursor);
    let block = &plan.program.blocks[work.taken.ready_step.block as usize];
    let mut lists = Vec::with_capacity(block.inputs.len());
    for (input, held) in block.inputs.iter().zip(&work.taken.frame.inputs) {
        lists.push(match held.as_ref().and_then(|held| held.outcome.value()) {
            Some(list) if input.varying => {
                let shared = work.shared();
                let elements = shared.lists.elements(&shared.values, list, range.clone()).await?;
                assert_eq!(elements.len(), range.len(), "a chunk is opened with elements of another one");
                Some(elements)
            }
            _ => None,
        });
    }
    let element = |port: PortIndex, index: u32| {
        let list = lists[usize::from(port)].as_ref().expect("only lists are gone over");
        list[(index - range.start) as usize].clone()
    };
    let open = |state: RunState| step::open_chunk(plan, state, &work.taken, &element);
    work.commit(&[], None, open).await.map(WorkCommit::next)
}

/// Operations that opening one element takes, at most, with those inside triggers.
fn ops_per_element(plan: &InstalledProgram, body: u32) -> usize {
    /// A join: its bit, and in its trigger the ready row, the count of live steps, and what happens at zero.
    const JOIN_OPS: usize = 4;
    /// The end of an element: its bit, and the join of the lanes.
    const END_OPS: usize = 1 + JOIN_OPS;
    /// An output that stands from the beginning may be a stored value: a small one in front of it, an edge, counts.
    const OUTPUT_OPS: usize = 6;
    let (block, wiring) = (&plan.program.blocks[body as usize], &plan.wiring.blocks[body as usize]);
    let delivered = wiring.opening.targets.iter().map(|target| match target.to {
        // The element's list is held by the frame, so a delivery that makes a step ready is its row alone.
        Consumer::Node(node) if wiring.joins(node).is_some_and(|joins| joins.of == 1) => 1,
        Consumer::Node(_) => target.ports.len() + JOIN_OPS,
        Consumer::End => target.ports.len() * OUTPUT_OPS + 1 + END_OPS,
    });
    let is_standing = |source: Source| match source {
        Source::Input(port) => !block.inputs[port as usize].varying,
        Source::Constant(_) | Source::None => true,
        Source::Node(..) => false,
    };
    let standing = block.outputs.iter().filter(|output| is_standing(output.from)).count();
    let ended = if wiring.opening.end_enabled { END_OPS } else { 0 };
    delivered.sum::<usize>() + wiring.opening.enabled.len() + standing * OUTPUT_OPS + ended
}
