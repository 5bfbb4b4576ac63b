//! `onceflow check FLOW --against-runs`: checks that the unfinished runs of a flow could be resumed with the flow as it
//! is now, and says which steps that would run again. For CI: exits with 1 if a run would be refused.

use crate::{
    exit::Exit,
    fault::Fault,
    flows,
    location::StoreLocation,
    plan,
    printer::{Ink, Printer},
    runs,
    session::{Session, is_for_any},
    words,
};
use onceflow_engine::{Engine, Intent, RunStatus, Start, Summary};
use onceflow_spec::LoadedFlow;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The verdict on one run.
struct Verdict {
    run: Summary,
    /// The status of the run.
    status: RunStatus,
    file: PathBuf,
    same: bool,
    plan: Option<onceflow_core::plan::Explanation>,
    refused: Option<Fault>,
}

/// Compares flows with the unfinished runs of a store.
pub(crate) async fn run(files: &[PathBuf], location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    // Problems of a flow are reported even without a store.
    let flows: Vec<_> = files.iter().map(|file| Ok((file, flows::read(file)?))).collect::<Result<_, Fault>>()?;
    let mut found = Vec::new();
    // Without a store there are no runs; but a store that was named must exist.
    if location.is_there || location.is_given || location.server.is_some() {
        let session = Session::open(location).await?;
        let engine = session.idle().await?;
        let unfinished: Vec<_> = runs::all(&engine).await?.into_iter().filter(|run| !run.status.has_ended()).collect();
        for (file, flow) in &flows {
            for run in unfinished.iter().filter(|run| run.flow == flow.name()) {
                found.push(verdict(&engine, &session.location, file, flow, run).await?);
            }
        }
        engine.stop();
        session.close().await?;
    }
    let refused = found.iter().filter(|verdict| verdict.refused.is_some()).count();
    match printer.json {
        true => printer.pretty(&json!({
            "ok": refused == 0, "checked": files.len(), "runs": found.iter().map(to_json).collect::<Vec<_>>(),
        })),
        false => printer.text(found.iter().map(|verdict| to_text(printer, verdict)).collect::<String>()),
    }
    printer.next(match (found.len(), refused) {
        (0, _) => String::from("no unfinished run of this store is of these flows"),
        (n, 0) => format!("{} can go on; `onceflow explain` says more of one", words::count(n, "run")),
        (_, n) => format!("{} would be refused; `onceflow error CODE` explains", words::count(n, "run")),
    });
    Ok(if refused == 0 { Exit::Done } else { Exit::No })
}

async fn verdict(
    engine: &Engine,
    location: &StoreLocation,
    file: &Path,
    flow: &LoadedFlow,
    run: &Summary,
) -> Result<Verdict, Fault> {
    let handle = engine.find(&run.key).await?;
    let who = if is_for_any(location, &handle).await? { crate::session::Who::Any } else { location.who() };
    let checked = match handle.request().requested().await? {
        None => Ok(flow.checked.clone()),
        Some(outputs) => flow.checked.only(&outputs),
    };
    let checked = match checked {
        Ok(checked) => checked,
        Err(errors) => {
            let refused = Some(onceflow_engine::Error::from(errors).into());
            let (status, run, file) = (run.status, run.clone(), file.to_owned());
            return Ok(Verdict { run, status, file, same: false, plan: None, refused });
        }
    };
    let mut start = Start::new(run.key.clone(), checked);
    start.classes = who.classes(&run.key, &start.flow);
    start.keep_ms = flow.keep_ms.or(run.keep_ms);
    // Defaults, for inputs that the run does not have.
    for input in &flow.inputs {
        let default = input.default.clone().and_then(|value| value.into_data(&input.ty).ok());
        start.inputs.extend(default.map(|data| (input.name.clone(), data)));
    }
    let moved = engine.preview(Intent::Move(Box::new(start))).await;
    let (status, run, file) = (run.status, run.clone(), file.to_owned());
    Ok(match moved {
        Ok(moved) => {
            let (same, refused) = (moved.is_same == Some(true), moved.refused.map(Fault::from));
            Verdict { run, status, file, same, plan: Some(moved.explanation), refused }
        }
        // The run has ended meanwhile.
        Err(onceflow_engine::Error::Ended { .. } | onceflow_engine::Error::NoRun(_)) => {
            Verdict { run, status, file, same: true, plan: None, refused: None }
        }
        // A flow or input that does not fit is a verdict; an error of the store is not.
        Err(error @ (onceflow_engine::Error::Inputs(_) | onceflow_engine::Error::Flow(_))) => {
            Verdict { run, status, file, same: false, plan: None, refused: Some(error.into()) }
        }
        Err(error) => return Err(error.into()),
    })
}

fn to_text(printer: &Printer, verdict: &Verdict) -> String {
    let Verdict { run, status, same, plan, refused, .. } = verdict;
    let (ink, word) = match (refused, same) {
        (Some(_), _) => (Ink::Red, "refused"),
        (None, true) => (Ink::Green, "same   "),
        (None, false) => (Ink::Yellow, "moves  "),
    };
    let what = match (refused, plan) {
        (Some(fault), _) => match fault.in_short() {
            (Some(code), message, _) => format!("[{code}] {message}"),
            (None, message, _) => message,
        },
        (None, Some(_)) if *same => String::from("nothing changes"),
        (None, Some(plan)) => plan::short(plan, &plan::Known::default()),
        (None, None) => String::from("it has ended"),
    };
    format!("{}  {} ({status}): {what}\n", printer.ink(ink, word), run.key)
}

fn to_json(verdict: &Verdict) -> Value {
    let Verdict { run, status, file, same, plan, refused } = verdict;
    let refused = refused.as_ref().map(super::explain::of_refused);
    json!({
        "file": file.display().to_string(), "key": run.key, "id": run.id.to_string(), "status": status,
        "same": same, "refused": refused, "plan": plan.as_ref().map(|plan| plan::to_json(&run.key, plan, &plan::Known::default())),
    })
}
