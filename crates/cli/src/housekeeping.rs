//! Cleans up after others: releases steps and removes files of processes that have ended, and removes directories of
//! runs that the store does not have any more.

use crate::{event_log, executors, fault::Fault, location::StoreLocation, runs};
use onceflow_engine::{Engine, Summary};
use onceflow_store::{
    blocking::blocking,
    tree::{self, Dir},
};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Releases the steps of workers on this machine whose process has ended, and removes their scratch files and unused
/// work directories; returns their number.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn release_ended(engine: &Engine, location: &StoreLocation) -> Result<usize, Fault> {
    let ended = engine.ended_workers().await?;
    if ended.is_empty() {
        return Ok(0);
    }
    // Their guards may have been killed too: their commands are ended before a worker starts the same steps again.
    let directory = location.directory.clone();
    blocking(move || onceflow_exec::guard::end_left(&directory)).await;
    // Their registrations go last: if this process is killed too, the next one still finds whose files to remove.
    let home = executors::home(location);
    home.tidy_after_the_dead();
    for key in ended.iter().filter_map(|worker| worker.about.run.as_deref()) {
        if let Some(run) = runs::of_key(engine, key).await? {
            home.tidy(run.id);
        }
    }
    // Only those whose commands were ended above: another process may have died since.
    for worker in &ended {
        engine.release(worker.incarnation).await?;
    }
    Ok(ended.len())
}

/// Does the same every few seconds while this process works: another one may be killed with a step that this one could
/// take.
pub(crate) async fn keep_releasing(engine: Engine, location: StoreLocation) {
    const PAUSE: Duration = Duration::from_secs(2);
    loop {
        tokio::time::sleep(PAUSE).await;
        if engine.is_closed() {
            return;
        }
        if let Err(fault) = release_ended(&engine, &location).await {
            tracing::debug!(%fault, "failed to release steps of ended processes; retrying in {PAUSE:?}");
        }
    }
}

/// The time between two comparisons of all run directories with the store.
const COMPARE_MS: u64 = 24 * 3_600_000;

/// The file with the time of the last comparison.
const COMPARED: &str = "compared";

/// Removes the directories of runs that this engine has removed, and once a day those of all runs that the store does
/// not have any more. Only the latter takes longer with every run.
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
    sweep(engine, location).await?;
    if let Err(error) = fs::write(&marker, now.to_string()) {
        // On a full disk, say; the next command compares again.
        tracing::debug!(%error, ?marker, "failed to note when run directories were compared with the store");
    }
    Ok(())
}

/// Does the same once a minute while this process works.
pub(crate) async fn keep_sweeping(engine: Engine, location: StoreLocation) {
    const PAUSE: Duration = Duration::from_secs(60);
    loop {
        try_sweep_removed(&engine, &location).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// As [`sweep_removed`], where what is left for the next command is no failure.
pub(crate) async fn try_sweep_removed(engine: &Engine, location: &StoreLocation) {
    if let Err(fault) = sweep_removed(engine, location).await {
        tracing::debug!(%fault, "directories of runs that are gone are left");
    }
}

/// Removes the directories of runs that the store does not have any more, and returns their number and bytes. Of the other
/// runs, the unused work directories of processes that have ended go too.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn sweep(engine: &Engine, location: &StoreLocation) -> Result<(usize, u64), Fault> {
    let home = executors::home(location);
    for run in runs::all(engine).await? {
        home.tidy(run.id);
        remove_old_log(location, &run);
    }
    let mut gone = (0, 0);
    for (path, bytes) in left_over(engine, location).await? {
        let name = path.file_name().expect("it was joined from a name");
        if remove(location, &Path::new("runs").join(name)) {
            gone = (gone.0 + 1, gone.1 + bytes);
        }
    }
    Ok(gone)
}

/// Removes the event log that earlier versions kept as files beside the store.
fn remove_old_log(location: &StoreLocation, run: &Summary) {
    for name in ["trail.jsonl", "counts.json"] {
        if fs::symlink_metadata(location.run(run.id).join(name)).is_ok() {
            remove(location, &Path::new("runs").join(run.id.to_string()).join(name));
        }
    }
}

/// The directories of runs that the store does not have any more, and their bytes.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn left_over(engine: &Engine, location: &StoreLocation) -> Result<Vec<(PathBuf, u64)>, Fault> {
    // First the directories, then the runs: a run is there before its directory is.
    let runs = Dir::open(&location.directory).and_then(|store| store.child("runs"));
    let there = match runs.and_then(|runs| Ok((runs.path().to_owned(), runs.entries()?))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        // A link is not followed: its target is not onceflow's.
        Err(error) => {
            onceflow_exec::home::log_left(&error);
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

/// Removes a file or directory below the store's; false, with a warning, if something of it had to be left.
pub(crate) fn remove(location: &StoreLocation, below: &Path) -> bool {
    let removed = tree::remove_beneath(&location.directory, below);
    removed.inspect_err(|error| onceflow_exec::home::log_left(error)).is_ok()
}

/// Bytes of a file, or of all files below a directory.
pub(crate) fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum()
}

/// Frees the key of a run for a new one: the old run is undone, and nothing of it is reused.
///
/// # Errors
/// If the run has changed since it was seen, could not be undone, or the store does not answer.
pub(crate) async fn forget(engine: &Engine, known: &Summary) -> Result<(), Fault> {
    if known.status.has_ended() {
        engine.forget(known).await?;
        return Ok(());
    }
    let handle = engine.find(&known.key).await?;
    if handle.id() != known.id {
        return Err(onceflow_engine::Error::changed(&known.key).into());
    }
    handle.cancel().await?;
    engine.start_work();
    let ended = handle.wait().await?;
    if !ended.not_undone.is_empty() {
        return Err(onceflow_engine::Error::NotUndone { key: known.key.clone(), steps: ended.not_undone }.into());
    }
    engine.forget(&ended).await?;
    Ok(())
}
