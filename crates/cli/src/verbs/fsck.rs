//! `onceflow fsck`: proves that nothing is missing and nothing is left over; with `--repair`, repairs what is wrong.
//!
//! A store in use changes while it is read, so only problems seen in every scan are reported. With `--at-rest` such a
//! store is refused, and the report is exact.

use crate::{
    args, asking, codes,
    exit::Exit,
    fault::Fault,
    housekeeping,
    inventory::{self, Inventory},
    location::StoreLocation,
    printer::Printer,
    session::Session,
    words,
};
use onceflow_engine::WorkerInfo;
use onceflow_store::values::{Values, fsck::Mode};
use serde_json::json;

/// The most workers that are named when they keep a store in use.
const NAMED_MAX: usize = 3;

/// Checks the whole store.
pub(crate) async fn run(args: &args::Fsck, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    if args.at_rest {
        refuse_if_in_use(&session).await?;
    }
    let values = session.store.values().await?;
    let may = || asking::may(printer, args.sure, "repair what is wrong; keep a copy of the store first. Go on");
    let repairs = args.repair && !args.sure.dry_run;
    if repairs && !may() {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let mode = if repairs { Mode::Repair } else { Mode::Check };
    let report = match args.deep {
        true => values.fsck_deep(mode).await?,
        false => values.fsck(mode).await?,
    };
    let engine = session.idle().await?;
    let rows = engine.fsck().await;
    engine.stop();
    let rows = rows?;
    if args.at_rest && !report.exact {
        session.close().await?;
        return Err(in_use("it changed while it was read"));
    }
    let files = inventory::of(&session.location);
    let (referred, not_again) = sources(&values).await?;
    session.close().await?;
    let findings =
        |all: &[onceflow_store::values::fsck::Finding]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let of_runs = rows.unwrap_or_default();
    let clean = report.is_clean_now() && of_runs.is_empty();
    let problems: Vec<_> = findings(&report.problems).into_iter().chain(of_runs.iter().cloned()).collect();
    if printer.json {
        printer.pretty(&json!({
            "problems": problems, "leaks": findings(&report.leaks),
            "lost": report.lost.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "values": report.values, "edges": report.edges, "exact": report.exact, "clean": clean,
            "referenced": referred, "cannot_be_recomputed": not_again,
            "objects": report.objects, "digests": report.digests, "deep": args.deep,
            "left": report.left.as_deref().map(findings), "files": files.to_json(),
        }));
    } else {
        printer.text(report.to_string());
        if args.at_rest {
            printer.text(at_rest(&files));
        }
        for why in &not_again {
            printer.text(format!("not damage: {why}; what was made of it cannot be recomputed"));
        }
        of_runs.iter().for_each(|problem| printer.text(format!("problem: {problem}")));
    }
    if !of_runs.is_empty() {
        printer.next("rows of runs are damaged; keep a copy of the store, then `onceflow run --new` of those runs");
        return Ok(Exit::Damaged);
    }
    Ok(match (clean, report.problems.is_empty(), args.repair) {
        (true, _, true) if !report.is_clean() => {
            let n = report.problems.len() + report.leaks.len();
            let lost =
                if report.problems.is_empty() { "" } else { "; the next `onceflow run` computes again what was lost" };
            let repaired = words::count(n, "finding");
            printer.next(format!("{repaired} repaired; `onceflow reclaim` removes what is left over{lost}"));
            Exit::Done
        }
        (true, ..) => {
            printer.next(match args.deep || report.objects == 0 {
                true => "nothing to do: the store is whole",
                false => "nothing to do: the store is whole, as far as lengths tell; `--deep` reads all bytes",
            });
            Exit::Done
        }
        (false, true, _) => {
            printer.next("`onceflow fsck --repair` removes what nothing needs");
            Exit::No
        }
        (false, false, _) => {
            printer.next("keep a copy of the store, then `onceflow fsck --repair`");
            Exit::Damaged
        }
    })
}

/// Describes the files of a directory that no process uses.
fn at_rest(files: &Inventory) -> String {
    let mut text = String::from("files:\n");
    text.push_str(&files.text());
    if files.unfinished > 0 {
        let bytes = words::bytes(files.unfinished);
        text.push_str(&format!(
            "note: {bytes} were being stored by processes that have ended; `onceflow reclaim` removes them\n"
        ));
    }
    text
}

/// Returns the number of files that the store refers to, and why each changed one differs: they are the user's, so that
/// is no damage.
async fn sources(values: &Values) -> Result<(usize, Vec<String>), Fault> {
    let (files, mut not_again) = (values.sources().all().await?, Vec::new());
    let n = files.len();
    for file in files {
        if let Err(why) = values.sources().check(file).await {
            not_again.push(why.to_string());
        }
    }
    Ok((n, not_again))
}

/// Refuses a store that has workers, even idle ones. Workers known to be gone do not count; another worker is known to
/// be gone when it was silent for as long as its claims last.
async fn refuse_if_in_use(session: &Session) -> Result<(), Fault> {
    let engine = session.idle().await?;
    let workers = match housekeeping::release_ended(&engine, &session.location).await {
        Ok(_) => engine.workers().await.map_err(Fault::from),
        Err(fault) => Err(fault),
    };
    engine.stop();
    let workers = workers?;
    if workers.is_empty() { Ok(()) } else { Err(attended(&workers)) }
}

/// The error that names the workers of a store in use, since when each is silent, and what to do.
fn attended(workers: &[WorkerInfo]) -> Fault {
    let said = |worker: &WorkerInfo| {
        let (place, silent) =
            (format!("{}:{}", worker.about.host, worker.about.pid), words::duration(worker.silent_ms));
        match worker.is_alive {
            true => format!("worker {place} is registered, and sent its last heartbeat {silent} ago"),
            false => format!(
                "worker {place} is silent for {silent}, and is forgotten in {} unless it sends a heartbeat",
                words::duration(worker.forgotten_in_ms())
            ),
        }
    };
    let mut named: Vec<_> = workers.iter().take(NAMED_MAX).map(said).collect();
    if workers.len() > NAMED_MAX {
        named.push(format!("and {} are there", words::count(workers.len() - NAMED_MAX, "other worker")));
    }
    let fault = in_use(&named.join("; "));
    match workers.iter().map(WorkerInfo::forgotten_in_ms).max() {
        Some(ms) if !workers.iter().any(|worker| worker.is_alive) => fault.hint(format!(
            "if {} gone, wait {} and try again; without `--at-rest`, only problems seen in every scan are reported",
            if workers.len() == 1 { "it is" } else { "they are" },
            words::duration(ms)
        )),
        _ => fault,
    }
}

fn in_use(why: &str) -> Fault {
    Fault::new(Exit::Busy, codes::IN_USE, format!("the store is in use, so nothing is proven: {why}"))
        .hint("stop all workers and runs first; without `--at-rest`, only problems seen in every scan are reported")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(pid: u32, silent_ms: u64) -> WorkerInfo {
        let mut worker =
            WorkerInfo { silent_ms, lease_ms: 30_000, is_alive: silent_ms < 15_000, ..WorkerInfo::default() };
        worker.about.host = String::from("host");
        worker.about.pid = pid;
        worker
    }

    #[test]
    fn workers_that_keep_a_store_in_use_are_named_with_the_time_to_wait() {
        let alive = attended(&[worker(1, 3_000), worker(2, 20_000)]);
        assert_eq!(
            alive.message,
            "the store is in use, so nothing is proven: worker host:1 is registered, and sent its last heartbeat 3.0s ago; \
             worker host:2 is silent for 20s, and is forgotten in 10s unless it sends a heartbeat"
        );
        assert!(alive.hint.unwrap().starts_with("stop all workers"));
        let silent = attended(&[worker(1, 25_000), worker(2, 20_000)]);
        assert!(silent.hint.unwrap().starts_with("if they are gone, wait 10s and try again"));
        let many: Vec<_> = (0..9).map(|pid| worker(pid, 0)).collect();
        assert!(attended(&many).message.ends_with("; and 6 other workers are there"));
    }
}
