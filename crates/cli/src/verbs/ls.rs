//! `onceflow ls`: lists the runs of the store, their status, and the next command for each; and its streams.

use crate::{
    args, event_log,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    pending::PendingStep,
    printer::{Printer, name},
    run_meta, runs,
    session::Session,
    streams::{self, ListedStream},
    words,
};
use onceflow_engine::{Error, RunStatus, Summary};
use serde_json::{Value, json};

/// Lists runs.
pub(crate) async fn run(_: &args::Ls, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    if !location.is_there && !location.is_given {
        return Ok(none(printer));
    }
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let all = runs::all(&engine).await?;
    let mut rows = Vec::with_capacity(all.len());
    for run in &all {
        let waits = runs::pending(&engine, run).await?;
        let steps = match engine.find(&run.key).await {
            Ok(handle) => handle.history().logged_steps().await?,
            // Its history has just ended.
            Err(Error::NoRun(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        rows.push(Row::of(run, &session.location, steps, &waits));
    }
    engine.stop();
    let streams = streams::list(&session).await?;
    session.close().await?;
    if rows.is_empty() && streams.is_empty() {
        return Ok(none(printer));
    }
    if printer.json {
        printer.pretty(
            &rows.iter().map(|row| row.to_json(printer)).chain(streams.iter().map(ListedStream::to_json)).collect(),
        );
        return Ok(Exit::Done);
    }
    let runs = if rows.is_empty() { String::new() } else { table(&rows) };
    printer.text(runs + &streams.iter().map(ListedStream::to_line).collect::<String>());
    let next = rows.first().map(|row| row.next.clone());
    printer.next(next.unwrap_or_else(|| streams[0].next()));
    Ok(Exit::Done)
}

fn none(printer: &Printer) -> Exit {
    if printer.json {
        printer.data(&json!([]));
    }
    printer.say("no runs here yet");
    printer.next("`onceflow init` writes a small flow, `onceflow run FLOW.yaml` runs it");
    Exit::Done
}

/// One line of the list.
struct Row {
    key: String,
    id: String,
    flow: String,
    status: RunStatus,
    steps: u64,
    started_ms: u64,
    ended_ms: Option<u64>,
    next: String,
}

impl Row {
    fn of(run: &Summary, location: &StoreLocation, steps: u64, waits: &[PendingStep]) -> Self {
        let again = run_meta::again(run_meta::read(location, run.id).as_ref());
        Row {
            key: run.key.clone(),
            id: run.id.to_string(),
            flow: run.flow.clone(),
            status: run.status,
            steps,
            started_ms: run.started.as_ms(),
            ended_ms: run.ended.map(|ended| ended.as_ms()),
            next: runs::next(run, waits, again.as_deref()),
        }
    }

    fn to_json(&self, printer: &Printer) -> Value {
        json!({
            "key": self.key, "id": self.id, "flow": self.flow, "status": self.status, "steps": self.steps,
            "started_ms": self.started_ms, "ended_ms": self.ended_ms, "next": printer.on_same_store(&self.next),
        })
    }
}

/// Quotes a word for a shell, if it needs that.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(char::is_control) {
        let letter = |letter: char| match letter {
            '\'' | '\\' => format!("\\{letter}"),
            letter if letter.is_control() => letter.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
            letter => letter.to_string(),
        };
        format!("$'{}'", word.chars().map(letter).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn table(rows: &[Row]) -> String {
    let now = event_log::now_ms();
    let width = |of: fn(&Row) -> String, least: usize| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0).clamp(least, 40)
    };
    let (key, flow) = (width(|row| name(&row.key), 3), width(|row| name(&row.flow), 4));
    let mut text = format!("{:<key$}  {:<flow$}  {:<14}  {:>6}  AGE\n", "KEY", "FLOW", "STATUS", "STEPS");
    for row in rows {
        let age = words::ago(now.saturating_sub(row.ended_ms.unwrap_or(row.started_ms)));
        let line = format!(
            "{:<key$}  {:<flow$}  {:<14}  {:>6}  {age}\n",
            name(&row.key),
            name(&row.flow),
            row.status,
            row.steps
        );
        text.push_str(&line);
    }
    text
}
