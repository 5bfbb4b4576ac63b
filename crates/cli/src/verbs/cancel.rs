//! `onceflow cancel RUN`: stops a run, undoes what it did, and waits until nothing of it is left. Whoever attends it does
//! the work; if nobody does, we attend it.

use crate::{
    args, asking, codes, event_log,
    exit::Exit,
    fault::Fault,
    finish::{self, Ending},
    follow::{Followed, follow},
    location::StoreLocation,
    presence::{self, Notice, Presence},
    printer::Printer,
    runs,
    session::{Session, is_for_any},
    signals::Signals,
    verbs::ls::shell_word,
    view::View,
    watching, words, work,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Error, Handle, Report, RunStatus, Summary};
use serde_json::json;

/// Cancels a run.
pub(crate) async fn run(args: &args::Cancel, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let undos = engine.find(&run.key).await?.pending_undos().await?;
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

/// Sees a run to its end that is being undone, or removed.
pub(super) async fn finish(session: &Session, run: &Summary, printer: &Printer) -> Result<Exit, Fault> {
    cancel(session, run, printer, true).await
}

/// Says what would be done.
fn would(run: &Summary, undos: &[String], printer: &Printer) -> Exit {
    let undos: Vec<_> = undos.iter().map(|address| words::step(address)).collect();
    let cancels = !run.status.has_ended();
    match (printer.json, cancels) {
        (true, _) => printer.data(&json!({
            "key": run.key, "id": run.id.to_string(), "status": run.status.to_string(), "cancel": cancels,
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

/// Cancels a run, unless that is decided, and waits for its end.
pub(super) async fn cancel(
    session: &Session,
    run: &Summary,
    printer: &Printer,
    mut decided: bool,
) -> Result<Exit, Fault> {
    let signals = &mut Signals::listen()?;
    let engine = session.idle().await?;
    let is_for_any = is_for_any(&session.location, &engine.find(&run.key).await?).await?;
    engine.stop();
    if is_for_any {
        return cancel_for_any(session, run, printer, signals, decided).await;
    }
    loop {
        let notice = Notice { pid: std::process::id(), key: run.key.clone(), ..Notice::default() };
        match presence::attend(&session.location.directory, notice)? {
            Presence::Mine(mut attending, before) => {
                let engine = work::engine(session, &mut attending, before, None).await?;
                let handle = engine.find(&run.key).await?;
                let events = engine.events();
                if !decided && !run.status.has_ended() {
                    stop(run, &handle).await?;
                } else if !decided {
                    engine.close().await?;
                    return Ok(has_ended(run, printer));
                }
                engine.start_work();
                attending.started()?;
                let writer = event_log::Writer::attend(&session.location.run(handle.id()));
                let shown = work::show(events, &run.key, writer, View::new(printer, vec![]));
                let waited = work::wait(&engine, &handle, signals, printer).await?;
                engine.close().await?;
                let progress = shown.await.map(|view| view.progress).unwrap_or_default();
                return match waited {
                    Ok(report) => {
                        clear(session, &handle, &report);
                        Ending { printer, handle: &handle, progress: &progress }.tell(report, None).await
                    }
                    Err(exit) => Ok(exit),
                };
            }
            Presence::Other(_) => {
                let engine = session.idle().await?;
                if !decided {
                    stop(run, &engine.find(&run.key).await?).await?;
                    decided = true;
                }
                let followed = follow(&engine, &session.location, &run.key, printer, signals).await?;
                engine.stop();
                match followed {
                    Followed::Alone => {}
                    Followed::Asked(exit) => return Ok(exit),
                    Followed::Rests(handle, report, view) => {
                        return Ending { printer, handle: &handle, progress: &view.progress }.tell(*report, None).await;
                    }
                }
            }
        }
    }
}

/// Cancels a run that any worker may work on. We see to its end ourselves, in case none is there.
async fn cancel_for_any(
    session: &Session,
    run: &Summary,
    printer: &Printer,
    signals: &mut Signals,
    decided: bool,
) -> Result<Exit, Fault> {
    let (engine, attending) = WorkerSetup::for_the_end().engine(session, "cancel").await?;
    let handle = engine.find(&run.key).await?;
    if !decided && run.status.has_ended() {
        engine.close().await?;
        return Ok(has_ended(run, printer));
    }
    let written = tokio::spawn(watching::write(engine.events(), engine.clone(), session.location.clone()));
    if !decided {
        stop(run, &handle).await?;
    }
    engine.start_work();
    let followed = watching::follow(&engine, &session.location, handle, printer, signals).await?;
    engine.close().await?;
    drop((written.await, attending));
    match followed {
        Followed::Asked(exit) => Ok(exit),
        Followed::Alone => Ok(Exit::Waiting),
        Followed::Rests(handle, report, view) => {
            clear(session, &handle, &report);
            Ending { printer, handle: &handle, progress: &view.progress }.tell(*report, None).await
        }
    }
}

/// Removes the work directories of a run of which nothing is left; those of undos that failed are there to be looked at.
fn clear(session: &Session, handle: &Handle, report: &Report) {
    if finish::exit(report) != Exit::Unclean {
        crate::executors::home(&session.location).clear(handle.id());
    }
}

/// Decides that the run ends: undone, or as it is.
async fn stop(run: &Summary, handle: &Handle) -> Result<(), Error> {
    match run.status {
        RunStatus::NotUndone => handle.abandon().await.map(drop),
        _ => handle.cancel().await,
    }
}

/// There is nothing to cancel: says what became of it.
fn has_ended(run: &Summary, printer: &Printer) -> Exit {
    let status = runs::status(run, true);
    if printer.json {
        printer.data(&json!({"key": run.key, "id": run.id.to_string(), "status": status, "ended_before": true}));
    }
    printer.say(format!("run `{}` has ended already: it is {status}, and stays so", run.key));
    printer.next(format!("onceflow show {}", shell_word(&run.key)));
    // It is not cancelled, unless it was before.
    match run.status {
        _ if !run.not_undone.is_empty() => Exit::Unclean,
        RunStatus::Cancelled => Exit::Cancelled,
        _ => Exit::No,
    }
}
