//! The totals of a whole event log: counts by step, and the number of steps. Cached in `counts.json` beside the event
//! log when the run rests, with the length of the log they are of, so that listing runs does not read their logs.

use super::{NAME, Reader, ReportedOutcome};
use crate::{progress::Progress, words};
use onceflow_engine::EventKind;
use onceflow_store::tree::Dir;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
    path::Path,
};

/// The name of the file.
pub(crate) const SUM: &str = "counts.json";

/// The totals of an event log of `bytes` length.
#[derive(Serialize, Deserialize)]
struct Sum {
    bytes: u64,
    steps: usize,
    progress: Progress,
}

/// Caches the totals of the event log of a run that rests.
pub(super) fn remember(directory: &Path) {
    let sum = sum(directory);
    let written = serde_json::to_vec(&sum)
        .map_err(std::io::Error::from)
        .and_then(|text| Dir::open(directory)?.replace_file(SUM, &text));
    if let Err(error) = written {
        tracing::debug!(%error, "failed to write what an event log comes to; it is read again when that is asked");
    }
}

fn sum(directory: &Path) -> Sum {
    let bytes = len(directory);
    let (mut progress, mut settled, mut unlisted) = (Progress::default(), BTreeSet::new(), 0);
    Reader::open(directory).each(|line| {
        if let Some(counts) = &line.unlisted {
            unlisted += counts.values().map(|counts| counts.done + counts.reused).sum::<usize>();
        }
        if let Some(EventKind::DidCommit { address } | EventKind::DidReuse { address }) = &line.what
            && !words::is_helper(address)
        {
            settled.insert(words::step(address));
        }
        progress.read(&line);
    });
    let is_around = |step: &&String| {
        let below =
            settled.range::<String, _>((Excluded(*step), Unbounded)).take_while(|other| other.starts_with(*step));
        below.into_iter().any(|other| other[step.len()..].starts_with(['/', '[', '@']))
    };
    let steps = unlisted + settled.len() - settled.iter().filter(is_around).count();
    Sum { bytes, steps, progress }
}

/// Returns the totals of the event log in this directory, from the cache if its length is still right.
fn known(directory: &Path) -> Sum {
    let text = std::fs::read(directory.join(SUM)).ok();
    let known = text.and_then(|text| serde_json::from_slice::<Sum>(&text).ok());
    known.filter(|sum| sum.bytes == len(directory)).unwrap_or_else(|| sum(directory))
}

fn len(directory: &Path) -> u64 {
    std::fs::metadata(directory.join(NAME)).map_or(0, |metadata| metadata.len())
}

/// Returns the progress of a run, from its totals.
pub(crate) fn progress(directory: &Path) -> Progress {
    known(directory).progress
}

/// Returns the number of steps of a run that committed or were reused, under any plan: a step that ran again counts
/// once, and a step with others inside counts as those. Unlisted events count each time.
pub(crate) fn steps(directory: &Path) -> usize {
    known(directory).steps
}

impl Progress {
    /// Adds a line of an event log.
    pub(crate) fn read(&mut self, line: &super::Line) -> Option<u64> {
        if let Some(counts) = &line.unlisted {
            self.unlisted(line.t, counts);
        }
        if line.resumed {
            self.resumed(line.t);
        }
        match (&line.what, &line.said, line.step.as_deref()) {
            (Some(what), ..) => self.saw(line.t, what),
            (None, Some(ReportedOutcome::Redo), Some(address)) => {
                self.will_redo(address);
                None
            }
            _ => None,
        }
    }
}
