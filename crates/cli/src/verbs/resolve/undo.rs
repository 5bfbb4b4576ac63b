//! Decides about the failed undo of a step, in a run that could not be undone. When nothing is left to decide, or all
//! undos are retried, this process works on the run until its end.

use crate::{
    args, asking, codes,
    exit::Exit,
    fault::{Fault, undo_hint},
    printer::Printer,
    session::Session,
    steps,
    verbs::{cancel, ls::shell_word},
    words,
};
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{Resolution, Summary};
use serde_json::json;

/// Decides about an undo.
pub(super) async fn run(
    args: &args::Resolve,
    session: Session,
    run: &Summary,
    printer: &Printer,
) -> Result<Exit, Fault> {
    let failed = meant(run, args.step.as_deref())?;
    let shown = words::step(&failed.address);
    let (word, said, resolution) = match (&args.fail, args.redo) {
        (Some(why), _) => ("fail", "is given up", Resolution::Fail(why.clone())),
        (None, true) => ("redo", "is tried again", Resolution::Redo),
        (None, false) if !args.output.is_empty() => {
            return Err(Fault::usage("an undo gives no outputs: `--done` says that it was done by hand"));
        }
        (None, false) => ("done", "was done by hand", Resolution::Done(vec![])),
    };
    if args.sure.dry_run || !asking::may(printer, args.sure, &format!("say that undoing {shown} {said}")) {
        session.close().await?;
        if !args.sure.dry_run {
            return Ok(asking::left_alone(printer));
        }
        tell(printer, run, (&shown, word), &run.not_undone, false);
        printer.say(format!("undoing {shown}: would be decided: {said}"));
        printer.next("the same without --dry-run");
        return Ok(Exit::Done);
    }
    let engine = session.idle().await?;
    let handle = engine.find(&run.key).await?;
    handle.resolve(&failed.address, resolution).await?;
    let left = handle.steps().pending_undos().await?;
    engine.close().await?;
    printer.say(format!("undoing {shown}: decided: {said}"));
    let exit = match left.first() {
        Some(next) if word != "redo" => {
            let others: Vec<_> =
                run.not_undone.iter().filter(|other| other.address != failed.address).cloned().collect();
            tell(printer, run, (&shown, word), &others, true);
            printer.next(undo_hint(&shell_word(&run.key), &shell_word(&words::step(next))));
            Exit::Done
        }
        _ => cancel::finish(&session, run, printer).await?,
    };
    session.close().await?;
    Ok(exit)
}

/// Returns the undo to decide about: the only one that failed, or the one that is named.
fn meant<'a>(run: &'a Summary, step: Option<&str>) -> Result<&'a Failed, Fault> {
    let names: Vec<_> = run.not_undone.iter().map(|failed| words::step(&failed.address)).collect();
    let none = |message: String| {
        Fault::new(Exit::No, codes::NOT_WAITING, message).hint(format!("these were not undone: {}", names.join(", ")))
    };
    match (&run.not_undone[..], step) {
        ([one], None) => Ok(one),
        (several, None) => {
            Err(none(format!("{} steps of run `{}` were not undone; say which", several.len(), run.key)))
        }
        (several, Some(step)) => several
            .iter()
            .find(|failed| steps::is(&failed.address, step))
            .ok_or_else(|| none(format!("run `{}` has no step `{step}` that was not undone", run.key))),
    }
}

fn tell(printer: &Printer, run: &Summary, (step, word): (&str, &str), left: &[Failed], is_done: bool) {
    if printer.json {
        let left: Vec<_> = left.iter().map(|failed| words::step(&failed.address)).collect();
        printer.data(&json!({
            "key": run.key, "id": run.id.to_string(), "step": step, "outcome": word, "decided": is_done, "not_undone": left,
        }));
    }
}
