//! `onceflow logs RUN [STEP]`: what the commands of steps wrote.

use crate::{
    args, codes,
    exit::Exit,
    fault::Fault,
    place::Place,
    presence,
    printer::{Ink, Printer},
    session::{Session, is_for_any},
    trail, words,
};
use onceflow_engine::What;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

/// Prints logs.
pub(crate) async fn run(args: &args::Logs, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let place = session.place.clone();
    let handle = engine.find(&run.key).await?;
    let directory = place.run(run.id).join("logs");
    let mut shown = Shown { args, printer, read: BTreeMap::new(), elsewhere: BTreeMap::new() };
    let by_any = is_for_any(&place, &handle).await?;
    loop {
        // First whether somebody writes, then what was written.
        let attended = match by_any {
            false => presence::look(&place.directory, &run.key).is_some(),
            true => args.follow && !handle.report().await?.is_at_rest(),
        };
        shown.more(&directory)?;
        shown.show_from_elsewhere(&directory, handle.logs().await?);
        if !args.follow || !attended {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.stop();
    session.close().await?;
    if shown.read.is_empty() && shown.elsewhere.is_empty() {
        let of = args.step.as_ref().map_or(String::new(), |step| format!(" of step `{step}`"));
        return Err(Fault::new(Exit::No, codes::NO_LOGS, format!("run `{}` has no logs{of}", run.key))
            .hint(format!("`onceflow show {}` lists its steps; logs go when the run's history ends", run.key)));
    }
    printer.next(format!("onceflow show {}", super::ls::shell_word(&run.key)));
    Ok(Exit::Done)
}

struct Shown<'a> {
    args: &'a args::Logs,
    printer: &'a Printer,
    /// How much of each file was shown.
    read: BTreeMap<PathBuf, u64>,
    /// Which attempt of a step on another machine was shown.
    elsewhere: BTreeMap<String, u32>,
}

impl Shown<'_> {
    /// Which attempt at each step was the last.
    fn attempts(&mut self, logs: &Path) -> BTreeMap<String, u32> {
        let Some(run) = logs.parent() else { return BTreeMap::new() };
        let lines = trail::Reader::open(run).more();
        let started = lines.iter().filter_map(|line| match trail::what(line)? {
            What::WillRun { address, attempt } => Some((address, attempt)),
            _ => None,
        });
        started.collect()
    }

    /// Shows what steps wrote on other machines, as far as they say.
    fn show_from_elsewhere(&mut self, directory: &Path, logs: Vec<onceflow_engine::StepLog>) {
        for log in logs {
            let wanted = self.args.step.as_deref().is_none_or(|wanted| is_at(&log.address, wanted));
            let attempt = self.args.attempt.is_none_or(|wanted| wanted == log.attempt);
            let is_here = directory.join(format!("{}.log", onceflow_exec::home::safe(&log.address))).exists();
            let is_shown = self.elsewhere.get(&log.address) == Some(&log.attempt);
            if !wanted || !attempt || is_here || is_shown {
                continue;
            }
            let text = String::from_utf8_lossy(&log.text);
            match self.printer.json {
                true => self
                    .printer
                    .data(&json!({"step": log.address, "attempt": log.attempt, "host": log.host, "text": text})),
                false => {
                    let again = if log.attempt > 1 { format!(", attempt {}", log.attempt) } else { String::new() };
                    let heading = format!("== {}{again}, on {}", words::step(&log.address), log.host);
                    self.printer.say(self.printer.ink(Ink::Cyan, &heading));
                    self.printer.text(text);
                }
            }
            self.elsewhere.insert(log.address, log.attempt);
        }
    }

    /// Shows what was added since the last look.
    fn more(&mut self, directory: &Path) -> Result<(), Fault> {
        let attempts = self.attempts(directory);
        for (step, path) in files(directory) {
            let attempt = attempts.get(&step).copied().unwrap_or(1);
            let wanted = self.args.step.as_deref().is_none_or(|wanted| is_at(&step, wanted));
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
                true => self.printer.data(&json!({"step": step, "attempt": attempt, "text": text})),
                false => {
                    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                    self.printer.say(self.printer.ink(Ink::Cyan, &format!("== {}{again}", words::step(&step))));
                    self.printer.text(text);
                }
            }
        }
        Ok(())
    }
}

/// The logs there are: of every step the last attempt's, by address.
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

/// Whether a step is the one that is meant, or inside it.
fn is_at(step: &str, wanted: &str) -> bool {
    let (step, wanted) = (words::step(step), words::step(wanted));
    step.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '@']))
}

fn rest(path: &Path, from: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
