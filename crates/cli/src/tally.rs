//! What has happened so far in a run, counted by the steps of its flow. Fed with events, wherever they come from; what
//! views and `show` tell is taken from here.

use crate::words;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{End, What};
use std::collections::{BTreeMap, BTreeSet};

/// Failures that are remembered.
const FAILURES_MAX: usize = 100;

/// What has happened to one step of the flow, with all that is inside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) done: usize,
    pub(crate) reused: usize,
    pub(crate) failed: usize,
    pub(crate) undone: usize,
    /// What is running now: address, attempt, since when.
    pub(crate) running: BTreeMap<String, (u32, u64)>,
    /// What waits for an event, and of what nobody knows whether it took effect.
    pub(crate) waits: BTreeSet<String>,
    pub(crate) unknown: BTreeSet<String>,
    /// Time spent in it, all attempts together.
    pub(crate) spent_ms: u64,
    pub(crate) first_ms: Option<u64>,
    pub(crate) last_ms: Option<u64>,
    pub(crate) attempts: usize,
    /// How many elements it goes over.
    pub(crate) elements: Option<usize>,
}

impl Group {
    /// The run has ended. In one that is done everything was, also what nobody lived to tell.
    fn ends(&mut self, is_done: bool) {
        let running = std::mem::take(&mut self.running);
        if is_done {
            self.done += running.keys().filter(|address| !words::is_helper(address)).count();
            self.done = self.done.max(self.elements.unwrap_or(0).saturating_sub(self.reused));
        }
    }

    /// How many are settled.
    pub(crate) fn settled(&self) -> usize {
        self.done + self.reused
    }

    /// Nobody waits for this step any more.
    fn goes_on(&mut self, address: &str) {
        self.waits.remove(address);
        self.unknown.remove(address);
    }

    /// Of what seems to wait, only these do; what became of the others was said, and they are done, if that can be.
    fn waits_only(&mut self, waiting: &BTreeSet<String>, can_be_done: bool) {
        for waits in [&mut self.waits, &mut self.unknown] {
            let before = waits.len();
            waits.retain(|address| waiting.contains(address));
            self.done += if can_be_done { before - waits.len() } else { 0 };
        }
    }
}

/// What has happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// In the order in which they were first heard of.
    pub(crate) groups: Vec<(String, Group)>,
    at: BTreeMap<String, usize>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) end: Option<End>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) last_ms: Option<u64>,
    /// Steps that were done on other machines.
    pub(crate) elsewhere: usize,
}

impl Tally {
    /// The steps of a flow, in its order, before anything happened.
    pub(crate) fn of(steps: impl IntoIterator<Item = String>) -> Self {
        let mut tally = Tally::default();
        for step in steps {
            tally.group(&step);
        }
        tally
    }

    fn group(&mut self, address: &str) -> &mut Group {
        let name = words::top(address);
        let at = match self.at.get(name) {
            Some(at) => *at,
            None => {
                self.groups.push((name.to_owned(), Group::default()));
                self.at.insert(name.to_owned(), self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        &mut self.groups[at].1
    }

    /// Somebody said that a step that was waited for runs again.
    pub(crate) fn will_redo(&mut self, address: &str) {
        self.group(address).goes_on(address);
    }

    /// Whoever ran a step is gone, and nobody knows what became of it.
    pub(crate) fn lost(&mut self, address: &str) {
        let group = self.group(address);
        group.running.remove(address);
        group.unknown.insert(address.to_owned());
    }

    /// The attempt at a step that is running ends; how long it took, if it was heard of.
    fn ends(&mut self, ms: u64, address: &str) -> Option<u64> {
        let group = self.group(address);
        group.last_ms = Some(ms);
        group.goes_on(address);
        let (_, since) = group.running.remove(address)?;
        let took = ms.saturating_sub(since);
        group.spent_ms += took;
        Some(took)
    }

    /// Takes note; how long the attempt took that this ends.
    pub(crate) fn saw(&mut self, ms: u64, what: &What) -> Option<u64> {
        self.started_ms.get_or_insert(ms);
        self.last_ms = Some(ms);
        match what {
            What::DidStart { .. } => {
                // A new plan: what counts is what happens under it.
                self.groups.iter_mut().for_each(|(_, group)| *group = Group::default());
                (self.end, self.failures, self.started_ms) = (None, vec![], Some(ms));
                None
            }
            What::WillRun { address, attempt } => {
                let group = self.group(address);
                group.goes_on(address);
                group.first_ms.get_or_insert(ms);
                group.attempts += usize::from(!words::is_helper(address));
                group.running.insert(address.clone(), (*attempt, ms));
                None
            }
            What::DidCommit { address } => {
                let took = self.ends(ms, address);
                self.group(address).done += usize::from(!words::is_helper(address));
                took
            }
            What::DidReuse { address } => {
                self.group(address).reused += usize::from(!words::is_helper(address));
                None
            }
            What::DidOpen { address, elements } => {
                // Of eaches inside each other, the outer one says how far it is.
                if words::step(address) == words::top(address) {
                    self.group(address).elements = Some(*elements as usize);
                }
                None
            }
            What::DidTurn { .. } | What::DidUse { .. } | What::HeldUp { .. } => None,
            What::DidFail(failed) => {
                let took = self.ends(ms, &failed.address);
                self.group(&failed.address).failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(failed.clone());
                }
                took
            }
            What::DidLose { address } => self.ends(ms, address),
            What::DidLoseTrack { address } => {
                let took = self.ends(ms, address);
                self.group(address).unknown.insert(address.clone());
                took
            }
            What::WillWait { address } => {
                let took = self.ends(ms, address);
                let group = self.group(address);
                group.waits.insert(address.clone());
                // Beginning to wait is no work.
                group.spent_ms = group.spent_ms.saturating_sub(took.unwrap_or(0));
                took
            }
            What::DidUndo { address } => {
                self.group(address).undone += 1;
                None
            }
            What::DidEnd { how } => {
                for (_, group) in &mut self.groups {
                    group.ends(*how == End::Done);
                }
                self.end = Some(*how);
                None
            }
        }
    }

    /// The store says which steps wait, which may be told elsewhere: see [`Group::waits_only`].
    pub(crate) fn waits_only(&mut self, waiting: &BTreeSet<String>, can_be_done: bool) {
        self.groups.iter_mut().for_each(|(_, group)| group.waits_only(waiting, can_be_done));
    }

    /// All groups together.
    pub(crate) fn total(&self, of: impl Fn(&Group) -> usize) -> usize {
        self.groups.iter().map(|(_, group)| of(group)).sum()
    }

    /// What runs now, the longest first.
    pub(crate) fn running(&self) -> Vec<(String, u64)> {
        let all = self.groups.iter().flat_map(|(_, group)| &group.running);
        let mut all: Vec<_> = all.map(|(address, (_, since))| (words::step(address), *since)).collect();
        all.sort_by_key(|(_, since)| *since);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_run_that_is_done_everything_is_also_what_nobody_lived_to_tell() {
        let mut tally = Tally::of([String::from("a"), String::from("b")]);
        tally.saw(1, &What::WillRun { address: "/a".into(), attempt: 1 });
        tally.saw(2, &What::DidOpen { address: "/b".into(), elements: 3 });
        tally.saw(3, &What::DidCommit { address: "/b[1]".into() });
        tally.saw(4, &What::DidEnd { how: End::Done });
        assert_eq!((tally.groups[0].1.done, tally.groups[1].1.done, tally.running()), (1, 3, vec![]));
    }

    #[test]
    fn what_happens_inside_a_step_counts_for_it() {
        let mut tally = Tally::of([String::from("a"), String::from("b")]);
        let run = |address: &str| What::WillRun { address: address.into(), attempt: 1 };
        tally.saw(10, &run("/b[0]/x"));
        tally.saw(11, &run("/b[1]/x"));
        assert_eq!(tally.running(), [(String::from("b[0]/x"), 10), (String::from("b[1]/x"), 11)]);
        assert_eq!(tally.saw(15, &What::DidCommit { address: "/b[0]/x".into() }), Some(5));
        tally.saw(16, &What::DidReuse { address: "/a".into() });
        let counts: Vec<_> = tally.groups.iter().map(|(name, group)| (name.as_str(), group.settled())).collect();
        assert_eq!(counts, [("a", 1), ("b", 1)]);
        tally.saw(17, &What::WillWait { address: "/b[1]/x".into() });
        tally.waits_only(&BTreeSet::from([String::from("/b[1]/x")]), true);
        assert_eq!((tally.groups[1].1.waits.len(), tally.groups[1].1.done), (1, 1));
        tally.waits_only(&BTreeSet::new(), true);
        assert_eq!((tally.groups[1].1.waits.len(), tally.groups[1].1.done), (0, 2), "its event came");
        tally.saw(20, &What::DidStart { generation: 1 });
        assert!(tally.running().is_empty(), "whoever ran it is gone");
    }
}
