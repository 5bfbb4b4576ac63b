//! `onceflow reclaim`: deletes at once what a working process would delete later: values that nothing needs,
//! directories of removed runs, files of ended processes.

use crate::{
    args, asking, exit::Exit, fault::Fault, housekeeping, location::StoreLocation, printer::Printer, session::Session,
    words,
};
use onceflow_store::values::census::Reclaimable;
use serde_json::json;

/// The most values touched by one call.
const BUDGET: usize = 10_000;

/// Reclaims values, directories and files.
pub(crate) async fn run(args: &args::Reclaim, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    if args.sure.dry_run {
        return would(session, printer).await;
    }
    if !asking::may(printer, args.sure, "delete what nothing needs any more") {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let engine = session.idle().await?;
    engine.remove_due().await?;
    let values = session.store.values().await?;
    let (mut values_gone, mut objects_gone) = (0, 0);
    loop {
        let done = values.reclaim(BUDGET).await?;
        values_gone += done.swept;
        objects_gone += done.objects_unlinked;
        if !done.more {
            break;
        }
    }
    let directories = housekeeping::sweep(&engine, &session.location).await?;
    crate::executors::home(&session.location).tidy_after_the_dead();
    let workers = housekeeping::release_ended(&engine, &session.location).await?;
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

/// Prints what would be deleted. Values that only become free by that deletion are not included.
async fn would(session: Session, printer: &Printer) -> Result<Exit, Fault> {
    let engine = session.idle().await?;
    let found = Reclaimable::of(&*session.store.values().await?).await?;
    let directories = housekeeping::left_over(&engine, &session.location).await?;
    let runs = engine.due().await?;
    engine.stop();
    session.close().await?;
    let bytes: u64 = directories.iter().map(|(_, bytes)| bytes).sum();
    if printer.json {
        printer.data(&json!({
            "values": found.values, "leases": found.leases, "objects": found.objects, "runs": runs,
            "run_directories": directories.len(), "bytes_of_run_directories": bytes,
        }));
    } else {
        printer.text(format!(
            "would delete {}, {}, {} whose time has come, {} ({}), and what follows from that",
            words::count(found.values as usize, "value"),
            words::count(found.objects as usize, "object"),
            plural(found.leases as usize + runs.len(), "thing", "things"),
            plural(directories.len(), "directory", "directories"),
            words::bytes(bytes),
        ));
    }
    printer.next("the same without --dry-run");
    Ok(Exit::Done)
}

fn plural(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}
