//! The event log of a run, one JSON object per line, in `runs/<id>/trail.jsonl`: read by other processes while the run
//! goes on, and afterwards. It is informational, never authoritative: it may be deleted. It is bounded: when it is
//! long, events are counted and no longer listed, so totals stay right, and the log says that it was cut.

mod cut;
mod line;
mod reported;
mod sum;

pub(crate) use cut::{Counts, Unlisted};
pub(crate) use line::{Line, line, told};
pub(crate) use reported::ReportedOutcome;
pub(crate) use sum::{progress, steps};

use crate::words;
use cut::Cut;
use onceflow_engine::{Event, EventKind};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

/// The name of the file.
pub(crate) const NAME: &str = "trail.jsonl";

/// An event log longer than this lists only exceptional events; one of twice this length, only that the run starts and
/// ends.
const BYTES_MAX: u64 = 16 << 20;

/// An event log longer than this is shortened by the process that begins to attend the run, to the second length.
const LONG_BYTES: u64 = 12 << 20;
const SHORT_BYTES: u64 = 8 << 20;

/// Time between two lines that count unlisted events.
const COUNT_EVERY_MS: u64 = 500;

/// Returns the milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes an event log. A line that cannot be written is dropped: the run is more important than its log.
pub(crate) struct Writer {
    file: Option<File>,
    written: u64,
    /// Counts of events that are not listed, and the time when they were last written.
    cut: Cut,
    counted_ms: u64,
    /// Addresses that the event log shows as running or failed: their later events are listed.
    listed: BTreeSet<String>,
    directory: PathBuf,
}

impl Writer {
    /// Opens the event log of a run that no other process works on. Attempts that it shows as running were interrupted.
    pub(crate) fn attend(directory: &Path) -> Self {
        let path = directory.join(NAME);
        let len = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if len > LONG_BYTES
            && let Err(error) = shorten(&path, SHORT_BYTES)
        {
            tracing::debug!(%error, "failed to shorten the event log of a run; it stays as long as it is");
        }
        let mut writer = Writer::open(directory);
        if len > 0 {
            writer.put(&[line::did_resume(now_ms())]);
        }
        writer
    }

    /// Opens the event log of a run that other processes may work on, too.
    pub(crate) fn open(directory: &Path) -> Self {
        let open_at_end = || {
            let file = open(directory)?;
            let written = file.metadata()?.len();
            io::Result::Ok((file, written))
        };
        let opened =
            open_at_end().inspect_err(|error| tracing::warn!(%error, "what happens in this run is not written down"));
        let (file, written) = opened.map_or((None, 0), |(file, written)| (Some(file), written));
        let (cut, listed, directory) = (Cut::default(), BTreeSet::new(), directory.to_owned());
        Writer { file, written, cut, counted_ms: 0, listed, directory }
    }

    /// Writes several events at once.
    pub(crate) fn write<'a>(&mut self, ms: u64, some: impl IntoIterator<Item = &'a EventKind>) {
        let (mut lines, mut ends) = (Vec::new(), false);
        for what in some {
            ends |= matches!(what, EventKind::DidEnd { .. } | EventKind::DidStart { .. });
            if is_of_helper(what) {
                continue;
            }
            match self.is_listed(what) {
                true => lines.push(line(ms, what)),
                false => self.cut.saw(ms, what),
            }
        }
        if ends || ms >= self.counted_ms + COUNT_EVERY_MS {
            // The counted events happened before the run ended, and before it got another plan.
            lines.splice(0..0, self.cut.take().map(|counts| line::not_listed(ms, &counts)));
            self.counted_ms = ms;
        }
        self.put(&lines);
        if ends {
            sum::remember(&self.directory);
        }
    }

    /// The log has room to list the event.
    fn is_listed(&mut self, what: &EventKind) -> bool {
        let of = address(what);
        let was_listed = of.is_some_and(|address| self.listed.contains(address));
        let is_exceptional = match what {
            EventKind::DidFail(_) | EventKind::WillWait { .. } | EventKind::DidMarkUnknown { .. } => true,
            EventKind::DidUndo { .. } | EventKind::HeldUp { .. } => true,
            EventKind::DidOpen { address, .. } => words::step(address) == words::top(address),
            _ => was_listed,
        };
        let listed = match what {
            EventKind::DidStart { .. } | EventKind::DidEnd { .. } => true,
            _ if is_exceptional => self.written < 2 * BYTES_MAX,
            _ => self.written < BYTES_MAX,
        };
        match (listed, what) {
            (true, EventKind::WillRun { address, .. }) => drop(self.listed.insert(address.clone())),
            (true, EventKind::DidFail(failed)) => drop(self.listed.insert(failed.address.to_string())),
            (true, EventKind::DidUse { .. } | EventKind::DidOpen { .. } | EventKind::DidTurn { .. }) => {}
            (true, _) => drop(of.map(|address| self.listed.remove(address))),
            (false, _) => {}
        }
        listed
    }

    fn put(&mut self, lines: &[Value]) {
        let Some(file) = &mut self.file else { return };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.written += text.len() as u64;
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::warn!(%error, "what happens in this run is not written down any more");
            self.file = None;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(counts) = self.cut.take() {
            self.put(&[line::not_listed(now_ms(), &counts)]);
        }
    }
}

/// Returns the address of the step that an event is about.
fn address(what: &EventKind) -> Option<&str> {
    match what {
        EventKind::WillRun { address, .. }
        | EventKind::DidOpen { address, .. }
        | EventKind::DidTurn { address, .. } => Some(address),
        EventKind::DidCommit { address } | EventKind::DidReuse { address } | EventKind::DidUse { address, .. } => {
            Some(address)
        }
        EventKind::DidLose { address } | EventKind::DidMarkUnknown { address } | EventKind::WillWait { address } => {
            Some(address)
        }
        EventKind::DidUndo { address } | EventKind::HeldUp { address, .. } => Some(address),
        EventKind::DidFail(failed) => Some(&failed.address),
        EventKind::DidStart { .. } | EventKind::DidEnd { .. } => None,
    }
}

/// The event is about a helper that a step was lowered to. The failure of a helper is reported all the same.
fn is_of_helper(what: &EventKind) -> bool {
    address(what).is_some_and(words::is_helper) && !matches!(what, EventKind::DidFail(_))
}

/// Keeps the younger part of a log, and of the older part the exceptional events, with counts of the rest.
fn shorten(path: &Path, bytes: u64) -> io::Result<()> {
    let mut text = Vec::new();
    File::open(path)?.read_to_end(&mut text)?;
    let from = text.len().saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    let from = text[from..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| from + at + 1);
    let (mut kept, mut cut, mut ms) = (Vec::<(Option<String>, &[u8])>::new(), Cut::default(), 0);
    // By address: the index of the listed line of a step that runs, failed or waits.
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    for raw in text[..from].split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line::read(raw) else { continue };
        ms = line.t.max(ms);
        match (&line.what, &line.unlisted) {
            (_, Some(counts)) => cut.add(counts),
            _ if line.said.is_some() || line.resumed => kept.push((None, raw)),
            (Some(EventKind::DidStart { .. }), _) => {
                cut.clear();
                open.clear();
                kept.retain(|(address, _)| address.is_none());
                kept.push((None, raw));
            }
            (Some(EventKind::DidEnd { .. }), _) => kept.push((None, raw)),
            (Some(what @ EventKind::DidOpen { address, .. }), _) => match words::step(address) == words::top(address) {
                true => kept.push((Some(String::new()), raw)),
                false => cut.saw(line.t, what),
            },
            (Some(what @ EventKind::DidUse { .. }), _) => cut.saw(line.t, what),
            (Some(what), _) => {
                let Some(address) = address(what) else { continue };
                // The last event of an address is listed if the step has not ended with it; the event before is
                // counted.
                if let Some(at) = open.remove(address)
                    && let Some(before) = line::read(kept[at].1)
                {
                    before.what.iter().for_each(|what| cut.saw(before.t, what));
                    kept[at] = (Some(address.to_owned()), b"");
                }
                match what {
                    EventKind::WillRun { .. }
                    | EventKind::DidFail(_)
                    | EventKind::WillWait { .. }
                    | EventKind::DidMarkUnknown { .. } => {
                        // The end of the attempt is listed, but its beginning no longer is.
                        cut.ends(line.t, address);
                        open.insert(address.to_owned(), kept.len());
                        kept.push((Some(address.to_owned()), raw));
                    }
                    _ => cut.saw(line.t, what),
                }
            }
            (None, None) => {}
        }
    }
    let mut short: Vec<u8> = kept.iter().flat_map(|(_, raw)| raw.iter().copied()).collect();
    if let Some(counts) = cut.take() {
        short.extend(format!("{}\n", line::not_listed(ms, &counts)).bytes());
    }
    short.extend(&text[from..]);
    onceflow_store::tree::Dir::open(path.parent().unwrap_or(Path::new(".")))?.replace_file(NAME, &short)
}

/// Reads an event log, and continues as it grows.
pub(crate) struct Reader {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl Reader {
    /// Opens the log at its beginning.
    pub(crate) fn open(directory: &Path) -> Self {
        Reader { path: directory.join(NAME), file: None, begun: Vec::new() }
    }

    /// Returns the lines added since the last call. Lines that are not JSON are skipped.
    pub(crate) fn more(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        self.each(|line| lines.push(line));
        lines
    }

    /// Passes on the same lines, one at a time.
    pub(crate) fn each(&mut self, mut of: impl FnMut(Line)) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
        let Some(file) = &mut self.file else { return };
        while file.read_until(b'\n', &mut self.begun).is_ok_and(|read| read > 0) {
            if self.begun.last() == Some(&b'\n') {
                line::read(&self.begun).into_iter().for_each(&mut of);
                self.begun.clear();
            }
        }
    }
}

/// Appends an event to the log of a run that other processes may work on.
pub(crate) fn append(directory: &Path, what: &EventKind) {
    append_line(directory, &line(now_ms(), what));
}

/// Opens the event log to write at its end. A link that a step put in its place is not followed.
fn open(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::create_dir_all(directory)?;
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).expect("flags of open fit");
    File::options().create(true).append(true).custom_flags(no_follow).open(directory.join(NAME))
}

/// Appends a line without shortening the log: another process may be writing, and only the one that attends the run may
/// shorten it.
fn append_line(directory: &Path, line: &Value) {
    if let Err(error) = open(directory).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
        tracing::warn!(%error, "what was said is not written down beside the run; the store has it");
    }
}

/// Writes the events of one run as they arrive, until the channel closes; every event also goes to `seen`.
pub(crate) async fn follow(
    mut events: tokio::sync::mpsc::UnboundedReceiver<Event>,
    key: String,
    mut writer: Writer,
    mut seen: impl FnMut(u64, &EventKind),
) {
    const AT_ONCE_MAX: usize = 256;
    let mut some = Vec::with_capacity(AT_ONCE_MAX);
    while events.recv_many(&mut some, AT_ONCE_MAX).await > 0 {
        let ms = now_ms();
        let ours: Vec<_> = some.drain(..).filter(|event| *event.run == *key).collect();
        writer.write(ms, ours.iter().map(|event| &event.kind));
        ours.iter().for_each(|event| seen(ms, &event.kind));
    }
}

/// The event logs of several runs, for a worker that serves any run.
pub(crate) struct EventLogs {
    engine: onceflow_engine::Engine,
    location: crate::location::StoreLocation,
    open: BTreeMap<String, Writer>,
}

impl EventLogs {
    /// Has no log open yet.
    pub(crate) fn new(engine: onceflow_engine::Engine, location: crate::location::StoreLocation) -> Self {
        EventLogs { engine, location, open: BTreeMap::new() }
    }

    /// Writes each event into the log of its run.
    pub(crate) async fn write(&mut self, ms: u64, events: &[Event]) {
        const OPEN_MAX: usize = 64;
        let mut of: BTreeMap<&str, Vec<&EventKind>> = BTreeMap::new();
        for event in events {
            of.entry(&event.run).or_default().push(&event.kind);
        }
        for (run, all) in of {
            if !self.open.contains_key(run) {
                let Ok(handle) = self.engine.find(run).await else { continue };
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_first();
                }
                self.open.insert(run.to_owned(), Writer::open(&self.location.run(handle.id())));
            }
            if let Some(writer) = self.open.get_mut(run) {
                writer.write(ms, all.iter().copied());
            }
            // The key may belong to another run next time.
            if all.iter().any(|what| matches!(what, EventKind::DidEnd { .. })) {
                self.open.remove(run);
            }
        }
    }
}

#[cfg(test)]
mod tests;
