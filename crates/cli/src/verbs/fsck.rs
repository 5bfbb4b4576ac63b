//! `onceflow fsck`: proves that nothing is missing and nothing is left; with `--repair`, changes what is wrong.
//!
//! A store in use changes while it is read, so only what is wrong every time it is read is told. With `--at-rest` such a
//! store is refused, and what is told is exact.

use crate::{args, asking, codes, exit::Exit, fault::Fault, place::Place, printer::Printer, session::Session, words};
use onceflow_store::values::fsck::Mode;
use serde_json::json;

/// Looks at everything.
pub(crate) async fn run(args: &args::Fsck, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
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
    let report = values.fsck(if repairs { Mode::Repair } else { Mode::Check }).await?;
    if args.at_rest && !report.exact {
        session.close().await?;
        return Err(in_use("it changed while it was read"));
    }
    session.close().await?;
    let findings =
        |all: &[onceflow_store::values::fsck::Finding]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let clean = report.is_clean_now();
    if printer.json {
        printer.pretty(&json!({
            "problems": findings(&report.problems), "leaks": findings(&report.leaks),
            "lost": report.lost.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "values": report.values, "edges": report.edges, "exact": report.exact, "clean": clean,
            "left": report.left.as_deref().map(findings),
        }));
    } else {
        printer.text(report.to_string());
    }
    Ok(match (clean, report.problems.is_empty(), args.repair) {
        (true, _, true) if !report.is_clean() => {
            let n = report.problems.len() + report.leaks.len();
            printer
                .next(format!("{} repaired; `onceflow reclaim` removes what is left over", words::count(n, "finding")));
            Exit::Done
        }
        (true, ..) => {
            printer.next("nothing to do: the store is whole");
            Exit::Done
        }
        (false, true, _) => {
            printer.next("`onceflow fsck --repair` lets what nobody needs go");
            Exit::No
        }
        (false, false, _) => {
            printer.next("keep a copy of the store, then `onceflow fsck --repair`");
            Exit::Damaged
        }
    })
}

/// A store with workers is in use, even if they have nothing to do.
async fn refuse_if_in_use(session: &Session) -> Result<(), Fault> {
    let engine = session.idle().await?;
    let workers = engine.workers().await;
    engine.stop();
    let alive: Vec<_> = workers?.into_iter().filter(|worker| worker.is_alive).collect();
    match &alive[..] {
        [] => Ok(()),
        [one, ..] => Err(in_use(&format!(
            "{} there, {}:{} for one",
            match alive.len() {
                1 => String::from("1 worker is"),
                more => format!("{more} workers are"),
            },
            one.about.host,
            one.about.pid
        ))),
    }
}

fn in_use(why: &str) -> Fault {
    Fault::new(Exit::Busy, codes::STORE_BUSY, format!("the store is in use, so nothing is proven: {why}"))
        .hint("stop all workers and runs first; without `--at-rest`, what is wrong in every reading is told")
}
