//! The end of a step's log: from the file on this machine, else from the store.

use crate::pictured::Pictured;
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

/// The most bytes and lines that are shown.
const BYTES_MAX: u64 = 16 << 10;
const LINES_MAX: usize = 80;

/// Returns the end of the log of a step's last attempt.
pub(super) fn tail(run: &Pictured, address: &str) -> Option<String> {
    let path = run.directory.join("logs").join(format!("{}.log", onceflow_exec::home::safe(address)));
    let bytes =
        end(&path).or_else(|| run.logs.iter().find(|log| log.address == address).map(|log| log.text.clone()))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES_MAX);
    let cut = if from > 0 || bytes.len() as u64 >= BYTES_MAX { "…\n" } else { "" };
    let shown = lines[from..].join("\n");
    (!shown.trim().is_empty()).then(|| format!("{cut}{shown}"))
}

fn end(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(BYTES_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
