//! A run in the background: a process in a session of its own attends it until it rests. This file has both sides:
//! starting such a process (`run --no-wait`), and being one (`attend`, a verb that is not for people).

use crate::{
    args,
    exit::Exit,
    fault::Fault,
    finish,
    location::StoreLocation,
    printer::Printer,
    run_worker::{RunWorker, Worked},
    session::Session,
    signals::Signals,
    verbs::ls::shell_word,
    view::View,
    worker_setup::WorkerSetup,
};
use onceflow_core::protocol::ids::RunId;
use onceflow_store::blocking::blocking;
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

/// The file for the messages of such a process.
const LOG: &str = "attend.log";

/// The line that such a process prints when it has started its work.
const STARTED: &str = "started";

/// The longest time that the start of such a process is waited for.
const START_MAX: Duration = Duration::from_secs(5);

/// Starts a process that attends a run. The run must be started, and no process may attend it; nor may this one have
/// the store open: if it owned it, the other one would have to take it over while it works.
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
    let log = location.run_dir(run).and_then(|directory| directory.fresh_file(LOG));
    let log = log.map_err(Fault::store("write", &location.run(run).join(LOG)))?;
    let us = std::env::current_exe().map_err(Fault::system("no path of our own"))?;
    let mut command = Command::new(us);
    command.arg("--store").arg(&location.directory).args(["attend", key]);
    if let Some(jobs) = jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(Fault::system("no process"))?;
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    // The wait ends with the line, or with the process.
    let started = blocking(move || stdout.read_line(&mut String::new()));
    if !matches!(tokio::time::timeout(START_MAX, started).await, Ok(Ok(_))) {
        tracing::debug!("the process in the background has not said that it started; it may be slow");
    }
    Ok(told(printer, key, Some(child.id())))
}

/// Reports that a run goes on without this process.
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
    // The process leaves the terminal's session, because the terminal may close.
    let _leader_already = rustix::process::setsid();
    let session = Session::open(location).await?;
    let mut signals = Signals::listen()?;
    let setup = (WorkerSetup::of(args.jobs, None), "run --no-wait");
    let worker = RunWorker::open(&session, printer, setup, (&args.key, false)).await?;
    if let Some(other) = worker.attend().await? {
        printer.say(format!("process {} works on the run", other.worker.about.pid));
        worker.close().await?;
        return Ok(Exit::Done);
    }
    let handle = worker.engine.find(&args.key).await?;
    printer.text(STARTED);
    let view = View::new(printer, vec![]);
    let Worked { rests, engine, .. } = worker.until_rest(&handle, view, &mut signals, async |_, _| Ok(false)).await?;
    engine.close().await?;
    session.close_clean(printer).await?;
    Ok(rests.as_ref().map_or_else(|exit| *exit, finish::exit))
}
