//! Closes frames: a choice, a call, a loop that does not go on, and an each whose elements have all ended.

use super::{Job, Work, failure, memo::StepMemo};
use crate::{Error, data, kernel::WorkCommit};
use onceflow_core::{
    Digest, Name, ValueChange, limits,
    model::program::{Node, NodeOp, PortIndex},
    payload::{Outcome, Payload, Stored, list_digest},
    protocol::{
        ids::StepId,
        rows::{self, Elements, RunState, Shape},
        step,
    },
};
use std::sync::Arc;

/// Ends an instance, or closes an each.
pub(super) async fn end(work: &Work<'_>) -> Result<Option<Job>, Error> {
    let closing = Closing::of(work)?;
    if step::is_close_of_each(&work.taken) { Box::pin(closing.close_each()).await } else { closing.end().await }
}

/// A step that ends the frame it stands in.
struct Closing<'a> {
    work: &'a Work<'a>,
    /// The step that opened the frame.
    opener: StepId,
    /// The node of that step.
    node: &'a Node,
}

impl<'a> Closing<'a> {
    fn of(work: &'a Work<'a>) -> Result<Self, Error> {
        let opened_by = work.taken.frame.opened_by;
        let (opener, block) = opened_by.ok_or_else(|| Error::damaged("the frame of a run was closed by a step"))?;
        let node = &work.run.plan.program.blocks[block as usize].nodes[opener.node as usize];
        Ok(Closing { work, opener, node })
    }

    /// Ends an instance: closes its frame, or begins the next iteration of its loop.
    async fn end(&self) -> Result<Option<Job>, Error> {
        let plan = &self.work.run.plan;
        let block = &plan.program.blocks[self.work.taken.ready_step.block as usize];
        let sources: Vec<_> = block.outputs.iter().map(|output| output.from).collect();
        let Some(given) = self.work.taken.inputs(plan, &sources) else { return self.work.missing_input().await };
        let node = self.node;
        if let Some(why) = failure(&given) {
            return self.close(step::failed_outputs(node, why)).await;
        }
        let own = node.outputs.len() - usize::from(node.attempt);
        if let NodeOp::Loop { carried, .. } = &node.op
            && given[own].outcome.is_true()
        {
            let Some(_) = self.work.taken.step.index.checked_add(1) else {
                return self.work.fail(1, vec![String::from("a loop has made 2^32 iterations")]).await;
            };
            let next = |port: PortIndex| {
                let (from, _) = carried.iter().find(|(_, to)| *to == port).expect("what varies in a loop is carried");
                given[usize::from(*from)].outcome.clone()
            };
            let turn = |state: RunState| step::next_iteration(plan, state, &self.work.taken, &next);
            let what = self.work.did_turn(self.opener, node, self.work.taken.step.index + 1).await?;
            return self.work.commit(&[], what, turn).await.map(WorkCommit::next);
        }
        let mut outputs: Vec<_> = given.into_iter().take(own).map(|held| held.outcome).collect();
        if node.attempt {
            outputs.push(Outcome::None);
        }
        self.close(outputs).await
    }

    /// Closes a frame with these outputs.
    async fn close(&self, outputs: Vec<Outcome>) -> Result<Option<Job>, Error> {
        self.close_with(outputs, vec![]).await
    }

    async fn close_with(&self, outputs: Vec<Outcome>, gathers: Vec<ValueChange>) -> Result<Option<Job>, Error> {
        let plan = &self.work.run.plan;
        let opener = self.opener;
        let Some(outer) = self.work.shared().runs.frame(&self.work.run, opener.frame).await? else {
            return self.work.missing_input().await;
        };
        let has_failed = outputs.iter().any(|given| matches!(given, Outcome::Failed(_)));
        let memo = StepMemo::new(self.work, self.work.taken.frame.memo.filter(|_| !has_failed));
        loop {
            let memo = memo.if_not_kept().await?;
            let decide = |state: RunState| {
                let mut draft = step::close(plan, state, &self.work.taken, &outer, &outputs);
                draft.changes.splice(0..0, gathers.iter().cloned());
                if let Some(memo) = memo {
                    step::keep(plan, &mut draft, memo, &outputs);
                }
                draft
            };
            let committed = self.work.commit(&[], None, decide).await?;
            // Another step kept the same memo meanwhile: look again.
            if let WorkCommit::DecideAgain = committed {
                continue;
            }
            self.work.run.forget_frame(self.work.taken.step.frame);
            self.work.got_on(outer.shape, opener.node);
            return Ok(committed.next());
        }
    }

    /// Closes an each whose elements have all ended: their outputs become lists.
    async fn close_each(&self) -> Result<Option<Job>, Error> {
        let plan = &self.work.run.plan;
        let Shape::Each(elements) = self.work.taken.frame.shape else {
            return Err(Error::damaged("a frame of an each"));
        };
        let node = self.node;
        let block = &plan.program.blocks[self.work.taken.ready_step.block as usize];
        let (mut outputs, mut gathers, mut failed) = (Vec::new(), Vec::new(), None);
        for (port, output) in block.outputs.iter().enumerate() {
            let prefix = plan.keys.elements(self.work.taken.step.frame, port as u16);
            match self.gather(&prefix, elements, output.hidden).await? {
                Gathered::List(digest) => {
                    let id = self.work.shared().values.fresh_id();
                    gathers.push(ValueChange::gather(id.clone(), prefix, elements.n.into(), digest));
                    let stored = Stored { id, digest, len: u64::from(elements.n) };
                    outputs.push(Outcome::Value(Payload::StoredList(stored)));
                }
                Gathered::Nothing => {}
                Gathered::Failed(why) => failed = failed.or(Some(why)),
            }
        }
        if let Some(why) = failed {
            let prefix = |port| plan.keys.elements(self.work.taken.step.frame, port as u16);
            let releases = (0..block.outputs.len()).map(|port| ValueChange::Release { prefix: prefix(port) }).collect();
            return self.close_with(step::failed_outputs(node, &why), releases).await;
        }
        if node.attempt {
            outputs.push(Outcome::None);
        }
        self.close_with(outputs, gathers).await
    }

    /// Gathers the elements under a prefix.
    async fn gather(&self, prefix: &Name, elements: Elements, hidden: bool) -> Result<Gathered, Error> {
        let values = &self.work.shared().values;
        if hidden {
            let failed = values.elements(prefix, 0, 1).await?;
            return Ok(match failed.into_iter().next() {
                None => Gathered::Nothing,
                Some((_, onceflow_store::values::Element::Inline(bytes))) => match rows::read(&bytes) {
                    Some(Outcome::Failed(why)) => Gathered::Failed(why),
                    _ => return Err(Error::damaged("an element that no step reads")),
                },
                Some(_) => return Err(Error::damaged("an element that no step reads")),
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
}

/// The elements of one output of an each.
enum Gathered {
    List(Digest),
    Nothing,
    Failed(Arc<str>),
}
