//! `onceflow worker`: takes steps of any run until a signal asks it to stop; then it takes no further steps, and
//! finishes those it has.

use crate::{
    args, event_log,
    exit::Exit,
    fault::Fault,
    housekeeping,
    location::StoreLocation,
    printer::{Ink, Printer},
    progress::Progress,
    session::Session,
    signals::Signals,
    view, words,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Engine, Event, EventKind};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;

/// Signals that do not end the process at once: the first drains, the second interrupts.
const SIGNALS: u8 = 2;

/// The time between two looks for ready steps, with `--once`.
const LOOK: Duration = Duration::from_millis(100);

/// Takes steps until it is stopped.
pub(crate) async fn run(args: &args::Worker, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let setup = WorkerSetup::of_worker(args)?;
    let session = Session::make(location).await?;
    let mut signals = Signals::listen_to(SIGNALS)?;
    let engine = setup.engine(&session, "worker").await?;
    let told = tokio::spawn(tell(engine.events(), printer.clone()));
    let watching =
        session.store.lost().map(|lost| tokio::spawn(watch(lost, session.location.clone(), printer.clone())));
    let sweeping = tokio::spawn(housekeeping::keep_sweeping(engine.clone(), session.location.clone()));
    if printer.json {
        printer.data(&json!({"event": "did-come", "pid": std::process::id()}));
    }
    printer.say(format!("worker {} takes steps of {}", std::process::id(), session.location));
    engine.start_work();
    let worked = tokio::select! {
        exit = signals.asked() => drain(&engine, &mut signals, printer, exit).await,
        ready = until_nothing_is_ready(&engine, &setup), if args.once => match ready {
            Ok(()) => engine.close().await.map(|()| Exit::Done).map_err(Fault::from),
            Err(fault) => Err(fault),
        },
        why = engine.until_store_full() => {
            if let Err(error) = engine.interrupt().await {
                tracing::debug!(%error, "what was done last may have to be done again");
            }
            Err(Fault::full(why))
        }
    };
    sweeping.abort();
    if let Some(watching) = watching {
        watching.abort();
    }
    let exit = match worked {
        Ok(exit) => exit,
        Err(fault) => {
            engine.stop();
            return Err(fault);
        }
    };
    let did = told.await.unwrap_or_default();
    session.close_clean(printer).await?;
    let data = json!({"event": "did-leave", "done": did.done, "failed": did.failed, "lost": did.lost});
    if printer.json {
        printer.data(&data);
    }
    printer.say(format!(
        "left: {} done, {} failed, {} lost to others",
        words::count(did.done, "step"),
        did.failed,
        did.lost
    ));
    Ok(exit)
}

/// Takes no further steps, and finishes those it has, unless another signal comes.
async fn drain(engine: &Engine, signals: &mut Signals, printer: &Printer, exit: Exit) -> Result<Exit, Fault> {
    let has = words::count(engine.claimed_steps(), "step");
    printer.say(format!("draining: takes no further steps, finishes {has} (again to give them back)"));
    tokio::select! {
        closed = engine.close() => {
            closed?;
            Ok(Exit::Done)
        }
        _ = signals.asked_times(SIGNALS) => {
            printer.say("interrupted: its steps are given back (again to stop at once)");
            engine.interrupt().await?;
            Ok(exit)
        }
    }
}

/// Waits until the worker has no step, and there is none that it could take.
async fn until_nothing_is_ready(engine: &Engine, setup: &WorkerSetup) -> Result<(), Fault> {
    loop {
        tokio::time::sleep(LOOK).await;
        if engine.claimed_steps() > 0 {
            continue;
        }
        let waits = engine.backlog().await?;
        if !waits.iter().any(|class| class.ready > 0 && setup.takes(&class.class, &class.tasks))
            && engine.claimed_steps() == 0
        {
            return Ok(());
        }
    }
}

/// Reports when the server stops answering and when it is back: once each, however many retries are between.
pub(crate) async fn watch(mut lost: tokio::sync::watch::Receiver<bool>, location: StoreLocation, printer: Printer) {
    let mut was_lost = false;
    loop {
        let is_lost = *lost.borrow_and_update();
        match (was_lost, is_lost) {
            (false, true) => {
                printer.warn(format!(
                    "{location} does not answer; steps that run go on, and it is tried until it is back"
                ));
            }
            (true, false) => printer.warn(format!("{location} is back")),
            _ => {}
        }
        was_lost = is_lost;
        if lost.changed().await.is_err() {
            return;
        }
    }
}

/// The numbers of steps that this worker did, that failed here, and that others took over.
#[derive(Default)]
struct Did {
    done: usize,
    failed: usize,
    lost: usize,
}

/// Prints and counts the events of this worker.
async fn tell(mut events: UnboundedReceiver<Event>, printer: Printer) -> Did {
    let (mut did, mut progress_of) = (Did::default(), BTreeMap::<String, Progress>::new());
    while let Some(Event { run, kind: what }) = events.recv().await {
        let ms = event_log::now_ms();
        let took = progress_of.entry(run.to_string()).or_default().saw(ms, &what);
        match &what {
            EventKind::DidEnd { .. } => drop(progress_of.remove(&*run)),
            EventKind::DidCommit { address } if !words::is_helper(address) && took.is_some() => did.done += 1,
            EventKind::DidFail(_) => did.failed += 1,
            EventKind::DidLose { .. } => did.lost += 1,
            _ => {}
        }
        say(&printer, ms, &run, &what, took);
    }
    did
}

fn say(printer: &Printer, ms: u64, run: &str, what: &EventKind, took: Option<u64>) {
    if printer.json {
        if let Some(mut line) = event_log::told(ms, what) {
            line["run"] = json!(run);
            printer.data(&line);
        }
        return;
    }
    let at = |address: &str| format!("{run} {}", words::step(address));
    match what {
        EventKind::WillRun { address, attempt } if !words::is_helper(address) => {
            let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            printer.say(format!("takes   {}{again}", at(address)));
        }
        EventKind::DidCommit { address } if !words::is_helper(address) => {
            if let Some(took) = took {
                let done = printer.ink(Ink::Green, "done");
                printer.say(format!("{done}    {} in {}", at(address), words::duration(took)));
            }
        }
        EventKind::DidFail(failed) => printer.tell(format!("{run}: {}", view::failure(printer, failed))),
        EventKind::WillWait { address } => printer.say(format!("waits   {}", at(address))),
        EventKind::DidMarkUnknown { address } => printer.say(format!("unknown {}", at(address))),
        EventKind::DidUndo { address } => printer.say(format!("undone  {}", at(address))),
        EventKind::HeldUp { address, why } => printer.warn(format!("held up {}: {why}", at(address))),
        EventKind::CleanupFailed { address, why } => {
            printer.warn(format!("{}: {why}; the outcome stands", at(address)));
        }
        EventKind::DidLose { address } => printer.warn(format!(
            "{}    {}: its heartbeats came too late, so another worker has it; its result here is dropped",
            printer.ink(Ink::Yellow, "lost"),
            at(address)
        )),
        EventKind::DidEnd { how } => printer.say(format!("ended   {run}: {how}")),
        _ => {}
    }
}
