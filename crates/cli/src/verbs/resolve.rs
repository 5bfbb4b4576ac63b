//! `onceflow resolve RUN STEP`: reports the outcome of a step that must not start twice and may have taken effect; or
//! decides about an undo that failed.

mod undo;

use crate::{
    args, asking, codes, event_log,
    exit::Exit,
    fault::Fault,
    finish::data_json,
    housekeeping,
    location::StoreLocation,
    pending::{self, PendingStep, Why},
    printer::Printer,
    run_meta::bounded,
    session::Session,
    steps,
    verbs::ls::shell_word,
    words,
};
use onceflow_engine::{
    Engine, Handle, ReportedOutcome, Resolution, RunStatus, StartedStep, Summary, UndecidedStep, task::Data,
};
use serde_json::json;

/// Reports the outcome of a step, or decides about an undo.
pub(crate) async fn run(args: &args::Resolve, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let handle = engine.find(&run.key).await?;
    if run.status == RunStatus::NotUndone {
        engine.stop();
        return undo::run(args, session, &run, printer).await;
    }
    let waiting = pending::all(&engine, &handle).await?;
    steps::must_be_known(&handle, args.step.as_deref()).await?;
    let begun = handle.steps().started_steps().await?;
    let waits = meant(&run, &waiting, args.step.as_deref()).map_err(|fault| at_work(fault, &begun, args))?;
    let step = &waits.step;
    let (word, resolution) = resolution(args, step)?;
    let shown = words::step(&step.address);
    if args.sure.dry_run || !asking::may(printer, args.sure, &format!("say that {shown} {}", said(word))) {
        engine.stop();
        session.close().await?;
        if !args.sure.dry_run {
            return Ok(asking::left_alone(printer));
        }
        tell(printer, &run, (&shown, word), &waiting, "would be ");
        return Ok(Exit::Done);
    }
    let told = reported(&resolution, step);
    if let Why::Left(by) = waits.why {
        put_aside(&session.location, &engine, &handle, (&step.address, by)).await?;
    }
    handle.resolve(&step.address, resolution).await?;
    handle.history().log_report(&step.address, told).await?;
    let left = pending::all(&engine, &handle).await?;
    engine.close().await?;
    session.close().await?;
    tell(printer, &run, (&shown, word), &left, "");
    Ok(Exit::Done)
}

/// Returns the reported outcome, for the event log of the run.
fn reported(resolution: &Resolution, step: &UndecidedStep) -> ReportedOutcome {
    match resolution {
        Resolution::Done(outputs) => {
            let given = step.outputs.iter().zip(outputs);
            let given = given.map(|(port, data)| (port.name.clone(), bounded(data_json(data.clone()))));
            ReportedOutcome::Done { event: None, outputs: event_log::outputs_text(given) }
        }
        Resolution::Redo => ReportedOutcome::Redo,
        Resolution::Fail(why) => ReportedOutcome::Failed(why.clone()),
    }
}

/// Parks a step whose worker is gone and that no other has taken over, as the next worker would, so that it can be
/// resolved. If another process is faster, the step is left in the state that process gave it.
async fn put_aside(
    location: &StoreLocation,
    engine: &Engine,
    handle: &Handle,
    (address, by): (&str, u128),
) -> Result<(), Fault> {
    housekeeping::release_ended(engine, location).await?;
    handle.steps().mark_unknown(address, by).await?;
    Ok(())
}

fn said(word: &str) -> &'static str {
    match word {
        "done" => "was done",
        "redo" => "was not done, and runs again",
        _ => "failed",
    }
}

fn tell(printer: &Printer, run: &Summary, (step, word): (&str, &str), left: &[PendingStep], would: &str) {
    let others: Vec<_> = left.iter().filter(|other| words::step(&other.step.address) != step).cloned().collect();
    let left: Vec<_> = others.iter().map(|other| words::step(&other.step.address)).collect();
    if printer.json {
        let is_done = would.is_empty();
        printer.data(&json!({
            "key": run.key, "id": run.id.to_string(), "step": step, "outcome": word, "decided": is_done, "waiting": left,
        }));
    }
    printer.say(format!("{step}: {would}decided: {}", said(word)));
    let key = shell_word(&run.key);
    printer.next(match pending::next(&run.key, &others) {
        _ if !would.is_empty() => String::from("the same without --dry-run"),
        Some(next) => format!("{} also waits: {next}", left.join(", ")),
        None => format!("onceflow retry {key}"),
    });
}

/// Returns the step to resolve: the only one that waits, or the one that is named.
fn meant<'a>(run: &Summary, waiting: &'a [PendingStep], step: Option<&str>) -> Result<&'a PendingStep, Fault> {
    let names: Vec<_> = waiting.iter().map(|waits| words::step(&waits.step.address)).collect();
    let none = |message: String| {
        let hint = match names.is_empty() {
            true => format!("`onceflow show {}` says how it stands", shell_word(&run.key)),
            false => format!("these wait: {}", names.join(", ")),
        };
        Fault::new(Exit::No, codes::NOT_WAITING, message).hint(hint)
    };
    match (waiting, step) {
        ([], _) => Err(none(format!("no step of run `{}` waits for its outcome to be reported", run.key))),
        ([one], None) => Ok(one),
        (several, None) => Err(none(format!("{} steps of run `{}` wait; say which", several.len(), run.key))),
        (several, Some(step)) => {
            let found = several.iter().find(|waits| steps::is(&waits.step.address, step));
            found.ok_or_else(|| none(format!("step `{step}` of run `{}` does not wait", run.key)))
        }
    }
}

/// Adds a hint to the error that no step waits: the worker that started the step may still be at work on it.
fn at_work(fault: Fault, begun: &[StartedStep], args: &args::Resolve) -> Fault {
    let is_it = |begun: &&StartedStep| args.step.as_ref().is_none_or(|step| steps::is(&begun.step.address, step));
    match begun.iter().find(is_it) {
        Some(begun) => {
            let step = words::step(&begun.step.address);
            let until = "once they are gone, and their lease has run out, it can be resolved";
            fault.hint(format!("{step} was started by a process that may still be at work on it; {until}"))
        }
        None => fault,
    }
}

fn resolution(args: &args::Resolve, step: &UndecidedStep) -> Result<(&'static str, Resolution), Fault> {
    if args.redo {
        return Ok(("redo", Resolution::Redo));
    }
    if let Some(why) = &args.fail {
        return Ok(("fail", Resolution::Fail(why.clone())));
    }
    let called = onceflow_spec::InputNoun { owner: "the step", one: "output" };
    let values = onceflow_spec::bind(&step.outputs, &args.output, called).map_err(|mut problems| {
        let wanted: Vec<_> = step.outputs.iter().map(|port| format!("-o {}={}", port.name, port.ty)).collect();
        for problem in &mut problems.0 {
            problem.hint = Some(format!("--done {}", wanted.join(" ")));
        }
        Fault::problems(Exit::Usage, problems)
    })?;
    let mut outputs: Vec<Data> = Vec::with_capacity(values.len());
    for ((name, value), port) in values.into_iter().zip(&step.outputs) {
        outputs.push(value.into_data(&port.ty).map_err(Fault::misfit(format!("output `{name}`")))?);
    }
    Ok(("done", Resolution::Done(outputs)))
}
