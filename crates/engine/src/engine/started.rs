//! Steps that must not start twice, were started, and have not said how they ended: while they are at work, and after
//! whoever ran them is gone, until somebody takes them over or puts them aside.

use super::{UndecidedStep, again::undecided, known::ticket_in};
use crate::{
    Error, Handle,
    perform::may_decide,
    shared::{Run, Shared},
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence, Key, Timestamp,
    model::Effect,
    protocol::{
        ids::StepId,
        rows::{ReadyStep, Why},
        step::{self, Taken},
    },
};

/// Such a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedStep {
    /// Where it is, and what it would give.
    pub step: UndecidedStep,
    /// Under which name whoever started it claims steps; see [`crate::Engine::incarnation`].
    pub by: u128,
    /// Until when a claim on it stands, on the store's clock: until then, whoever has it may be at work.
    pub held_until: Option<Timestamp>,
}

/// Such a step, where it stands in its queue.
struct Found {
    key: Key,
    step: StepId,
    ready_step: ReadyStep,
    started: Fence,
    address: String,
}

impl Handle {
    /// The steps of the run that must not start twice, were started, and have not said how they ended. Those that are put
    /// aside because nobody knows are not among them; see [`Handle::undecided_steps`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn started_steps(&self) -> BoxFuture<'_, Result<Vec<StartedStep>, Error>> {
        Box::pin(async move {
            let Some(run) = self.shared.read_run(self.id()).await? else { return Ok(vec![]) };
            let mut all = Vec::new();
            for found in self.shared.started_steps(&run).await? {
                let held_until = self.shared.held_until(&found.key).await?;
                let step = undecided(&run, found.address, found.step, &found.ready_step);
                all.push(StartedStep { step, by: found.started.incarnation(), held_until });
            }
            Ok(all)
        })
    }

    /// Puts a step aside that somebody started who is gone, just as whoever took it over would, but for asking its own
    /// check: what became of it is not known from then on, and [`Handle::resolve`] says it. The caller knows that they are
    /// gone; one that is not may still say what it gave, until somebody decides. Whether it was put aside: not if it is not
    /// one of [`Handle::started_steps`], not if it was started by somebody else than they, and not while a claim on it stands.
    /// Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn mark_unknown<'a>(&'a self, address: &'a str, by: u128) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let Some(run) = self.shared.read_run(self.id()).await? else { return Ok(false) };
            let mut begun = self.shared.started_steps(&run).await?.into_iter();
            let Some(found) = begun.find(|found| found.address == address && found.started.incarnation() == by) else {
                return Ok(false);
            };
            let is_aside = self.shared.put_aside(&run, found).await?;
            self.shared.records.durable(self.shared.records.position()).await?;
            Ok(is_aside)
        })
    }
}

impl Shared {
    async fn started_steps(&self, run: &Run) -> Result<Vec<Found>, Error> {
        let program = &run.plan.program;
        // Most programs have no such task, and need no look.
        if !program.tasks.iter().any(|task| task.effect == Effect::AtMostOnce) {
            return Ok(vec![]);
        }
        let mut all = Vec::new();
        for (key, step, ready_step) in self.ready_steps(program, &run.plan.keys).await? {
            let Some(started) = ready_step.started else { continue };
            let node = &program.blocks[ready_step.block as usize].nodes[step.node as usize];
            let address = match self.place(run, step.frame, step.index).await {
                Ok(place) => place.address(&node.path),
                // It went on meanwhile, and what was around it has ended.
                Err(_) if self.row(key.clone()).await?.is_none() => continue,
                Err(error) => return Err(error),
            };
            all.push(Found { key, step, ready_step, started, address });
        }
        Ok(all)
    }

    /// Until when a claim on a step in a queue stands.
    async fn held_until(&self, key: &Key) -> Result<Option<Timestamp>, Error> {
        let rows = [key.group.claims().key(&key.name), key.group.deadlines().key(&key.name)];
        let [Some(_), Some(deadline)] = &self.records.get(self.shard(), &rows).await?[..] else { return Ok(None) };
        let deadline = Timestamp::from_sortable(deadline).ok_or_else(|| Error::damaged("the deadline of a claim"))?;
        Ok((deadline > self.records.now().await?).then_some(deadline))
    }

    async fn put_aside(&self, run: &Run, found: Found) -> Result<bool, Error> {
        let Found { key, step, ready_step, started, address } = found;
        let Some(row) = self.row(key.clone()).await? else { return Ok(false) };
        // What was found may be old; what is required is this row.
        if ticket_in(&row).is_none_or(|now| now != ready_step) {
            return Ok(false);
        }
        let Some(frame) = self.frame(run, step.frame).await? else { return Ok(false) };
        self.free_overdue(&key.group, run.plan.keys.run).await?;
        let taken = Taken { step, queue: key.group, name: key.name, fence: started, ready_step, frame, inbox: vec![] };
        let why = Why::Unknown { started, address: address.into() };
        let state = run.state();
        if !may_decide(state.phase) {
            return Ok(false);
        }
        let draft = step::park_abandoned(&run.plan, state, &taken, &row, why);
        Ok(self.commit_outside(draft, &[]).await?.is_applied())
    }
}
