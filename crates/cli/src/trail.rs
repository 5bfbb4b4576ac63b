//! What happened in a run, a JSON object a line, in `runs/<id>/trail.jsonl`: for those who look from another process,
//! and for those who look later. It is talk, not truth: it may be deleted, and is bounded.

use crate::{tally::Tally, words};
use onceflow_engine::{Event, What, task::Used};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    ops::Bound::{Excluded, Unbounded},
    path::{Path, PathBuf},
};

/// What the file is called.
pub(crate) const NAME: &str = "trail.jsonl";

/// A trail longer than this loses its older half when it is opened again, and takes nothing but ends while it is written.
const BYTES_MAX: u64 = 16 << 20;

/// An event as data: the same in a trail and on stderr.
pub(crate) fn line(ms: u64, what: &What) -> Value {
    match what {
        What::DidStart { generation } => json!({"t": ms, "event": "did-start", "plan": generation}),
        What::WillRun { address, attempt } => {
            json!({"t": ms, "event": "will-run", "step": address, "attempt": attempt})
        }
        What::DidCommit { address } => json!({"t": ms, "event": "did-commit", "step": address}),
        What::DidReuse { address } => json!({"t": ms, "event": "did-reuse", "step": address}),
        What::DidOpen { address, elements } => {
            json!({"t": ms, "event": "did-open", "step": address, "elements": elements})
        }
        What::DidTurn { address, iteration } => {
            json!({"t": ms, "event": "did-turn", "step": address, "iteration": iteration})
        }
        What::DidUse { address, attempt, used } => {
            let mut line =
                json!({"t": ms, "event": "did-use", "step": address, "attempt": attempt, "cpu_ms": used.cpu_ms});
            if let Some(bytes) = used.peak_bytes {
                line["peak_bytes"] = json!(bytes);
            }
            line
        }
        What::DidFail(failed) => json!({
            "t": ms, "event": "did-fail", "step": &*failed.address, "attempt": failed.attempt, "causes": failed.causes,
        }),
        What::WillWait { address } => json!({"t": ms, "event": "will-wait", "step": address}),
        What::DidLoseTrack { address } => json!({"t": ms, "event": "did-lose-track", "step": address}),
        What::DidLose { address } => json!({"t": ms, "event": "did-lose", "step": address}),
        What::HeldUp { address, why } => json!({"t": ms, "event": "held-up", "step": address, "why": why}),
        What::DidUndo { address } => json!({"t": ms, "event": "did-undo", "step": address}),
        What::DidEnd { how } => json!({"t": ms, "event": "did-end", "how": how.to_string()}),
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a trail. What cannot be written is left out: the run is more important than its story.
pub(crate) struct Writer {
    file: Option<File>,
    written: u64,
}

impl Writer {
    /// Goes on with the trail of a run.
    pub(crate) fn open(directory: &Path) -> Self {
        let open = || {
            std::fs::create_dir_all(directory)?;
            let path = directory.join(NAME);
            let mut file = File::options().create(true).append(true).read(true).open(&path)?;
            let len = file.metadata()?.len();
            if len > BYTES_MAX / 2 {
                file = shorten(&path, &mut file, len)?;
            }
            let written = file.metadata()?.len();
            io::Result::Ok((file, written))
        };
        match open() {
            Ok((file, written)) => Writer { file: Some(file), written },
            Err(error) => {
                tracing::warn!(%error, "what happens in this run is not written down");
                Writer { file: None, written: 0 }
            }
        }
    }

    /// Writes some events at once.
    pub(crate) fn write(&mut self, lines: &[Value]) {
        let Some(file) = &mut self.file else { return };
        let is_end = |line: &Value| line["event"] == "did-end" || line["event"] == "did-start";
        let kept = lines.iter().filter(|line| self.written < BYTES_MAX || is_end(line));
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        self.written += text.len() as u64;
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::warn!(%error, "what happens in this run is not written down any more");
            self.file = None;
        }
    }
}

/// Keeps the younger half, from the beginning of a line.
fn shorten(path: &Path, file: &mut File, len: u64) -> io::Result<File> {
    file.seek(SeekFrom::Start(len - len.min(BYTES_MAX / 4)))?;
    let mut rest = Vec::new();
    file.take(BYTES_MAX / 4).read_to_end(&mut rest)?;
    let from = rest.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let beside = path.with_extension("new");
    std::fs::write(&beside, &rest[from..])?;
    std::fs::rename(&beside, path)?;
    File::options().append(true).open(path)
}

/// Reads a trail, and goes on reading as it grows.
pub(crate) struct Reader {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
}

impl Reader {
    /// From its beginning.
    pub(crate) fn open(directory: &Path) -> Self {
        Reader { path: directory.join(NAME), file: None, begun: Vec::new() }
    }

    /// What was added since the last call. Lines that are not JSON are left out.
    pub(crate) fn more(&mut self) -> Vec<Value> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
        let Some(file) = &mut self.file else { return vec![] };
        let mut lines = Vec::new();
        while file.read_until(b'\n', &mut self.begun).is_ok_and(|read| read > 0) {
            if self.begun.last() == Some(&b'\n') {
                lines.extend(serde_json::from_slice(&self.begun));
                self.begun.clear();
            }
        }
        lines
    }
}

/// The event that a line of a trail tells.
pub(crate) fn what(line: &Value) -> Option<What> {
    let address = || line["step"].as_str().map(str::to_owned);
    let number = |name: &str| u32::try_from(line[name].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    Some(match line["event"].as_str()? {
        "did-start" => What::DidStart { generation: number("plan") },
        "will-run" => What::WillRun { address: address()?, attempt: number("attempt") },
        "did-commit" => What::DidCommit { address: address()? },
        "did-reuse" => What::DidReuse { address: address()? },
        "did-open" => What::DidOpen { address: address()?, elements: number("elements") },
        "did-turn" => What::DidTurn { address: address()?, iteration: number("iteration") },
        "did-use" => {
            let used = Used { cpu_ms: line["cpu_ms"].as_u64()?, peak_bytes: line["peak_bytes"].as_u64() };
            What::DidUse { address: address()?, attempt: number("attempt"), used }
        }
        "did-fail" => {
            let causes = line["causes"].as_array().into_iter().flatten();
            What::DidFail(onceflow_core::protocol::rows::Failed {
                address: address()?.into(),
                attempt: number("attempt"),
                causes: causes.filter_map(|cause| cause.as_str().map(str::to_owned)).collect(),
                started: false,
            })
        }
        "will-wait" => What::WillWait { address: address()? },
        "did-lose-track" => What::DidLoseTrack { address: address()? },
        "did-lose" => What::DidLose { address: address()? },
        "held-up" => What::HeldUp { address: address()?, why: line["why"].as_str()?.to_owned() },
        "did-undo" => What::DidUndo { address: address()? },
        "did-end" => {
            use onceflow_engine::End;
            let ends = [End::Done, End::Failed, End::Waiting, End::Cancelled, End::Undone, End::NotUndone];
            What::DidEnd { how: ends.into_iter().find(|end| line["how"] == end.to_string())? }
        }
        _ => return None,
    })
}

/// What somebody said became of a step that waited for it: by hand, or by bringing the event that it waited for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// It was done, and gave this. With the event, if it waited for one.
    Done { event: Option<String>, outputs: Map<String, Value> },
    /// It was not done, and runs again.
    Redo,
    /// It failed.
    Failed(String),
}

impl Said {
    pub(crate) fn is_redo(&self) -> bool {
        *self == Said::Redo
    }

    /// What the step has come to, in a word.
    pub(crate) fn fate(&self) -> &'static str {
        match self {
            Said::Done { event: None, .. } => "resolved",
            Said::Done { event: Some(_), .. } => "ran",
            Said::Redo => "not started",
            Said::Failed(_) => "failed",
        }
    }

    /// For people.
    pub(crate) fn told(&self) -> String {
        let given = |outputs: &Map<String, Value>| {
            let all: Vec<_> = outputs.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            if all.is_empty() { String::new() } else { format!(", with {}", all.join(", ")) }
        };
        match self {
            Said::Done { event: None, outputs } => format!("by hand: it was done{}", given(outputs)),
            Said::Done { event: Some(event), outputs } => format!("`{event}` was sent{}", given(outputs)),
            Said::Redo => String::from("by hand: it was not done, and runs again"),
            Said::Failed(why) => format!("by hand: it failed: {why}"),
        }
    }

    /// As data.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Said::Done { event, outputs } => json!({"outcome": "done", "event": event, "outputs": outputs}),
            Said::Redo => json!({"outcome": "redo"}),
            Said::Failed(why) => json!({"outcome": "fail", "why": why}),
        }
    }

    /// Writes it into the trail of a run. To whoever reads only what happens, it is as if whoever did the step had told it.
    pub(crate) fn write(&self, directory: &Path, address: &str) {
        let mut line = match self {
            Said::Done { .. } => json!({"event": "did-commit"}),
            Said::Redo => json!({"event": "will-redo"}),
            Said::Failed(why) => json!({"event": "did-fail", "attempt": 1, "causes": [why]}),
        };
        (line["t"], line["step"], line["said"]) = (json!(now_ms()), json!(address), self.to_json());
        append_line(directory, &line);
    }
}

/// Writes something that happened into the trail of a run that others may work on.
pub(crate) fn append(directory: &Path, what: &What) {
    append_line(directory, &line(now_ms(), what));
}

/// Somebody else may be writing: only who works on a run may make its trail shorter.
fn append_line(directory: &Path, line: &Value) {
    let append = || {
        std::fs::create_dir_all(directory)?;
        let mut file = File::options().create(true).append(true).open(directory.join(NAME))?;
        file.write_all(format!("{line}\n").as_bytes())
    };
    if let Err(error) = append() {
        tracing::warn!(%error, "what was said is not written down beside the run; the store has it");
    }
}

/// What somebody said, if a line of a trail tells that.
pub(crate) fn said(line: &Value) -> Option<Said> {
    let said = line.get("said")?;
    Some(match said["outcome"].as_str()? {
        "done" => Said::Done {
            event: said["event"].as_str().map(str::to_owned),
            outputs: said["outputs"].as_object().cloned().unwrap_or_default(),
        },
        "redo" => Said::Redo,
        _ => Said::Failed(said["why"].as_str().unwrap_or_default().to_owned()),
    })
}

/// What a whole trail comes to.
pub(crate) fn tally(directory: &Path) -> Tally {
    let mut tally = Tally::default();
    for line in Reader::open(directory).more() {
        if let Some(what) = what(&line) {
            tally.saw(line["t"].as_u64().unwrap_or_default(), &what);
        } else if let (Some(Said::Redo), Some(address)) = (said(&line), line["step"].as_str()) {
            tally.will_redo(address);
        }
    }
    tally
}

/// How many steps of a run have given what they give, under whichever plan: one that ran again is one, and one that has
/// others inside is those.
pub(crate) fn steps(directory: &Path) -> usize {
    let mut settled = BTreeSet::new();
    for line in Reader::open(directory).more() {
        if let Some(What::DidCommit { address } | What::DidReuse { address }) = what(&line)
            && !words::is_helper(&address)
        {
            settled.insert(words::step(&address));
        }
    }
    let is_around = |step: &&String| {
        let below =
            settled.range::<String, _>((Excluded(*step), Unbounded)).take_while(|other| other.starts_with(*step));
        below.into_iter().any(|other| other[step.len()..].starts_with(['/', '[', '@']))
    };
    settled.len() - settled.iter().filter(is_around).count()
}

/// Writes what happens in one run as it is told, until nothing is told any more; every line also goes to `seen`.
pub(crate) async fn follow(
    mut events: tokio::sync::mpsc::UnboundedReceiver<Event>,
    key: String,
    mut writer: Writer,
    mut seen: impl FnMut(u64, &What),
) {
    const AT_ONCE_MAX: usize = 256;
    let mut some = Vec::with_capacity(AT_ONCE_MAX);
    while events.recv_many(&mut some, AT_ONCE_MAX).await > 0 {
        let ms = now_ms();
        let ours: Vec<_> = some.drain(..).filter(|event| *event.run == *key).collect();
        writer.write(&ours.iter().map(|event| line(ms, &event.what)).collect::<Vec<_>>());
        ours.iter().for_each(|event| seen(ms, &event.what));
    }
}

/// Trails of several runs, for one who works on any.
pub(crate) struct Trails {
    engine: onceflow_engine::Engine,
    place: crate::place::Place,
    open: std::collections::BTreeMap<String, Writer>,
}

impl Trails {
    /// None yet.
    pub(crate) fn new(engine: onceflow_engine::Engine, place: crate::place::Place) -> Self {
        Trails { engine, place, open: std::collections::BTreeMap::new() }
    }

    /// Writes what happened, each into the trail of its run.
    pub(crate) async fn write(&mut self, ms: u64, events: &[Event]) {
        const OPEN_MAX: usize = 64;
        let mut of: std::collections::BTreeMap<&str, Vec<Value>> = std::collections::BTreeMap::new();
        for event in events {
            of.entry(&event.run).or_default().push(line(ms, &event.what));
        }
        for (run, lines) in of {
            if !self.open.contains_key(run) {
                let Ok(handle) = self.engine.find(run).await else { continue };
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_first();
                }
                self.open.insert(run.to_owned(), Writer::open(&self.place.run(handle.id())));
            }
            if let Some(writer) = self.open.get_mut(run) {
                writer.write(&lines);
            }
            // The key may lead to another run next time.
            if lines.iter().any(|line| line["event"] == "did-end") {
                self.open.remove(run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_engine::End;

    #[test]
    fn what_is_written_is_read_also_while_it_grows() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, mut reader) = (Writer::open(directory.path()), Reader::open(directory.path()));
        let failed = onceflow_core::protocol::rows::Failed {
            address: "/b".into(),
            attempt: 2,
            causes: vec![String::from("a line\nand another")],
            started: false,
        };
        let all = [
            What::DidStart { generation: 3 },
            What::WillRun { address: "/a".into(), attempt: 1 },
            What::DidFail(failed),
            What::DidEnd { how: End::Undone },
        ];
        for what in &all {
            writer.write(&[line(7, what)]);
            let found: Vec<_> = reader.more().iter().filter_map(super::what).collect();
            assert_eq!(found, std::slice::from_ref(what));
        }
        let mut file = File::options().append(true).open(directory.path().join(NAME)).unwrap();
        file.write_all(b"{\"event\":").unwrap();
        assert!(reader.more().is_empty(), "the line is not whole");
        file.write_all(b"\"did-start\"}\nnonsense\n").unwrap();
        assert_eq!(reader.more().len(), 1);
    }

    #[test]
    fn a_trail_that_grew_too_long_loses_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let text: String = (0..BYTES_MAX / 16).map(|n| format!("{{\"n\":{n:09}}}\n")).collect();
        std::fs::write(&path, &text).unwrap();
        drop(Writer::open(directory.path()));
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept.len() as u64 <= BYTES_MAX / 4 && text.ends_with(&kept) && kept.starts_with("{\"n\""));
    }
}
