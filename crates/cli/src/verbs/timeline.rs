//! `onceflow timeline RUN`: draws when each attempt at each step ran, as SVG.

use crate::{
    args::pictures::Timeline, codes, exit::Exit, fault::Fault, location::StoreLocation, picture::scene::is_step,
    pictured::Pictured, printer::Printer, timeline, words,
};
use serde_json::json;

/// Draws the timeline.
pub(crate) async fn run(args: &Timeline, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    super::graph::must_be_called("a timeline", args.output.as_deref(), &["svg"])?;
    let run = Pictured::of(&args.run, location).await?;
    if run.history.is_empty() {
        let message = format!("nothing is written down about run `{}`", run.run.key);
        let hint = "its workers kept no event log, or an earlier version kept it in a file";
        return Err(Fault::new(Exit::No, codes::DRAWING, message).hint(hint));
    }
    if printer.json && args.output.is_none() {
        let attempts = run.history.all.iter().filter(|one| is_step(&one.address)).map(|one| {
            json!({
                "step": words::step(&one.address), "attempt": one.attempt, "from_ms": one.from_ms, "to_ms": one.to_ms,
                "how": one.how.word(), "cpu_ms": one.used.map(|used| used.cpu_ms),
                "peak_bytes": one.used.and_then(|used| used.peak_bytes),
            })
        });
        printer.pretty(&json!({"key": run.run.key, "status": run.status, "starts_ms": run.history.starts_ms, "attempts": attempts.collect::<Vec<_>>()}));
        return Ok(Exit::Done);
    }
    let text = timeline::document(&run.history, &format!("{}: {}", run.run.key, run.status));
    super::graph::give(printer, args.output.as_deref(), text)?;
    printer.next(run.next);
    Ok(Exit::Done)
}
