//! `onceflow explain FLOW`: prints what `run` would do, and why, without doing it.

use crate::{
    args,
    asked::{Asked, Gone},
    codes, event_log,
    exit::Exit,
    fault::Fault,
    foresight::Foresight,
    location::StoreLocation,
    pending::{self, PendingStep},
    plan::{self, Known},
    printer::Printer,
    run_meta, runs,
    session::{Session, Who, is_for_any},
    streams,
    verbs::{ls::shell_word, run::busy},
    words,
};
use onceflow_core::{
    model::{InstancePath as Address, program::Source},
    plan::{Explanation, Fate, Reason, explain::all_done},
};
use onceflow_engine::{Engine, EventKind, Handle, Summary};
use serde_json::json;

/// Prints the steps that would run.
pub(crate) async fn run(args: &args::Explain, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    if let Some(stream) = streams::asked(&args.flow, printer)? {
        return Ok(streams::explain(&stream, printer));
    }
    let (mut asked, mut hints, gone) = Asked::read_what_is_there(&args.flow, &location, location.who(), printer)?;
    asked.say_unused(printer);
    let found = if location.is_there {
        let session = Session::open(location).await?;
        let engine = session.idle().await?;
        let is_new = args.flow.new;
        assume(&engine, &mut asked, &gone, is_new).await?;
        if let Ok(handle) = engine.find(asked.key()).await
            && is_for_any(&session.location, &handle).await?
        {
            asked.set_who(Who::Any);
        }
        let found = Found::look(&session, &engine, &asked, is_new).await?;
        engine.stop();
        hints.save();
        session.close().await?;
        found
    } else if let Some(gone) = gone.first() {
        return Err(gone.unreadable());
    } else {
        Found { explanation: anew(&asked), ..Found::default() }
    };
    let not_again = not_again(&asked, &gone);
    if let Some((run, undos)) = &found.undone {
        return Ok(being_undone(printer, run, undos, &found));
    }
    let Found { explanation, known, refused, .. } = &found;
    let next = match (pending::resolve(asked.key(), &found.waits), plan::Counts::of(explanation, known).run) {
        (Some(resolve), _) => resolve,
        (None, 1..) if !gone.is_empty() => format!("bring {} back, then run it", gone[0].path.display()),
        (None, 0) if !gone.is_empty() => format!("onceflow show {}", shell_word(asked.key())),
        (None, 0) if known.unknown.is_empty() => String::from("nothing would run; `onceflow run` shows the results"),
        (None, _) => run_meta::command(&args.flow, None),
    };
    if printer.json {
        let mut data = plan::to_json(asked.key(), explanation, known);
        data["next"] = json!(printer.on_same_store(&next));
        data["notes"] = json!(found.notes);
        data["gone"] = not_again.iter().map(NotAgain::to_json).collect();
        if let Some(refused) = refused {
            data["refused"] = of_refused(refused);
        }
        printer.pretty(&data);
    } else {
        printer.text(plan::tree(printer, explanation, known, args.all));
    }
    if let Some(refused) = refused {
        return Ok(would_refuse(printer, refused));
    }
    if let Some(pid) = found.pid {
        printer.say(format!("run `{}` is at work in process {pid}; `run` would follow it", asked.key()));
    }
    found.notes.iter().for_each(|note| printer.say(note));
    not_again.iter().for_each(|not_again| printer.tell(not_again.to_string()));
    printer.next(next);
    Ok(Exit::Done)
}

/// Assumes that input files which are gone have the content they had when the run of this key began.
async fn assume(engine: &Engine, asked: &mut Asked, gone: &[Gone], is_new: bool) -> Result<(), Fault> {
    let Some(first) = gone.first() else { return Ok(()) };
    let known = match (engine.find(asked.key()).await, is_new) {
        (Ok(handle), false) => handle.request().input_digests().await?,
        _ => return Err(first.unreadable()),
    };
    for gone in gone {
        let digest = known.iter().find(|(name, _)| *name == gone.input).map(|(_, digest)| *digest);
        asked.start.assumed.push((gone.input.clone(), digest.ok_or_else(|| gone.unreadable())?));
    }
    Ok(())
}

/// An input file that is gone, and the steps that read it: they cannot run again.
struct NotAgain {
    input: String,
    path: String,
    steps: Vec<String>,
}

impl NotAgain {
    fn to_json(&self) -> serde_json::Value {
        json!({"input": self.input, "path": self.path, "cannot_be_recomputed": self.steps})
    }
}

impl std::fmt::Display for NotAgain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NotAgain { input, path, steps } = self;
        let what = if steps.is_empty() { String::from("nothing") } else { steps.join(", ") };
        write!(f, "input `{input}` is gone: {path} is not there; cannot be recomputed: {what}")
    }
}

/// Finds every step that reads an input file which is gone, and so cannot be recomputed.
fn not_again(asked: &Asked, gone: &[Gone]) -> Vec<NotAgain> {
    if gone.is_empty() {
        return vec![];
    }
    let root = &asked.start.flow.program().blocks[onceflow_core::model::program::ROOT as usize];
    let of = |gone: &Gone| {
        let port = root.inputs.iter().position(|input| input.port.name == gone.input);
        let reads = |source: &Source| matches!(source, Source::Input(at) if Some(usize::from(*at)) == port);
        let readers = root.nodes.iter().filter(|node| node.inputs.iter().any(reads));
        let mut steps: Vec<_> = readers.map(|node| words::step(&Address::root().address(&node.path))).collect();
        steps.dedup();
        NotAgain { input: gone.input.clone(), path: gone.path.display().to_string(), steps }
    };
    gone.iter().map(of).collect()
}

/// The plan of `run`, and the facts printed with it.
#[derive(Default)]
struct Found {
    explanation: Explanation,
    known: Known,
    /// Steps that wait for an event, or for an operator to report their outcome.
    waits: Vec<PendingStep>,
    /// Further notes to print.
    notes: Vec<String>,
    /// The error that `run` would end with.
    refused: Option<Fault>,
    /// The process that attends the run.
    pid: Option<u32>,
    /// A run that is being undone, and the steps left to undo, the last first.
    undone: Option<(Summary, Vec<String>)>,
}

impl Found {
    async fn look(session: &Session, engine: &Engine, asked: &Asked, is_new: bool) -> Result<Self, Fault> {
        let (key, start) = (asked.key(), &asked.start);
        let mut preview = match is_new {
            true => None,
            false => Some(engine.preview(start.clone()).await?),
        };
        let run = match &mut preview {
            Some(preview) => preview.run.take(),
            None => runs::of_key(engine, key).await?,
        };
        let mut found = Found::default();
        if run.as_ref().is_some_and(|run| !run.status.has_ended())
            && let Some(other) = engine.attendant(key).await?
            && !is_for_any(&session.location, &engine.find(key).await?).await?
        {
            found.pid = Some(other.worker.about.pid);
            found.refused = match preview.as_ref().map(|preview| preview.is_same) {
                None => Some(busy(key, Some(&other), "is at work")),
                Some(Some(false)) => Some(busy(key, Some(&other), "is at work with other inputs or another flow")),
                Some(_) => None,
            };
        }
        let Some(mut preview) = preview else { return Ok(Found { explanation: anew(asked), ..found }) };
        let is_alone = run.as_ref().is_some_and(|run| run.status.is_interrupted());
        let refused = preview.refused.take().map(Fault::from);
        let refused = refused.map(|fault| if is_alone { fault.of_unattended(key) } else { fault });
        found.refused = found.refused.or(refused);
        let Some(run) = run else { return Ok(Found { explanation: preview.explanation, ..found }) };
        if run.status.is_being_undone() {
            found.undone = Some((run, preview.undos));
            return Ok(found);
        }
        let mut eaches = opened(&engine.find(key).await?, &preview.explanation).await?;
        let Foresight { known, waits, notes } = Foresight::of(engine, &run, &mut preview).await?;
        eaches.extend(known.eaches);
        Ok(Found { explanation: preview.explanation, known: Known { eaches, ..known }, waits, notes, ..found })
    }
}

/// Returns the eaches that are reused, with the number of their elements, as far as the event log has it.
///
/// # Errors
/// If the store does not answer.
async fn opened(handle: &Handle, explanation: &Explanation) -> Result<plan::Eaches, Fault> {
    let reused = explanation.lines.iter().filter(|line| line.fate == Fate::Reused);
    let reused: std::collections::BTreeSet<_> = reused.map(|line| words::step(&line.address)).collect();
    let mut found = plan::Eaches::new();
    for line in event_log::lines(handle).await? {
        if let Some(EventKind::DidOpen { address, elements }) = line.what
            && reused.contains(&words::step(&address))
        {
            found.insert(words::step(&address), (0, elements as usize));
        }
    }
    // Eaches that go through their elements together are one node.
    for of_node in explanation.lines.chunk_by(|a, b| a.node == b.node).filter(|of_node| of_node.len() > 1) {
        let names = || of_node.iter().map(|line| words::step(&line.address));
        if let Some(far) = names().find_map(|name| found.get(&name).copied()) {
            found.extend(names().filter(|name| !name.contains(['[', '@'])).map(|name| (name, far)));
        }
    }
    Ok(found)
}

/// Reports that the run is being undone, so that nothing else will run.
fn being_undone(printer: &Printer, run: &Summary, undos: &[String], found: &Found) -> Exit {
    let (key, undos) = (shell_word(&run.key), undos.iter().map(|step| words::step(step)).collect::<Vec<_>>());
    match printer.json {
        true => {
            let mut data = json!({
                "key": run.key, "status": run.status.to_string(), "undo": undos, "run": 0, "reuse": 0, "skip": 0,
                "steps": [],
            });
            if let Some(refused) = &found.refused {
                data["refused"] = of_refused(refused);
            }
            printer.pretty(&data);
        }
        false => {
            let mut text = format!("run `{}` is being undone: none of its steps will run\n", run.key);
            undos.iter().for_each(|step| text.push_str(&format!("undo   {step}\n")));
            printer.text(text);
        }
    }
    if let Some(refused) = &found.refused {
        return would_refuse(printer, refused);
    }
    printer.next(match found.pid {
        Some(_) => format!("onceflow watch {key}"),
        None => format!("`onceflow cancel {key}` goes on undoing it; then `onceflow run` begins anew"),
    });
    Exit::Done
}

pub(super) fn of_refused(refused: &Fault) -> serde_json::Value {
    let (code, message, hint) = refused.in_short();
    json!({"code": code, "message": message, "hint": hint})
}

fn would_refuse(printer: &Printer, refused: &Fault) -> Exit {
    printer.tell(format!("`run` would refuse this: {refused}"));
    printer.next(format!("onceflow error {}", refused.in_short().0.unwrap_or(codes::ENDED)));
    Exit::Done
}

/// Explains a start without a store, or as if it were empty.
fn anew(asked: &Asked) -> Explanation {
    let mut lines = all_done(asked.start.flow.program()).lines;
    for line in &mut lines {
        (line.fate, line.reason) = (Fate::Run, Reason::NoValue);
    }
    Explanation { lines }
}
