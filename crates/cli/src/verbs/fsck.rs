//! `onceflow fsck`: proves that nothing is missing and nothing is left; with `--repair`, changes what is wrong.

use crate::{args, asking, exit::Exit, fault::Fault, place::Place, printer::Printer, session::Session, words};
use onceflow_store::values::fsck::Mode;
use serde_json::json;

/// Looks at everything.
pub(crate) async fn run(args: &args::Fsck, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let values = session.store.values().await?;
    let may = || asking::may(printer, args.sure, "repair what is wrong; keep a copy of the store first. Go on");
    let repairs = args.repair && !args.sure.dry_run;
    if repairs && !may() {
        session.close().await?;
        return Ok(asking::left_alone(printer));
    }
    let report = values.fsck(if repairs { Mode::Repair } else { Mode::Check }).await?;
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
