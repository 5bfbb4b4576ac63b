//! Attends a run: an engine that takes the steps of this run and no others, with everything that flow files can ask for.

use crate::{
    exit::Exit,
    fault::Fault,
    place::Place,
    presence::{self, Attending, Notice},
    printer::Printer,
    runs,
    session::{self, Session},
    signals::Signals,
    trail,
    view::View,
};
use onceflow_engine::{Engine, Event, Handle, Options, Report, Summary};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
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
        scratch: crate::executors::home(&session.place).scratch(),
        ..Options::default()
    };
    let engine = Engine::open(&session.store, options).await?;
    attending.claims_as(engine.incarnation())?;
    engine.add_tasks(&crate::executors::tasks(&session.place))?;
    release(&engine, &session.place, before).await?;
    crate::executors::home(&session.place).tidy_after_the_dead();
    tokio::spawn(keep_releasing(engine.clone(), session.place.clone()));
    Ok(engine)
}

/// Steps taken at a time, if so many commands may run: while some run, others are made ready, and what others gave is
/// committed.
fn ahead(jobs: usize) -> usize {
    jobs.saturating_mul(4).saturating_add(4)
}

/// Frees what processes have taken that are gone.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn release(engine: &Engine, place: &Place, before: Option<Notice>) -> Result<(), Fault> {
    let gone = presence::sweep(&place.directory).into_iter().chain(before);
    for gone in gone.filter_map(|notice| notice.claims()) {
        engine.release(gone).await?;
        // It may have been killed before it could remove the small files it had made.
        let _gone = remove(&crate::executors::home(place).scratch().join(format!("onceflow-{gone:032x}")));
    }
    Ok(())
}

/// The same while we are at work: another process may have taken a step of ours, and have been killed.
pub(crate) async fn keep_releasing(engine: Engine, place: Place) {
    const PAUSE: Duration = Duration::from_secs(2);
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Err(fault) = release(&engine, &place, None).await {
            tracing::debug!(%fault, "what the dead have left is not looked for any more");
            return;
        }
    }
}

/// Removes the directories of runs that are not remembered any more; how many, and how large they were.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn sweep(engine: &Engine, place: &Place) -> Result<(usize, u64), Fault> {
    let mut gone = (0, 0);
    for (path, bytes) in left_over(engine, place).await? {
        if remove(&path).is_ok() {
            gone = (gone.0 + 1, gone.1 + bytes);
        }
    }
    Ok(gone)
}

/// The directories of runs that are not remembered any more, and how large they are.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn left_over(engine: &Engine, place: &Place) -> Result<Vec<(PathBuf, u64)>, Fault> {
    // First the directories, then the runs: a run is there before its directory is.
    let directory = place.directory.join("runs");
    let there: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().collect();
    let known: BTreeSet<_> = match there.is_empty() {
        true => BTreeSet::new(),
        false => runs::all(engine).await?.iter().map(|run| run.id.to_string()).collect(),
    };
    let gone = there.iter().filter(|entry| !known.contains(&*entry.file_name().to_string_lossy()));
    Ok(gone.map(|entry| (entry.path(), size(&entry.path()))).collect())
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
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
    writer: trail::Writer,
    mut view: View,
) -> JoinHandle<View> {
    let key = key.to_owned();
    tokio::spawn(async move {
        trail::follow(events, key, writer, |ms, what| view.saw(ms, what)).await;
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
        why = engine.until_full() => {
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
        engine.go();
        if let Report::Cancelled { not_undone } | Report::Undone { not_undone, .. } = handle.wait().await?
            && !not_undone.is_empty()
        {
            return Err(onceflow_engine::Error::NotUndone { key: known.key.clone(), steps: not_undone }.into());
        }
    }
    engine.forget(&known.key).await?;
    Ok(())
}
