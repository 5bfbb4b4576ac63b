//! `onceflow cancel RUN`: stops a run, undoes what it did, and waits until nothing of it is left. Whoever attends it does
//! the work; if nobody does, we attend it.

use crate::{
    args, asking,
    crew::Crew,
    exit::Exit,
    fault::Fault,
    finish::Ending,
    follow::{Followed, follow},
    place::Place,
    presence::{self, Notice, Presence},
    printer::Printer,
    runs,
    session::{Session, is_for_any},
    signals::Signals,
    trail,
    verbs::ls::shell_word,
    view::View,
    watching, words, work,
};
use onceflow_engine::{RunStatus, Summary};
use serde_json::json;

/// Cancels a run.
pub(crate) async fn run(args: &args::Cancel, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let undos = engine.find(&run.key).await?.undos().await?;
    engine.stop();
    if args.sure.dry_run {
        session.close().await?;
        return Ok(would(&run, &undos, printer));
    }
    let what = format!("stop run `{}`, which is {}, and undo what it did", run.key, run.status);
    if !run.status.has_ended() && !asking::may(printer, args.sure, &what) {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let mut signals = Signals::listen()?;
    let exit = cancel(&session, &run, printer, &mut signals).await?;
    session.close_clean(printer).await?;
    Ok(exit)
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
        (false, false) => printer.text(format!("run `{}` has ended already: nothing would be done", run.key)),
        (false, true) if undos.is_empty() => {
            printer.text(format!("run `{}` would be stopped; nothing of it is to be undone", run.key));
        }
        (false, true) => printer.text(format!("run `{}` would be stopped, and undone: {}", run.key, undos.join(", "))),
    }
    printer.next("the same without --dry-run");
    Exit::Done
}

pub(super) async fn cancel(
    session: &Session,
    run: &Summary,
    printer: &Printer,
    signals: &mut Signals,
) -> Result<Exit, Fault> {
    let engine = session.idle().await?;
    let is_for_any = is_for_any(&session.place, &engine.find(&run.key).await?).await?;
    engine.stop();
    if is_for_any {
        return cancel_for_any(session, run, printer, signals).await;
    }
    let mut decided = false;
    loop {
        let notice = Notice { pid: std::process::id(), key: run.key.clone(), ..Notice::default() };
        match presence::attend(&session.place.directory, notice)? {
            Presence::Mine(mut attending, before) => {
                let engine = work::engine(session, &mut attending, before, None).await?;
                let handle = engine.find(&run.key).await?;
                let events = engine.events();
                if !decided && !run.status.has_ended() {
                    handle.cancel().await?;
                } else if !decided {
                    engine.close().await?;
                    return Ok(has_ended(run, printer));
                }
                engine.go();
                attending.started()?;
                let writer = trail::Writer::attend(&session.place.run(handle.id()));
                let shown = work::show(events, &run.key, writer, View::new(printer, vec![]));
                let waited = work::wait(&engine, &handle, signals, printer).await?;
                engine.close().await?;
                let tally = shown.await.map(|view| view.tally).unwrap_or_default();
                return match waited {
                    Ok(report) => {
                        crate::executors::home(&session.place).clear(handle.id());
                        Ending { printer, handle: &handle, tally: &tally }.tell(report, None).await
                    }
                    Err(exit) => Ok(exit),
                };
            }
            Presence::Other(_) => {
                let engine = session.idle().await?;
                if !decided {
                    engine.find(&run.key).await?.cancel().await?;
                    decided = true;
                }
                let followed = follow(&engine, &session.place, &run.key, printer, signals).await?;
                engine.stop();
                match followed {
                    Followed::Alone => {}
                    Followed::Asked(exit) => return Ok(exit),
                    Followed::Rests(handle, report, view) => {
                        return Ending { printer, handle: &handle, tally: &view.tally }.tell(*report, None).await;
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
) -> Result<Exit, Fault> {
    let (engine, attending) = Crew::for_the_end().engine(session, "cancel").await?;
    let handle = engine.find(&run.key).await?;
    if run.status.has_ended() {
        engine.close().await?;
        return Ok(has_ended(run, printer));
    }
    let written = tokio::spawn(watching::write(engine.events(), engine.clone(), session.place.clone()));
    handle.cancel().await?;
    engine.go();
    let followed = watching::follow(&engine, &session.place, handle, printer, signals).await?;
    engine.close().await?;
    drop((written.await, attending));
    match followed {
        Followed::Asked(exit) => Ok(exit),
        Followed::Alone => Ok(Exit::Waiting),
        Followed::Rests(handle, report, view) => {
            crate::executors::home(&session.place).clear(handle.id());
            Ending { printer, handle: &handle, tally: &view.tally }.tell(*report, None).await
        }
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
