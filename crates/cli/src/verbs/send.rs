//! `onceflow send RUN EVENT [VALUE]`: delivers an event to the step that waits for it. It is delivered once.

use crate::{
    args, codes, event_log,
    exit::Exit,
    fault::Fault,
    finish::data_json,
    location::StoreLocation,
    pending::{self, PendingStep},
    printer::Printer,
    run_meta::bounded,
    scopes,
    session::Session,
    steps,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::model::Port;
use onceflow_engine::{
    ReportedOutcome, Resolution, Summary, UndecidedStep,
    scope::{OrderView, SessionView},
    task::Data,
};
use onceflow_exec::value::PortValue;
use serde_json::json;

/// Sends an event.
pub(crate) async fn run(args: &args::Send, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let handle = engine.find(&run.key).await?;
    if let Some(id) = &args.id
        && handle.is_resolved(id).await?
    {
        engine.stop();
        session.close().await?;
        return Ok(told(printer, &run, args, None));
    }
    let waiting = pending::aside(&handle).await?;
    let sessions = scopes::open(&handle).await?;
    if let Some((name, order)) = in_scope(&run, &sessions, &waiting, args)? {
        let is_new = handle.deliver(order, message(args), args.id.as_deref()).await?;
        let was_before = match &args.id {
            Some(id) if !is_new => handle.is_resolved(id).await?,
            _ => false,
        };
        engine.close().await?;
        session.close().await?;
        if !is_new && !was_before {
            let what = format!("{name} of run `{}` does not wait for `{}` any more", run.key, args.event);
            return Err(Fault::new(Exit::Waiting, codes::NOT_WAITING, what));
        }
        return Ok(told(printer, &run, args, is_new.then_some(name.as_str())));
    }
    steps::must_be_known(&handle, args.step.as_deref()).await?;
    let step = meant(&run, &waiting, args)?;
    let values = values(args, &step.outputs)?;
    let given = step.outputs.iter().zip(&values);
    let given = given.map(|(port, data)| (port.name.clone(), bounded(data_json(data.clone()))));
    let given = event_log::outputs_text(given);
    let (values, address) = (Resolution::Done(values), step.address.clone());
    let is_new = match &args.id {
        Some(id) => handle.resolve_once(&step.address, values, id).await?,
        None => handle.resolve(&step.address, values).await.map(|()| true)?,
    };
    if is_new {
        let outcome = ReportedOutcome::Done { event: Some(args.event.clone()), outputs: given };
        handle.history().log_report(&address, outcome).await?;
    }
    let step = words::step(&address);
    engine.close().await?;
    session.close().await?;
    Ok(told(printer, &run, args, is_new.then_some(step.as_str())))
}

/// Returns the operation of a scope that waits for the event, if one does and no step.
fn in_scope<'a>(
    run: &Summary,
    sessions: &'a [SessionView],
    waiting: &[PendingStep],
    args: &'a args::Send,
) -> Result<Option<(String, &'a OrderView)>, Fault> {
    if waiting.iter().any(|waits| waits.event() == Some(&args.event)) {
        return Ok(None);
    }
    let mut found = scopes::waiting(sessions, &args.event);
    found.retain(|(name, _)| {
        args.step.as_ref().is_none_or(|step| name == step || name.starts_with(&format!("{step}/")))
    });
    match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        // Orders of one operation are served in their order.
        _ if found.iter().all(|(name, _)| *name == found[0].0) => Ok(Some(found.swap_remove(0))),
        several => {
            let names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
            let what = format!("{several} operations of run `{}` wait for `{}`", run.key, args.event);
            Err(Fault::new(Exit::No, codes::NOT_WAITING, what).hint(format!("--step says which: {}", names.join(", "))))
        }
    }
}

/// The message that the event brings to a scope: its value as JSON if it is JSON, else as text; or a record of named
/// values.
fn message(args: &args::Send) -> onceflow_core::Row {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::from(text));
    let message = match (&args.value, &args.output[..]) {
        (Some(text), _) => value(text),
        (None, []) => serde_json::Value::Null,
        (None, named) => {
            named.iter().map(|(name, text)| (name.clone(), value(text))).collect::<serde_json::Map<_, _>>().into()
        }
    };
    onceflow_core::Row::new(message.to_string())
}

fn told(printer: &Printer, run: &Summary, args: &args::Send, step: Option<&str>) -> Exit {
    if printer.json {
        let (key, id) = (&run.key, run.id.to_string());
        printer.data(&json!({"key": key, "id": id, "event": args.event, "step": step, "delivered": step.is_some()}));
    }
    match step {
        Some(step) => printer.say(format!("`{}` was brought to {step}", args.event)),
        None => printer.say(format!("`{}` was brought before, under this id", args.event)),
    }
    printer.next(format!("onceflow retry {} resumes it, if no process works on it", shell_word(&run.key)));
    Exit::Done
}

/// Returns the step that waits for the event.
fn meant<'a>(run: &Summary, waiting: &'a [PendingStep], args: &args::Send) -> Result<&'a UndecidedStep, Fault> {
    let is_it = |waits: &&PendingStep| {
        let is_named = args.step.as_ref().is_none_or(|step| steps::is(&waits.step.address, step));
        is_named && waits.event() == Some(&args.event)
    };
    let found: Vec<_> = waiting.iter().filter(is_it).collect();
    match &found[..] {
        [one] => Ok(&one.step),
        [] => {
            let mut known: Vec<_> =
                waiting.iter().filter_map(PendingStep::event).map(|event| format!("`{event}`")).collect();
            known.dedup();
            let hint = match (known.is_empty(), run.status.has_ended()) {
                (true, true) => String::from("it has ended"),
                (true, false) => String::from("it may later: send it again then; `onceflow show` says how it stands"),
                (false, _) => format!("it waits for {}", known.join(", ")),
            };
            let exit = if run.status.has_ended() { Exit::No } else { Exit::Waiting };
            let what = format!("no step of run `{}` waits for `{}` now", run.key, args.event);
            Err(Fault::new(exit, codes::NOT_WAITING, what).hint(hint))
        }
        several => {
            let steps: Vec<_> = several.iter().map(|waits| words::step(&waits.step.address)).collect();
            let what = format!("{} steps of run `{}` wait for `{}`", several.len(), run.key, args.event);
            Err(Fault::new(Exit::No, codes::NOT_WAITING, what).hint(format!("--step says which: {}", steps.join(", "))))
        }
    }
}

/// Returns the outputs of the step, given as words, as one value, or as a JSON object with all of them.
fn values(args: &args::Send, ports: &[Port]) -> Result<Vec<Data>, Fault> {
    let wanted = || {
        let all: Vec<_> = ports.iter().map(|port| format!("-o {}={}", port.name, port.ty)).collect();
        if all.is_empty() { String::from("it brings nothing") } else { all.join(" ") }
    };
    let mut words = args.output.clone();
    let mut whole = None;
    match (&args.value, ports) {
        (None, _) => {}
        (Some(value), [port]) => words.push((port.name.clone(), value.clone())),
        (Some(value), _) => {
            let object = serde_json::from_str::<serde_json::Map<_, _>>(value).ok().filter(|_| !ports.is_empty());
            let wrong = || Fault::usage("VALUE is a JSON object with a field for each output");
            whole = Some(object.ok_or_else(|| wrong().hint(wanted()))?);
        }
    }
    let values = match whole {
        Some(mut object) => {
            let one = |port: &Port| {
                let json = object.remove(&port.name).unwrap_or_default();
                let misfit = Fault::misfit(format!("`{}`", port.name));
                PortValue::from_json(json, &port.ty).map_err(|error| misfit(error).hint(wanted()))
            };
            ports.iter().map(one).collect::<Result<Vec<_>, _>>()?
        }
        None => {
            let called = onceflow_spec::InputNoun { owner: "the event", one: "value" };
            let bound = onceflow_spec::bind(ports, &words, called).map_err(|mut problems| {
                for problem in &mut problems.0 {
                    problem.hint = Some(wanted());
                }
                Fault::problems(Exit::Usage, problems)
            })?;
            bound.into_iter().map(|(_, value)| value).collect()
        }
    };
    let data = |(value, port): (PortValue, &Port)| {
        value.into_data(&port.ty).map_err(Fault::misfit(format!("`{}`", port.name)))
    };
    values.into_iter().zip(ports).map(data).collect()
}
