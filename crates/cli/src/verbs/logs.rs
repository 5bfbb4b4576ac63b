//! `onceflow logs RUN [STEP]`: prints the output of the commands of steps.

use crate::{
    args, codes, event_log,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    printer::{Ink, Printer},
    session::{Session, is_for_any},
    steps, words,
};
use onceflow_engine::EventKind;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

/// Prints logs.
pub(crate) async fn run(args: &args::Logs, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let location = session.location.clone();
    let handle = engine.find(&run.key).await?;
    let directory = location.run(run.id).join("logs");
    let mut reader = event_log::Reader::open(&handle);
    let mut lines = Vec::new();
    let mut shown =
        Shown { args, printer, attempts: BTreeMap::new(), read: BTreeMap::new(), elsewhere: BTreeMap::new() };
    let by_any = is_for_any(&location, &handle).await?;
    loop {
        // First the check for a writer, then the read, so that nothing written before the writer left is missed.
        let attended = match by_any {
            false => engine.attendant(&run.key).await?.is_some(),
            true => args.follow && !handle.summary().await?.status.is_at_rest(),
        };
        lines.extend(reader.more().await?);
        shown.knows(&lines);
        shown.more(&directory)?;
        shown.show_from_elsewhere(&directory, handle.history().logs().await?);
        if !args.follow || !attended {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let is_silent = shown.read.is_empty() && shown.elsewhere.is_empty();
    let outline = if is_silent { handle.steps().outline().await? } else { None };
    engine.stop();
    session.close().await?;
    if is_silent {
        let mut known = steps::Known::of(&outline.unwrap_or_default());
        for line in &lines {
            line.step.iter().for_each(|address| known.heard(address, line.what.as_ref()));
        }
        let seen: Vec<_> = lines.into_iter().filter_map(|line| line.what).collect();
        let told = Silence { key: &run.key, step: args.step.as_deref(), attempt: args.attempt, seen, known, by_any };
        printer.say(told.why()?);
    }
    if directory.join(onceflow_exec::LOGS_FULL).exists() {
        let cut = "the logs of this run are full: of steps that did not fail later, what they wrote is not kept";
        match printer.json {
            true => printer.data(&json!({ "cut": cut })),
            false => printer.say(cut),
        }
    }
    printer.next(format!("onceflow show {}", super::ls::shell_word(&run.key)));
    Ok(Exit::Done)
}

/// The facts to explain an empty log.
struct Silence<'a> {
    key: &'a str,
    step: Option<&'a str>,
    attempt: Option<u32>,
    /// Events of the run.
    seen: Vec<EventKind>,
    known: steps::Known,
    /// Any worker may work on the run.
    by_any: bool,
}

impl Silence<'_> {
    /// Returns the reason why there is no log; an error if there is no such step or attempt.
    fn why(&self) -> Result<String, Fault> {
        let is_it = |address: &&str| self.step.is_none_or(|step| steps::is_within(address, step));
        let (mut last, mut reused) = (BTreeMap::new(), false);
        for what in &self.seen {
            match what {
                EventKind::WillRun { address, attempt } if is_it(&address.as_str()) => {
                    last.insert(address, *attempt);
                }
                EventKind::DidReuse { address } if is_it(&address.as_str()) => reused = true,
                _ => {}
            }
        }
        let of = match self.step {
            None => format!("run `{}`", self.key),
            Some(step) => format!("step `{step}` of run `{}`", self.key),
        };
        if let Some(step) = self.step {
            self.known.must_be(self.key, step)?;
        }
        if let Some(wanted) = self.attempt.filter(|wanted| !last.values().any(|attempt| attempt == wanted)) {
            return Err(Fault::new(Exit::No, codes::NO_LOGS, format!("there are no logs of attempt {wanted} of {of}"))
                .hint("only what the last attempt at a step wrote is kept"));
        }
        Ok(match (last.is_empty(), self.step) {
            (true, Some(_)) if reused => format!("{of} was reused: it did not run, so it wrote nothing"),
            (true, Some(_)) if !self.by_any => format!("{of} has not run, so it wrote nothing"),
            _ => format!("{of} wrote nothing"),
        })
    }
}

struct Shown<'a> {
    args: &'a args::Logs,
    printer: &'a Printer,
    /// The number of the last attempt at each step.
    attempts: BTreeMap<String, u32>,
    /// The bytes of each file that were shown already.
    read: BTreeMap<PathBuf, u64>,
    /// By step on another machine: the attempt that was shown.
    elsewhere: BTreeMap<String, u32>,
}

impl Shown<'_> {
    /// Learns the number of the last attempt at each step.
    fn knows(&mut self, lines: &[event_log::Line]) {
        for line in lines {
            if let Some(EventKind::WillRun { address, attempt }) = &line.what {
                self.attempts.insert(address.clone(), *attempt);
            }
        }
    }

    /// Shows the output of steps on other machines, as far as the store has it.
    fn show_from_elsewhere(&mut self, directory: &Path, logs: Vec<onceflow_engine::StepLog>) {
        for log in logs {
            let wanted = self.args.step.as_deref().is_none_or(|wanted| steps::is_within(&log.address, wanted));
            let attempt = self.args.attempt.is_none_or(|wanted| wanted == log.attempt);
            let is_here = directory.join(format!("{}.log", onceflow_exec::home::safe(&log.address))).exists();
            let is_shown = self.elsewhere.get(&log.address) == Some(&log.attempt);
            if !wanted || !attempt || is_here || is_shown {
                continue;
            }
            let text = String::from_utf8_lossy(&log.text);
            match self.printer.json {
                true => self.printer.data(
                    &json!({"step": words::step(&log.address), "attempt": log.attempt, "host": log.host, "text": text}),
                ),
                false => {
                    let again = if log.attempt > 1 { format!(", attempt {}", log.attempt) } else { String::new() };
                    let heading = format!("== {}{again}, on {}", words::step(&log.address), log.host);
                    self.printer.say(self.printer.ink(Ink::Cyan, &heading));
                    self.printer.exact(text);
                }
            }
            self.elsewhere.insert(log.address, log.attempt);
        }
    }

    /// Shows the output added since the last call.
    fn more(&mut self, directory: &Path) -> Result<(), Fault> {
        for (step, path) in files(directory) {
            let attempt = self.attempts.get(&step).copied().unwrap_or(1);
            let wanted = self.args.step.as_deref().is_none_or(|wanted| steps::is_within(&step, wanted));
            if !wanted || self.args.attempt.is_some_and(|wanted| wanted != attempt) {
                continue;
            }
            let from = self.read.get(&path).copied();
            let Ok(text) = rest(&path, from.unwrap_or(0)) else { continue };
            if from.is_some() && text.is_empty() {
                continue;
            }
            self.read.insert(path, from.unwrap_or(0) + text.len() as u64);
            let text = String::from_utf8_lossy(&text);
            match self.printer.json {
                true => self.printer.data(&json!({"step": words::step(&step), "attempt": attempt, "text": text})),
                false => {
                    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                    self.printer.say(self.printer.ink(Ink::Cyan, &format!("== {}{again}", words::step(&step))));
                    self.printer.exact(text);
                }
            }
        }
        Ok(())
    }
}

/// Returns the log files, by address: of every step that of the last attempt.
fn files(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let step = name.strip_suffix(".log")?;
            Some((format!("/{}", step.replace('.', "/")), entry.path()))
        })
        .collect();
    found.sort();
    found
}

fn rest(path: &Path, from: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
