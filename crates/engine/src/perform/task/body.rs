//! An attempt: runs user code with its inputs and its time limit, and catches its panics.

use crate::{
    Error,
    events::EventKind,
    kernel::{Heartbeat, Stop},
    perform::{Work, logs::keep_log},
    shared::lock,
    task::{Aside, At, Attempt, AttemptEnd, Body, Data, Failure, Resumed, Step, Suspension, Tx},
    worker::{Capacity, Reserved, Whose},
};
use futures_util::{
    FutureExt,
    future::{Either, select},
};
use onceflow_core::{
    model::{
        Effect, FusedSource, FusedTask, TaskSpec,
        program::{NodeOp, Program},
    },
    protocol::rows::Held,
};
use onceflow_store::{BoxFuture, World};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
};
use tokio::sync::oneshot;

/// The reason why an attempt gave no outputs.
pub(super) enum Interrupted {
    /// The body failed or panicked.
    Failed(Failure),
    /// The attempt exceeded its time limit, in milliseconds; with further causes.
    TimedOut(u64, Vec<String>),
    /// The attempt was stopped.
    Stopped(Stop),
    /// The attempt goes on outside.
    Suspended(Suspension),
}

type Given = Result<Vec<Data>, Failure>;

/// The body runs on a thread, which nothing can stop: its attempt is over only when the thread has returned.
pub(in crate::perform) type Started = Arc<AtomicBool>;

/// The report for a thread that exceeds its time limit.
pub(in crate::perform) fn overrun(ms: u64) -> String {
    format!("it took longer than {ms} ms, and its thread cannot be stopped; waiting for it to return")
}

/// One run of the body of a task, or of the bodies of a fused step.
pub(super) struct BodyRun<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) spec: &'a TaskSpec,
    /// The bodies of its tasks, in order.
    pub(super) bodies: &'a [Arc<dyn Body>],
    pub(super) inputs: &'a [Held],
    /// The number of the attempt, from one.
    pub(super) attempt: u32,
}

impl BodyRun<'_> {
    /// Runs the body with its inputs.
    pub(super) async fn perform(
        &self,
        loaded: Vec<Data>,
        resumed: Option<&Resumed>,
        (tx, reserved): (Option<Tx>, &Arc<Mutex<Option<Reserved>>>),
    ) -> Result<Result<Vec<Data>, Interrupted>, Error> {
        let shared = self.work.shared();
        if shared.events.wanted() {
            let address = self.work.address().await?;
            self.work
                .tell_in_order(shared.records.position(), EventKind::WillRun { address, attempt: self.attempt })
                .await;
        }
        let plan = &self.work.run.plan;
        let node = self.work.taken.node(plan);
        let at = at(self.work, self.inputs).await?;
        // The watch begins before the first line of user code, which may block for as long as it likes.
        let heartbeat = self.work.heartbeat(!self.only_once());
        let given = match &node.op {
            NodeOp::Task(task) => {
                let resumed = resumed.cloned().map(Arc::new);
                let reserved = Some(reserved.clone());
                let step = Step { resumed, tx, reserved, ..Step::new(at, *task, self.attempt) };
                self.one(&*self.bodies[0], step, loaded, &heartbeat).await?
            }
            NodeOp::Fused(tasks) => self.fused(tasks, &at, &loaded, &heartbeat).await?,
            _ => unreachable!("only tasks have bodies"),
        };
        Ok(match &node.op {
            NodeOp::Task(task) => given.and_then(|given| complete(&plan.program, *task, given)),
            _ => given,
        })
    }

    /// An at-most-once body is not given up: its late result may still be committed.
    fn only_once(&self) -> bool {
        self.spec.effect == Effect::AtMostOnce
    }

    async fn fused(
        &self,
        tasks: &[FusedTask],
        at: &Arc<At>,
        inputs: &[Data],
        heartbeat: &Heartbeat<'_, Whose>,
    ) -> Result<Result<Vec<Data>, Interrupted>, Error> {
        let node = self.work.taken.node(&self.work.run.plan);
        let mut given: Vec<Vec<Data>> = Vec::with_capacity(tasks.len());
        let mut outputs = vec![Data::None; node.outputs.len()];
        for (number, (fused, body)) in tasks.iter().zip(self.bodies).enumerate() {
            let input = |source: &FusedSource| match source {
                FusedSource::Input(port) => inputs[usize::from(*port)].clone(),
                FusedSource::Task(task, port) => given[usize::from(*task)][usize::from(*port)].clone(),
            };
            let inputs = fused.inputs.iter().map(input).collect();
            let step = Step { fused: Some(number as u16), ..Step::new(at.clone(), fused.task, self.attempt) };
            let one = match self.one(&**body, step, inputs, heartbeat).await? {
                Ok(one) => one,
                Err(Interrupted::Suspended(_)) => {
                    let why = "a task that is fused with others cannot be suspended; give it a class of its own";
                    return Ok(Err(Interrupted::Failed(Failure::new(why).finally())));
                }
                Err(interrupted) => return Ok(Err(interrupted)),
            };
            let one = match complete(&self.work.run.plan.program, fused.task, one) {
                Ok(one) => one,
                Err(interrupted) => return Ok(Err(interrupted)),
            };
            for (port, output) in fused.outputs.iter().enumerate() {
                if let Some(output) = output {
                    outputs[usize::from(*output)] = one[port].clone();
                }
            }
            given.push(one);
        }
        Ok(Ok(outputs))
    }

    async fn one(
        &self,
        body: &dyn Body,
        mut step: Step,
        inputs: Vec<Data>,
        heartbeat: &Heartbeat<'_, Whose>,
    ) -> Result<Result<Vec<Data>, Interrupted>, Error> {
        let timeout_ms = self.spec.timeout_ms;
        let shared = self.work.shared();
        let (wants_log, wants_used) = (shared.options.is_shared(), shared.events.wanted());
        let is_told = wants_log || wants_used || timeout_ms.is_some();
        let aside = is_told.then(|| Arc::new(Aside { wants_log, ..Aside::default() }));
        step.aside.clone_from(&aside);
        let started = match catch_unwind(AssertUnwindSafe(|| body.start(step, inputs))) {
            Ok(started) => started,
            Err(panic) => Attempt::Done(Err(panicked(&*panic))),
        };
        let (world, capacity) = (&*self.work.shared().world, &self.work.worker.capacity);
        let thread = Started::default();
        let given = match started {
            Attempt::Done(given) => return Ok(given.map_err(Interrupted::Failed)),
            Attempt::Suspended(suspension) => return Ok(Err(Interrupted::Suspended(suspension))),
            Attempt::Suspending(future) => match self.watched((walled(future), thread), heartbeat).await {
                Ok(AttemptEnd::Done(given)) => Ok(given),
                Ok(AttemptEnd::Suspended(suspension)) => Err(Interrupted::Suspended(suspension)),
                Err(interrupted) => Err(interrupted),
            },
            Attempt::Async(future) => self.watched((walled(future), thread), heartbeat).await,
            Attempt::Blocking(body) => {
                let future = blocking(capacity, world, body, &thread);
                self.watched((future, thread), heartbeat).await
            }
            Attempt::Abandonable(body) => {
                let future = blocking(capacity, world, body, &Started::default());
                self.watched((future, thread), heartbeat).await
            }
        };
        if let Some(aside) = aside {
            if let Err(error) = self.told_aside(&aside, given.is_err()).await {
                // Its outputs are worth more than its log.
                tracing::warn!(%error, step = ?self.work.taken.step, "failed to keep the log of a step; dropping it");
            }
            if let Err(Interrupted::TimedOut(ms, _)) = given {
                return Ok(Err(Interrupted::TimedOut(ms, std::mem::take(&mut *lock(&aside.last_words)))));
            }
        }
        Ok(given)
    }

    async fn told_aside(&self, aside: &Aside, has_failed: bool) -> Result<(), Error> {
        let failed_cleanups = std::mem::take(&mut *lock(&aside.failed_cleanups));
        for why in failed_cleanups {
            let what = EventKind::CleanupFailed { address: self.work.address().await?, why };
            self.work.tell_in_order(self.work.shared().records.position(), what).await;
        }
        let (wrote, used) = (lock(&aside.wrote).take(), lock(&aside.used).take());
        if let Some(text) = wrote {
            keep_log(self.work, self.attempt, has_failed, text).await?;
        }
        if let Some(used) = used {
            let address = self.work.address().await?;
            let position = self.work.shared().records.position();
            self.work.tell_in_order(position, EventKind::DidUse { address, attempt: self.attempt, used }).await;
        }
        Ok(())
    }

    /// Waits for a body, up to its time limit and while the step is ours. A thread cannot be stopped and is waited for
    /// however long it takes: neither another attempt nor a compensation may run beside it.
    async fn watched<T>(
        &self,
        (mut body, thread): (BoxFuture<'_, Result<T, Failure>>, Started),
        heartbeat: &Heartbeat<'_, Whose>,
    ) -> Result<T, Interrupted> {
        let (timeout_ms, only_once) = (self.spec.timeout_ms, self.only_once());
        // Most quick bodies are done at the first poll, and need no timer.
        let first = std::future::poll_fn(|context| Poll::Ready(body.as_mut().poll(context))).await;
        if let Poll::Ready(given) = first {
            return given.map_err(Interrupted::Failed);
        }
        let timeout: BoxFuture<'_, ()> = match timeout_ms {
            Some(ms) => self.work.shared().world.sleep(ms),
            None => Box::pin(std::future::pending()),
        };
        let stopped: BoxFuture<'_, Stop> = match only_once {
            true => Box::pin(std::future::pending()),
            false => Box::pin(heartbeat.stopped()),
        };
        let interrupted = select(timeout, stopped);
        let (interrupted, body) = match select(body, interrupted).await {
            Either::Left((given, _)) => return given.map_err(Interrupted::Failed),
            Either::Right((Either::Left(_), body)) => {
                (Interrupted::TimedOut(timeout_ms.unwrap_or_default(), vec![]), body)
            }
            Either::Right((Either::Right((stop, _)), body)) => (Interrupted::Stopped(stop), body),
        };
        if thread.load(SeqCst) {
            if let Interrupted::TimedOut(ms, _) = interrupted {
                self.work.tell_held_up(&overrun(ms)).await;
            }
            let given = body.await;
            // The at-most-once body is over, and its outcome is known.
            if only_once {
                return given.map_err(Interrupted::Failed);
            }
        }
        Err(interrupted)
    }
}

/// Checks that the body gave as many outputs as its task has.
pub(super) fn complete(program: &Program, task: u32, mut given: Vec<Data>) -> Result<Vec<Data>, Interrupted> {
    let wanted = program.tasks[task as usize].outputs.len();
    if given.len() == wanted {
        if wanted == 0 {
            // A task without outputs is done.
            given.push(Data::Bytes(bytes::Bytes::from_static(&[0xc0])));
        }
        return Ok(given);
    }
    let why = format!("the body gave {} outputs, and the task has {wanted}", given.len());
    Err(Interrupted::Failed(Failure::new(why).finally()))
}

/// The code of a task of the step's program; else why it cannot run here.
pub(super) fn body_of(work: &Work<'_>, task: u32) -> Result<Arc<dyn Body>, String> {
    work.shared().tasks().body_of(&work.run.plan.program.tasks[task as usize]).cloned()
}

/// The place of a step's body in its run.
pub(super) async fn at(work: &Work<'_>, inputs: &[Held]) -> Result<Arc<At>, Error> {
    let plan = &work.run.plan;
    let place = work.shared().runs.place(&work.run, work.taken.step.frame, work.taken.step.index).await?;
    Ok(Arc::new(At {
        run: plan.keys.run,
        inputs: inputs.to_vec(),
        place,
        program: plan.program.clone(),
        node: (work.taken.ready_step.block, work.taken.step.node),
        resources: work.shared().resources(),
        part: None,
    }))
}

/// Turns a panic of the future into a failure.
pub(in crate::perform) fn walled<T: 'static>(
    future: BoxFuture<'static, Result<T, Failure>>,
) -> BoxFuture<'static, Result<T, Failure>> {
    let caught = AssertUnwindSafe(future).catch_unwind();
    Box::pin(caught.map(|given| given.unwrap_or_else(|panic| Err(panicked(&*panic)))))
}

/// Runs blocking code on a thread of its own; sets `started` when it has one.
pub(in crate::perform) fn blocking<'a>(
    capacity: &'a Capacity,
    world: &'a dyn World,
    body: Box<dyn FnOnce() -> Given + Send>,
    started: &Started,
) -> BoxFuture<'a, Given> {
    let started = started.clone();
    Box::pin(async move {
        let permit = capacity.blocking.clone().acquire_owned().await.expect("the semaphore is never closed");
        started.store(true, SeqCst);
        let (sender, receiver) = oneshot::channel();
        let run = async move {
            let given = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            drop(permit);
            // No receiver is left if it exceeded its time limit.
            let _late = sender.send(given);
        };
        world.dedicate("onceflow task", Box::pin(run));
        receiver.await.unwrap_or_else(|_| Err(Failure::new("its thread has ended")))
    })
}

pub(in crate::perform) fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::new(format!("it panicked: {}", text.unwrap_or_else(|| String::from("no message"))))
}
