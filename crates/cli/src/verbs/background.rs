//! A run that goes on without us: a process of its own, in a session of its own, attends it until it rests. This file has
//! both sides: starting such a process (`run --no-wait`) and being one (`attend`, which is not for people).

use crate::{
    args, event_log,
    exit::Exit,
    fault::Fault,
    finish,
    location::StoreLocation,
    presence::{self, Notice, Presence},
    printer::Printer,
    session::Session,
    signals::Signals,
    verbs::ls::shell_word,
    view::View,
    work,
};
use onceflow_core::protocol::ids::RunId;
use serde_json::json;
use std::{
    fs::{self, File},
    process::{Command, Stdio},
    time::Duration,
};

/// What such a process says goes here.
const LOG: &str = "attend.log";

/// How long to wait for a process to say that it is there.
const BEGINS_MS_MAX: u64 = 5000;

/// Starts a process that attends a run. The run must be started, and nobody may attend it; nor may we have the store open:
/// if it were ours, the other one would have to take it over while it works.
///
/// # Errors
/// If the process cannot be started.
pub(crate) async fn start(
    location: &StoreLocation,
    printer: &Printer,
    key: &str,
    run: RunId,
    jobs: Option<u16>,
) -> Result<Exit, Fault> {
    let directory = location.run(run);
    fs::create_dir_all(&directory).map_err(Fault::store("make", &directory))?;
    let log = File::create(directory.join(LOG)).map_err(Fault::store("write", &directory.join(LOG)))?;
    let again = log.try_clone().map_err(Fault::store("write", &directory.join(LOG)))?;
    let us = std::env::current_exe().map_err(Fault::system("no path of our own"))?;
    let mut command = Command::new(us);
    command.arg("--store").arg(&location.directory).args(["attend", key]);
    if let Some(jobs) = jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(log).stderr(again);
    let mut child = command.spawn().map_err(Fault::system("no process"))?;
    let begins = std::time::Instant::now();
    while presence::look(&location.directory, key).is_none_or(|notice| !notice.started) {
        let ended = child.try_wait().ok().flatten().is_some();
        if ended || begins.elapsed() > Duration::from_millis(BEGINS_MS_MAX) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(told(printer, key, Some(child.id())))
}

/// Says that a run goes on without us.
pub(crate) fn told(printer: &Printer, key: &str, pid: Option<u32>) -> Exit {
    if printer.json {
        printer.data(&json!({"key": key, "status": "running", "pid": pid}));
    }
    printer.say(format!("run `{key}` goes on in the background"));
    printer.next(format!("onceflow watch {}", shell_word(key)));
    Exit::Waiting
}

/// Attends a run until it rests.
pub(crate) async fn attend(args: &args::Attend, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    // Not the terminal's any more: it may close.
    let _leader_already = rustix::process::setsid();
    let session = Session::open(location).await?;
    let notice = Notice { pid: std::process::id(), key: args.key.clone(), ..Notice::default() };
    let Presence::Mine(mut attending, before) = presence::attend(&session.location.directory, notice)? else {
        printer.say("another process attends the run");
        return Ok(Exit::Done);
    };
    let mut signals = Signals::listen()?;
    let engine = work::engine(&session, &mut attending, before, args.jobs).await?;
    let events = engine.events();
    let handle = engine.find(&args.key).await?;
    engine.start_work();
    attending.started()?;
    crate::executors::home(&session.location).tidy(handle.id());
    let writer = event_log::Writer::attend(&session.location.run(handle.id()));
    let shown = work::show(events, &args.key, writer, View::new(printer, vec![]));
    let waited = work::wait(&engine, &handle, &mut signals, printer).await?;
    engine.close().await?;
    drop(shown.await);
    let exit = waited.as_ref().map_or_else(|exit| *exit, finish::exit);
    drop(attending);
    session.close_clean(printer).await?;
    Ok(exit)
}
