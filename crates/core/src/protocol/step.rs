//! The drafts of a claimed step: it commits its outputs, opens a frame, is parked, or is retried. Each is one batch
//! that requires the claim, and all but a retry delete the claim, so that each happens once.

use super::{
    claim::WorkClaim,
    draft::{Draft, InstalledProgram, Site, close_step, lane_step, ready_row, standing, stored},
    ids::{FrameId, StepId},
    rows::{self, Elements, Frame, Held, Parked, Phase, ReadyStep, Received, RunState, Shape, Undo, Why},
};
use crate::{
    digest::Digest,
    fence::Fence,
    limits,
    model::program::{self, BlockIndex, Node, PortIndex},
    payload::Outcome,
    queue::Inbox,
    row::Row,
    seams,
    value::{EdgeName, ValueChange},
};
use std::sync::Arc;

/// A claimed step, with all rows that were read for it.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The step.
    pub step: StepId,
    /// The claim on it.
    pub claim: WorkClaim,
    /// The content of its ready row when it was claimed.
    pub ready_step: ReadyStep,
    /// The frame of its instance.
    pub frame: Arc<Frame>,
    /// The deliveries in its inbox, if they did not come with the ready row.
    pub inbox: Vec<Received>,
}

impl Taken {
    /// Returns the step's deliveries.
    pub fn received(&self) -> &[Received] {
        if self.ready_step.inputs.is_empty() { &self.inbox } else { &self.ready_step.inputs }
    }

    /// Returns the step's instance.
    pub fn site(&self) -> Site<'_> {
        Site { id: self.step.frame, frame: &self.frame, index: self.step.index, block: self.ready_step.block }
    }

    /// Returns the step's node.
    pub fn node<'a>(&self, plan: &'a InstalledProgram) -> &'a Node {
        &plan.program.blocks[self.ready_step.block as usize].nodes[self.step.node as usize]
    }

    /// Returns the step's inputs, from deliveries, the frame and constants, and whether its own delivery holds them.
    /// `None` if a delivery is missing: the store is damaged, or another worker has the step.
    pub fn inputs(&self, plan: &InstalledProgram, sources: &[program::Source]) -> Option<Vec<Held>> {
        let input = |(port, source): (usize, &program::Source)| {
            if let Some(outcome) = standing(plan, self.site(), *source) {
                return Some(Held { owned: false, outcome });
            }
            match self.received().iter().find(|received| usize::from(received.port) == port) {
                Some(received) => Some(Held { owned: received.owned, outcome: received.outcome.clone() }),
                None => seams::missing_input(),
            }
        };
        sources.iter().enumerate().map(input).collect()
    }

    /// Returns a draft that requires the claim.
    fn holding<'a>(&self, plan: &'a InstalledProgram, state: RunState) -> Draft<'a> {
        let mut draft = Draft::new(plan, state);
        self.claim.require(&mut draft.batch);
        draft
    }

    /// Returns a draft that requires the claim and takes the step out of its queue.
    pub fn leaving<'a>(&self, plan: &'a InstalledProgram, state: RunState) -> Draft<'a> {
        let mut draft = self.holding(plan, state);
        self.leave(&mut draft);
        draft
    }

    /// Takes the step out of its queue, with its claim.
    fn leave(&self, draft: &mut Draft<'_>) {
        let of = StepId::from_queue_name(self.claim.name.as_bytes());
        assert_eq!(
            of,
            Some((draft.plan().keys.run, self.step)),
            "the claim on {:?} is not on the step whose rows are deleted with it",
            self.claim.name
        );
        self.claim.leave(&mut draft.batch);
        if self.counts() {
            draft.live(-1);
        }
    }

    /// The step is counted among those in flight: every step but those that end a run.
    fn counts(&self) -> bool {
        use super::ids::{SETTLE, TEARDOWN, UNDO};
        !matches!(self.step.node, SETTLE | TEARDOWN | UNDO)
    }

    /// As [`Taken::leaving`], and consumes the step's deliveries.
    pub fn consuming<'a>(&self, plan: &'a InstalledProgram, state: RunState) -> Draft<'a> {
        let mut draft = self.leaving(plan, state);
        self.consume(plan, &mut draft);
        draft
    }

    fn consume(&self, plan: &InstalledProgram, draft: &mut Draft<'_>) {
        for received in self.received() {
            let key = plan.keys.arrival(self.step, received.port);
            if seams::releases_delivery(received) {
                draft.release(&key, received.port, &received.outcome);
            }
            if self.ready_step.inputs.is_empty() {
                draft.batch.delete(key);
            }
        }
    }
}

/// Decodes the ready row of a step.
pub fn ready_step(row: &Row) -> Option<ReadyStep> {
    rows::read(Inbox::note(row)?)
}

/// The ready row of a step, as it is now, stands for the attempt that was claimed: its claim may be put back if the
/// store has forgotten it. A started at-most-once step is not claimed again: another worker may be deciding about it.
pub fn is_same_attempt(claimed: &Row, now: &Row) -> bool {
    let (Some(claimed), Some(now)) = (ready_step(claimed), ready_step(now)) else { return false };
    (claimed.generation, claimed.failed) == (now.generation, now.failed) && now.started.is_none()
}

/// Commits the outputs of a step: one for each port of its node.
pub fn commit<'a>(plan: &'a InstalledProgram, state: RunState, taken: &Taken, outputs: &[Outcome]) -> Draft<'a> {
    let mut draft = taken.consuming(plan, state);
    give(plan, &mut draft, taken, outputs);
    draft
}

/// Commits an at-most-once step whose worker lost its claim after the body had run, while no operator has decided about
/// the step: its ready row still has the mark of this worker. `claim` and `row` are as they were read, so that a worker
/// or operator that takes, parks or restarts the step meanwhile wins. Another worker that has claimed the step by now
/// has started nothing, and loses its claim.
pub fn commit_late<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    (claim, row): (Option<Row>, Row),
    outputs: &[Outcome],
) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    draft.batch.require_seen(taken.claim.claim_key(), claim).require_equals(taken.claim.ready_key(), row);
    taken.leave(&mut draft);
    taken.consume(plan, &mut draft);
    give(plan, &mut draft, taken, outputs);
    draft
}

fn give(plan: &InstalledProgram, draft: &mut Draft<'_>, taken: &Taken, outputs: &[Outcome]) {
    let ports = taken.node(plan).outputs.len();
    assert_eq!(outputs.len(), ports, "step {:?} commits as many outputs as its node has ports", taken.step);
    let targets = plan.wiring.blocks[taken.ready_step.block as usize].targets(taken.step.node);
    draft.deliver(taken.site(), targets, &|port| outputs[usize::from(port)].clone());
}

/// Returns the outputs of a failed node whose failure is handled by `attempt`, its own or that of a module around it.
pub fn failed_outputs(node: &Node, why: &Arc<str>) -> Vec<Outcome> {
    if !node.attempt {
        return vec![Outcome::Failed(why.clone()); node.outputs.len()];
    }
    let mut outputs = vec![Outcome::None; node.outputs.len()];
    if let Some(error) = outputs.last_mut() {
        *error = Outcome::Value(error_payload(why));
    }
    outputs
}

/// Returns the text of an error, encoded as a task would: in MessagePack, like all values of users.
fn error_payload(why: &str) -> crate::payload::Payload {
    let short: String = why.chars().take(limits::ERROR_CHARS_MAX).collect();
    let mut bytes = vec![0xdb];
    bytes.extend_from_slice(&(short.len() as u32).to_be_bytes());
    bytes.extend_from_slice(short.as_bytes());
    crate::payload::Payload::inline(bytes)
}

/// Opens the frame of a loop, a choice or a call.
pub fn open<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    body: BlockIndex,
    index: u32,
    inputs: &[Held],
    memo: Option<Digest>,
) -> Draft<'a> {
    let block = &plan.program.blocks[body as usize];
    let (frame, id) = frame(plan, taken, body, inputs, Shape::Single, memo, |port| !block.inputs[port].varying);
    let mut draft = taken.consuming(plan, state);
    draft.put_frame(id, &frame);
    let site = Site { id, frame: &frame, index, block: body };
    draft.open(site, &|port| inputs[usize::from(port)].outcome.clone());
    draft
}

/// Opens the frame of an each with at least one element.
pub fn open_each<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    body: BlockIndex,
    elements: Elements,
    inputs: &[Held],
    memo: Option<Digest>,
) -> Draft<'a> {
    assert!(elements.n > 0, "an each without elements closes where it opens");
    assert!(
        (1..=elements.chunks()).contains(&elements.lanes),
        "{elements:?} have lanes without a chunk: the each would wait for them for ever"
    );
    let (frame, id) = frame(plan, taken, body, inputs, Shape::Each(elements), memo, |_| true);
    let mut draft = taken.consuming(plan, state);
    draft.put_frame(id, &frame);
    for lane in 0..elements.lanes {
        let mut ready_step = draft.ready_step(body, vec![]);
        ready_step.cursor = lane;
        draft.enable(lane_step(id, lane), &super::keys::internal_queue(), &ready_step);
    }
    draft
}

fn frame(
    plan: &InstalledProgram,
    taken: &Taken,
    body: BlockIndex,
    inputs: &[Held],
    shape: Shape,
    memo: Option<Digest>,
    shared: impl Fn(usize) -> bool,
) -> (Frame, FrameId) {
    let body_inputs = plan.program.blocks[body as usize].inputs.len();
    let hold = |(port, held): (usize, &Held)| shared(port).then(|| held.clone());
    let frame = Frame {
        block: body,
        opened_by: Some((taken.step, taken.ready_step.block)),
        depth: taken.frame.depth + 1,
        guarded: taken.frame.guarded || taken.node(plan).attempt,
        shape,
        inputs: inputs.iter().take(body_inputs).enumerate().map(hold).collect(),
        memo,
    };
    (frame, FrameId::opened_by(taken.step))
}

/// Divides `n` elements into chunks and lanes: at most `concurrency` in flight, and no chunk larger than a batch.
pub fn elements(n: u32, ops_per_element: usize, concurrency: Option<u32>) -> Elements {
    let fits = (limits::OPENING_OPS_MAX / ops_per_element.max(1)).clamp(1, limits::CHUNK_ELEMENTS_MAX) as u32;
    let wanted = concurrency.unwrap_or(u32::MAX).max(1);
    // Two lanes at least, so that one chunk works while the other drains; more if chunks are small.
    let lanes = wanted.min(limits::LANES_MAX);
    let chunk = (wanted / lanes).clamp(1, fits);
    let elements = Elements { n, chunk, lanes };
    let elements = Elements { lanes: lanes.min(elements.chunks()), ..elements };
    let in_flight = u64::from(elements.lanes) * u64::from(elements.chunk);
    assert!(in_flight <= wanted.into(), "{elements:?} may be in flight at once, {wanted} are allowed");
    elements
}

/// Opens the next chunk of an each. `element(port, i)` returns element `i` of the list at that input.
pub fn open_chunk<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    element: &dyn Fn(PortIndex, u32) -> Outcome,
) -> Draft<'a> {
    let Shape::Each(elements) = taken.frame.shape else { unreachable!("only an each has lanes") };
    let mut draft = taken.leaving(plan, state);
    for index in elements.of_chunk(taken.ready_step.cursor) {
        let site = Site { index, ..taken.site() };
        draft.open_borrowing(site, &|port| element(port, index));
    }
    draft
}

/// Opens the next iteration of a loop. `carried` returns the carried outcome of each varying input.
pub fn next_iteration<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    carried: &dyn Fn(PortIndex) -> Outcome,
) -> Draft<'a> {
    assert!(
        matches!(taken.frame.shape, Shape::Single),
        "only a loop has a next iteration, not {:?}",
        taken.frame.shape
    );
    let mut draft = taken.consuming(plan, state);
    let site = Site { index: taken.step.index + 1, ..taken.site() };
    draft.open(site, carried);
    draft
}

/// Closes a frame: its outputs are delivered to the consumers of the step that opened it. `outer` is the frame around
/// it.
pub fn close<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    outer: &Frame,
    outputs: &[Outcome],
) -> Draft<'a> {
    let (opener, block) = taken.frame.opened_by.expect("the frame of a run is not closed by a step");
    // Written when the frame was opened, by `frame`.
    assert_eq!(
        taken.frame.depth,
        outer.depth + 1,
        "step {:?} closes its frame into another than it came from",
        taken.step
    );
    let mut draft = taken.consuming(plan, state);
    draft.drop_frame(taken.step.frame, &taken.frame);
    let site = Site { id: opener.frame, frame: outer, index: opener.index, block };
    let targets = plan.wiring.blocks[block as usize].targets(opener.node);
    draft.deliver(site, targets, &|port| outputs[usize::from(port)].clone());
    draft
}

/// The step closes an each.
pub fn is_close_of_each(taken: &Taken) -> bool {
    matches!(taken.frame.shape, Shape::Each(_)) && taken.step == close_step(taken.step.frame)
}

/// Parks a step: takes it out of its queue until an operator decides or the run is retried. Its deliveries stay.
pub fn park<'a>(plan: &'a InstalledProgram, state: RunState, taken: &Taken, why: Why, next: Phase) -> Draft<'a> {
    assert!(!matches!(why, Why::Suspended { .. }), "step {:?} is suspended without a timer: use `suspend`", taken.step);
    // The mark of the start is kept: a worker that takes up the step again must not start it blindly.
    let started = taken.ready_step.started.or(match &why {
        Why::Failed(failed) if failed.started => Some(taken.claim.fence),
        Why::Unknown { started, .. } => Some(*started),
        Why::Failed(_) | Why::NotStarted | Why::Suspended { .. } => None,
    });
    aside(taken.leaving(plan, state), state, taken, (why, started), next)
}

/// Suspends a step: its ready row and claim go, and a parked row comes with the handle of the attempt, and a timer if it
/// has a deadline. `attempt` is the ready row that continues the attempt; see [`super::run::wake`].
pub fn suspend<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    ready_step: &ReadyStep,
    why: Why,
) -> Draft<'a> {
    assert!(matches!(why, Why::Suspended { .. }), "step {:?} is suspended without a handle", taken.step);
    assert_same_step(taken, ready_step);
    let mut draft = taken.holding(plan, state);
    seams::leave_suspended(&mut draft.batch, &taken.claim);
    draft.live(-1);
    if let Some((key, timer)) = draft.timer(taken.step, &why) {
        seams::set_timer(&mut draft.batch, key, rows::write(&timer));
        // Every process that is at work knows of it, should this one die.
        draft.batch.ring();
    }
    let ready_step = ReadyStep { started: None, resumed: None, ..ready_step.clone() };
    let parked = Parked { why, class: class_of(plan, taken), ready_step };
    draft.batch.put(plan.keys.parked(taken.step), rows::write(&parked));
    draft
}

/// As [`park`], for an at-most-once step that no worker has claimed: the worker that started it, with this fence, is
/// gone.
/// `row` is its ready row as it was read, so that a worker that claims it meanwhile wins.
pub fn park_abandoned<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    started: &Taken,
    row: &Row,
    why: Why,
) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    draft.batch.require_absent(started.claim.claim_key());
    draft.batch.require_equals(started.claim.ready_key(), row.clone()).delete(started.claim.ready_key());
    draft.live(-1);
    aside(draft, state, started, (why, Some(started.claim.fence)), state.phase)
}

fn aside<'a>(
    mut draft: Draft<'a>,
    state: RunState,
    taken: &Taken,
    (why, started): (Why, Option<Fence>),
    next: Phase,
) -> Draft<'a> {
    let plan = draft.plan();
    let ready_step = ReadyStep { started, ..taken.ready_step.clone() };
    let parked = Parked { why, class: class_of(plan, taken), ready_step };
    draft.batch.put(plan.keys.parked(taken.step), rows::write(&parked));
    if next != state.phase {
        draft.batch.put(plan.keys.state(), RunState { phase: next, ..state }.to_row()).ring();
    }
    draft
}

/// A ready row is rewritten for the step that it was claimed for, or the step would be done in another block.
fn assert_same_step(taken: &Taken, next: &ReadyStep) {
    let now = &taken.ready_step;
    assert_eq!(
        (next.generation, next.block, next.cursor),
        (now.generation, now.block, now.cursor),
        "the ready row of step {:?} is rewritten for another step",
        taken.step
    );
}

fn class_of(plan: &InstalledProgram, taken: &Taken) -> Option<String> {
    plan.class(taken.ready_step.block, taken.step.node)
}

/// Rewrites a step's ready row while the claim is held: an attempt failed, or the body is about to start.
pub fn note<'a>(plan: &'a InstalledProgram, state: RunState, taken: &Taken, ready_step: &ReadyStep) -> Draft<'a> {
    assert_same_step(taken, ready_step);
    let mut draft = taken.holding(plan, state);
    draft.batch.put(taken.claim.ready_key(), ready_row(&plan.keys, taken.step, ready_step));
    draft
}

/// Registers the compensation of a step that is about to start. `number` must be free.
pub fn register(plan: &InstalledProgram, draft: &mut Draft<'_>, number: u32, undo: &Undo) {
    let key = plan.keys.undo(number);
    draft.batch.require_absent(key.clone());
    for (port, held) in undo.inputs.iter().enumerate() {
        draft.hold(&key, port as u16, &held.outcome);
    }
    draft.batch.put(key, rows::write(undo));
}

/// Keeps the outputs of a step under its memo.
pub fn keep(plan: &InstalledProgram, draft: &mut Draft<'_>, memo: &Digest, outputs: &[Outcome]) {
    let key = plan.keys.memo(memo);
    for (port, outcome) in outputs.iter().enumerate() {
        if let Some(stored) = stored(outcome) {
            draft.changes.push(ValueChange::set(memo_edge(plan, memo, port as u16), stored.clone()));
        }
    }
    draft.batch.require_absent(key.clone());
    draft.batch.put(key, rows::write(&rows::Memo { outputs: outputs.to_vec() }));
}

/// Returns the name of the edge that holds an output of a memo.
pub fn memo_edge(plan: &InstalledProgram, memo: &Digest, port: u16) -> EdgeName {
    plan.keys.kept_edge(plan.keys.memo(memo).name.as_bytes(), port)
}
