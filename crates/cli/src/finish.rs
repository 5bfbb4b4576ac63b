//! Ends a command whose run rests: writes results, reports failures, and says in the last line what to do next.

use crate::{
    codes,
    digests::Digests,
    exit::Exit,
    fault::{self, Fault},
    pending,
    printer::{Ink, Printer},
    progress::Progress,
    results::{self, ResultSource},
    verbs::ls::shell_word,
    view, words,
};
use onceflow_core::{
    Digest,
    model::{Port, Type},
    payload::Outcome,
    protocol::rows::Failed,
};
use onceflow_engine::{Handle, RunStatus, Summary, is_damage, task::Data};
use onceflow_exec::value::PortValue;
use onceflow_spec::ResultsMode;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Reports the outcome of a run, to people and programs.
pub(crate) struct Ending<'a> {
    pub(crate) printer: &'a Printer,
    pub(crate) handle: &'a Handle,
    pub(crate) progress: &'a Progress,
}

impl Ending<'_> {
    /// Reports the outcome of the run. With `to`, its results are written.
    ///
    /// # Errors
    /// If results cannot be read or written.
    pub(crate) async fn tell(&self, summary: Summary, to: Option<To<'_>>) -> Result<Exit, Fault> {
        let exit = exit(&summary);
        let mut data = self.facts(summary.status);
        let Summary { outputs, failures, failed, not_undone, .. } = summary;
        match summary.status {
            RunStatus::Done => {
                let shown = match to {
                    Some(to) => self.write(&outputs, to).await?,
                    None => self.shown(&outputs).await?,
                };
                self.done(&data, &shown);
                return Ok(exit);
            }
            RunStatus::Failed => {
                self.list(&failures, failed);
                data["failures"] = failed_json(&failures);
                data["failed"] = json!(failed);
                let first = failures.first().map_or(String::new(), |failed| words::step(&failed.address));
                self.next(&format!(
                    "onceflow logs {} {}; then the same command goes on where it stopped",
                    self.key(),
                    shell_word(&first)
                ));
            }
            RunStatus::Waiting => self.waiting(&mut data).await?,
            RunStatus::Undone | RunStatus::NotUndone if failed > 0 => {
                self.list(&failures, failed);
                self.undone(&not_undone);
                data["failures"] = failed_json(&failures);
                data["not_undone"] = failed_json(&not_undone);
                self.next(&self.after_undoing(&not_undone, "the same command runs it again from the beginning").await?);
            }
            RunStatus::Undone | RunStatus::Cancelled | RunStatus::NotUndone => {
                self.undone(&not_undone);
                data["not_undone"] = failed_json(&not_undone);
                self.printer.say(if not_undone.is_empty() { "cancelled; nothing of it is left" } else { "cancelled" });
                self.next(&self.after_undoing(&not_undone, "`onceflow run` of the same flow begins anew").await?);
            }
            _ => self.next(&format!("onceflow watch {}", self.key())),
        }
        if self.printer.json {
            self.printer.data(&data);
        }
        Ok(exit)
    }

    /// Reports which steps wait, and for what: an operator or a sender must act.
    async fn waiting(&self, data: &mut Json) -> Result<(), Fault> {
        let waiting = pending::aside(self.handle).await?;
        let unknown = pending::unknown(&waiting);
        let word = self.printer.ink(Ink::Yellow, "waiting");
        let named: Vec<_> = unknown.iter().map(|step| words::step(step)).collect();
        if !named.is_empty() {
            let what = format!("{word}[{}]: whether {} took effect is not known", codes::OUTCOME, named.join(", "));
            self.printer.say(what);
        }
        let events = pending::events(&waiting);
        for (step, event) in &events {
            self.printer.say(format!("{word}: {step} waits for `{event}`"));
        }
        data["unknown"] = json!(named);
        if !events.is_empty() {
            data["events"] = pending::events_json(&waiting);
        }
        // None may wait any more: the outcome may have been reported just now.
        let next =
            pending::next(self.handle.key(), &waiting).unwrap_or_else(|| format!("onceflow show {}", self.key()));
        self.next(&next);
        data["next"] = json!(self.printer.on_same_store(&next));
        Ok(())
    }

    fn key(&self) -> String {
        shell_word(self.handle.key())
    }

    /// Returns what to do next with a run that was undone: nothing starts again while some of its effects are not
    /// undone, unless those were given up.
    async fn after_undoing(&self, not_undone: &[Failed], anew: &str) -> Result<String, Fault> {
        let Some(first) = not_undone.first() else { return Ok(anew.to_owned()) };
        let first = shell_word(&words::step(&first.address));
        Ok(match self.handle.steps().pending_undos().await?.is_empty() {
            true => format!("what was not undone was given up; {anew}"),
            false => fault::undo_hint(&self.key(), &first),
        })
    }

    fn facts(&self, status: RunStatus) -> Json {
        json!({
            "key": self.handle.key(),
            "id": self.handle.id().to_string(),
            "status": status,
            "ran": self.progress.total(|group| group.done),
            "reused": self.progress.total(|group| group.reused),
        })
    }

    fn next(&self, line: &str) {
        self.printer.next(line);
    }

    /// Lists failures; `all` is the number of all failed steps.
    fn list(&self, failures: &[Failed], all: usize) {
        const SHOWN_MAX: usize = 10;
        // Failures that this process saw were printed when they happened.
        let seen = |failed: &&Failed| !self.printer.quiet && self.progress.failures.iter().any(|seen| seen == *failed);
        let unseen: Vec<_> = failures.iter().filter(|failed| !seen(failed)).collect();
        for failed in unseen.iter().take(SHOWN_MAX) {
            self.printer.tell(view::failure(self.printer, failed));
        }
        let shown = unseen.len().min(SHOWN_MAX);
        if shown < unseen.len() {
            self.printer.tell(format!("… and {} more failed", unseen.len() - shown));
        }
        let named: Vec<_> = failures.iter().take(SHOWN_MAX).map(|failed| words::step(&failed.address)).collect();
        let more = all.max(failures.len()) - named.len();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        let what = self.printer.ink(Ink::Red, "the run failed");
        let named = if named.is_empty() { "see above".into() } else { named.join(", ") };
        self.printer.tell(format!("{what}: {named}{more}"));
    }

    fn undone(&self, not_undone: &[Failed]) {
        let undone = self.progress.total(|group| group.undone);
        if undone > 0 {
            self.printer.say(format!("{} undone", words::count(undone, "step")));
        }
        for failed in not_undone {
            self.printer.warn(view::failure_to(self.printer, "not undone", failed));
        }
    }

    fn done(&self, facts: &Json, shown: &Shown) {
        if self.printer.json {
            self.printer.data(&Done { facts, outputs: shown });
            return;
        }
        self.printer.data(shown);
        let (ran, reused) = (self.progress.total(|group| group.done), self.progress.total(|group| group.reused));
        let took = match (self.progress.started_ms, self.progress.last_ms) {
            (Some(from), Some(to)) if ran > 0 => {
                format!(" in {}", words::duration(to.saturating_sub(from).saturating_sub(self.progress.idle_ms)))
            }
            _ => String::new(),
        };
        let elsewhere = words::count(self.progress.elsewhere, "step");
        let what = match (ran, reused) {
            (ran, _) if self.progress.elsewhere > 0 => {
                let ran = words::count(ran.max(self.progress.elsewhere), "step");
                format!("{ran} ran{took}, {elsewhere} of them on other machines")
            }
            // The run ended just now, because of an event sent or an outcome reported before.
            (0, 0) if self.progress.end.is_some() => String::from("nothing was left to run"),
            (0, 0) => String::from("nothing to do: nothing has changed"),
            (ran, 0) => format!("{} ran{took}", words::count(ran, "step")),
            (ran, reused) => format!("{} ran{took}, {reused} reused", words::count(ran, "step")),
        };
        self.printer.say(format!("{}: {what}", self.printer.ink(Ink::Green, "done")));
        self.next(&match &shown.place {
            Some(place) => format!("results are in {place}; `onceflow show {}` shows what happened", self.key()),
            None => format!("onceflow show {}", self.key()),
        });
    }

    /// Returns the outputs without writing their files: for commands that only look.
    async fn shown(&self, outputs: &[(String, Outcome)]) -> Result<Shown, Fault> {
        let mut shown = Vec::with_capacity(outputs.len());
        for (name, outcome) in outputs {
            shown.push((name.clone(), ShownOutput::Json(data_json(self.handle.outputs().peek(outcome).await?))));
        }
        Ok(Shown { outputs: shown, place: None })
    }

    async fn write(&self, outputs: &[(String, Outcome)], to: To<'_>) -> Result<Shown, Fault> {
        let mut values = Vec::with_capacity(outputs.len());
        for (name, outcome) in outputs {
            let mut data = self.handle.outputs().peek(outcome).await?;
            promise(&mut data);
            values.push((name.clone(), value(to.outputs, name, data)?));
        }
        let source = Outputs { handle: self.handle, ports: to.outputs, values, mode: to.mode };
        let written = results::write(to.out, &source, to.digests).await?;
        to.digests.save();
        let place = (written.written + written.unchanged > 0).then(|| format!("{}/", to.out.display()));
        let shown = source.values.into_iter().zip(written.shown);
        let shown = shown.map(|((name, value), shown)| (name, ShownOutput::Value(shown.unwrap_or(value))));
        Ok(Shown { outputs: shown.collect(), place })
    }
}

/// The destination of results, with the types of the outputs and the digests of files already there.
pub(crate) struct To<'a> {
    /// The outputs of the flow, with their types.
    pub(crate) outputs: &'a [Port],
    pub(crate) out: &'a Path,
    pub(crate) mode: ResultsMode,
    pub(crate) digests: &'a mut Digests,
}

/// Outputs for display.
struct Shown {
    outputs: Vec<(String, ShownOutput)>,
    /// The directory of their files.
    place: Option<String>,
}

/// An output for display. Values are written as they are: as JSON in memory a number takes 72 bytes.
enum ShownOutput {
    Json(Json),
    Value(PortValue),
}

impl Serialize for ShownOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ShownOutput::Json(json) => json.serialize(serializer),
            ShownOutput::Value(value) => value.as_json().serialize(serializer),
        }
    }
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.outputs.iter().map(|(name, output)| (name, output)))
    }
}

/// The facts of a run that is done, and its outputs.
#[derive(Serialize)]
struct Done<'a> {
    #[serde(flatten)]
    facts: &'a Json,
    outputs: &'a Shown,
}

/// Outputs in the store.
struct Outputs<'a> {
    handle: &'a Handle,
    ports: &'a [Port],
    values: Vec<(String, PortValue)>,
    mode: ResultsMode,
}

impl ResultSource for Outputs<'_> {
    fn outputs(&self) -> &[(String, PortValue)] {
        &self.values
    }

    async fn fetch(&self, output: &str, into: &Path) -> Result<PortValue, Fault> {
        let data = match self.mode {
            ResultsMode::Copy => self.handle.outputs().output_into(output, Some(into)).await?,
            ResultsMode::Link | ResultsMode::Move => self.handle.outputs().output_linked(output, into).await?,
        };
        value(self.ports, output, data)
    }

    async fn placed(&self, files: Vec<(Digest, PathBuf)>) -> Result<Vec<PathBuf>, Fault> {
        match self.mode {
            ResultsMode::Move => Ok(self.handle.outputs().hand_over(files).await?),
            ResultsMode::Copy | ResultsMode::Link => Ok(vec![]),
        }
    }
}

/// Converts an output to a value of its type.
fn value(ports: &[Port], name: &str, data: Data) -> Result<PortValue, Fault> {
    let port = ports.iter().find(|port| port.name == name);
    let ty = port.map_or(Type::Json, |port| port.ty.clone());
    PortValue::from_data(data, &ty).map_err(|error| {
        Fault::new(Exit::No, codes::RESULTS, format!("output `{name}` is not what it should be: {error}"))
    })
}

/// Gives files that are not written yet a path that encodes their digest and length.
fn promise(data: &mut Data) {
    match data {
        Data::File(file) => {
            if let Some(known) = file.known {
                file.path = results::promise(known.digest, known.len);
            }
        }
        Data::List(elements) => elements.with_files_mut().iter_mut().for_each(promise),
        Data::Bytes(_) | Data::None => {}
    }
}

/// Returns data of any type as JSON for display: a file is its name and size.
pub(crate) fn data_json(data: Data) -> Json {
    match data {
        Data::None => Json::Null,
        Data::File(file) => json!({"file": file.name, "bytes": file.known.map(|known| known.len)}),
        Data::List(elements) => elements.into_iter().map(data_json).collect(),
        Data::Bytes(bytes) => {
            let len = bytes.len();
            let value = PortValue::from_data(Data::Bytes(bytes), &Type::Json);
            value.map_or_else(|_| json!({"bytes": len}), |value| value.to_json())
        }
    }
}

/// Returns the exit code for a run with this outcome.
pub(crate) fn exit(summary: &Summary) -> Exit {
    match summary.status {
        RunStatus::Done => Exit::Done,
        // Running the same command again recomputes damaged values where possible; damage that remains cannot be
        // repaired.
        RunStatus::Failed if summary.failures.iter().any(is_damage) => Exit::Damaged,
        RunStatus::Failed => Exit::No,
        RunStatus::Undone if summary.not_undone.is_empty() => Exit::No,
        RunStatus::Cancelled if summary.not_undone.is_empty() => Exit::Cancelled,
        RunStatus::Undone | RunStatus::Cancelled | RunStatus::NotUndone => Exit::Unclean,
        _ => Exit::Waiting,
    }
}

/// Returns failures as JSON.
pub(crate) fn failed_json(failures: &[Failed]) -> Json {
    let one = |failed: &Failed| json!({"step": words::step(&failed.address), "attempt": failed.attempt, "causes": failed.causes});
    failures.iter().map(one).collect()
}
