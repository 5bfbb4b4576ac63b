//! The state of each box of a scene in a run: from its attempts, and from the status of the run.

use super::scene::{Scene, box_id, is_step};
use crate::{
    history::{self, Happened, History, How},
    words,
};
use onceflow_core::plan::Fate;
use onceflow_engine::{RunStatus, task::Used};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The state of a box, with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) state: State,
    pub(crate) done: usize,
    pub(crate) reused: usize,
    pub(crate) failed: usize,
    pub(crate) running: usize,
    /// Instances whose last attempt was interrupted.
    pub(crate) interrupted: usize,
    /// All instances, if their number is known.
    pub(crate) of: Option<usize>,
    /// Attempts beyond the first ones.
    pub(crate) retries: usize,
    pub(crate) spent_ms: u64,
    /// The usage of all attempts, as far as it was measured.
    pub(crate) used: Option<Used>,
    /// A count of another kind, in words.
    pub(crate) note: Option<String>,
}

/// The state of a box, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Nothing happened yet.
    #[default]
    Pending,
    Running,
    /// The step has begun, and no process works on it any more.
    Interrupted,
    Done,
    /// The step's earlier outputs are used again.
    Reused,
    /// The step is in an arm of a choice that was not taken.
    Skipped,
    Failed,
    /// An operator must report the outcome.
    Unknown,
    Undone,
}

impl State {
    /// All states, for legends and styles.
    pub(crate) const ALL: [State; 9] = [
        State::Pending,
        State::Running,
        State::Interrupted,
        State::Done,
        State::Reused,
        State::Skipped,
        State::Failed,
        State::Unknown,
        State::Undone,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Running => "running",
            State::Interrupted => "interrupted",
            State::Done => "done",
            State::Reused => "reused",
            State::Skipped => "skipped",
            State::Failed => "failed",
            State::Unknown => "unknown",
            State::Undone => "undone",
        }
    }
}

impl Stand {
    /// Instances that took effect, run or reused.
    pub(crate) fn settled(&self) -> usize {
        self.done + self.reused
    }

    /// Settled and all instances, where there are several: `3/10`.
    pub(crate) fn progress(&self) -> Option<(usize, usize)> {
        self.of.map(|of| (self.settled().min(of), of))
    }

    /// Counts and time, for people.
    pub(crate) fn told(&self) -> String {
        let mut parts = Vec::new();
        if let Some((settled, of)) = self.progress() {
            parts.push(format!("{settled}/{of}"));
        } else if self.settled() > 1 {
            parts.push(format!("{}×", self.settled()));
        }
        if self.failed > 0 && self.of.is_some() {
            parts.push(format!("{} failed", self.failed));
        }
        if self.retries > 0 {
            parts.push(if self.retries == 1 { String::from("1 retry") } else { format!("{} retries", self.retries) });
        }
        if self.spent_ms > 0 {
            parts.push(words::duration(self.spent_ms));
        }
        parts.extend(self.note.clone());
        parts.join(" · ")
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "state": self.state.word(), "done": self.done, "reused": self.reused, "failed": self.failed,
            "running": self.running, "interrupted": self.interrupted, "of": self.of, "retries": self.retries, "spent_ms": self.spent_ms,
            "cpu_ms": self.used.map(|used| used.cpu_ms), "peak_bytes": self.used.and_then(|used| used.peak_bytes),
            "note": self.note,
        })
    }
}

/// Sets the state of every box. `status` is that of the run; if `is_left`, no process works on it. `fate` is the
/// decision of the plan for a box, as far as it is known.
pub(crate) fn colour(
    scene: &mut Scene,
    history: &History,
    (status, is_left): (RunStatus, bool),
    unknown: &[String],
    fate: impl Fn(&str) -> Option<Fate>,
) {
    scene.is_run = true;
    let (stands, is_done) = (stands(history), status == RunStatus::Done);
    let unknown: Vec<_> = unknown.iter().map(|address| box_id(address)).collect();
    let at_work = if is_left { State::Interrupted } else { State::Running };
    for one in scene.boxes.iter_mut().filter(|one| one.is_step() && !one.is_operation()) {
        let id = one.id.trim_end_matches('.');
        let mut stand = stands.get(id).cloned().unwrap_or_default();
        stand.of = elements(&one.eaches, history);
        // In a run that is done every element was done, even if a process was killed before it could log that.
        if let (true, false, Some(of), 1..) = (is_done, one.in_choice, stand.of, stand.settled()) {
            stand.done += of.saturating_sub(stand.settled());
        }
        stand.state = match () {
            () if unknown.iter().any(|other| other == id) => State::Unknown,
            // A run that has not failed retries steps that failed.
            () if stand.failed > 0 && matches!(status, RunStatus::Running | RunStatus::Interrupted) => at_work,
            () if stand.failed > 0 => State::Failed,
            () if stand.running > 0 || is_left && stand.interrupted > 0 => at_work,
            () if stand.state == State::Undone => State::Undone,
            () if stand.settled() == 0 && fate(id) == Some(Fate::Reused) => State::Reused,
            () if stand.settled() == 0 && fate(id) == Some(Fate::Skipped) => State::Skipped,
            // Without an event log it is not known which arm was taken.
            () if is_done && stand.settled() == 0 && one.in_choice && history.is_empty() => State::Pending,
            () if is_done && stand.settled() == 0 && one.in_choice => State::Skipped,
            () if is_done && stand.settled() == 0 => State::Done,
            () if stand.of.is_some_and(|of| stand.settled() < of) && !is_done => match stand.settled() {
                0 => State::Pending,
                _ => at_work,
            },
            () if stand.done > 0 => State::Done,
            () if stand.reused > 0 => State::Reused,
            () => State::Pending,
        };
        one.state = stand;
    }
}

/// Returns the number of elements for a box inside these eaches: of all lists that were opened.
fn elements(eaches: &[String], history: &History) -> Option<usize> {
    let innermost = eaches.last()?;
    history.elements(&box_id(innermost))
}

/// Returns the counts of attempts by the id of the box.
fn stands(history: &History) -> BTreeMap<String, Stand> {
    let mut stands: BTreeMap<String, Stand> = BTreeMap::new();
    // The last attempt at an address determines its state.
    let mut last: BTreeMap<&str, How> = BTreeMap::new();
    for Happened { address, from_ms, to_ms, how, attempt, used } in history.now() {
        if !is_step(address) {
            continue;
        }
        let stand = stands.entry(box_id(address)).or_default();
        stand.spent_ms += to_ms.saturating_sub(*from_ms);
        stand.retries += usize::from(*attempt > 1);
        stand.used = history::both(stand.used, *used);
        last.insert(address, *how);
    }
    for (id, counts) in &history.unlisted {
        let stand = stands.entry(id.clone()).or_default();
        (stand.done, stand.reused) = (stand.done + counts.done as usize, stand.reused + counts.reused as usize);
        stand.spent_ms += counts.spent_ms;
        stand.used = history::both(stand.used, history::used_unlisted(counts));
        if counts.undone > 0 {
            stand.state = State::Undone;
        }
    }
    for (address, how) in last {
        let stand = stands.entry(box_id(address)).or_default();
        match how {
            How::Done => stand.done += 1,
            How::Reused => stand.reused += 1,
            How::Failed => stand.failed += 1,
            How::Running => stand.running += 1,
            How::Undone => stand.state = State::Undone,
            How::Interrupted => stand.interrupted += 1,
            How::Lost | How::Unknown => {}
        }
    }
    stands
}
