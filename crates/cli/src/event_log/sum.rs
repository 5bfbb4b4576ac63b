//! What a whole event log comes to: counts by step, and how many steps there are. Remembered in `counts.json` beside the event log
//! when the run rests, with the length of the event log it is of, so that lists of runs do not read what happened in them.

use super::{NAME, Reader, ReportedOutcome};
use crate::{progress::Progress, words};
use onceflow_engine::EventKind;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
    path::Path,
};

/// What the file is called.
pub(crate) const SUM: &str = "counts.json";

/// What an event log of this length comes to.
#[derive(Serialize, Deserialize)]
struct Sum {
    bytes: u64,
    steps: usize,
    progress: Progress,
}

/// Remembers what the event log of a run comes to that rests.
pub(super) fn remember(directory: &Path) {
    let sum = sum(directory);
    let path = directory.join(SUM);
    let beside = path.with_extension(std::process::id().to_string());
    let written = serde_json::to_vec(&sum)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, &path));
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

/// What the event log in this directory comes to, remembered or read.
fn known(directory: &Path) -> Sum {
    let text = std::fs::read(directory.join(SUM)).ok();
    let known = text.and_then(|text| serde_json::from_slice::<Sum>(&text).ok());
    known.filter(|sum| sum.bytes == len(directory)).unwrap_or_else(|| sum(directory))
}

fn len(directory: &Path) -> u64 {
    std::fs::metadata(directory.join(NAME)).map_or(0, |metadata| metadata.len())
}

/// What has happened in a run, counted.
pub(crate) fn progress(directory: &Path) -> Progress {
    known(directory).progress
}

/// How many steps of a run have given what they give, under whichever plan: one that ran again is one, and one that has
/// others inside is those. What is not listed any more counts each time it ran.
pub(crate) fn steps(directory: &Path) -> usize {
    known(directory).steps
}

impl Progress {
    /// Takes note of a line of an event log.
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
