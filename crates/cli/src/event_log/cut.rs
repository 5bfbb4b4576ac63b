//! Counts the events that an event log no longer lists: the log is bounded, but its totals are right however much
//! happened. Counts of several writers add up, so no writer has to know which events others left out.

use crate::{picture::scene::box_id, words};
use onceflow_engine::EventKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of unlisted events of one step of the flow, over all elements and iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Unlisted {
    pub(crate) done: usize,
    pub(crate) reused: usize,
    pub(crate) failed: usize,
    pub(crate) undone: usize,
    pub(crate) attempts: usize,
    pub(crate) spent_ms: u64,
    /// Elements of the lists that it iterated over.
    pub(crate) elements: usize,
    pub(crate) cpu_ms: u64,
    pub(crate) peak_bytes: u64,
}

impl Unlisted {
    pub(crate) fn add(&mut self, other: &Unlisted) {
        self.done += other.done;
        self.reused += other.reused;
        self.failed += other.failed;
        self.undone += other.undone;
        self.attempts += other.attempts;
        self.spent_ms += other.spent_ms;
        self.elements += other.elements;
        self.cpu_ms += other.cpu_ms;
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
    }
}

/// Counts by step, without the numbers of elements and iterations.
pub(crate) type Counts = BTreeMap<String, Unlisted>;

/// Counts unlisted events.
#[derive(Debug, Default)]
pub(super) struct Cut {
    counts: Counts,
    /// Unlisted attempts that are running, with their start.
    running: BTreeMap<String, u64>,
}

impl Cut {
    /// Takes the counts since the last call.
    pub(super) fn take(&mut self) -> Option<Counts> {
        (!self.counts.is_empty()).then(|| std::mem::take(&mut self.counts))
    }

    /// Adds the counts of another event log, or of an older part of this one.
    pub(super) fn add(&mut self, counts: &Counts) {
        for (step, more) in counts {
            self.counts.entry(step.clone()).or_default().add(more);
        }
    }

    /// Drops all counts: under a new plan only later events count.
    pub(super) fn clear(&mut self) {
        *self = Cut::default();
    }

    pub(super) fn saw(&mut self, ms: u64, what: &EventKind) {
        let one = |address: &str| usize::from(!words::is_helper(address));
        match what {
            EventKind::WillRun { address, .. } => {
                self.running.insert(address.clone(), ms);
                self.of(address).attempts += one(address);
            }
            EventKind::DidCommit { address } => {
                let spent = self.spent(ms, address);
                let counts = self.of(address);
                counts.done += one(address);
                counts.spent_ms += spent;
            }
            EventKind::DidFail(failed) => {
                let spent = self.spent(ms, &failed.address);
                let counts = self.of(&failed.address);
                counts.failed += 1;
                counts.spent_ms += spent;
            }
            EventKind::DidReuse { address } => self.of(address).reused += one(address),
            EventKind::DidUndo { address } => self.of(address).undone += 1,
            EventKind::DidOpen { address, elements } => self.of(address).elements += *elements as usize,
            EventKind::DidUse { address, used, .. } => {
                let counts = self.of(address);
                counts.cpu_ms += used.cpu_ms;
                counts.peak_bytes = counts.peak_bytes.max(used.peak_bytes.unwrap_or(0));
            }
            EventKind::DidLose { address }
            | EventKind::DidMarkUnknown { address }
            | EventKind::WillWait { address } => {
                self.running.remove(address);
            }
            EventKind::DidStart { .. }
            | EventKind::DidEnd { .. }
            | EventKind::DidTurn { .. }
            | EventKind::HeldUp { .. } => {}
        }
    }

    /// Ends the attempt that runs at an address, and whose outcome is listed.
    pub(super) fn ends(&mut self, ms: u64, address: &str) {
        if self.running.contains_key(address) {
            let spent = self.spent(ms, address);
            self.of(address).spent_ms += spent;
        }
    }

    fn spent(&mut self, ms: u64, address: &str) -> u64 {
        self.running.remove(address).map_or(0, |since| ms.saturating_sub(since))
    }

    fn of(&mut self, address: &str) -> &mut Unlisted {
        self.counts.entry(box_id(address)).or_default()
    }
}
