//! Stream files at the command line: run, explained, drawn and shown. A stream has its name where a run has its key.
//!
//! | module | owns |
//! |---|---|
//! | `faults` | errors of streams, with hints |
//! | `figures` | counts of stages: as a table, as JSON, as text for Prometheus |
//! | [`life`] | paused, resumed, drained and cancelled |
//! | `watch` | a stream that other processes work on, as a table that is drawn again and again |

mod faults;
mod figures;
pub(crate) mod life;
mod watch;

use crate::{
    args, asked, codes,
    exit::Exit,
    fault::Fault,
    housekeeping,
    location::StoreLocation,
    picture::Scene,
    printer::{Ink, Printer},
    runs,
    session::{Session, Who},
    signals::Signals,
    verbs::ls::shell_word,
    words,
    worker_setup::WorkerSetup,
};
use onceflow_engine::Engine;
use onceflow_spec::{LoadedStream, StreamCalls, is_stream, load_stream, stream_step_names};
use onceflow_store::{World, world::RealWorld};
use onceflow_stream::{
    Pipeline, StreamError, StreamPhase, StreamResult, StreamStatus,
    pipeline::{flow_call::is_called_by, tail::Clock},
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Reads a stream file; `None` if the file is none.
///
/// # Errors
/// All problems of the stream file.
pub(crate) fn read(path: &Path) -> Result<Option<LoadedStream>, Fault> {
    match is_stream(path) {
        true => load_stream(path).map(Some).map_err(|problems| Fault::problems(Exit::Flow, problems)),
        false => Ok(None),
    }
}

/// Reads the stream file of a command; `None` if the file is none. The key of the command is its name.
///
/// # Errors
/// All problems of the stream file, or options that a stream does not have.
pub(crate) fn asked(flow: &args::Flow, printer: &Printer) -> Result<Option<LoadedStream>, Fault> {
    let Some(mut stream) = read(&flow.flow)? else { return Ok(None) };
    if !flow.input.is_empty() || flow.inputs.is_some() || !flow.output.is_empty() {
        return Err(
            Fault::usage("a stream has no inputs and outputs of its own").hint("its sources and sinks say them")
        );
    }
    if let Some(key) = &flow.key {
        stream.name.clone_from(key);
    }
    stream.warnings.iter().for_each(|warning| printer.say(format!("warning: {warning}")));
    Ok(Some(stream))
}

fn pipeline(stream: &LoadedStream, calls: Option<&StreamCalls>) -> Pipeline {
    let world = RealWorld::here();
    let clock: Clock = Arc::new(move || world.clock().as_ms());
    stream.pipeline(clock, calls)
}

/// Runs a stream until its sources have ended, or until it is asked to stop: then it drains.
///
/// # Errors
/// If the stream stops because of an error.
pub(crate) async fn run(
    args: &args::Run,
    stream: &LoadedStream,
    location: StoreLocation,
    printer: &Printer,
) -> Result<Exit, Fault> {
    let calls = stream.called_flows().next().is_some();
    if args.no_wait || args.jobs.is_some() && !calls {
        let hint = "run it once more in another process, and both share the work";
        let message = "a stream takes no `--no-wait`, and `--jobs` only for the flows that it calls";
        return Err(Fault::usage(message).hint(hint));
    }
    if stream.is_step {
        let file = shell_word(&stream.file.given.display().to_string());
        return Err(Fault::usage(format!("stream `{}` has inputs: it is a step of a flow", stream.name))
            .hint(format!("a flow with `steps: {{ {}: {{ stream: {file}, in: {{ … }} }} }}` runs it", stream.name)));
    }
    asked::has_all_secrets("stream", &stream.secrets)?;
    stream.called_flows().try_for_each(asked::has_secrets)?;
    let session = Session::make(location).await?;
    let outcome = run_in(args, stream, &session, printer).await;
    session.close().await?;
    outcome
}

async fn run_in(args: &args::Run, stream: &LoadedStream, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let (name, records) = (stream.name.as_str(), session.store.records());
    let word = shell_word(name);
    if args.flow.new {
        begin_anew(stream, session, printer).await?;
    }
    if let Some(savepoint) = &args.from {
        onceflow_stream::begin_from_savepoint(&*records, &*RealWorld::here(), savepoint, name).await?;
        printer.say(format!("stream `{name}` begins where savepoint `{savepoint}` was made"));
    }
    let before = onceflow_stream::status(&*records, name, Some(&locks(session))).await?;
    match &before {
        Some(StreamStatus { has_ended: true, .. }) => {
            printer.say(format!("stream `{name}` has ended before; `--new` runs it from the beginning"));
        }
        Some(StreamStatus { phase: StreamPhase::Pausing | StreamPhase::Paused, .. }) => {
            printer.say(format!("stream `{name}` is paused; `onceflow resume {word}` lets it go on"));
        }
        Some(_) if args.from.is_some() => {}
        Some(_) => printer.say(format!("stream `{name}` goes on where it was")),
        None => {}
    }
    let engine = match stream.called_flows().next() {
        Some(_) => Some(WorkerSetup::of(args.jobs, args.lease).engine(session, "run").await?),
        None => None,
    };
    let sweeping = engine.clone().map(|engine| {
        // Each run that the stream calls has a directory.
        tokio::spawn(housekeeping::keep_sweeping(engine, session.location.clone()))
    });
    let worked = work(args, stream, session, engine.as_ref(), printer).await;
    if let Some(sweeping) = sweeping {
        sweeping.abort();
    }
    if let Some(engine) = engine {
        housekeeping::try_sweep_removed(&engine, &session.location).await;
        engine.close().await?;
    }
    let (result, asked) = worked?;
    if let Some(status) = onceflow_stream::status(&*records, name, Some(&locks(session))).await? {
        tell(name, &status, printer, true);
    }
    match (result.has_ended, asked) {
        (false, exit) => {
            printer.next("the same command goes on where it stopped");
            Ok(exit.unwrap_or(Exit::Waiting))
        }
        _ => {
            printer.next(format!("onceflow show {word}"));
            Ok(Exit::Done)
        }
    }
}

/// Works on a stream, and with an engine on the runs that it calls, until the stream has ended or was drained.
async fn work(
    args: &args::Run,
    stream: &LoadedStream,
    session: &Session,
    engine: Option<&Engine>,
    printer: &Printer,
) -> Result<(StreamResult, Option<Exit>), Fault> {
    let calls = engine.map(|engine| {
        engine.start_work();
        StreamCalls { engine: engine.clone(), classes: Arc::new(|key, flow| Who::Any.classes(key, flow)) }
    });
    let pipeline = pipeline(stream, calls.as_ref()).locks(locks(session));
    let dropped = args.drop.iter().flat_map(|name| stream_step_names(name));
    let pipeline = dropped.fold(pipeline, Pipeline::drop_state_of);
    let mut signals = Signals::listen()?;
    let mut working = pipeline.run(session.store.records(), RealWorld::here());
    let (result, asked) = tokio::select! {
        result = &mut working => (result, None),
        exit = signals.asked() => {
            printer.say("draining; once more ends it at once, which is as safe");
            pipeline.control().drain();
            (working.await, Some(exit))
        }
    };
    Ok((result?, asked))
}

/// Returns the directory of the lock files of streams' workers on this machine.
fn locks(session: &Session) -> PathBuf {
    crate::executors::home(&session.location).scratch().join("streams")
}

/// Removes a stream and the files it wrote, so that it begins anew. A file that holds anything else is left, and then
/// everything is.
async fn begin_anew(stream: &LoadedStream, session: &Session, printer: &Printer) -> Result<(), Fault> {
    let (name, records) = (stream.name.as_str(), session.store.records());
    let mut written = Vec::new();
    for bytes in onceflow_stream::sink_bytes(&*records, name).await? {
        if let Some(path) = stream.sink_file(&bytes.total.sink, &bytes.total.part).filter(|path| path.is_file()) {
            if !bytes.wrote(&path).map_err(Fault::store("read", &path))? {
                let path = path.display();
                let message = format!("{path} holds bytes that stream `{name}` did not write, so it is not replaced");
                return Err(Fault::new(Exit::No, codes::STREAM_STOPPED, message)
                    .hint("nothing was changed; move the file away, or name another one"));
            }
            written.push(path);
        }
    }
    refuse_if_at_work(session, name).await?;
    end_called_runs(session, name, "run").await?;
    onceflow_stream::remove(&*records, name, Some(&locks(session))).await?;
    for path in written {
        std::fs::remove_file(&path).map_err(Fault::store("remove", &path))?;
        printer.say(format!("removed {}, which the earlier stream wrote", path.display()));
    }
    let forgotten = stream.forget_positions().await.map_err(|error| {
        Fault::new(Exit::No, codes::STREAM_STOPPED, format!("a database of stream `{name}` cannot begin anew: {error}"))
            .hint("the same command tries again")
    })?;
    for table in forgotten {
        printer.say(format!("the rows of table `{table}` stay; new ones replace those with the same key"));
    }
    Ok(())
}

async fn refuse_if_at_work(session: &Session, name: &str) -> Result<(), Fault> {
    let records = session.store.records();
    match onceflow_stream::status(&*records, name, Some(&locks(session))).await? {
        Some(StreamStatus { workers: 1.., .. }) => Err(StreamError::AtWork { name: name.to_owned() }.into()),
        _ => Ok(()),
    }
}

/// Cancels and removes the runs that a stream has called and whose results it does not have: no process asks for them
/// any more.
async fn end_called_runs(session: &Session, name: &str, verb: &str) -> Result<(), Fault> {
    let idle = session.idle().await?;
    let called: Vec<_> = runs::all(&idle).await?.into_iter().filter(|run| is_called_by(name, &run.key)).collect();
    idle.stop();
    if called.is_empty() {
        return Ok(());
    }
    let engine = WorkerSetup::only_to_end_runs().engine(session, verb).await?;
    let mut outcome = Ok(());
    for run in &called {
        outcome = housekeeping::forget(&engine, run).await;
        if outcome.is_err() {
            break;
        }
    }
    housekeeping::try_sweep_removed(&engine, &session.location).await;
    engine.close().await?;
    outcome
}

/// Prints the stages that a stream would run as.
pub(crate) fn explain(stream: &LoadedStream, printer: &Printer) -> Exit {
    let planned = pipeline(stream, None).explain();
    if printer.json {
        let stage = |(at, steps): (usize, Vec<&str>)| {
            let notes = planned.notes_of(at).map(|(step, note)| json!({"step": step, "note": note}));
            json!({"stage": at, "steps": steps, "reads": planned.reads(at), "notes": notes.collect::<Vec<_>>()})
        };
        let stages: Vec<Value> = planned.stage_names().enumerate().map(stage).collect();
        printer.pretty(&json!({"stream": stream.name, "stages": stages}));
    } else {
        printer.text(planned.to_string());
    }
    printer.next(format!("onceflow run {}", shell_word(&stream.file.given.display().to_string())));
    Exit::Done
}

/// Makes the scene of a stream: its parts, grouped by the stages they run in.
pub(crate) fn scene(stream: &LoadedStream) -> Scene {
    let planned = pipeline(stream, None).explain();
    Scene::of_stream(&stream.name, &stream.parts(), |name| planned.stage_of(name))
}

/// The commands that take streams.
pub(crate) const VERBS: &str = "`check`, `explain`, `graph`, `run`, `pause`, `resume`, `drain`, `savepoint`, `show`, `watch`, `ls`, `cancel` and `rm` take streams";

/// Returns the name of the stream that a word means: the one in a stream file, or the word itself.
pub(crate) fn name_of(word: &str) -> Result<String, Fault> {
    let path = Path::new(word);
    let named = if path.is_file() { read(path)?.map(|stream| stream.name) } else { None };
    Ok(named.unwrap_or_else(|| word.to_owned()))
}

/// Returns the fault of a command that needs a run and was given a stream; `None` if the word means no stream.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn is_no_run(word: &str, session: &Session) -> Result<Option<Fault>, Fault> {
    // A stream file with mistakes is a stream file, too.
    let is_file = is_stream(Path::new(word));
    let is_known = || async { onceflow_stream::pipelines(&*session.store.records()).await };
    if !is_file && !is_known().await?.iter().any(|name| name == word) {
        return Ok(None);
    }
    let message = format!("`{word}` is a stream, and this command takes runs of flows only");
    Ok(Some(Fault::new(Exit::Usage, codes::NO_RUN, message).hint(VERBS)))
}

/// Shows the stream that a word names, by its file or its name; `None` if there is none in the store.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn show(word: &str, session: &Session, printer: &Printer) -> Result<Option<Exit>, Fault> {
    let name = name_of(word)?;
    let records = session.store.records();
    let status = onceflow_stream::status(&*records, &name, Some(&locks(session))).await?;
    let Some(status) = status else { return Ok(None) };
    tell(&name, &status, printer, false);
    Ok(Some(Exit::Done))
}

/// Prints the figures of the stream that a word names, or with `-` those of every stream of the store, as text that
/// Prometheus reads.
///
/// # Errors
/// If there is no such stream, or the store does not answer.
pub(crate) async fn prometheus(word: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let records = session.store.records();
    let names = match word {
        "-" => onceflow_stream::pipelines(&*records).await?,
        word => vec![name_of(word)?],
    };
    let mut found = Vec::new();
    for name in names {
        match onceflow_stream::status(&*records, &name, Some(&locks(session))).await? {
            Some(status) => found.push((name, status)),
            None if word == "-" => {}
            None => return Err(unknown(&name)),
        }
    }
    printer.text(figures::prometheus(&found));
    Ok(Exit::Done)
}

/// The fault of a command whose stream is not in the store.
fn unknown(name: &str) -> Fault {
    let message = format!("there is no stream `{name}` in this store");
    Fault::new(Exit::Usage, codes::NO_RUN, message).hint("`onceflow ls` lists the streams")
}

/// Shows the stream that a word names until it ends, or no process works on it; `None` if there is none in the store.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn watch(word: &str, session: &Session, printer: &Printer) -> Result<Option<Exit>, Fault> {
    let name = name_of(word)?;
    match onceflow_stream::status(&*session.store.records(), &name, Some(&locks(session))).await? {
        Some(_) => watch::until_rest(&name, session, printer).await.map(Some),
        None => Ok(None),
    }
}

/// A stream in a list.
pub(crate) struct ListedStream {
    name: String,
    state: String,
}

impl ListedStream {
    /// Returns it as a line.
    pub(crate) fn to_line(&self) -> String {
        format!("stream {} {}\n", crate::printer::name(&self.name), self.state)
    }

    /// Returns it as JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({"stream": self.name, "state": self.state, "next": self.next()})
    }

    /// Returns the next command for it.
    pub(crate) fn next(&self) -> String {
        format!("onceflow show {}", shell_word(&self.name))
    }
}

/// Lists the streams of a store.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn list(session: &Session) -> Result<Vec<ListedStream>, Fault> {
    let records = session.store.records();
    let mut listed = Vec::new();
    for name in onceflow_stream::pipelines(&*records).await? {
        if let Some(status) = onceflow_stream::status(&*records, &name, Some(&locks(session))).await? {
            listed.push(ListedStream { state: state(&status), name });
        }
    }
    Ok(listed)
}

/// Removes the stream of a name, after asking; `None` if there is none in the store.
///
/// # Errors
/// If it is at work, or the store does not answer.
pub(crate) async fn remove(args: &args::Rm, session: &Session, printer: &Printer) -> Result<Option<Exit>, Fault> {
    let (name, records) = (name_of(&args.run)?, session.store.records());
    let name = name.as_str();
    let Some(status) = onceflow_stream::status(&*records, name, Some(&locks(session))).await? else { return Ok(None) };
    let what = format!("stream `{name}` {}: remove it and its state", state(&status));
    if args.sure.dry_run {
        printer.say(format!("would remove stream `{name}`, which {}", state(&status)));
        return Ok(Some(Exit::Done));
    }
    if !crate::asking::may(printer, args.sure, &what) {
        return Ok(Some(crate::asking::left_alone(printer)));
    }
    refuse_if_at_work(session, name).await?;
    end_called_runs(session, name, "rm").await?;
    onceflow_stream::remove(&*records, name, Some(&locks(session))).await?;
    if printer.json {
        printer.data(&json!({"stream": name, "removed": true}));
    }
    printer.say(format!("stream `{name}` is removed; what its sinks wrote stays"));
    Ok(Some(Exit::Done))
}

fn state(status: &StreamStatus) -> String {
    match status {
        StreamStatus { phase: StreamPhase::Ended, .. } => String::from("has ended"),
        StreamStatus { phase: StreamPhase::Cancelled, .. } => String::from("was cancelled"),
        StreamStatus { phase: StreamPhase::Paused, .. } => String::from("is paused"),
        StreamStatus { phase: StreamPhase::Pausing, workers: 0, .. } => {
            String::from("is paused, with records on their way")
        }
        StreamStatus { phase: StreamPhase::Pausing, .. } => String::from("is pausing"),
        StreamStatus { phase: StreamPhase::Draining, workers, .. } => {
            format!("drains in {}", words::count(*workers, "worker"))
        }
        StreamStatus { workers: 0, .. } => String::from("rests"),
        StreamStatus { workers, .. } => format!("is at work in {}", words::count(*workers, "worker")),
    }
}

/// Prints how far a stream is. After a run its own output may be on stdout, so the table goes to stderr.
fn tell(name: &str, status: &StreamStatus, printer: &Printer, is_after_run: bool) {
    if printer.json {
        return printer.pretty(&figures::json(name, status));
    }
    let mut lines = vec![format!("stream {} {}", printer.ink(Ink::Bold, name), state(status))];
    lines.extend(figures::table(status, None));
    match is_after_run {
        true => lines.iter().for_each(|line| printer.say(line)),
        false => printer.text(lines.join("\n") + "\n"),
    }
}
