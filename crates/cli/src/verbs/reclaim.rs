//! `onceflow reclaim`: deletes what nothing needs now, instead of when a run is at work: values, directories of runs that
//! are gone, files of processes that are gone.

use crate::{args, exit::Exit, fault::Fault, place::Place, presence, printer::Printer, runs, session::Session, words};
use serde_json::json;
use std::{collections::BTreeSet, fs, path::Path};

/// Values touched by one call.
const BUDGET: usize = 10_000;

/// Deletes what nothing needs.
pub(crate) async fn run(_: &args::Reclaim, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    engine.remove_due().await?;
    let values = session.store.values().await?;
    let (mut values_gone, mut objects_gone) = (0, 0);
    loop {
        let done = values.reclaim(BUDGET).await?;
        values_gone += done.buried;
        objects_gone += done.objects_unlinked;
        if !done.more {
            break;
        }
    }
    let known = runs::all(&engine).await?.iter().map(|run| run.id.to_string()).collect();
    let directories = remove_directories(&session.place.directory.join("runs"), &known);
    let workers = presence::sweep(&session.place.directory).len();
    engine.close().await?;
    session.close().await?;
    if printer.json {
        printer.data(&json!({
            "values": values_gone, "objects": objects_gone, "run_directories": directories.0,
            "bytes_of_run_directories": directories.1, "workers": workers,
        }));
    } else {
        printer.text(format!(
            "{} and {} deleted; {} of runs that are gone ({}), {} of processes that are gone",
            words::count(values_gone as usize, "value"),
            words::count(objects_gone as usize, "object"),
            plural(directories.0, "directory", "directories"),
            words::bytes(directories.1),
            words::count(workers, "file"),
        ));
    }
    printer.next("nothing to do; `onceflow fsck` proves that nothing is left over");
    Ok(Exit::Done)
}

fn plural(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// Removes the directories of runs that are not known; how many, and how large they were.
pub(crate) fn remove_directories(runs: &Path, known: &BTreeSet<String>) -> (usize, u64) {
    let mut gone = (0, 0);
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        if known.contains(&*entry.file_name().to_string_lossy()) {
            continue;
        }
        let bytes = size(&entry.path());
        if remove(&entry.path()).is_ok() {
            gone = (gone.0 + 1, gone.1 + bytes);
        }
    }
    gone
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum()
}
