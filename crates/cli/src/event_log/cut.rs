//! What an event log does not list any more, counted: an event log is bounded, but what it comes to is right however much happened.
//! Counts of several writers add up, so nobody has to know what others left out.

use crate::{picture::scene::box_id, words};
use onceflow_engine::EventKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What happened to one step of the flow, without the numbers of elements and iterations, and is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Unlisted {
    pub(crate) done: usize,
    pub(crate) reused: usize,
    pub(crate) failed: usize,
    pub(crate) undone: usize,
    pub(crate) attempts: usize,
    pub(crate) spent_ms: u64,
    /// Elements of lists that were gone over.
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

/// By step, without numbers.
pub(crate) type Counts = BTreeMap<String, Unlisted>;

/// Counts what is not listed.
#[derive(Debug, Default)]
pub(super) struct Cut {
    counts: Counts,
    /// What runs and was not listed, since when.
    running: BTreeMap<String, u64>,
}

impl Cut {
    /// What was counted since this was last asked.
    pub(super) fn take(&mut self) -> Option<Counts> {
        (!self.counts.is_empty()).then(|| std::mem::take(&mut self.counts))
    }

    /// Counts what another event log, or an older part of this one, did not list.
    pub(super) fn add(&mut self, counts: &Counts) {
        for (step, more) in counts {
            self.counts.entry(step.clone()).or_default().add(more);
        }
    }

    /// Under another plan only what happens under it counts.
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

    /// The attempt that runs at an address is over, and how it ended is listed.
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
