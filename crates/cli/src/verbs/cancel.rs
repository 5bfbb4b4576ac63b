//! `onceflow cancel RUN`: stops a run, undoes its steps, and waits until nothing of it is left.

use crate::{
    args, asking, codes,
    exit::Exit,
    fault::Fault,
    finish::{self, Ending},
    follow::Followed,
    location::StoreLocation,
    printer::Printer,
    run_worker::{RunWorker, Worked},
    session::{Session, is_for_any},
    signals::Signals,
    streams,
    verbs::ls::shell_word,
    view::View,
    words,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Error, Handle, RunStatus, Summary};
use serde_json::json;

/// Cancels a run.
pub(crate) async fn run(args: &args::Cancel, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = match session.run(&engine, &args.run).await {
        Ok(run) => run,
        Err(fault) => {
            engine.stop();
            let cancelled = streams::life::cancel(args, &session, printer).await;
            session.close().await?;
            return cancelled?.ok_or(fault);
        }
    };
    let undos = engine.find(&run.key).await?.steps().pending_undos().await?;
    engine.stop();
    match (run.status == RunStatus::NotUndone, args.abandon) {
        (true, false) => {
            return Err(Error::NotUndone { key: run.key.clone(), steps: run.not_undone.clone() }.into());
        }
        (false, true) => {
            let what = format!("run `{}` is {}: nothing of it failed to be undone", run.key, run.status);
            return Err(
                Fault::new(Exit::No, codes::ENDED, what).hint("`onceflow cancel` without `--abandon` undoes a run")
            );
        }
        (false, false) | (true, true) => {}
    }
    if args.sure.dry_run {
        session.close().await?;
        return Ok(would(&run, &undos, printer));
    }
    let undos: Vec<_> = undos.iter().map(|address| words::step(address)).collect();
    let what = match args.abandon {
        true => format!("give up undoing {} of run `{}`, which stays done", undos.join(", "), run.key),
        false => format!("stop run `{}`, which is {}, and undo what it did", run.key, run.status),
    };
    if !run.status.has_ended() && !asking::may(printer, args.sure, &what) {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let exit = cancel(&session, &run, printer, false).await?;
    session.close_clean(printer).await?;
    Ok(exit)
}

/// Waits for the end of a run that is being undone or removed.
pub(super) async fn finish(session: &Session, run: &Summary, printer: &Printer) -> Result<Exit, Fault> {
    cancel(session, run, printer, true).await
}

/// Prints what `cancel` would do.
fn would(run: &Summary, undos: &[String], printer: &Printer) -> Exit {
    let undos: Vec<_> = undos.iter().map(|address| words::step(address)).collect();
    let cancels = !run.status.has_ended();
    match (printer.json, cancels) {
        (true, _) => printer.data(&json!({
            "key": run.key, "id": run.id.to_string(), "status": run.status, "cancel": cancels,
            "undo": undos, "live": run.live,
        })),
        (false, _) if run.status == RunStatus::NotUndone => {
            printer.text(format!("run `{}` would end, and these would stay done: {}", run.key, undos.join(", ")));
        }
        (false, false) => printer.text(format!("run `{}` has ended already: nothing would be done", run.key)),
        (false, true) if undos.is_empty() => {
            printer.text(format!("run `{}` would be stopped; nothing of it is to be undone", run.key));
        }
        (false, true) => printer.text(format!("run `{}` would be stopped, and undone: {}", run.key, undos.join(", "))),
    }
    printer.next("the same without --dry-run");
    Exit::Done
}

/// Cancels a run, unless it is cancelled already (`decided`), and waits for its end. The process that attends the run
/// ends it; if there is none, or any worker may work on it, this one does.
pub(super) async fn cancel(
    session: &Session,
    run: &Summary,
    printer: &Printer,
    mut decided: bool,
) -> Result<Exit, Fault> {
    let signals = &mut Signals::listen()?;
    let engine = session.idle().await?;
    let is_shared = is_for_any(&session.location, &engine.find(&run.key).await?).await?;
    engine.stop();
    let setup = if is_shared { WorkerSetup::only_to_end_runs() } else { WorkerSetup::of(None, None) };
    let worker = RunWorker::open(session, printer, (setup, "cancel"), (&run.key, is_shared)).await?;
    while worker.attend().await?.is_some() {
        if !decided {
            stop(run, &worker.engine.find(&run.key).await?).await?;
            decided = true;
        }
        let exit = match worker.follow(signals).await? {
            Followed::Alone => continue,
            Followed::Asked(exit) => exit,
            Followed::Rests(handle, report, view) => {
                Ending { printer, handle: &handle, progress: &view.progress }.tell(*report, None).await?
            }
        };
        worker.close().await?;
        return Ok(exit);
    }
    let handle = worker.engine.find(&run.key).await?;
    if !decided && run.status.has_ended() {
        worker.close().await?;
        return Ok(has_ended(run, printer));
    }
    if !decided {
        stop(run, &handle).await?;
    }
    let view = View::new(printer, vec![]);
    let Worked { rests, view, engine } = worker.until_rest(&handle, view, signals, async |_, _| Ok(false)).await?;
    let exit = match rests {
        Ok(report) => {
            // Work directories of failed undos are kept for inspection.
            if finish::exit(&report) != Exit::Unclean {
                crate::executors::home(&session.location).clear(handle.id());
            }
            Ending { printer, handle: &handle, progress: &view.progress }.tell(report, None).await?
        }
        Err(exit) => exit,
    };
    engine.close().await?;
    Ok(exit)
}

/// Cancels the run that was seen; one that could not be undone is abandoned instead.
async fn stop(run: &Summary, handle: &Handle) -> Result<(), Error> {
    match run.status {
        _ if handle.id() != run.id => Err(Error::changed(&run.key)),
        RunStatus::NotUndone => handle.abandon().await.map(drop),
        _ => handle.cancel().await,
    }
}

/// Reports the status of a run that ended before it could be cancelled.
fn has_ended(run: &Summary, printer: &Printer) -> Exit {
    let status = run.status;
    if printer.json {
        printer.data(&json!({"key": run.key, "id": run.id.to_string(), "status": status, "ended_before": true}));
    }
    printer.say(format!("run `{}` has ended already: it is {status}, and stays so", run.key));
    printer.next(format!("onceflow show {}", shell_word(&run.key)));
    // The run is not cancelled, unless it was before.
    match run.status {
        _ if !run.not_undone.is_empty() => Exit::Unclean,
        RunStatus::Cancelled => Exit::Cancelled,
        _ => Exit::No,
    }
}
