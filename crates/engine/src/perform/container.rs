//! Opens and closes frames: each, loop, choice, call. No user code runs here; the number of elements, the arm and
//! whether a loop goes on are decided from the step's inputs, read after it was claimed.

use super::{Job, Work, failure};
use crate::{Error, data, events::EventKind, kernel::WorkCommit, seams, worker::Slot};
use onceflow_core::{
    Digest, Name, ValueChange, limits,
    model::{
        program::{NodeIndex, NodeOp, PortIndex, Program, ROOT, Source},
        wiring::Consumer,
    },
    payload::{Outcome, Payload, Stored, list_digest},
    protocol::{
        memo::memo_of,
        rows::{self, Elements, Held, Memo, RunState, Shape},
        step,
    },
};
use std::sync::Arc;

impl Work<'_> {
    /// Performs a node of a block.
    pub(super) async fn node(&self, slot: &mut Slot) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let Some(inputs) = self.taken.inputs(plan, &node.inputs) else {
            return self.missing_input().await;
        };
        if let Some(why) = failure(&inputs) {
            let outputs = step::failed_outputs(node, why);
            return self.give(slot, &outputs, None).await;
        }
        match &node.op {
            NodeOp::Task(_) | NodeOp::Fused(_) => return self.task(slot, inputs).await,
            NodeOp::Relay => return self.give(slot, &vec![inputs[0].outcome.clone(); node.outputs.len()], None).await,
            NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Choice { .. } | NodeOp::Call { .. } => {}
        }
        let memo = self.memo(&inputs).await?;
        if let Some(next) = self.reuse(slot, memo.as_ref()).await? {
            return Ok(next);
        }
        if self.taken.frame.depth >= limits::CALL_DEPTH_MAX {
            let why =
                format!("the flow calls itself more than {} deep (limits::CALL_DEPTH_MAX)", limits::CALL_DEPTH_MAX);
            return self.fail(slot, 1, vec![why]).await;
        }
        let (body, index) = match &node.op {
            NodeOp::Each { body, concurrency } => return self.each(slot, *body, *concurrency, &inputs, memo).await,
            NodeOp::Choice { arms } => {
                let holds =
                    |guard: Option<PortIndex>| guard.is_none_or(|port| inputs[usize::from(port)].outcome.is_true());
                match arms.iter().position(|arm| holds(arm.guard)) {
                    Some(arm) => (arms[arm].body, arm as u32),
                    None => return self.give(slot, &vec![Outcome::None; node.outputs.len()], None).await,
                }
            }
            NodeOp::Loop { body, .. } | NodeOp::Call { body } => (*body, 0),
            NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => unreachable!("handled above"),
        };
        let open = |state: RunState| step::open(plan, state, &self.taken, body, index, &inputs, memo);
        self.commit(slot, &[], None, open).await.map(WorkCommit::next)
    }

    /// Commits the outputs of a node.
    pub(super) async fn give(
        &self,
        slot: &Slot,
        outputs: &[Outcome],
        what: Option<EventKind>,
    ) -> Result<Option<Job>, Error> {
        let commit = |state: RunState| step::commit(&self.run.plan, state, &self.taken, outputs);
        let committed = self.commit_outcome(slot, &[], what, commit).await?;
        self.got_on(self.taken.frame.shape, self.taken.step.node);
        Ok(committed.next())
    }

    /// Commits the kept outputs of this step's memo, if they are there and still are when it commits.
    pub(super) async fn reuse(&self, slot: &Slot, memo: Option<&Digest>) -> Result<Option<Option<Job>>, Error> {
        let Some(memo) = memo else { return Ok(None) };
        let plan = &self.run.plan;
        let kept = self.worker.shared.kept_if_intact(&plan.keys, plan.keys.memo(memo)).await?;
        let Some(outputs) = kept else { return Ok(None) };
        if !seams::is_pinned(plan.keys.generation) {
            return Ok(None);
        }
        let what = EventKind::DidReuse { address: self.address_if_wanted().await? };
        let commit = |state: RunState| {
            let mut draft = step::commit(plan, state, &self.taken, &outputs);
            draft.batch.require_present(plan.keys.memo(memo));
            draft
        };
        let committed = self.commit(slot, &[], Some(what), commit).await?;
        self.got_on(self.taken.frame.shape, self.taken.step.node);
        Ok(match committed {
            WorkCommit::DecideAgain => None,
            committed => Some(committed.next()),
        })
    }

    /// Wakes callers that wait for outputs of the run, if this node gives one.
    pub(super) fn got_on(&self, shape: Shape, node: NodeIndex) {
        let plan = &self.run.plan;
        let targets = || plan.wiring.blocks[ROOT as usize].targets(node);
        if matches!(shape, Shape::Run) && targets().iter().any(|target| target.to == Consumer::End) {
            self.worker.shared.signals.progress(plan.keys.run).notify_waiters();
        }
    }

    async fn missing_input(&self) -> Result<Option<Job>, Error> {
        if !self.worker.shared.kernel.is_ours(&self.taken.claim).await? {
            return Ok(None);
        }
        let address = self.address().await?;
        Err(Error::damaged(format!("an input of {address} in run `{}` is missing", self.run.key)))
    }

    async fn each(
        &self,
        slot: &Slot,
        body: u32,
        concurrency: Option<u32>,
        inputs: &[Held],
        memo: Option<Digest>,
    ) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let block = &plan.program.blocks[body as usize];
        let lists = block.inputs.iter().zip(inputs).filter(|(input, _)| input.varying);
        let lens: Vec<_> = lists.map(|(_, held)| held.outcome.value().and_then(Payload::list_len)).collect();
        let Some(n) = lens.first().copied().flatten() else {
            return self.fail(slot, 1, vec![String::from("what an each goes over is no list")]).await;
        };
        let n = seams::each_len(n, self.places_of_inputs());
        if seams::lens_differ(&lens, n) {
            let lens: Vec<_> =
                lens.iter().map(|len| len.map_or_else(|| String::from("none"), |n| n.to_string())).collect();
            let why = format!("lists that are gone over together have different lengths: {}", lens.join(", "));
            return self.fail(slot, 1, vec![why]).await;
        }
        if n > limits::ELEMENTS_MAX {
            let why = format!("a list has {n} elements, more than {} (limits::ELEMENTS_MAX)", limits::ELEMENTS_MAX);
            return self.fail(slot, 1, vec![why]).await;
        }
        if n == 0 {
            return match seams::closes_empty_each() {
                true => self.give(slot, &self.no_elements(), None).await,
                false => Ok(None),
            };
        }
        let elements = step::elements(n as u32, ops_per_element(&plan.program, plan, body), concurrency);
        let open = |state: RunState| step::open_each(plan, state, &self.taken, body, elements, inputs, memo);
        let what = EventKind::DidOpen { address: self.address_if_wanted().await?, elements: elements.n };
        self.commit(slot, &[], Some(what), open).await.map(WorkCommit::next)
    }

    /// The places of the outputs of other steps that this step takes as inputs.
    fn places_of_inputs(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.taken.node(&self.run.plan).inputs.iter().filter_map(|source| match source {
            Source::Node(node, port) => Some(self.place_of(*node, *port)),
            _ => None,
        })
    }

    /// Names an output of a step of this instance, for [`seams::note_lens`].
    pub(super) fn place_of(&self, node: NodeIndex, port: u16) -> Vec<u8> {
        let step = onceflow_core::protocol::ids::StepId { node, ..self.taken.step };
        let keys = &self.run.plan.keys;
        [keys.rows.id(), &step.to_bytes(), &port.to_be_bytes()].concat()
    }

    /// The outputs of an each without elements.
    fn no_elements(&self) -> Vec<Outcome> {
        let node = self.taken.node(&self.run.plan);
        let mut outputs = vec![Outcome::Value(Payload::List(Arc::new([]))); node.outputs.len()];
        if node.attempt {
            *outputs.last_mut().expect("an attempt has an output for its error") = Outcome::None;
        }
        outputs
    }

    /// Opens the next elements of an each.
    pub(super) async fn open_chunk(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let Shape::Each(elements) = self.taken.frame.shape else {
            return Err(Error::damaged("a lane outside an each"));
        };
        let range = elements.of_chunk(self.taken.ready_step.cursor);
        let block = &plan.program.blocks[self.taken.ready_step.block as usize];
        let mut lists = Vec::with_capacity(block.inputs.len());
        for (input, held) in block.inputs.iter().zip(&self.taken.frame.inputs) {
            lists.push(match held.as_ref().and_then(|held| held.outcome.value()) {
                Some(list) if input.varying => {
                    let shared = &self.worker.shared;
                    Some(shared.lists.elements(&shared.values, list, range.clone()).await?)
                }
                _ => None,
            });
        }
        let element = |port: PortIndex, index: u32| {
            let list = lists[usize::from(port)].as_ref().expect("only lists are gone over");
            list[(index - range.start) as usize].clone()
        };
        let open = |state: RunState| step::open_chunk(plan, state, &self.taken, &element);
        self.commit(slot, &[], None, open).await.map(WorkCommit::next)
    }

    /// Ends an instance, or closes an each.
    pub(super) async fn end(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        if step::is_close_of_each(&self.taken) {
            return self.close_each(slot).await;
        }
        let plan = &self.run.plan;
        let block = &plan.program.blocks[self.taken.ready_step.block as usize];
        let sources: Vec<_> = block.outputs.iter().map(|output| output.from).collect();
        let Some(given) = self.taken.inputs(plan, &sources) else { return self.missing_input().await };
        let (opener, outer_block) = self.opened_by()?;
        let node = &plan.program.blocks[outer_block as usize].nodes[opener.node as usize];
        if let Some(why) = failure(&given) {
            return self.close(slot, step::failed_outputs(node, why)).await;
        }
        let own = node.outputs.len() - usize::from(node.attempt);
        if let NodeOp::Loop { carried, .. } = &node.op
            && given[own].outcome.is_true()
        {
            let Some(_) = self.taken.step.index.checked_add(1) else {
                return self.fail(slot, 1, vec![String::from("a loop has made 2^32 iterations")]).await;
            };
            let next = |port: PortIndex| {
                let (from, _) = carried.iter().find(|(_, to)| *to == port).expect("what varies in a loop is carried");
                given[usize::from(*from)].outcome.clone()
            };
            let turn = |state: RunState| step::next_iteration(plan, state, &self.taken, &next);
            let what = match self.worker.shared.events.wanted() {
                false => None,
                true => {
                    let place = self.worker.shared.runs.place(&self.run, opener.frame, opener.index).await?;
                    let address = place.address(&node.path);
                    Some(EventKind::DidTurn { address, iteration: self.taken.step.index + 1 })
                }
            };
            return self.commit(slot, &[], what, turn).await.map(WorkCommit::next);
        }
        let mut outputs: Vec<_> = given.into_iter().take(own).map(|held| held.outcome).collect();
        if node.attempt {
            outputs.push(Outcome::None);
        }
        self.close(slot, outputs).await
    }

    fn opened_by(&self) -> Result<(onceflow_core::protocol::ids::StepId, u32), Error> {
        self.taken.frame.opened_by.ok_or_else(|| Error::damaged("the frame of a run was closed by a step"))
    }

    /// Closes a frame with these outputs.
    async fn close(&self, slot: &Slot, outputs: Vec<Outcome>) -> Result<Option<Job>, Error> {
        self.close_with(slot, outputs, vec![]).await
    }

    async fn close_with(
        &self,
        slot: &Slot,
        outputs: Vec<Outcome>,
        gathers: Vec<ValueChange>,
    ) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let (opener, _) = self.opened_by()?;
        let Some(outer) = self.worker.shared.runs.frame(&self.run, opener.frame).await? else {
            return self.missing_input().await;
        };
        let memo = self.taken.frame.memo.filter(|_| !outputs.iter().any(|given| matches!(given, Outcome::Failed(_))));
        loop {
            let memo = match &memo {
                Some(memo) if self.kept(Some(memo)).await?.is_none() => Some(memo),
                _ => None,
            };
            let decide = |state: RunState| {
                let mut draft = step::close(plan, state, &self.taken, &outer, &outputs);
                draft.changes.splice(0..0, gathers.iter().cloned());
                if let Some(memo) = memo {
                    step::keep(plan, &mut draft, memo, &outputs);
                }
                draft
            };
            let committed = self.commit(slot, &[], None, decide).await?;
            // Another step kept the same memo meanwhile: look again.
            if let WorkCommit::DecideAgain = committed {
                continue;
            }
            self.run.forget_frame(self.taken.step.frame);
            self.got_on(outer.shape, opener.node);
            return Ok(committed.next());
        }
    }

    /// Closes an each whose elements have all ended: their outputs become lists.
    async fn close_each(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let Shape::Each(elements) = self.taken.frame.shape else { return Err(Error::damaged("a frame of an each")) };
        let (opener, outer_block) = self.opened_by()?;
        let node = &plan.program.blocks[outer_block as usize].nodes[opener.node as usize];
        let block = &plan.program.blocks[self.taken.ready_step.block as usize];
        let (mut outputs, mut gathers, mut failed) = (Vec::new(), Vec::new(), None);
        for (port, output) in block.outputs.iter().enumerate() {
            let prefix = plan.keys.elements(self.taken.step.frame, port as u16);
            match self.gather(&prefix, elements, output.hidden).await? {
                Gathered::List(digest) => {
                    let id = self.worker.shared.values.fresh_id();
                    gathers.push(ValueChange::gather(id.clone(), prefix, elements.n.into(), digest));
                    let stored = Stored { id, digest, len: u64::from(elements.n) };
                    outputs.push(Outcome::Value(Payload::StoredList(stored)));
                }
                Gathered::Nothing => {}
                Gathered::Failed(why) => failed = failed.or(Some(why)),
            }
        }
        if let Some(why) = failed {
            let prefix = |port| plan.keys.elements(self.taken.step.frame, port as u16);
            let releases = (0..block.outputs.len()).map(|port| ValueChange::Release { prefix: prefix(port) }).collect();
            return self.close_with(slot, step::failed_outputs(node, &why), releases).await;
        }
        if node.attempt {
            outputs.push(Outcome::None);
        }
        self.close_with(slot, outputs, gathers).await
    }

    /// Gathers the elements under a prefix.
    async fn gather(&self, prefix: &Name, elements: Elements, hidden: bool) -> Result<Gathered, Error> {
        let values = &self.worker.shared.values;
        if hidden {
            let failed = values.elements(prefix, 0, 1).await?;
            return Ok(match failed.into_iter().next() {
                None => Gathered::Nothing,
                Some((_, onceflow_store::values::Element::Inline(bytes))) => match rows::read(&bytes) {
                    Some(Outcome::Failed(why)) => Gathered::Failed(why),
                    _ => return Err(Error::damaged("an element nobody reads")),
                },
                Some(_) => return Err(Error::damaged("an element nobody reads")),
            });
        }
        let mut digests = Vec::with_capacity(elements.n as usize);
        let mut first = 0;
        while first < elements.n {
            let last = (first + limits::SCAN_ROWS_MAX as u32).min(elements.n);
            for outcome in data::gathered(values, prefix, first..last).await? {
                match outcome {
                    Outcome::Failed(why) => return Ok(Gathered::Failed(why)),
                    outcome => digests.push(outcome.digest()),
                }
            }
            first = last;
        }
        Ok(Gathered::List(list_digest(digests.into_iter())))
    }

    /// The memo of this step, if the run keeps memos.
    pub(super) async fn memo(&self, inputs: &[Held]) -> Result<Option<Digest>, Error> {
        if self.run.header.keep_ms.is_none() {
            return Ok(None);
        }
        let plan = &self.run.plan;
        Ok(Some(memo_of(&plan.program, self.taken.node(plan), &self.address().await?, inputs)))
    }

    /// The kept outputs of a memo.
    pub(super) async fn kept(&self, memo: Option<&Digest>) -> Result<Option<Vec<Outcome>>, Error> {
        let Some(memo) = memo else { return Ok(None) };
        let Some(row) = self.worker.shared.row(self.run.plan.keys.memo(memo)).await? else { return Ok(None) };
        let memo: Memo = rows::read(&row).ok_or_else(|| Error::damaged("what a step gave before"))?;
        Ok(Some(memo.outputs))
    }

    pub(super) async fn address_if_wanted(&self) -> Result<String, Error> {
        if self.worker.shared.events.wanted() { self.address().await } else { Ok(String::new()) }
    }
}

enum Gathered {
    List(Digest),
    Nothing,
    Failed(Arc<str>),
}

/// Operations that opening one element takes, at most.
fn ops_per_element(program: &Program, plan: &onceflow_core::protocol::draft::InstalledProgram, body: u32) -> usize {
    let opening = &plan.wiring.blocks[body as usize].opening;
    let delivered: usize = opening.targets.iter().map(|target| 4 + 2 * target.ports.len()).sum();
    // An output that stands from the beginning may be a stored value: a small one in front of it, an edge, counts.
    delivered + opening.enabled.len() + 6 * program.blocks[body as usize].outputs.len() + 4
}
