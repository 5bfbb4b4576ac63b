//! `onceflow rm RUN`: removes a run that has ended, with all that is kept of it: outputs, record, history, kept values,
//! logs and directory. A stream is removed with its state. A run that has not ended is refused; `--force` cancels it first. Results that were written stay.

use crate::{
    args, asking, codes, exit::Exit, fault::Fault, housekeeping, location::StoreLocation, printer::Printer, runs,
    session::Session, streams, verbs::ls::shell_word, words,
};
use onceflow_engine::{Error, Summary};
use serde_json::json;
use std::time::Duration;

/// The time within which a process whose run was cancelled writes what it still has to, and ends.
const GOES_WITHIN: Duration = Duration::from_secs(10);

/// Removes a run.
pub(crate) async fn run(args: &args::Rm, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = match session.run(&engine, &args.run).await {
        Ok(run) => run,
        Err(fault) => {
            engine.stop();
            let removed = streams::remove(args, &session, printer).await;
            session.close().await?;
            return removed?.ok_or(fault);
        }
    };
    engine.stop();
    if !args.force {
        may_go(&run)?;
    }
    let bytes = housekeeping::size(&session.location.run(run.id));
    if args.sure.dry_run {
        session.close().await?;
        return Ok(would(&run, bytes, printer));
    }
    let ending = if run.status.has_ended() { "" } else { "stop and undo it, then " };
    let what = format!("run `{}` is {}: {ending}remove it and all that is kept of it", run.key, run.status);
    if !asking::may(printer, args.sure, &what) {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let had_ended = run.status.has_ended();
    let run = match had_ended {
        true => run,
        false => match cancelled(&session, &run, printer).await? {
            Ok(run) => run,
            Err(exit) => {
                session.close_clean(printer).await?;
                return Ok(exit);
            }
        },
    };
    if !had_ended {
        until_unattended(&session, &run.key).await?;
    }
    remove(&session, &run).await?;
    session.close_clean(printer).await?;
    if printer.json {
        let key = &run.key;
        printer.data(&json!({"key": key, "id": run.id.to_string(), "removed": true, "directory_bytes": bytes}));
    }
    printer.say(format!("run `{}` is removed; results that were written stay", run.key));
    Ok(Exit::Done)
}

/// Refuses a run that has not ended, or whose effects are still there: once removed, it could not be found again.
fn may_go(run: &Summary) -> Result<(), Fault> {
    let key = shell_word(&run.key);
    if !run.status.has_ended() {
        let why = format!("run `{}` has not ended: it is {}", run.key, run.status);
        let hint = format!("`onceflow cancel {key}` stops and undoes it; `onceflow rm --force {key}` does both");
        return Err(Fault::new(Exit::Busy, codes::UNFINISHED, why).hint(hint));
    }
    if let Some(first) = run.not_undone.first() {
        let why = format!("run `{}` was not cleaned up: {} is still in effect", run.key, words::step(&first.address));
        let hint = format!("undo it by hand, then `onceflow rm --force {key}`");
        return Err(Fault::new(Exit::Unclean, codes::ENDED, why).hint(hint));
    }
    Ok(())
}

fn would(run: &Summary, bytes: u64, printer: &Printer) -> Exit {
    let (cancels, status) = (!run.status.has_ended(), run.status.to_string());
    match printer.json {
        true => printer.data(&json!({
            "key": run.key, "id": run.id.to_string(), "status": status, "cancel": cancels, "directory_bytes": bytes,
        })),
        false => {
            let first = if cancels { "be stopped and undone, then " } else { "" };
            printer.text(format!("run `{}`, which is {status}, would {first}be removed", run.key));
        }
    }
    printer.next("the same without --dry-run");
    Exit::Done
}

/// Cancels the run and returns it; the exit code if it did not end, or not cleanly.
async fn cancelled(session: &Session, run: &Summary, printer: &Printer) -> Result<Result<Summary, Exit>, Fault> {
    // The data of `--json` is about the removal, not about the cancelling.
    let talk = printer.without_data();
    let exit = super::cancel::cancel(session, run, &talk, false).await?;
    let engine = session.idle().await?;
    let ended = runs::of_key(&engine, &run.key).await?;
    engine.stop();
    let is_it = |ended: &Summary| (ended.id, ended.generation) == (run.id, run.generation);
    Ok(match ended {
        Some(ended) if !is_it(&ended) => return Err(Error::changed(&run.key).into()),
        Some(ended) if ended.status.has_ended() && ended.not_undone.is_empty() => Ok(ended),
        // The run's history expired meanwhile.
        None => Ok(run.clone()),
        Some(_) => Err(exit),
    })
}

/// Waits until the process that attended the cancelled run has noticed and gone, for some seconds at most.
async fn until_unattended(session: &Session, key: &str) -> Result<(), Fault> {
    let engine = session.idle().await?;
    let gone = async {
        while engine.attendant(key).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    // What is still there then is reported by the removal.
    let looked = tokio::time::timeout(GOES_WITHIN, gone).await.unwrap_or(Ok(()));
    engine.stop();
    looked
}

async fn remove(session: &Session, run: &Summary) -> Result<(), Fault> {
    let engine = session.idle().await?;
    // The process that attends it may be about to write its results.
    if let Some(other) = engine.attendant(&run.key).await? {
        let why = format!("run `{}` is attended by process {}", run.key, other.worker.about.pid);
        return Err(Fault::new(Exit::Busy, codes::RUN_BUSY, why).hint("try again when that has ended"));
    }
    engine.forget(run).await?;
    engine.stop();
    housekeeping::remove(&session.location, &std::path::Path::new("runs").join(run.id.to_string()));
    Ok(())
}
