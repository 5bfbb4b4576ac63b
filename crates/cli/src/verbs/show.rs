//! `onceflow show RUN`: what was asked for, what became of every step, the outputs, and what can be done next.

use super::ls::next;
use crate::{
    args,
    exit::Exit,
    fault::Fault,
    finish::{data_json, failed_json},
    place::Place,
    presence,
    printer::{Ink, Printer},
    runs::Run,
    session::Session,
    tally::{Group, Tally},
    trail, view, words,
};
use onceflow_engine::Report;
use serde_json::{Map, Value, json};

/// Failures that are shown.
const FAILURES_MAX: usize = 10;

/// Shows a run.
pub(crate) async fn run(args: &args::Show, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place, printer).await?;
    let run = session.run(&args.run).await?;
    let attended = presence::look(&session.place.directory, run.key());
    let engine = session.idle().await?;
    let handle = engine.find(run.key()).await?;
    let report = handle.report().await?;
    let mut outputs = Map::new();
    if let Report::Done(all) = &report {
        for (name, outcome) in all {
            outputs.insert(name.clone(), data_json(handle.peek(outcome).await?));
        }
    }
    engine.stop();
    let tally = tally(&session.place, &run);
    session.close().await?;
    let status = run.status(attended.is_some());
    let failures = match &report {
        Report::Failed(failures) | Report::Undone { failures, .. } => failures.clone(),
        _ => vec![],
    };
    let story = Story { run: &run, status, pid: attended.map(|notice| notice.pid), tally: &tally };
    if printer.json {
        let mut data = story.to_json();
        data["outputs"] = Value::Object(outputs);
        data["failures"] = failed_json(&failures);
        if let Report::Waiting(steps) = &report {
            data["unknown"] = json!(steps);
        }
        printer.pretty(&data);
        return Ok(Exit::Done);
    }
    let mut text = story.to_text(printer);
    for failed in failures.iter().take(FAILURES_MAX) {
        text.push_str(&format!("{}\n", view::failure(printer, failed)));
    }
    if let Report::Waiting(steps) = &report {
        text.push_str(&format!("unknown  {}\n", steps.join(", ")));
    }
    for (name, value) in &outputs {
        text.push_str(&format!("output   {name}: {value}\n"));
    }
    printer.text(text);
    printer.next(next(&run, story.pid.is_some()));
    Ok(Exit::Done)
}

/// What the trail of a run tells.
pub(crate) fn tally(place: &Place, run: &Run) -> Tally {
    let mut tally = Tally::default();
    for line in trail::Reader::open(&place.run(run.id)).more() {
        if let Some(what) = trail::what(&line) {
            tally.saw(line["t"].as_u64().unwrap_or_default(), &what);
        }
    }
    tally
}

struct Story<'a> {
    run: &'a Run,
    status: &'static str,
    pid: Option<u32>,
    tally: &'a Tally,
}

impl Story<'_> {
    fn to_json(&self) -> Value {
        let header = &self.run.header;
        let inputs: Map<_, _> = header
            .inputs
            .iter()
            .map(|(name, digest)| (name.clone(), json!(&blake3::Hash::from_bytes(*digest).to_hex()[..16])))
            .collect();
        let step = |(name, group): &(String, Group)| {
            json!({
                "step": name, "done": group.done, "reused": group.reused, "failed": group.failed,
                "undone": group.undone, "running": group.running.keys().collect::<Vec<_>>(),
                "attempts": group.attempts, "spent_ms": group.spent_ms,
            })
        };
        json!({
            "key": header.key, "id": self.run.id.to_string(), "flow": header.flow, "status": self.status,
            "pid": self.pid, "started_ms": self.run.started_ms(), "ended_ms": self.run.ended_ms,
            "keep_ms": header.keep_ms, "history_ms": header.history_ms, "inputs": inputs,
            "steps": self.tally.groups.iter().map(step).collect::<Vec<_>>(),
            "next": next(self.run, self.pid.is_some()),
        })
    }

    fn to_text(&self, printer: &Printer) -> String {
        let (run, now) = (self.run, trail::now_ms());
        let by = self.pid.map_or(String::new(), |pid| format!(", by process {pid}"));
        let mut text = format!("{} {}{by}\n", printer.ink(Ink::Bold, run.key()), self.status);
        text.push_str(&format!("flow     {}\nid       {}\n", run.header.flow, run.id));
        text.push_str(&format!("started  {}\n", words::ago(now.saturating_sub(run.started_ms()))));
        if let Some(ended) = run.ended_ms {
            text.push_str(&format!("ended    {}\n", words::ago(now.saturating_sub(ended))));
        }
        for (name, digest) in &run.header.inputs {
            text.push_str(&format!("input    {name} (digest {})\n", &blake3::Hash::from_bytes(*digest).to_hex()[..12]));
        }
        for (name, group) in &self.tally.groups {
            text.push_str(&format!("step     {name}: {}\n", told(group)));
        }
        text
    }
}

fn told(group: &Group) -> String {
    let mut parts = Vec::new();
    let mut part = |n: usize, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    part(group.done, "done");
    part(group.reused, "reused");
    part(group.running.len(), "running");
    part(group.failed, "failed");
    part(group.undone, "undone");
    if group.attempts > group.done + group.failed + group.running.len() {
        parts.push(format!("{} attempts", group.attempts));
    }
    if group.spent_ms > 0 {
        parts.push(words::duration(group.spent_ms));
    }
    if parts.is_empty() { String::from("nothing yet") } else { parts.join(", ") }
}
