//! Runs compensations, one after the other, the last first. Each is retried as its task says, and takes effect once:
//! the batch that ends it deletes its registration and makes the next one ready. A compensation that fails for good
//! keeps its registration, and the run waits for an operator (`engine/not_undone.rs`).

use super::{
    Job, Work, moving,
    notes::FailureNotes,
    task::{Started, blocking, overrun, panicked, shortened, walled},
};
use crate::{
    Error, RunStatus, data,
    events::EventKind,
    kernel::Heartbeat,
    shared::lock,
    task::{At, Attempt, Body, Data, Failure, Step},
    worker::Whose,
};
use futures_util::future::{Either, select};
use onceflow_core::{
    model::TaskSpec,
    protocol::{
        ids::UNDO,
        rows::{self, Failed, RunState, Undo},
        run::{self, AfterUndo},
    },
};
use onceflow_store::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
};

type Given = Result<Vec<Data>, Failure>;

/// The try of one compensation.
pub(super) struct Undoing<'a> {
    work: &'a Work<'a>,
    notes: FailureNotes<'a>,
    /// The number of the registration.
    number: u32,
}

impl<'a> Undoing<'a> {
    pub(super) fn new(work: &'a Work<'a>) -> Self {
        assert_eq!(work.taken.step.node, UNDO, "a step is undone by the step that is made for its registration");
        Undoing { work, notes: FailureNotes::of(work), number: work.taken.step.index }
    }

    /// Undoes one step.
    pub(super) async fn perform(&self) -> Result<Option<Job>, Error> {
        let Some(_) = self.work.shared().runs.read_run(self.work.run.plan.keys.run).await? else { return Ok(None) };
        self.notes.add_failures(&self.work.rows().failures().await?).await?;
        let number = self.number;
        let row = self.work.shared().row(self.work.run.plan.keys.undo(number)).await?;
        // Only this step changes registrations while the run is being undone. They are read before the body runs, so
        // that only the commit comes after it.
        let are_others =
            number == 0 && self.work.rows().registrations().await?.iter().any(|other| other.number != number);
        let Some(row) = row else { return self.undone(None, are_others).await };
        let mut undo: Undo = rows::read(&row).ok_or_else(|| Error::damaged("a registration"))?;
        self.work.shared().records.durable(self.work.position).await?;
        let spec = self.work.run.plan.program.tasks[undo.task as usize].clone();
        if let Some(queue) = moving::other_queue(self.work, &spec) {
            // The workers of its class have the resources that it may need; others would only take it in turns.
            return moving::move_to(self.work, queue, None).await.map(|()| None);
        }
        let Some((spec, body)) = self.undoer(spec) else { return self.leave_to_others(&undo).await };
        // An earlier worker may have noted the failure and died before it ended the try.
        self.notes.forget_not_undone(&undo.address).await?;
        let is_undone = loop {
            let Some(given) = self.try_undo(&undo, &*body).await? else {
                // The worker was interrupted: another one resumes.
                self.work.give_back().await?;
                return Ok(None);
            };
            let Err(failure) = given else { break true };
            undo.failed += 1;
            let failed = Failed {
                address: undo.address.clone(),
                attempt: undo.failed,
                causes: shortened(failure.causes.clone()),
                started: false,
            };
            if failure.is_final || undo.failed >= attempts(&spec) {
                tracing::error!(address = %undo.address, causes = ?failed.causes, "failed to undo a step");
                self.notes.add_not_undone(failed).await?;
                break false;
            }
            let pause = super::task::pause_ms(&spec, undo.failed, self.work.shared().world.random());
            let heartbeat = self.undoing();
            select(self.work.shared().world.sleep(pause), std::pin::pin!(heartbeat.stopped())).await;
            // Another worker may have continued the undoing: a late compensation would be out of order.
            if !self.work.shared().kernel.is_ours(&self.work.taken.claim).await? {
                return Ok(None);
            }
        };
        self.undone(Some((undo, is_undone)), are_others).await
    }

    /// The task that undoes the step. Of a compensation with code of its own the flow knows only the name, so any
    /// version offered here is the right one, and its spec has the number of tries.
    fn undoer(&self, spec: TaskSpec) -> Option<(TaskSpec, Arc<dyn Body>)> {
        let tasks = lock(&self.work.shared().tasks);
        match tasks.executor(&spec.name) {
            Some(body) => Some((spec, body.clone())),
            None => tasks.get(&spec.name).cloned(),
        }
    }

    /// Gives a compensation back whose task is not offered here: it may be added later, or another worker offers it.
    async fn leave_to_others(&self, undo: &Undo) -> Result<Option<Job>, Error> {
        const PAUSE_MS: u64 = 200;
        tracing::warn!(address = %undo.address, "a step waits to be undone by a task that is not offered here");
        self.work.shared().world.sleep(PAUSE_MS).await;
        self.work.give_back().await?;
        Ok(None)
    }

    /// Watches over a compensation. A cancel of the run does not stop it: the cancel waits for it.
    fn undoing(&self) -> Heartbeat<'_, Whose> {
        let keys = &self.work.run.plan.keys;
        let whose = Whose { run: keys.run, generation: keys.generation, ends_with_run: false };
        self.work.worker.alive.watch(self.work.taken.claim.fence, true, whose)
    }

    /// Runs a compensation once; `None` if it was stopped.
    async fn try_undo(&self, undo: &Undo, body: &dyn Body) -> Result<Option<Given>, Error> {
        let shared = self.work.shared();
        let heartbeat = self.undoing();
        // A step has to be undone even if its input files have changed.
        let scratch = self.work.scratch().without_checks();
        let inputs = match data::load_all(&shared.values, &undo.inputs, Some(&scratch)).await {
            Err(error) if error.is_damage() => return Ok(Some(Err(Failure::new(error.to_string()).finally()))),
            // Its inputs cannot be read now: that counts as a failed try.
            Err(error) if !error.is_of_rows() => return Ok(Some(Err(Failure::new(error.to_string())))),
            loaded => loaded?,
        };
        let step = Step::new(Arc::new(self.undo_at(undo)), undo.task, undo.failed + 1);
        let thread = Started::default();
        let given: BoxFuture<'_, Given> = match catch_unwind(AssertUnwindSafe(|| body.start(step, inputs))) {
            Err(panic) => return Ok(Some(Err(panicked(&*panic)))),
            Ok(Attempt::Done(given)) => return Ok(Some(given)),
            Ok(Attempt::Suspended(_) | Attempt::Suspending(_)) => {
                let why = "a compensation cannot be suspended: the others wait for it";
                return Ok(Some(Err(Failure::new(why).finally())));
            }
            Ok(Attempt::Async(future)) => walled(future),
            Ok(Attempt::Blocking(body)) => blocking(&self.work.worker.capacity, &*shared.world, body, &thread),
            Ok(Attempt::Abandonable(body)) => {
                blocking(&self.work.worker.capacity, &*shared.world, body, &Started::default())
            }
        };
        let timeout_ms = self.work.run.plan.program.tasks[undo.task as usize].timeout_ms;
        let timeout: BoxFuture<'_, ()> = match timeout_ms {
            Some(ms) => shared.world.sleep(ms),
            None => Box::pin(std::future::pending()),
        };
        let stopped = std::pin::pin!(heartbeat.stopped());
        let interrupted = select(stopped, timeout);
        Ok(match select(given, interrupted).await {
            Either::Left((given, _)) => Some(given),
            // A thread is waited for: it may have undone the step, and another try must not run beside it.
            Either::Right((stopped, given)) if thread.load(SeqCst) => {
                if let Either::Right(_) = stopped {
                    self.work.tell_held_up(&overrun(timeout_ms.unwrap_or_default())).await;
                }
                Some(given.await)
            }
            Either::Right((Either::Left(_), _)) => None,
            Either::Right((Either::Right(_), _)) => {
                Some(Err(Failure::timed_out(timeout_ms.unwrap_or_default(), vec![])))
            }
        })
    }

    /// A compensation has the key of the step it undoes.
    fn undo_at(&self, undo: &Undo) -> At {
        let plan = &self.work.run.plan;
        let place = onceflow_core::model::InstancePath { call: undo.address.to_string(), numbers: vec![] };
        let (inputs, program) = (undo.inputs.clone(), plan.program.clone());
        let resources = self.work.shared().resources();
        At { run: plan.keys.run, inputs, place, program, node: (u32::MAX, 0), resources, part: None }
    }

    /// Ends the try of a compensation and makes the one before it ready. After the last, a run that was undone
    /// completely is removed; else it keeps the registrations of the failed ones, and waits.
    async fn undone(&self, undo: Option<(Undo, bool)>, are_others: bool) -> Result<Option<Job>, Error> {
        let (plan, number) = (&self.work.run.plan, self.number);
        let is_undone = undo.as_ref().is_none_or(|(_, is_undone)| *is_undone);
        let next = match number.checked_sub(1) {
            Some(number) => AfterUndo::Undo(number),
            None if are_others || !is_undone => AfterUndo::Stop,
            None => AfterUndo::Remove,
        };
        let gone = is_undone.then(|| (number, undo.as_ref().map(|(undo, _)| undo)));
        let decide = |state: RunState| run::undone(plan, state, &self.work.taken, gone, next);
        let what = match (next, &undo) {
            (AfterUndo::Stop, _) => Some(EventKind::DidEnd { how: RunStatus::NotUndone }),
            (_, Some((undo, true))) => Some(EventKind::DidUndo { address: undo.address.to_string() }),
            _ => None,
        };
        if next == AfterUndo::Stop
            && let Some((undo, true)) = &undo
        {
            let what = EventKind::DidUndo { address: undo.address.to_string() };
            self.work.tell_in_order(self.work.shared().records.position(), what).await;
        }
        let committed = self.work.commit(&[], what, decide).await?;
        if next == AfterUndo::Stop {
            self.work.shared().runs.read_run(plan.keys.run).await?;
            self.work.shared().signals.progress(plan.keys.run).notify_waiters();
        }
        Ok(committed.next())
    }
}

/// The number of tries of a compensation. Without a setting there are a few: a failure needs an operator, and a
/// transient error must not cause one.
fn attempts(spec: &TaskSpec) -> u32 {
    const UNDO_ATTEMPTS: u32 = 5;
    if spec.retry.attempts == 1 { UNDO_ATTEMPTS } else { spec.retry.attempts }
}
