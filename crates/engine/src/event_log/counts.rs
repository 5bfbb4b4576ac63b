//! Counts the events that an event log no longer lists: the log is bounded, but its totals are right however much
//! happened. Counts of several workers add up, so no worker has to know which events others left out.

use crate::events::EventKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of unlisted events of one step, over all elements and iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlisted {
    /// Steps that took effect.
    pub done: u64,
    /// Steps that committed the outputs they gave before.
    pub reused: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Steps that were undone.
    pub undone: u64,
    /// Attempts that began.
    pub attempts: u64,
    /// Time spent in attempts.
    pub spent_ms: u64,
    /// Elements of the lists that it iterated over.
    pub elements: u64,
    /// Processor time.
    pub cpu_ms: u64,
    /// The highest memory peak; 0 if none was measured.
    pub peak_bytes: u64,
}

impl Unlisted {
    /// Adds the counts of other events of the same step.
    pub fn add(&mut self, other: &Unlisted) {
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

    /// The counts that were added since `before`.
    fn since(&self, before: &Unlisted) -> Unlisted {
        Unlisted {
            done: self.done.saturating_sub(before.done),
            reused: self.reused.saturating_sub(before.reused),
            failed: self.failed.saturating_sub(before.failed),
            undone: self.undone.saturating_sub(before.undone),
            attempts: self.attempts.saturating_sub(before.attempts),
            spent_ms: self.spent_ms.saturating_sub(before.spent_ms),
            elements: self.elements.saturating_sub(before.elements),
            cpu_ms: self.cpu_ms.saturating_sub(before.cpu_ms),
            peak_bytes: self.peak_bytes,
        }
    }
}

/// Counts by address, without the numbers of elements and iterations. Under the empty address are the events of steps
/// beyond 64 KiB of names.
pub type UnlistedCounts = BTreeMap<String, Unlisted>;

/// Bytes of addresses that are counted one by one: all counts of a worker are one row, which is written again and again.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Adds counts to others.
pub(super) fn add_counts(to: &mut UnlistedCounts, more: &UnlistedCounts) {
    let mut bytes: usize = to.keys().map(String::len).sum();
    for (address, counts) in more {
        if let Some(known) = to.get_mut(address) {
            known.add(counts);
            continue;
        }
        let fits = bytes + address.len() <= NAMES_BYTES_MAX;
        bytes += if fits { address.len() } else { 0 };
        to.entry(if fits { address.clone() } else { String::new() }).or_default().add(counts);
    }
}

/// The counts that were added since `before`.
pub(super) fn counts_since(now: &UnlistedCounts, before: &UnlistedCounts) -> UnlistedCounts {
    let none = Unlisted::default();
    let since = |(address, counts): (&String, &Unlisted)| {
        let known = before.get(address).unwrap_or(&none);
        (counts != known).then(|| (address.clone(), counts.since(known)))
    };
    now.iter().filter_map(since).collect()
}

/// Counts unlisted events until they are written.
#[derive(Debug, Default)]
pub(super) struct Counting {
    counts: UnlistedCounts,
    /// Unlisted attempts that are running, with their start.
    running: BTreeMap<String, u64>,
}

impl Counting {
    pub(super) fn counts(&self) -> &UnlistedCounts {
        &self.counts
    }

    /// The counts were written.
    pub(super) fn clear(&mut self) {
        self.counts.clear();
    }

    pub(super) fn count(&mut self, ms: u64, what: &EventKind) {
        match what {
            EventKind::WillRun { address, .. } => {
                self.running.insert(address.clone(), ms);
                self.of(address).attempts += 1;
            }
            EventKind::DidCommit { address } => {
                let spent = self.spent(ms, address);
                let counts = self.of(address);
                counts.done += 1;
                counts.spent_ms += spent;
            }
            EventKind::DidFail(failed) => {
                let spent = self.spent(ms, &failed.address);
                let counts = self.of(&failed.address);
                counts.failed += 1;
                counts.spent_ms += spent;
            }
            EventKind::DidReuse { address } => self.of(address).reused += 1,
            EventKind::DidUndo { address } => self.of(address).undone += 1,
            EventKind::DidOpen { address, elements } => self.of(address).elements += u64::from(*elements),
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
            | EventKind::HeldUp { .. }
            | EventKind::CleanupFailed { .. } => {}
        }
    }

    fn spent(&mut self, ms: u64, address: &str) -> u64 {
        self.running.remove(address).map_or(0, |since| ms.saturating_sub(since))
    }

    fn of(&mut self, address: &str) -> &mut Unlisted {
        self.counts.entry(without_numbers(address)).or_default()
    }
}

/// Removes the numbers of elements and iterations from an address: `/a[3]/b@2` is `/a/b`.
fn without_numbers(address: &str) -> String {
    let mut skips = false;
    let keep = |letter: &char| {
        match letter {
            '[' | '@' => skips = true,
            '/' => skips = false,
            _ => {}
        }
        !skips
    };
    address.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_without_numbers() {
        for (address, counted) in [("/a", "/a"), ("/a[3]/b@2", "/a/b"), ("/a@1[2]", "/a"), ("/a[1]@2/c", "/a/c")] {
            assert_eq!(without_numbers(address), counted);
        }
    }

    #[test]
    fn counts_of_very_many_steps_fit_into_a_row_and_add_up() {
        let one = Unlisted { done: 1, ..Unlisted::default() };
        let many: UnlistedCounts = (0..100_000).map(|at| (format!("/step{at}"), one)).collect();
        let mut counts = UnlistedCounts::new();
        add_counts(&mut counts, &many);
        add_counts(&mut counts, &many);
        assert_eq!(counts.values().map(|counts| counts.done).sum::<u64>(), 200_000);
        assert!(onceflow_core::protocol::rows::write(&counts).len() < onceflow_core::limits::ROW_BYTES_MAX / 4);
        let before = UnlistedCounts::from([(String::from("/a"), one)]);
        let now = UnlistedCounts::from([(String::from("/a"), Unlisted { done: 3, ..one }), (String::from("/b"), one)]);
        let since: Vec<_> = counts_since(&now, &before).into_iter().map(|(address, it)| (address, it.done)).collect();
        assert_eq!(since, [(String::from("/a"), 2), (String::from("/b"), 1)]);
    }
}
