//! A worker as the engine's is, await by await, without its tasks and caches: it takes a step, decides from what it reads
//! then, and sends what it decided.

use super::flow;
use onceflow_core::{
    Batch, Claim, Claimed, Fence, Inbox, Name, Pick, Shard, Timestamp,
    model::program::NodeOp,
    protocol::{
        claim::WorkClaim,
        draft::{Draft, InstalledProgram},
        ids::{END, FrameId, SETTLE, StepId, TEARDOWN},
        keys,
        rows::{self, Finished, Frame, Parked, Phase, ReadyStep, Received, RunState, Status, Why},
        run::{self, Ending, Fold},
        step::{self, Taken},
    },
};
use onceflow_store::{records::Scan, state::StoreState};
use std::sync::Arc;

/// A worker.
#[derive(Clone, Default)]
pub(super) struct Worker {
    /// The step it has taken.
    pub(super) job: Option<Job>,
    /// The state of the run as it last saw it.
    known: Option<RunState>,
}

/// A step that was taken.
#[derive(Clone)]
pub(super) struct Job {
    /// What the claim answered.
    pub(super) claimed: Claimed,
    /// The claim.
    pub(super) fence: Fence,
    /// What was decided, and is yet to be sent.
    pub(super) batch: Option<Batch>,
}

/// Takes whatever is ready.
pub(super) fn claim(fence: Fence) -> Claim {
    let queues = vec![keys::internal_queue(), keys::class_queue("default")];
    Claim { queues, fence, ttl_ms: 1000, pick: Pick::EnabledFirst }
}

/// A batch that only takes.
pub(super) fn take(fence: Fence) -> Batch {
    let mut batch = Batch::new(Shard(0));
    batch.claim(claim(fence));
    batch
}

/// Whether a step may become ready once only.
pub(super) fn is_ordinary(name: &Name) -> bool {
    let step = StepId::from_queue_name(name.as_bytes()).map(|(_, step)| step);
    step.is_some_and(|step| step.node == END || step.node < u32::MAX - 16)
}

/// Whether the step stands aside.
pub(super) fn is_parked(plan: &InstalledProgram, rows: &StoreState, name: &Name) -> bool {
    let step = StepId::from_queue_name(name.as_bytes()).map(|(_, step)| step);
    step.is_some_and(|step| rows.get(Shard(0), &plan.keys.parked(step)).is_some())
}

fn read_state(plan: &InstalledProgram, rows: &StoreState) -> Option<RunState> {
    rows.get(Shard(0), &plan.keys.state()).and_then(|row| rows::read(row))
}

fn scan(plan: &InstalledProgram, rows: &StoreState, prefix: &[u8]) -> Vec<(Name, onceflow_core::Row)> {
    rows.scan(Shard(0), &Scan::of(plan.keys.rows.clone(), 1000).prefix(prefix)).rows
}

impl Worker {
    /// Decides what to send, from what is there now. Without a batch afterwards, it gives the step up.
    pub(super) fn decide(&mut self, plan: &InstalledProgram, rows: &StoreState) -> Result<(), String> {
        let job = self.job.take().expect("it has taken a step");
        let (_, step) = StepId::from_queue_name(job.claimed.name.as_bytes()).ok_or("a name in a queue")?;
        // The end of a run is decided on what is read then; other steps trust what they know.
        let reads = matches!(step.node, SETTLE | TEARDOWN);
        if reads || self.known.is_none() {
            self.known = read_state(plan, rows);
        }
        let Some(state) = self.known else { return Ok(()) };
        let Some(taken) = taken(plan, rows, &job, step)? else { return Ok(()) };
        let draft = match step.node {
            SETTLE => settle(plan, rows, &taken, state)?,
            TEARDOWN => Some(tear_down(plan, rows, &taken, state)),
            _ if state.phase == Phase::Running => Some(perform(plan, &taken, state)?),
            _ => {
                // What is known may be old.
                self.known = read_state(plan, rows);
                self.known
                    .filter(|now| now.phase.is_open())
                    .map(|now| match now.phase {
                        Phase::Running => perform(plan, &taken, now),
                        _ => Ok(step::park(plan, now, &taken, Why::NotStarted, now.phase)),
                    })
                    .transpose()?
            }
        };
        if let Some(draft) = draft {
            let (batch, _) = draft.finish();
            self.job = Some(Job { batch: Some(batch), ..job });
        }
        Ok(())
    }

    /// A batch was refused for the state of the run. Whether to decide again.
    pub(super) fn saw(&mut self, found: Option<&[u8]>, job: &Job) -> bool {
        self.known = found.and_then(rows::read);
        let internal = !is_ordinary(&job.claimed.name);
        self.known.is_some_and(|state| state.phase.is_open() && !internal)
    }

    /// All that makes two workers different.
    pub(super) fn hash(&self, hasher: &mut blake3::Hasher) {
        hasher.update(format!("{:?}", self.known).as_bytes());
        if let Some(job) = &self.job {
            hasher.update(job.claimed.name.as_bytes()).update(&job.fence.to_bytes()).update(&job.claimed.row);
            for (name, row) in &job.claimed.inputs {
                hasher.update(name.as_bytes()).update(row);
            }
            if let Some(batch) = &job.batch {
                for require in &batch.requires {
                    hasher.update(format!("{require:?}").as_bytes());
                }
                hasher.update(&rows::write(batch));
            }
        }
        hasher.update(b"|");
    }
}

fn taken(plan: &InstalledProgram, all: &StoreState, job: &Job, step: StepId) -> Result<Option<Taken>, String> {
    let inbox = Inbox::from_row(&job.claimed.row).ok_or("a row in a queue is no inbox")?;
    let ready_step: ReadyStep = rows::read(&inbox.note).ok_or("a ready row")?;
    let Some(frame) = all.get(Shard(0), &plan.keys.frame(step.frame)) else { return Ok(None) };
    let frame: Frame = rows::read(frame).ok_or("a frame")?;
    let inbox: Option<Vec<Received>> = job.claimed.inputs.iter().map(|(_, row)| rows::read(row)).collect();
    let inbox = inbox.ok_or("an arrival")?;
    let claim = WorkClaim::new(&job.claimed, job.fence);
    Ok(Some(Taken { step, claim, ready_step, frame: Arc::new(frame), inbox }))
}

fn perform<'a>(plan: &'a InstalledProgram, taken: &Taken, state: RunState) -> Result<Draft<'a>, String> {
    let node = taken.node(plan);
    let inputs = taken.inputs(plan, &node.inputs).ok_or("an input is missing")?;
    let NodeOp::Task(task) = node.op else { return Err(String::from("only tasks are explored")) };
    let outcome = flow::given(&plan.program.tasks[task as usize].name, &inputs);
    Ok(step::commit(plan, state, taken, &[outcome]))
}

fn settle<'a>(
    plan: &'a InstalledProgram,
    all: &StoreState,
    taken: &Taken,
    state: RunState,
) -> Result<Option<Draft<'a>>, String> {
    if let Some(live) = all.get(Shard(0), &plan.keys.live()) {
        let mut draft = taken.leaving(plan, state);
        draft.batch.require_equals(plan.keys.live(), live.clone());
        return Ok(Some(draft));
    }
    let inbox = plan.keys.inbox(StepId::of_run(END));
    let arrived: Option<Vec<Received>> =
        scan(plan, all, inbox.as_bytes()).iter().map(|(_, row)| rows::read(row)).collect();
    let arrived = arrived.ok_or("an output")?;
    let outputs = run::outputs(plan, &taken.frame, &arrived);
    let parked: Option<Vec<Parked>> = scan(plan, all, b"p").iter().map(|(_, row)| rows::read(row)).collect();
    let whys: Vec<_> = parked.ok_or("a parked step")?.into_iter().map(|parked| parked.why).collect();
    match run::ending(state.phase, outputs.is_some(), &whys, false) {
        Ending::Done => Ok(Some(fold(plan, taken, state, Status::Done, outputs.unwrap_or_default()))),
        Ending::Leave => Ok(Some(taken.leaving(plan, state))),
        Ending::Remove(phase) => {
            let mut draft = run::change_phase(plan, state, taken, phase);
            let ready_step = draft.ready_step(0, vec![]);
            let op = draft.ready(StepId::of_run(TEARDOWN), &keys::internal_queue(), &ready_step);
            draft.batch.ops.push(op);
            Ok(Some(draft))
        }
        other => Err(format!("the run came to {other:?} in {state:?}")),
    }
}

fn tear_down<'a>(plan: &'a InstalledProgram, all: &StoreState, taken: &Taken, state: RunState) -> Draft<'a> {
    let frame = plan.keys.frame(FrameId::ROOT).name;
    let rows: Vec<_> = scan(plan, all, b"").into_iter().filter(|(name, _)| *name != frame).collect();
    match rows.is_empty() {
        false => run::remove(plan, &rows),
        true => fold(plan, taken, state, Status::Cancelled { undone: vec![] }, vec![]),
    }
}

fn fold<'a>(
    plan: &'a InstalledProgram,
    taken: &Taken,
    state: RunState,
    status: Status,
    outputs: Vec<(String, onceflow_core::payload::Outcome)>,
) -> Draft<'a> {
    let finished = Finished {
        run: plan.keys.run,
        generation: plan.keys.generation,
        status,
        header: flow::header(),
        ended: Timestamp::from_ms(1),
        outputs,
        sealed: None,
    };
    let fold = Fold { finished, history_until: Timestamp::from_ms(2), keep_until: None };
    run::fold(plan, state, taken, Some(&taken.frame), &fold)
}
