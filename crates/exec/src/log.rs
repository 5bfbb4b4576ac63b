//! The log of a command, a file of bounded size: its beginning and its end are kept, and the cut is marked.

use crate::{
    home::Home,
    mask::{Mask, Stream},
};
use onceflow_core::protocol::ids::RunId;
use onceflow_store::tree::Dir;
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes kept of the beginning of a log.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// Bytes kept of its end.
const TAIL_BYTES_MAX: usize = 256 * 1024;

/// The size of all logs of a run. Beyond it, only failed attempts are logged, so that an endless loop does not fill the
/// disk.
const RUN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// An empty file among the logs of a run: its presence means that not all logs are kept.
pub const FULL: &str = "full";

/// Runs whose log sizes are counted at a time.
const RUNS_MAX: usize = 1_000;

/// Lines, and bytes, of the end that are shown with a failure.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 4 * 1024;

/// Bytes that the logs of each run take.
#[derive(Clone, Default)]
pub(crate) struct LogBudget(Arc<Mutex<BTreeMap<RunId, u64>>>);

impl LogBudget {
    /// Counts bytes; returns true if they may be written.
    fn take(&self, run: RunId, directory: &Path, bytes: usize) -> bool {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() > RUNS_MAX {
            runs.clear();
        }
        let used = runs.entry(run).or_insert_with(|| size_of(directory));
        *used = used.saturating_add(bytes as u64);
        *used <= RUN_BYTES_MAX
    }
}

fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

/// The log of an attempt. The file is created with the first output.
pub(crate) struct Log {
    home: Home,
    address: String,
    path: PathBuf,
    run: RunId,
    budget: LogBudget,
    mask: Stream,
    file: Option<File>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes written to the file behind the head.
    written: usize,
    total: u64,
    /// The run has no room for another log.
    is_over: bool,
}

impl Log {
    /// Creates the log of a new attempt and removes that of an earlier attempt.
    pub(crate) fn new(home: &Home, run: RunId, address: &str, mask: Mask, budget: LogBudget) -> Self {
        let path = home.log(run, address);
        home.remove_log(run, address);
        Log {
            home: home.clone(),
            address: address.to_owned(),
            path,
            run,
            budget,
            mask: Stream::new(mask),
            file: None,
            head: vec![],
            tail: VecDeque::new(),
            written: 0,
            total: 0,
            is_over: false,
        }
    }

    /// Appends output of the command, with secrets masked.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let clean = self.mask.push(bytes);
        self.write(&clean);
    }

    /// Ends the log. Returns the last lines, if the attempt failed.
    pub(crate) fn finish(&mut self, has_failed: bool) -> Option<String> {
        let rest = self.mask.finish();
        self.write(&rest);
        if !has_failed {
            return None;
        }
        if self.is_over && self.file.is_none() && self.total > 0 {
            self.is_over = false;
            self.rewrite();
        }
        (self.total > 0).then(|| self.last_lines())
    }

    /// The command has written nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the end of the log, at most 64 KiB, with a mark if it is not the whole log.
    pub(crate) fn end(&self) -> Vec<u8> {
        const BYTES_MAX: usize = 64 << 10;
        let all: Vec<u8> = match self.tail.is_empty() {
            true => self.head.clone(),
            false => self.head[self.head.len().saturating_sub(BYTES_MAX)..].iter().chain(&self.tail).copied().collect(),
        };
        let kept = &all[all.len().saturating_sub(BYTES_MAX)..];
        assert!(kept.len() as u64 <= self.total, "the end of a log is longer than the log");
        match self.total - kept.len() as u64 {
            0 => kept.to_vec(),
            cut => [format!("… {cut} bytes left out …\n").as_bytes(), kept].concat(),
        }
    }

    fn write(&mut self, clean: &[u8]) {
        if clean.is_empty() {
            return;
        }
        self.total += clean.len() as u64;
        let head = clean.len().min(HEAD_BYTES_MAX - self.head.len());
        self.head.extend_from_slice(&clean[..head]);
        self.tail.extend(&clean[head..]);
        let too_many = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..too_many);
        assert!(self.head.len() <= HEAD_BYTES_MAX && self.tail.len() <= TAIL_BYTES_MAX, "a log in memory is bounded");
        assert!(
            self.total >= (self.head.len() + self.tail.len()) as u64,
            "a log shows more than was written: the number of bytes left out would be wrong"
        );
        if self.is_over {
            return;
        }
        let directory = self.path.parent().unwrap_or(Path::new(""));
        if !self.budget.take(self.run, directory, head + if self.written == 0 { clean.len() - head } else { 0 }) {
            self.is_over = self.file.is_none();
        }
        if self.is_over {
            // The file tells a reader who misses a log that the run's log budget is used up.
            let said = Dir::open(directory).and_then(|directory| directory.fresh_file(FULL));
            if let Err(error) = said {
                tracing::debug!(%error, "failed to mark that the logs of a run are full");
            }
            return;
        }
        self.written += clean.len() - head;
        match self.written > 2 * TAIL_BYTES_MAX {
            true => self.rewrite(),
            false => self.append(clean),
        }
    }

    fn append(&mut self, clean: &[u8]) {
        let done = match &mut self.file {
            Some(file) => file.write_all(clean),
            None => self.home.log_file(self.run, &self.address).and_then(|mut file| {
                file.write_all(clean)?;
                self.file = Some(file);
                Ok(())
            }),
        };
        self.check(done);
    }

    /// Rewrites a file that grew too long: head, mark of the cut, tail.
    fn rewrite(&mut self) {
        let head = usize::try_from(self.total).map_or(HEAD_BYTES_MAX, |total| total.min(HEAD_BYTES_MAX));
        assert_eq!(self.head.len(), head, "the head of a log is full before its tail begins: the file is cut after it");
        let cut = self.total - (self.head.len() + self.tail.len()) as u64;
        let mut content = Vec::with_capacity(self.tail.len() + 64);
        if cut > 0 {
            content.extend_from_slice(format!("\n… {cut} bytes left out …\n").as_bytes());
        }
        content.extend(&self.tail);
        let done = match &mut self.file {
            Some(file) => file
                .set_len(self.head.len() as u64)
                .and_then(|()| file.seek(SeekFrom::End(0)))
                .and_then(|_| file.write_all(&content)),
            None => self.home.log_file(self.run, &self.address).and_then(|mut file| {
                file.write_all(&self.head)?;
                file.write_all(&content)?;
                self.file = Some(file);
                Ok(())
            }),
        };
        self.written = self.tail.len();
        self.check(done);
    }

    /// Ignores a failed write, apart from a message: a log that cannot be written must not fail the step.
    fn check(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!(%error, path = ?self.path, "failed to write the log of a step; dropping the rest of it");
            self.is_over = true;
        }
    }

    /// The last lines, bounded.
    fn last_lines(&self) -> String {
        let from = self.tail.len().saturating_sub(LAST_BYTES);
        let mut bytes: Vec<u8> = self.tail.iter().skip(from).copied().collect();
        if bytes.len() < LAST_BYTES {
            let from = self.head.len().saturating_sub(LAST_BYTES - bytes.len());
            bytes.splice(0..0, self.head[from..].iter().copied());
        }
        let is_cut = (bytes.len() as u64) < self.total;
        let text = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(LAST_LINES);
        let cut = if from > 0 || is_cut { "…\n" } else { "" };
        format!("{cut}{}", lines[from..].join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([1; 8]);

    fn log(home: &Home, address: &str, budget: &LogBudget) -> Log {
        Log::new(home, RUN, address, Mask::new([String::from("hunter2")]), budget.clone())
    }

    #[test]
    fn a_log_keeps_its_beginning_and_its_end_and_never_a_secret() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path());
        let mut log = log(&home, "/a", &LogBudget::default());
        for line in 0..200_000 {
            log.push(format!("line {line} hun").as_bytes());
            log.push(b"ter2\n");
            if line % 10_000 == 0 {
                assert!(std::fs::metadata(home.log(RUN, "/a")).map_or(0, |data| data.len()) < 1 << 20);
            }
        }
        let last = log.finish(true).unwrap();
        assert!(last.starts_with("…\nline 199980 ***\n") && last.ends_with("line 199999 ***"), "{last}");
        let text = std::fs::read_to_string(home.log(RUN, "/a")).unwrap();
        assert!(text.starts_with("line 0 ***\n") && text.ends_with("line 199999 ***\n"));
        assert!(text.contains("bytes left out") && !text.contains("hunter2") && text.len() < 1 << 20);
    }

    #[test]
    fn there_is_no_log_of_a_command_that_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path());
        let mut said = log(&home, "/a", &LogBudget::default());
        said.push(b"x");
        assert_eq!(said.finish(true).as_deref(), Some("x"));
        assert!(home.log(RUN, "/a").exists());
        assert_eq!(said.end(), b"x");
        said.push(&[b'y'; 100_000]);
        assert!(said.end().starts_with("… 34465 bytes left out …\nyyy".as_bytes()));
        assert_eq!(log(&home, "/a", &LogBudget::default()).finish(true), None);
        assert!(!home.log(RUN, "/a").exists(), "nor is that of the attempt before left");
    }

    #[test]
    fn all_logs_of_a_run_together_are_bounded_but_failures_are_always_told() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path());
        let budget = LogBudget::default();
        for step in 0..400 {
            let mut log = log(&home, &format!("/a@{step}"), &budget);
            log.push(&vec![b'x'; 300_000]);
            log.finish(false);
        }
        let logs = home.run(RUN).join("logs");
        let size = size_of(&logs);
        assert!(size <= RUN_BYTES_MAX, "{size}");
        assert!(logs.join(FULL).exists(), "and it is said that not all are kept");
        let mut log = log(&home, "/b", &budget);
        log.push(b"why");
        assert_eq!(log.finish(true).as_deref(), Some("why"));
        assert_eq!(std::fs::read_to_string(home.log(RUN, "/b")).unwrap(), "why");
    }
}
