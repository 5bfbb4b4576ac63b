//! The progress of a run, counted by the steps of its flow. Fed with events from any source; views and `show` print it.

use crate::{
    event_log::{Counts, Line},
    words,
};
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{EachProgress, EventKind, Outline, ReportedOutcome, RunProgress, RunStatus};
use std::collections::{BTreeMap, BTreeSet};

/// The most failures that are kept.
const FAILURES_MAX: usize = 100;

/// Counts of one step of the flow, with all steps inside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) done: usize,
    pub(crate) reused: usize,
    /// Addresses that failed and were not tried again since.
    pub(crate) failed: BTreeSet<String>,
    pub(crate) undone: usize,
    /// Running attempts: address, number and start.
    pub(crate) running: BTreeMap<String, (u32, u64)>,
    /// Addresses that ran when their worker went, and had no event since.
    pub(crate) interrupted: BTreeSet<String>,
    /// Addresses that wait for an event, and those whose outcome is not known.
    pub(crate) waits: BTreeSet<String>,
    pub(crate) unknown: BTreeSet<String>,
    /// Time spent in it, all attempts together.
    pub(crate) spent_ms: u64,
    pub(crate) first_ms: Option<u64>,
    pub(crate) last_ms: Option<u64>,
    pub(crate) attempts: usize,
    /// Elements of its list.
    pub(crate) elements: Option<usize>,
    /// Steps that were done before this process began to follow the run.
    pub(crate) before: usize,
    /// Steps of one element, if all elements have the same number.
    pub(crate) per_element: Option<usize>,
}

impl Group {
    /// Ends the group with the run. In a run that is done everything was done, even if a process was killed before it
    /// could log that.
    fn ends(&mut self, is_done: bool) {
        let (running, interrupted) = (std::mem::take(&mut self.running), std::mem::take(&mut self.interrupted));
        if is_done {
            self.done += running.keys().chain(&interrupted).filter(|address| !words::is_helper(address)).count();
            self.done = self.done.max(self.elements.unwrap_or(0).saturating_sub(self.reused + self.before));
            self.failed.clear();
            // Of elements that were half done when following began, the first half is not known step by step.
            let all = self.elements.unwrap_or(0) * self.per_element.unwrap_or(0);
            self.before = self.before.max(all.saturating_sub(self.settled()));
        }
    }

    /// Steps that took effect, run or reused.
    pub(crate) fn settled(&self) -> usize {
        self.done + self.reused
    }

    /// Clears the marks of a step that goes on: it neither waits nor has failed any more.
    fn goes_on(&mut self, address: &str) {
        self.waits.remove(address);
        self.unknown.remove(address);
        self.failed.remove(address);
        self.interrupted.remove(address);
    }

    /// Returns the number of done elements, and of all, if this is an each whose elements are alike.
    pub(crate) fn elements_done(&self) -> Option<(usize, usize)> {
        let (elements, per) = (self.elements?, self.per_element.filter(|per| *per > 0)?);
        Some((((self.before + self.settled()) / per).min(elements), elements))
    }

    /// Keeps only `waiting` of the steps that seem to wait; the outcomes of the others were reported, and they count as
    /// done if `can_be_done`.
    fn waits_only(&mut self, waiting: &BTreeSet<String>, can_be_done: bool) {
        for waits in [&mut self.waits, &mut self.unknown] {
            let before = waits.len();
            waits.retain(|address| waiting.contains(address));
            self.done += if can_be_done { before - waits.len() } else { 0 };
        }
    }
}

/// The progress of a run, by step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Groups in the order of their first events.
    pub(crate) groups: Vec<(String, Group)>,
    at: BTreeMap<String, usize>,
    /// Cleanups of scopes that failed: the address of the step, and why. The outcomes stand.
    pub(crate) failed_cleanups: Vec<(String, String)>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) end: Option<RunStatus>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) last_ms: Option<u64>,
    /// Time in which no worker was at the run, since it was started.
    pub(crate) idle_ms: u64,
    /// Steps that were counted but not listed one by one.
    pub(crate) unlisted: usize,
    /// By the name of an outermost each: the number of steps of each name per element, if that is the same for all.
    shapes: BTreeMap<String, BTreeMap<String, usize>>,
    /// Steps that were done on other machines.
    pub(crate) elsewhere: usize,
}

impl Progress {
    /// Begins with the steps of a flow, in its order, before any event.
    pub(crate) fn of(steps: impl IntoIterator<Item = String>) -> Self {
        let mut progress = Progress::default();
        for step in steps {
            progress.group(&step);
        }
        progress
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

    /// Notes that a step whose outcome was not known was reported as not done, and runs again.
    pub(crate) fn will_redo(&mut self, address: &str) {
        self.group(address).goes_on(address);
    }

    /// Notes that the worker of a step is gone, and that the outcome is not known.
    pub(crate) fn lost(&mut self, address: &str) {
        let group = self.group(address);
        group.running.remove(address);
        group.unknown.insert(address.to_owned());
    }

    /// Ends the running attempt at a step; returns its duration, if its start was seen.
    fn ends(&mut self, ms: u64, address: &str) -> Option<u64> {
        let group = self.group(address);
        group.last_ms = Some(ms);
        group.goes_on(address);
        let (_, since) = group.running.remove(address)?;
        let took = ms.saturating_sub(since);
        group.spent_ms += took;
        Some(took)
    }

    /// Notes that a process resumes the run: attempts that had not ended were interrupted.
    pub(crate) fn resumed(&mut self, ms: u64) {
        self.idle_ms += self.last_ms.map_or(0, |last| ms.saturating_sub(last));
        self.last_ms = Some(ms);
        for (_, group) in &mut self.groups {
            group.interrupted.extend(std::mem::take(&mut group.running).into_keys());
        }
    }

    /// Adds counts of events that are not listed.
    pub(crate) fn unlisted(&mut self, ms: u64, counts: &Counts) {
        self.last_ms = Some(ms);
        let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        for (step, counts) in counts {
            self.unlisted += whole(counts.done + counts.reused);
            if step.is_empty() {
                continue;
            }
            let group = self.group(step);
            group.done += whole(counts.done);
            group.reused += whole(counts.reused);
            group.undone += whole(counts.undone);
            group.attempts += whole(counts.attempts);
            group.spent_ms += counts.spent_ms;
            group.last_ms = Some(ms);
            group.first_ms.get_or_insert(ms);
        }
    }

    /// Takes the progress of eaches that began before this process followed the run from the store.
    pub(crate) fn begins_with(&mut self, eaches: &[EachProgress]) {
        for each in eaches {
            for name in self.has_left(each) {
                let group = self.group(&name);
                (group.before, group.done) = (group.before + group.done, 0);
            }
        }
    }

    /// Learns which steps each of the flow's eaches consists of: several, where some go through their elements
    /// together.
    pub(crate) fn knows(&mut self, outline: &[Outline]) {
        for (at, each) in outline.iter().enumerate().filter(|(_, line)| line.kind == "each" && line.depth == 0) {
            let inside: Vec<_> = outline[at + 1..].iter().take_while(|line| line.depth > 0).collect();
            if inside.iter().all(|line| line.kind == "task") {
                let tasks = inside.iter().map(|line| line.address.as_str());
                self.shapes.insert(words::step(&each.address), per_element(tasks));
            }
        }
        for (each, _) in self.shapes.clone() {
            if let Some(elements) = self.group(&each).elements {
                self.opens(&each, elements);
            }
        }
    }

    /// Notes that an outermost each goes over so many elements; returns the steps it consists of.
    fn opens(&mut self, each: &str, elements: usize) -> Vec<String> {
        let shape = self.shapes.get(each).cloned().unwrap_or_default();
        for (name, per_element) in &shape {
            let group = self.group(name);
            (group.elements, group.per_element) = (Some(elements), Some(*per_element));
        }
        if shape.is_empty() {
            self.group(each).elements = Some(elements);
            return vec![words::top(each).to_owned()];
        }
        shape.into_keys().collect()
    }

    /// Takes the number of elements left from the store: all others are done, even if a process was killed before it
    /// could log that. Returns the steps that the each consists of.
    fn has_left(&mut self, each: &EachProgress) -> Vec<String> {
        let name = words::step(&each.address);
        if name != words::top(&each.address) {
            return vec![];
        }
        if let Some(tasks) = &each.tasks {
            self.shapes.insert(name.clone(), per_element(tasks.iter().map(String::as_str)));
        }
        let ended = (each.elements - each.left.min(each.elements)) as usize;
        let names = self.opens(&name, each.elements as usize);
        for name in &names {
            let group = self.group(name);
            let told = group.reused + group.before;
            group.done = group.done.max((ended * group.per_element.unwrap_or(0)).saturating_sub(told));
        }
        names
    }

    /// Corrects the counts from the store: a process may have been killed before it could log a commit.
    pub(crate) fn as_stored(&mut self, standing: &RunProgress, can_be_done: bool) {
        for (_, group) in &mut self.groups {
            let is_gone = |address: &String| !standing.under_way.contains(address);
            let before = group.running.len() + group.interrupted.len();
            group.running.retain(|address, _| !is_gone(address));
            group.interrupted.retain(|address| !is_gone(address));
            let gone = before - group.running.len() - group.interrupted.len();
            group.done += if can_be_done { gone } else { 0 };
        }
        for each in &standing.eaches {
            self.has_left(each);
        }
        for address in standing.done.iter().filter(|address| !words::is_helper(address)) {
            let group = self.group(address);
            if words::step(address) == words::top(address) && group.settled() == 0 && can_be_done {
                group.done = 1;
            }
        }
    }

    /// Takes the failed steps from the store: all of them, and no others.
    pub(crate) fn failed_only(&mut self, failures: &[Failed]) {
        self.groups.iter_mut().for_each(|(_, group)| group.failed.clear());
        for failed in failures {
            self.group(&failed.address).failed.insert(failed.address.to_string());
        }
    }

    /// Adds a line of an event log; returns the duration of the attempt that it ends.
    pub(crate) fn read(&mut self, line: &Line) -> Option<u64> {
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

    /// Counts an event; returns the duration of the attempt that it ends.
    pub(crate) fn saw(&mut self, ms: u64, what: &EventKind) -> Option<u64> {
        self.started_ms.get_or_insert(ms);
        self.last_ms = Some(ms);
        match what {
            EventKind::DidStart { .. } => {
                // Under a new plan only later events count.
                self.groups.iter_mut().for_each(|(_, group)| *group = Group::default());
                (self.end, self.failures, self.started_ms, self.idle_ms) = (None, vec![], Some(ms), 0);
                None
            }
            EventKind::WillRun { address, attempt } => {
                let group = self.group(address);
                group.goes_on(address);
                group.first_ms.get_or_insert(ms);
                if !words::is_helper(address) {
                    group.attempts += 1;
                    group.running.insert(address.clone(), (*attempt, ms));
                }
                None
            }
            EventKind::DidCommit { address } => {
                let took = self.ends(ms, address);
                self.group(address).done += usize::from(!words::is_helper(address));
                took
            }
            EventKind::DidReuse { address } => {
                self.group(address).reused += usize::from(!words::is_helper(address));
                None
            }
            EventKind::DidOpen { address, elements } => {
                // Of nested eaches, only the outermost shows progress.
                if words::step(address) == words::top(address) {
                    self.opens(&words::step(address), *elements as usize);
                }
                None
            }
            EventKind::DidTurn { .. } | EventKind::DidUse { .. } | EventKind::HeldUp { .. } => None,
            EventKind::CleanupFailed { address, why } => {
                let failed = (address.clone(), why.clone());
                // A worker that was killed before the step's commit has reported it too.
                if self.failed_cleanups.len() < FAILURES_MAX && !self.failed_cleanups.contains(&failed) {
                    self.failed_cleanups.push(failed);
                }
                None
            }
            EventKind::DidFail(failed) => {
                let took = self.ends(ms, &failed.address);
                self.group(&failed.address).failed.insert(failed.address.to_string());
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(failed.clone());
                }
                took
            }
            EventKind::DidLose { address } => self.ends(ms, address),
            EventKind::DidMarkUnknown { address } => {
                let took = self.ends(ms, address);
                self.group(address).unknown.insert(address.clone());
                took
            }
            EventKind::WillWait { address } => {
                let took = self.ends(ms, address);
                let group = self.group(address);
                group.waits.insert(address.clone());
                // Time until a step begins to wait is not work.
                group.spent_ms = group.spent_ms.saturating_sub(took.unwrap_or(0));
                took
            }
            EventKind::DidUndo { address } => {
                self.group(address).undone += 1;
                None
            }
            EventKind::DidEnd { how } => {
                for (_, group) in &mut self.groups {
                    group.ends(*how == RunStatus::Done);
                }
                self.end = Some(*how);
                None
            }
        }
    }

    /// Takes the waiting steps from the store, for outcomes that were reported elsewhere: see [`Group::waits_only`].
    pub(crate) fn waits_only(&mut self, waiting: &BTreeSet<String>, can_be_done: bool) {
        self.groups.iter_mut().for_each(|(_, group)| group.waits_only(waiting, can_be_done));
    }

    /// Sums a count over all groups.
    pub(crate) fn total(&self, of: impl Fn(&Group) -> usize) -> usize {
        self.groups.iter().map(|(_, group)| of(group)).sum()
    }

    /// Returns the running steps, the longest first.
    pub(crate) fn running(&self) -> Vec<(String, u64)> {
        let all = self.groups.iter().flat_map(|(_, group)| &group.running);
        let mut all: Vec<_> = all.map(|(address, (_, since))| (words::step(address), *since)).collect();
        all.sort_by_key(|(_, since)| *since);
        all
    }
}

/// Returns the number of these tasks by step.
fn per_element<'a>(tasks: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut of = BTreeMap::new();
    for address in tasks.filter(|address| !words::is_helper(address)) {
        *of.entry(words::top(address).to_owned()).or_default() += 1;
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_done_run_counts_steps_whose_events_were_lost() {
        let mut progress = Progress::of([String::from("a"), String::from("b")]);
        progress.saw(1, &EventKind::WillRun { address: "/a".into(), attempt: 1 });
        progress.saw(2, &EventKind::DidOpen { address: "/b".into(), elements: 3 });
        progress.saw(3, &EventKind::DidCommit { address: "/b[1]".into() });
        progress.saw(4, &EventKind::DidEnd { how: RunStatus::Done });
        assert_eq!((progress.groups[0].1.done, progress.groups[1].1.done, progress.running()), (1, 3, vec![]));
    }

    #[test]
    fn a_failed_and_retried_step_counts_once() {
        let mut progress = Progress::default();
        let failed = |attempt| Failed { address: "/b[0]".into(), attempt, causes: vec![], started: false };
        for attempt in 1..4 {
            progress.saw(1, &EventKind::WillRun { address: "/b[0]".into(), attempt });
            progress.saw(2, &EventKind::DidFail(failed(attempt)));
            assert_eq!(progress.groups[0].1.failed.len(), 1);
        }
        assert_eq!(progress.groups[0].1.attempts, 3);
        progress.saw(3, &EventKind::DidCommit { address: "/b[0]".into() });
        assert!(progress.groups[0].1.failed.is_empty());
    }

    #[test]
    fn committed_steps_count_though_their_events_were_lost() {
        let run = |address: &str| EventKind::WillRun { address: address.into(), attempt: 1 };
        let mut progress = Progress::default();
        progress.saw(1, &EventKind::DidOpen { address: "/b".into(), elements: 10 });
        for index in 0..4 {
            progress.saw(2, &run(&format!("/b[{index}]")));
        }
        progress.saw(3, &EventKind::DidCommit { address: "/b[0]".into() });
        progress.saw(3, &run("/a"));
        let each = EachProgress { address: "/b".into(), elements: 10, left: 4, tasks: Some(vec!["/b[*]".into()]) };
        let under_way = BTreeSet::from([String::from("/b[3]")]);
        let standing = RunProgress { under_way, done: vec!["/a".into(), "/c".into()], eaches: vec![each] };
        progress.as_stored(&standing, true);
        let of: BTreeMap<_, _> = progress.groups.iter().map(|(name, group)| (name.as_str(), group)).collect();
        assert_eq!((of["a"].done, of["b"].done, of["c"].done), (1, 6, 1));
        assert_eq!(of["b"].running.keys().collect::<Vec<_>>(), ["/b[3]"]);
        assert_eq!(of["b"].elements_done(), Some((6, 10)));
    }

    #[test]
    fn an_each_that_goes_on_counts_what_was_done_before() {
        let each = EachProgress {
            address: "/b".into(),
            elements: 100,
            left: 83,
            tasks: Some(vec!["/b[*]/x".into(), "/b[*]/y".into()]),
        };
        let mut progress = Progress::default();
        progress.begins_with(&[each]);
        let commit = |address: &str| EventKind::DidCommit { address: address.into() };
        progress.saw(1, &commit("/b[20]/x"));
        assert_eq!((progress.groups[0].1.elements_done(), progress.groups[0].1.done), (Some((17, 100)), 1));
        progress.saw(1, &commit("/b[20]/y"));
        assert_eq!(progress.groups[0].1.elements_done(), Some((18, 100)));
    }

    #[test]
    fn inner_steps_count_for_their_step() {
        let mut progress = Progress::of([String::from("a"), String::from("b")]);
        let run = |address: &str| EventKind::WillRun { address: address.into(), attempt: 1 };
        progress.saw(10, &run("/b[0]/x"));
        progress.saw(11, &run("/b[1]/x"));
        assert_eq!(progress.running(), [(String::from("b[0]/x"), 10), (String::from("b[1]/x"), 11)]);
        assert_eq!(progress.saw(15, &EventKind::DidCommit { address: "/b[0]/x".into() }), Some(5));
        progress.saw(16, &EventKind::DidReuse { address: "/a".into() });
        let counts: Vec<_> = progress.groups.iter().map(|(name, group)| (name.as_str(), group.settled())).collect();
        assert_eq!(counts, [("a", 1), ("b", 1)]);
        progress.saw(17, &EventKind::WillWait { address: "/b[1]/x".into() });
        progress.waits_only(&BTreeSet::from([String::from("/b[1]/x")]), true);
        assert_eq!((progress.groups[1].1.waits.len(), progress.groups[1].1.done), (1, 1));
        progress.waits_only(&BTreeSet::new(), true);
        assert_eq!((progress.groups[1].1.waits.len(), progress.groups[1].1.done), (0, 2), "its event came");
        progress.saw(20, &EventKind::DidStart { generation: 1 });
        assert!(progress.running().is_empty(), "its worker is gone");
    }
}
