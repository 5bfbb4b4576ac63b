//! Attends a run: an engine that takes the steps of this run and no others, with everything that flow files can ask for.

use crate::{
    event_log,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    presence::{self, Attending, Notice},
    printer::Printer,
    runs,
    session::{self, Session},
    signals::Signals,
    view::View,
};
use onceflow_engine::{Engine, Event, Handle, Options, Report, Summary};
use onceflow_exec::home::LEFT;
use onceflow_store::{
    blocking::blocking,
    tree::{self, Dir},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};

/// An engine that works on the run that is attended, once it is told to go: what is there may be planned anew first.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn engine(
    session: &Session,
    attending: &mut Attending,
    before: Option<Notice>,
    jobs: Option<u16>,
) -> Result<Engine, Fault> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = jobs.map_or(cpus, usize::from);
    let options = Options {
        classes: BTreeMap::from([(session::own_class(&attending.notice.key), ahead(jobs))]),
        running_max: jobs,
        other_classes: false,
        waits: true,
        cpu_milli: u32::try_from(cpus.max(jobs) * 1000).unwrap_or(u32::MAX),
        scratch: crate::executors::home(&session.location).scratch(),
        ..Options::default()
    };
    let engine = Engine::open(&session.store, options).await?;
    attending.claims_as(engine.incarnation())?;
    engine.add_tasks(&crate::executors::tasks(&session.location))?;
    release(&engine, &session.location, before).await?;
    crate::executors::home(&session.location).tidy_after_the_dead();
    tokio::spawn(keep_releasing(engine.clone(), session.location.clone()));
    Ok(engine)
}

/// Steps taken at a time, if so many commands may run: while some run, others are made ready, and what others gave is
/// committed.
fn ahead(jobs: usize) -> usize {
    jobs.saturating_mul(4).saturating_add(4)
}

/// Frees what processes have taken that are gone, and removes what they left of the runs they attended; how many there were.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn release(engine: &Engine, location: &StoreLocation, before: Option<Notice>) -> Result<usize, Fault> {
    let gone: Vec<_> = presence::sweep(&location.directory).into_iter().chain(before).collect();
    let home = crate::executors::home(location);
    for notice in &gone {
        if let Some(claims) = notice.claims() {
            // Its guard may have been killed too: its commands end before anybody starts their steps again.
            let directory = location.directory.clone();
            blocking(move || onceflow_exec::guard::end_left(&directory)).await;
            engine.release(claims).await?;
            // It may have been killed before it could remove the small files it had made.
            remove(location, &Path::new("scratch").join(format!("onceflow-{claims:032x}")));
        }
        if let Some(run) = runs::of_key(engine, &notice.key).await? {
            home.tidy(run.id);
        }
    }
    Ok(gone.len())
}

/// The same while we are at work: another process may have taken a step of ours, and have been killed.
pub(crate) async fn keep_releasing(engine: Engine, location: StoreLocation) {
    const PAUSE: Duration = Duration::from_secs(2);
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Err(fault) = release(&engine, &location, None).await {
            tracing::debug!(%fault, "what the dead have left is not looked for any more");
            return;
        }
    }
}

/// How often the directories of all runs are compared with the store, while runs come and go.
const COMPARE_MS: u64 = 24 * 3_600_000;

/// The file with the time of the last comparison.
const COMPARED: &str = "compared";

/// Removes the directories of runs that this engine has removed; and now and then those of all that are not remembered any
/// more, whoever did that. What it costs does not grow with the runs that are remembered, but for once a day.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn sweep_removed(engine: &Engine, location: &StoreLocation) -> Result<(), Fault> {
    for id in engine.take_removed() {
        remove(location, &Path::new("runs").join(id.to_string()));
    }
    let (marker, now) = (location.directory.join(COMPARED), event_log::now_ms());
    let last: Option<u64> = fs::read_to_string(&marker).ok().and_then(|said| said.trim().parse().ok());
    if last.is_some_and(|last| last <= now && now - last < COMPARE_MS) {
        return Ok(());
    }
    fs::write(&marker, now.to_string()).map_err(Fault::store("write", &marker))?;
    sweep(engine, location).await.map(drop)
}

/// Removes the directories of runs that are not remembered any more; how many, and how large they were.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn sweep(engine: &Engine, location: &StoreLocation) -> Result<(usize, u64), Fault> {
    let mut gone = (0, 0);
    for (path, bytes) in left_over(engine, location).await? {
        let name = path.file_name().expect("it was joined from a name");
        if remove(location, &Path::new("runs").join(name)) {
            gone = (gone.0 + 1, gone.1 + bytes);
        }
    }
    Ok(gone)
}

/// The directories of runs that are not remembered any more, and how large they are.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn left_over(engine: &Engine, location: &StoreLocation) -> Result<Vec<(PathBuf, u64)>, Fault> {
    // First the directories, then the runs: a run is there before its directory is.
    let runs = Dir::open(&location.directory).and_then(|store| store.child("runs"));
    let there = match runs.and_then(|runs| Ok((runs.path().to_owned(), runs.entries()?))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        // A link is not followed: what it leads to is not ours.
        Err(error) => {
            tracing::warn!(target: LEFT, "left alone: {error}");
            return Ok(vec![]);
        }
        Ok((path, entries)) => entries.into_iter().map(move |entry| path.join(entry.name)).collect::<Vec<_>>(),
    };
    let known: BTreeSet<_> = match there.is_empty() {
        true => BTreeSet::new(),
        false => runs::all(engine).await?.iter().map(|run| run.id.to_string()).collect(),
    };
    let is_known = |path: &PathBuf| path.file_name().is_some_and(|name| known.contains(&*name.to_string_lossy()));
    Ok(there.into_iter().filter(|path| !is_known(path)).map(|path| (path.clone(), size(&path))).collect())
}

/// Removes something below the store's directory; false, and said, if something of it had to be left.
pub(crate) fn remove(location: &StoreLocation, below: &Path) -> bool {
    let removed = tree::remove_beneath(&location.directory, below);
    removed.inspect_err(|error| tracing::warn!(target: LEFT, "left alone: {error}")).is_ok()
}

/// Bytes of a file, or of all files below a directory.
pub(crate) fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum()
}

/// Shows and writes down what happens, until nothing does any more; then gives the view back.
pub(crate) fn show(
    events: mpsc::UnboundedReceiver<Event>,
    key: &str,
    writer: event_log::Writer,
    mut view: View,
) -> JoinHandle<View> {
    let key = key.to_owned();
    tokio::spawn(async move {
        event_log::follow(events, key, writer, |ms, what| view.saw(ms, what)).await;
        view.end();
        view
    })
}

/// Waits until the run rests, or until we are asked to stop: then what runs is interrupted, and its state is safe.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn wait(
    engine: &Engine,
    handle: &Handle,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<Result<Report, Exit>, Fault> {
    tokio::select! {
        report = handle.wait() => Ok(Ok(report?)),
        why = engine.until_store_full() => {
            // Steps would be tried again and again, in vain.
            if let Err(error) = engine.interrupt().await {
                tracing::debug!(%error, "what was done last may have to be done again");
            }
            Err(Fault::full(why))
        }
        exit = signals.asked() => {
            printer.say("stopping: no further steps are taken (again to stop at once)");
            engine.interrupt().await?;
            Ok(Err(exit))
        }
    }
}

/// Makes the key of a run free for a new one: what it did is undone as registered, and nothing of it is reused.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn forget(engine: &Engine, known: &Summary) -> Result<(), Fault> {
    let handle = engine.find(&known.key).await?;
    if !known.status.has_ended() {
        handle.cancel().await?;
        engine.start_work();
        if let Report::Cancelled { not_undone } | Report::Undone { not_undone, .. } = handle.wait().await?
            && !not_undone.is_empty()
        {
            return Err(onceflow_engine::Error::NotUndone { key: known.key.clone(), steps: not_undone }.into());
        }
    }
    engine.forget(&known.key).await?;
    Ok(())
}
