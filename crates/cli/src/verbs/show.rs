//! `onceflow show RUN`: prints the inputs, the state of every step, the outputs, and the next command.

use crate::{
    args, event_log,
    exit::Exit,
    fault::Fault,
    finish::{data_json, failed_json},
    location::StoreLocation,
    pending::{self, PendingStep},
    printer::{Ink, Printer, name},
    progress::{Group, Progress},
    run_meta, runs, scopes,
    session::{self, Session},
    streams, view, words,
};
use onceflow_core::plan::Fate;
use onceflow_engine::{Engine, EventKind, Handle, Reasons, RunStatus, Summary, WorkerInfo};
use serde_json::{Map, Value, json};

/// The most failures that are shown.
const FAILURES_MAX: usize = 10;

/// Shows a run.
pub(crate) async fn run(args: &args::Show, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    if args.prometheus {
        let shown = streams::prometheus(&args.run, &session, printer).await;
        session.close().await?;
        return shown;
    }
    let engine = session.idle().await?;
    let run = match session.run(&engine, &args.run).await {
        Ok(run) => run,
        Err(fault) => {
            let shown = streams::show(&args.run, &session, printer).await?;
            engine.stop();
            session.close().await?;
            return shown.ok_or(fault);
        }
    };
    let attendant = engine.attendant(&run.key).await?;
    let handle = engine.find(&run.key).await?;
    // A list of runs has only the first few failures.
    let run = handle.summary().await?;
    let waiting = pending::all(&engine, &handle).await?;
    let others = Others::of(&engine, &session.location, &handle, &run).await?;
    let standing = handle.steps().progress().await?;
    let reasons = handle.history().reasons().await?.into_iter().rfind(|plan| plan.generation == run.generation);
    let mut outputs = Map::new();
    for (name, outcome) in &run.outputs {
        outputs.insert(name.clone(), data_json(handle.outputs().peek(outcome).await?));
    }
    let mut progress = event_log::progress(&handle).await?;
    let sessions = scopes::open(&handle).await?;
    engine.stop();
    let left = waiting
        .iter()
        .filter(|waits| matches!(waits.why, pending::Why::Left(_)))
        .map(|waits| waits.step.address.clone());
    left.for_each(|address| progress.lost(&address));
    let waits = waiting.iter().map(|waits| waits.step.address.clone()).collect();
    let has_undone = matches!(run.status, RunStatus::Cancelled | RunStatus::Undone);
    let can_be_done = !has_undone && !run.status.is_being_undone();
    progress.waits_only(&waits, can_be_done);
    if let Some(standing) = &standing {
        progress.as_stored(standing, can_be_done);
    }
    if run.status == RunStatus::Done {
        // The process that did the last step may have been killed before it could log that.
        progress.saw(event_log::now_ms(), &EventKind::DidEnd { how: RunStatus::Done });
    }
    let asked = run_meta::read(&session.location, run.id);
    let inputs = run_meta::inputs(&session.location, run.id);
    session.close().await?;
    let failures = if run.status.is_at_rest() { &run.failures[..] } else { &[] };
    if run.status == RunStatus::Failed && failures.len() >= run.failed {
        progress.failed_only(failures);
    }
    let pid = attendant.map(|attendant| attendant.worker.about.pid);
    let shown = ShownRun { run: &run, pid, progress: &progress, asked, inputs, others, reasons, waiting: &waiting };
    if printer.json {
        let mut data = shown.to_json(printer);
        data["outputs"] = Value::Object(outputs);
        data["scopes"] = scopes::to_json(&sessions);
        data["failures"] = failed_json(failures);
        data["failed"] = json!(run.failed.max(failures.len()));
        if run.status == RunStatus::Waiting || !waiting.is_empty() {
            data["unknown"] = json!(pending::unknown_names(&waiting));
            data["events"] = pending::events_json(&waiting);
        }
        printer.pretty(&data);
        return Ok(Exit::Done);
    }
    let mut text = shown.to_text(printer);
    text.push_str(&scopes::to_text(&sessions, event_log::now_ms()));
    let more = |all: usize, what: &str| match all.saturating_sub(FAILURES_MAX) {
        0 => String::new(),
        more => format!("… and {more} more {what}; --json has them\n"),
    };
    for failed in failures.iter().take(FAILURES_MAX) {
        text.push_str(&format!("{}\n", view::failure(printer, failed)));
    }
    text.push_str(&more(run.failed.max(failures.len()), "failed"));
    for failed in run.not_undone.iter().take(FAILURES_MAX) {
        text.push_str(&format!("{}\n", view::failure_to(printer, "not undone", failed)));
    }
    text.push_str(&more(run.not_undone.len(), "were not undone"));
    for (address, why) in progress.failed_cleanups.iter().take(FAILURES_MAX) {
        let name = words::step(address);
        text.push_str(&format!("{} {name}: {why}; the outcome stands\n", printer.ink(Ink::Yellow, "cleanup ")));
    }
    for waits in waiting.iter().take(FAILURES_MAX) {
        let name = words::step(&waits.step.address);
        match waits.event() {
            Some(event) => text.push_str(&format!("waiting  {name} for `{event}`\n")),
            None => text.push_str(&format!("unknown  {name}\n")),
        }
    }
    text.push_str(&more(waiting.len(), "wait"));
    for (name, value) in &outputs {
        text.push_str(&format!("output   {name}: {}\n", run_meta::bounded(value.clone())));
    }
    printer.text(text);
    printer.next(shown.next());
    Ok(Exit::Done)
}

struct ShownRun<'a> {
    run: &'a Summary,
    pid: Option<u32>,
    progress: &'a Progress,
    asked: Option<Value>,
    /// All inputs as they were given, unless they are too long.
    inputs: Option<Map<String, Value>>,
    others: Others,
    /// The reasons why the steps of the present plan run, or do not.
    reasons: Option<Reasons>,
    /// Steps that wait for an event, or for an operator to report their outcome.
    waiting: &'a [PendingStep],
}

/// The workers, for a run that any worker may work on.
struct Others {
    /// The number of those that are alive.
    there: usize,
    /// Steps that no worker can take, and the kinds of workers that are missing.
    lacking: Vec<String>,
    /// Workers without a heartbeat that hold steps of the run.
    silent: Vec<Silent>,
    /// Any worker may work on it.
    may: bool,
}

/// A worker that holds steps of a run, and sends no heartbeats: it may be dead, which is not known before its lease
/// ends.
struct Silent {
    worker: String,
    steps: Vec<String>,
    silent_ms: u64,
    lease_ends_in_ms: u64,
}

impl Silent {
    fn of(worker: &WorkerInfo, key: &str) -> Option<Self> {
        let steps = worker.steps.iter().filter(|step| step.run == key).map(|step| words::step(&step.address));
        let steps: Vec<_> = steps.collect();
        (!worker.is_alive && !steps.is_empty()).then(|| Silent {
            worker: format!("{}:{}", worker.about.host, worker.about.pid),
            steps,
            silent_ms: worker.silent_ms,
            lease_ends_in_ms: worker.forgotten_in_ms(),
        })
    }

    fn to_text(&self) -> String {
        let (silent, ends) = (words::duration(self.silent_ms), words::duration(self.lease_ends_in_ms));
        let steps = words::count(self.steps.len(), "step");
        format!(
            "silent   worker {}, for {silent}: {steps} of it may not run any more, and can be taken over in {ends}\n",
            self.worker
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "worker": self.worker, "steps": self.steps, "silent_ms": self.silent_ms,
            "lease_ends_in_ms": self.lease_ends_in_ms,
        })
    }
}

impl Others {
    async fn of(engine: &Engine, location: &StoreLocation, handle: &Handle, run: &Summary) -> Result<Self, Fault> {
        if run.status.is_at_rest() || !session::is_for_any(location, handle).await? {
            return Ok(Others { there: 0, lacking: vec![], silent: vec![], may: false });
        }
        let workers = engine.workers().await?;
        let there = workers.iter().filter(|worker| worker.is_alive && worker.about.run.is_none()).count();
        let silent = workers.iter().filter_map(|worker| Silent::of(worker, &run.key)).collect();
        let lacks = handle.steps().missing_tasks().await?;
        let told = |it: &onceflow_engine::MissingTask| {
            let steps = words::count(it.steps as usize, "step");
            let verb = if it.steps == 1 { "waits" } else { "wait" };
            format!("{steps} {verb} for a worker {}", super::workers::missing(&it.class, &it.tasks))
        };
        Ok(Others { there, lacking: lacks.iter().map(told).collect(), silent, may: true })
    }
}

impl ShownRun<'_> {
    fn is_attended(&self) -> bool {
        !self.run.status.is_at_rest() && !self.run.status.is_interrupted()
    }

    fn status(&self) -> RunStatus {
        self.run.status
    }

    fn next(&self) -> String {
        runs::next(self.run, self.waiting, run_meta::again(self.asked.as_ref()).as_deref())
    }

    /// Returns the inputs for display: long lists are cut.
    fn inputs(&self) -> Map<String, Value> {
        self.asked.as_ref().and_then(|asked| asked["inputs"].as_object().cloned()).unwrap_or_default()
    }

    fn to_json(&self, printer: &Printer) -> Value {
        let run = self.run;
        let step = |(name, group): &(String, Group)| {
            let named = |addresses: &mut dyn Iterator<Item = &String>| -> Vec<String> {
                addresses.map(|address| words::step(address)).collect()
            };
            let taken = named(&mut group.running.keys());
            let (running, mut interrupted) = if self.is_attended() { (taken, vec![]) } else { (vec![], taken) };
            interrupted.extend(named(&mut group.interrupted.iter()));
            json!({
                "step": name, "done": group.done, "reused": group.reused, "failed": group.failed.len(),
                "undone": group.undone, "running": running, "interrupted": interrupted,
                "waiting": named(&mut group.waits.iter()), "unknown": named(&mut group.unknown.iter()),
                "attempts": group.attempts, "spent_ms": group.spent_ms, "elements": group.elements,
            })
        };
        // A list is printed whole, or as its length and first elements.
        let inputs = self.inputs.clone().unwrap_or_else(|| run_meta::without_cuts(self.inputs()));
        json!({
            "key": run.key, "id": run.id.to_string(), "flow": run.flow, "status": self.status(), "plan": run.generation,
            "pid": self.pid, "started_ms": run.started.as_ms(), "ended_ms": run.ended.map(|ended| ended.as_ms()),
            "keep_ms": run.keep_ms, "history_ms": run.history_ms, "inputs": inputs,
            "unlisted": self.progress.unlisted,
            "steps": self.progress.groups.iter().map(step).collect::<Vec<_>>(),
            "workers": self.others.there, "lacking": self.others.lacking,
            "silent": self.others.silent.iter().map(Silent::to_json).collect::<Vec<_>>(),
            "failed_cleanups": self.progress.failed_cleanups.iter().map(failed_cleanup).collect::<Vec<_>>(),
            "not_undone": failed_json(&run.not_undone), "next": printer.on_same_store(&self.next()),
        })
    }

    fn to_text(&self, printer: &Printer) -> String {
        let (run, now) = (self.run, event_log::now_ms());
        let by = self.pid.map_or(String::new(), |pid| format!(", by process {pid}"));
        let undoing = run.status == RunStatus::UndoInterrupted;
        let undoing = if undoing { " while it was undone" } else { "" };
        let mut text = format!("{} {}{undoing}{by}\n", printer.ink(Ink::Bold, &name(&run.key)), self.status());
        text.push_str(&format!("flow     {}\nid       {}\n", run.flow, run.id));
        text.push_str(&format!("started  {}\n", words::ago(now.saturating_sub(run.started.as_ms()))));
        if let Some(ended) = run.ended {
            text.push_str(&format!("ended    {}\n", words::ago(now.saturating_sub(ended.as_ms()))));
        }
        for lacking in &self.others.lacking {
            text.push_str(&format!("waiting  {lacking}\n"));
        }
        self.others.silent.iter().for_each(|silent| text.push_str(&silent.to_text()));
        for (name, value) in self.inputs() {
            text.push_str(&format!("input    {name}: {}\n", words::clipped(&value.to_string())));
        }
        for (name, group) in &self.progress.groups {
            let told = told(group, self.is_attended());
            text.push_str(&format!("step     {name}: {}\n", told.unwrap_or_else(|| self.nothing(name).to_owned())));
        }
        if self.progress.unlisted > 0 {
            let many = words::count(self.progress.unlisted, "step");
            text.push_str(&format!("log      cut: {many} are counted, and not listed one by one\n"));
        }
        text.push_str(&self.left());
        text
    }

    /// Describes a step that has no event under the present plan.
    fn nothing(&self, name: &str) -> &'static str {
        let lines = self.reasons.iter().flat_map(|plan| &plan.lines);
        let fates: Vec<_> =
            lines.filter(|(address, ..)| words::top(address) == name).map(|(_, fate, _)| *fate).collect();
        match fates.iter().max_by_key(|fate| crate::plan::rank(**fate)) {
            Some(Fate::Reused) => "as before",
            Some(Fate::Skipped) => "not needed any more",
            Some(Fate::Run) | None if self.run.status == RunStatus::Done => "as before",
            Some(Fate::Run) | None => "nothing yet",
        }
    }

    /// Reports steps that were at work when the last process ended, and when they can be taken again.
    fn left(&self) -> String {
        let taken = self.progress.total(|group| group.running.len() + group.interrupted.len());
        if taken == 0 || self.is_attended() || self.run.status.is_at_rest() {
            return String::new();
        }
        let (were, them) = if taken == 1 { ("was", "it") } else { ("were", "them") };
        let what = format!("left     {} {were} at work when the last process ended", words::count(taken, "step"));
        match self.others.may {
            _ if self.run.status.is_being_undone() => {
                format!("{what}; nothing runs again, for the run is being undone\n")
            }
            true => format!("{what}; a worker may take {them} when the lease has run out\n"),
            false => format!("{what}; the process that goes on takes {them} up at once\n"),
        }
    }
}

fn failed_cleanup((address, why): &(String, String)) -> Value {
    json!({ "step": words::step(address), "why": why })
}

fn told(group: &Group, is_attended: bool) -> Option<String> {
    let mut parts = Vec::new();
    let mut part = |n: usize, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    part(group.done, "done");
    part(group.reused, "reused");
    let (running, interrupted) = (group.running.len(), group.interrupted.len());
    match is_attended {
        true => part(running, "running"),
        false => part(running + interrupted, "interrupted"),
    }
    part(group.waits.len(), "waiting");
    part(group.unknown.len(), "unknown");
    part(group.failed.len(), "failed");
    part(group.undone, "undone");
    let failed = group.failed.len();
    if group.attempts > group.done + failed + running + interrupted + group.waits.len() + group.unknown.len() {
        parts.push(words::count(group.attempts, "attempt"));
    }
    // The duration of a step that ran is shown, however short.
    if group.spent_ms > 0 || group.done + failed > 0 {
        parts.push(words::duration(group.spent_ms));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}
