//! `onceflow export RUN FILE` and `onceflow import FILE`: moves a run that has ended to another store, as one file.

use crate::{
    args, asking, codes,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    printer::Printer,
    runs,
    session::{Session, own_class},
    verbs::ls::shell_word,
    words,
};
use onceflow_engine::{Error, ExportedRun, ImportOptions};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::Path,
};

/// The files beside the store that are exported with a run, and their largest size.
const BESIDE: [&str; 2] = [ASKED, "inputs.json"];
const ASKED: &str = "asked.json";
const BESIDE_BYTES_MAX: u64 = 16 << 20;

/// Writes a run to a file.
pub(crate) async fn run(args: &args::Export, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    if !run.status.has_ended() {
        let what = format!("run `{}` has not ended: it is {}", run.key, run.status);
        return Err(Fault::new(Exit::No, codes::UNFINISHED, what));
    }
    let beside = beside(&session.location.run(run.id));
    let handle = engine.find(&run.key).await?;
    let written = write(&args.file, async |out| handle.export(beside, out).await).await;
    engine.stop();
    session.close().await?;
    let bytes = written?;
    if printer.json {
        let file = args.file.display().to_string();
        printer.data(&json!({"key": run.key, "id": run.id.to_string(), "file": file, "bytes": bytes}));
    }
    printer.say(format!("run `{}` is in {} ({})", run.key, args.file.display(), words::bytes(bytes)));
    printer.next(format!("onceflow import {} --store DIR", shell_word(&args.file.display().to_string())));
    Ok(Exit::Done)
}

fn beside(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let small = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() <= BESIDE_BYTES_MAX);
    let one = |name: &str| {
        let path = directory.join(name);
        let bytes = if small(&path) { fs::read(&path).ok() } else { None };
        bytes.map(|bytes| (name.to_owned(), bytes))
    };
    BESIDE.into_iter().filter_map(one).collect()
}

/// Writes a file that appears only when it is whole.
async fn write(
    path: &Path,
    content: impl AsyncFnOnce(&mut (dyn Write + Send)) -> Result<u64, Error>,
) -> Result<u64, Fault> {
    let cannot = |error: io::Error| Fault::unwritten("write", path)(error);
    if fs::symlink_metadata(path).is_ok() {
        let what = format!("{} is there already", path.display());
        return Err(Fault::new(Exit::No, codes::NOT_NEW, what).hint("give another name, or remove it first"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let part = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let mut out = BufWriter::new(File::create(&part).map_err(cannot)?);
    let written = content(&mut out).await.map_err(Fault::from);
    let written = written.and_then(|bytes| {
        let file = out.into_inner().map_err(|error| cannot(error.into_error()))?;
        file.sync_all().and_then(|()| fs::rename(&part, path)).map_err(cannot)?;
        Ok(bytes)
    });
    if written.is_err() {
        // A partial file is of no use.
        drop(fs::remove_file(&part));
    }
    written
}

/// Imports a run from a file.
pub(crate) async fn import(args: &args::Import, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let mut from = BufReader::new(File::open(&args.file).map_err(Fault::unreadable(&args.file))?);
    let carried = ExportedRun::read(&mut from).map_err(|error| refused(&args.file, error))?;
    let key = args.key.clone().unwrap_or_else(|| carried.header.key.clone());
    if args.sure.dry_run && !location.is_there {
        tell(printer, &key, None, false);
        return Ok(Exit::Done);
    }
    let session = Session::make(location).await?;
    let engine = session.idle().await?;
    let there = runs::of_key(&engine, &key).await?;
    if let Some(run) = &there {
        let hint = "`--key NAME` calls it otherwise; `--replace` puts it in the place of one that has ended";
        if !args.replace || !run.status.has_ended() {
            let what = format!("run `{key}` is there already, and is {}", run.status);
            return Err(Fault::new(Exit::No, codes::NOT_NEW, what).hint(hint));
        }
    }
    let scratch = crate::executors::home(&session.location).scratch_of_process("import");
    let may = args.sure.dry_run || there.is_none() || asking::may(printer, args.sure, &format!("replace run `{key}`"));
    if args.sure.dry_run || !may {
        engine.stop();
        session.close().await?;
        if !may {
            return Ok(asking::left_alone(printer));
        }
        tell(printer, &key, None, there.is_some());
        return Ok(Exit::Done);
    }
    let how = ImportOptions {
        key: Some(key.clone()),
        replace: args.replace,
        classes: vec![(own_class(&carried.header.key), own_class(&key))],
        scratch: scratch.clone(),
        history_ms_max: args.retention.history_ms_max,
        keep_ms_max: args.retention.keep_ms_max,
    };
    let too_long = args.retention.too_long(carried.header.keep_ms, Some(carried.header.history_ms));
    too_long.iter().for_each(|line| printer.say(line));
    let taken = engine.import(&carried, &mut from, how).await;
    if let Err(error) = onceflow_store::tree::remove(&scratch) {
        onceflow_exec::home::log_left(&error);
    }
    let handle = taken.map_err(|error| refused(&args.file, error))?;
    for (name, bytes) in carried.beside.iter().filter(|(name, _)| BESIDE.contains(&name.as_str())) {
        let bytes = if name == ASKED { without_commands(bytes) } else { bytes.clone() };
        let directory = session.location.run_dir(handle.id());
        let written = directory.and_then(|directory| directory.replace_file(name, &bytes));
        if let Err(error) = written {
            tracing::debug!(%error, "what lay beside the run is not written down");
        }
    }
    engine.close().await?;
    session.close_clean(printer).await?;
    tell(printer, &key, Some(&handle.id().to_string()), there.is_some());
    Ok(Exit::Done)
}

/// Returns the part of a run's metadata that is only displayed. The command would be suggested to the user, and results
/// would be written to its directory, but the author of the file is not trusted.
fn without_commands(asked: &[u8]) -> Vec<u8> {
    let asked: Value = serde_json::from_slice(asked).unwrap_or_default();
    json!({"flow": asked["flow"], "inputs": asked["inputs"]}).to_string().into_bytes()
}

fn tell(printer: &Printer, key: &str, id: Option<&str>, replaces: bool) {
    if printer.json {
        printer.data(&json!({"key": key, "id": id, "imported": id.is_some(), "replaced": replaces}));
    }
    let in_place = if replaces { ", in the place of the one that was there" } else { "" };
    match id {
        Some(_) => printer.say(format!("run `{key}` is here{in_place}")),
        None => printer.say(format!("run `{key}` would be imported{in_place}")),
    }
    printer.next(match id {
        Some(_) => format!("onceflow show {}", shell_word(key)),
        None => String::from("the same without --dry-run"),
    });
}

/// Converts an error of the import; one about the content of the file names the file.
fn refused(file: &Path, error: Error) -> Fault {
    match error {
        Error::Inputs(why) => {
            Fault::new(Exit::No, codes::BAD_EXPORT, format!("{} cannot be imported: {why}", file.display()))
        }
        other => other.into(),
    }
}
