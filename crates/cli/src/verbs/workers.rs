//! `onceflow workers`: the workers of the store, their steps, and the steps that wait.

use crate::{
    args,
    exit::Exit,
    fault::Fault,
    housekeeping,
    location::StoreLocation,
    printer::{Printer, name},
    runs, session,
    session::Session,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::Timestamp;
use onceflow_engine::{Backlog, RunStatus, Summary, WorkerInfo, WorkerStep};
use serde_json::{Value, json};

/// Steps of one worker that are named.
const NAMED_MAX: usize = 3;

/// Lists workers, and steps that wait.
pub(crate) async fn run(_: &args::Workers, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    // The end of a process on this machine is seen at once.
    housekeeping::release_ended(&engine, &session.location).await?;
    let (workers, waits, now) = (engine.workers().await?, engine.backlog().await?, engine.now().await?);
    let interrupted = runs::all(&engine).await?.into_iter().find(|run| run.status.is_interrupted());
    engine.stop();
    session.close().await?;
    let waits: Vec<_> = waits.into_iter().filter(|class| class.ready > 0).collect();
    if printer.json {
        printer.pretty(&json!({
            "workers": workers.iter().map(worker_json).collect::<Vec<_>>(),
            "backlog": waits.iter().map(|class| backlog_json(class, now)).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Done);
    }
    match workers.is_empty() {
        true => printer.say("no workers are there"),
        false => printer.text(table(&workers, now)),
    }
    if waits.is_empty() {
        printer.say("nothing waits");
    } else {
        printer.text(waits.iter().map(|class| waiting(class, now)).collect::<String>());
    }
    printer.next(next(&waits, interrupted.as_ref()));
    Ok(Exit::Done)
}

/// Returns the command that brings the waiting steps on. A worker that is started by hand takes steps of shared runs
/// only; those of other runs wait for a process that attends their run.
fn next(waits: &[Backlog], interrupted: Option<&Summary>) -> String {
    let shared = waits.iter().filter(|class| class.workers == 0 && class.tasks.is_empty());
    if let Some(labels) = shared.filter_map(|class| session::labels(&class.class)).next() {
        let labels: String = labels.iter().map(|label| format!(" --label {}", shell_word(label))).collect();
        return format!("`onceflow worker{labels}` starts one here");
    }
    match interrupted {
        Some(run) if run.status == RunStatus::UndoInterrupted => {
            format!("`onceflow cancel {}` finishes undoing it", shell_word(&run.key))
        }
        Some(run) => format!("`onceflow retry {}` resumes it", shell_word(&run.key)),
        None => String::from("onceflow ls"),
    }
}

/// The status of a worker, in a word.
fn status(worker: &WorkerInfo) -> &'static str {
    match (worker.is_alive, worker.draining) {
        (false, _) => "silent",
        (true, true) => "draining",
        (true, false) => "alive",
    }
}

fn worker_json(worker: &WorkerInfo) -> Value {
    let step = |step: &WorkerStep| json!({"run": step.run, "step": words::step(&step.address)});
    let task = |(name, version): &(String, Option<String>)| json!({"name": name, "version": version});
    let class = |(name, most): &(String, Option<u64>)| json!({"class": name, "at_a_time": most});
    json!({
        "worker": format!("{:032x}", worker.incarnation), "host": worker.about.host, "pid": worker.about.pid,
        "program": worker.about.program, "labels": worker.about.labels, "run": worker.about.run,
        "status": status(worker),
        "started_ms": worker.started.as_ms(), "seen_ms": worker.seen.as_ms(), "silent_ms": worker.silent_ms,
        "lease_ms": worker.lease_ms,
        "done": worker.done, "lost": worker.lost, "steps": worker.steps.iter().map(step).collect::<Vec<_>>(),
        "classes": worker.classes.iter().map(class).collect::<Vec<_>>(),
        "tasks": worker.tasks.iter().map(task).collect::<Vec<_>>(),
    })
}

fn backlog_json(class: &Backlog, now: Timestamp) -> Value {
    json!({
        "class": class.class, "tasks": class.tasks.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "ready": class.ready, "taken": class.taken, "workers": class.workers,
        "oldest_run_ms": class.since.map(|since| now.ms_since(since)),
    })
}

fn table(workers: &[WorkerInfo], now: Timestamp) -> String {
    let place = |worker: &WorkerInfo| format!("{}:{}", worker.about.host, worker.about.pid);
    let width = workers.iter().map(|worker| place(worker).chars().count()).max().unwrap_or(0).clamp(6, 40);
    let mut text =
        format!("{:<width$}  {:<14}  {:>6}  {:>5}  {:<9}  DOING\n", "WORKER", "STATUS", "DONE", "LOST", "SINCE");
    for worker in workers {
        let status = match worker.is_alive {
            true => status(worker).to_owned(),
            false => format!("silent for {}", words::duration(worker.silent_ms)),
        };
        let since = words::ago(now.ms_since(worker.started));
        let labels = worker.about.labels.join(", ");
        let labels = if labels.is_empty() { labels } else { format!(" [{labels}]") };
        let only = worker.about.run.as_ref().map_or(String::new(), |run| format!(" (only run {})", name(run)));
        text.push_str(&format!(
            "{:<width$}  {status:<14}  {:>6}  {:>5}  {since:<9}  {}{labels}{only}\n",
            place(worker),
            worker.done,
            worker.lost,
            doing(&worker.steps),
        ));
    }
    text
}

fn doing(steps: &[WorkerStep]) -> String {
    if steps.is_empty() {
        return String::from("nothing");
    }
    let named = steps.iter().take(NAMED_MAX).map(|step| format!("{} {}", step.run, words::step(&step.address)));
    let more = steps.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", named.collect::<Vec<_>>().join(", "))
}

fn waiting(class: &Backlog, now: Timestamp) -> String {
    let steps = words::count(class.ready as usize, "step");
    let since = class
        .since
        .map_or(String::new(), |since| format!("; the oldest run is {} old", words::duration(now.ms_since(since))));
    let whom = match class.workers {
        0 => format!(" for a worker {}", missing(&class.class, &class.tasks)),
        _ => String::new(),
    };
    format!("waits   {steps}{whom}{since}\n")
}

/// The kind of worker that is missing.
pub(crate) fn missing(class: &str, tasks: &[(String, String)]) -> String {
    if !tasks.is_empty() {
        let tasks: Vec<_> = tasks.iter().map(|(name, version)| format!("`{name}`, version {version}")).collect();
        return format!("that offers {}", tasks.join(" and "));
    }
    match session::labels(class) {
        Some(labels) if labels.is_empty() => String::from("of any kind"),
        Some(labels) => format!("with label {}", labels.join(" and ")),
        None => match class.strip_prefix(session::OWN) {
            Some(key) => format!("that attends run {}", name(key)),
            None if class.is_empty() => String::from("that attends its run"),
            None => format!("that takes class `{class}`"),
        },
    }
}
