//! `onceflow retry RUN [STEP]`: resumes a run that failed or was interrupted. The flow file is not needed: the store
//! has the run's program.

use crate::{
    args, codes,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    pending::{self, PendingStep},
    printer::Printer,
    resume::Resume,
    session::Session,
    steps,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{Error, Intent, Preview, RunStatus, Summary};
use serde_json::json;

/// Resumes a run.
pub(crate) async fn run(args: &args::Retry, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    // A list of runs names only the first few failures.
    let (run, waiting) = match engine.preview(Intent::Retry(run.key.clone())).await {
        Ok(Preview { run: Some(now), undecided, .. }) => (now, pending::parked(undecided)),
        Ok(_) | Err(Error::Ended { .. }) => (run, vec![]),
        Err(error) => {
            let fault = Fault::from(error);
            return Err(if run.status.is_interrupted() { fault.of_unattended(&run.key) } else { fault });
        }
    };
    engine.stop();
    allowed(&run, &waiting)?;
    let failed = match run.status {
        RunStatus::Failed => &run.failures[..],
        RunStatus::NotUndone => &run.not_undone[..],
        _ => &[],
    };
    let failed: Vec<String> = failed.iter().map(|failed| failed.address.to_string()).collect();
    let only = match &args.step {
        None => None,
        // Undos that failed are tried again together, the last first.
        Some(step) if run.status == RunStatus::NotUndone && failed.len() > 1 => {
            let what = format!("undos are tried again together; `{step}` is one of {}", failed.len());
            return Err(Fault::usage(&what).hint(format!("onceflow retry {}", shell_word(&run.key))));
        }
        Some(step) => {
            let meant: Vec<_> = failed.iter().filter(|address| steps::is_within(address, step)).cloned().collect();
            if meant.is_empty() {
                let fault = steps::unknown(&run.key, step, failed.iter().map(String::as_str));
                return Err(Fault { message: format!("run `{}` has no step `{step}` that failed", run.key), ..fault });
            }
            Some(meant)
        }
    };
    if args.dry_run {
        session.close().await?;
        return Ok(told(&run, only.as_deref().unwrap_or(&failed), args.step.as_deref(), printer));
    }
    Resume { session, key: run.key, printer, args: &args.go_on, only }.go().await
}

/// Checks that the run can be resumed.
fn allowed(run: &Summary, waiting: &[PendingStep]) -> Result<(), Fault> {
    let key = shell_word(&run.key);
    match run.status {
        RunStatus::Done => Err(Fault::new(Exit::No, codes::ENDED, format!("run `{}` is done", run.key))
            .hint(format!("`onceflow show {key}` shows what it gave"))),
        RunStatus::Undone | RunStatus::Cancelled if !run.not_undone.is_empty() => Err(not_undone(run)),
        RunStatus::Undone | RunStatus::Cancelled => {
            let what = format!("run `{}` was {}: nothing of it is left to go on with", run.key, run.status);
            Err(Fault::new(Exit::No, codes::ENDED, what).hint("`onceflow run` of its flow begins anew"))
        }
        RunStatus::Waiting if pending::unknown(waiting).is_empty() && !waiting.is_empty() => {
            let events: Vec<_> = pending::events(waiting).into_iter().map(|(_, event)| event).collect();
            let what = format!("run `{}` waits for {}", run.key, events.join(", "));
            let event = shell_word(events.first().unwrap_or(&"EVENT"));
            Err(Fault::new(Exit::Waiting, codes::OUTCOME, what)
                .hint(format!("`onceflow send {key} {event}` brings it")))
        }
        RunStatus::Waiting => {
            let steps: Vec<_> = pending::unknown(waiting).iter().map(|step| words::step(step)).collect();
            let what = format!("run `{}` waits for the outcome of {}", run.key, steps.join(", "));
            let resolve = pending::resolve(&run.key, waiting);
            let hint = resolve.map_or_else(
                || format!("`onceflow show {key}` says how it stands"),
                |resolve| format!("`{resolve}` says it"),
            );
            Err(Fault::new(Exit::Waiting, codes::OUTCOME, what).hint(hint))
        }
        _ => Ok(()),
    }
}

/// The error for a run that has ended while some of its effects are not undone.
fn not_undone(run: &Summary) -> Fault {
    let named = |failed: &Failed| {
        let why = failed.causes.first().map_or("", String::as_str);
        format!("{} could not be undone: {why}", words::step(&failed.address))
    };
    let left: Vec<_> = run.not_undone.iter().map(named).collect();
    let ended = if run.status == RunStatus::Cancelled { "was cancelled" } else { "failed" };
    let what = format!("run `{}` {ended}, and {}", run.key, left.join("; "));
    Fault::new(Exit::Unclean, codes::ENDED, what)
        .hint("what could not be undone was given up, and is not tried again; `onceflow run` of its flow begins anew")
}

fn told(run: &Summary, tried: &[String], step: Option<&str>, printer: &Printer) -> Exit {
    let named: Vec<_> = tried.iter().map(|address| words::step(address)).collect();
    match printer.json {
        true => printer.data(&json!({"key": run.key, "id": run.id.to_string(), "retry": named})),
        false if named.is_empty() => printer.text("nothing failed; what is not done yet goes on"),
        false => printer.text(format!("would try again: {}", named.join(", "))),
    }
    let step = step.map_or(String::new(), |step| format!(" {}", shell_word(step)));
    printer.next(format!("onceflow retry {}{step}", shell_word(&run.key)));
    Exit::Done
}
