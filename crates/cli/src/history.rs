//! The history of a run, as attempts with a beginning and an end: made from its event log, for pictures and reports.

use crate::{
    event_log,
    picture::scene::{box_id, is_step},
};
use onceflow_engine::{EventKind, RunStatus, Unlisted, task::Used};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Included, Unbounded},
};

/// One attempt at a step, or a step that took effect without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) address: String,
    pub(crate) attempt: u32,
    pub(crate) from_ms: u64,
    /// Of a running attempt: the time of the last event of the run.
    pub(crate) to_ms: u64,
    pub(crate) how: How,
    /// Processor time and memory, if they were measured.
    pub(crate) used: Option<Used>,
}

/// The usage of two attempts together, as far as it is known: the time of both, and the higher peak.
pub(crate) fn both(a: Option<Used>, b: Option<Used>) -> Option<Used> {
    let (Some(one), Some(other)) = (a, b) else { return a.or(b) };
    Some(Used { cpu_ms: one.cpu_ms.saturating_add(other.cpu_ms), peak_bytes: one.peak_bytes.max(other.peak_bytes) })
}

/// The usage of attempts that are not listed.
pub(crate) fn used_unlisted(counts: &Unlisted) -> Option<Used> {
    let peak_bytes = (counts.peak_bytes > 0).then_some(counts.peak_bytes);
    (counts.cpu_ms > 0 || peak_bytes.is_some()).then_some(Used { cpu_ms: counts.cpu_ms, peak_bytes })
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    Running,
    Done,
    Reused,
    Failed,
    /// The worker of the attempt is gone.
    Interrupted,
    /// Another worker has the step.
    Lost,
    /// The outcome is not known.
    Unknown,
    /// The step was undone by its compensation.
    Undone,
}

impl How {
    pub(crate) fn word(self) -> &'static str {
        match self {
            How::Running => "running",
            How::Done => "done",
            How::Reused => "reused",
            How::Failed => "failed",
            How::Interrupted => "interrupted",
            How::Lost => "lost",
            How::Unknown => "unknown",
            How::Undone => "undone",
        }
    }
}

/// The attempts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The attempts, in the order in which they began.
    pub(crate) all: Vec<Happened>,
    /// The index of the first attempt under the present plan.
    since: usize,
    plan: Option<u64>,
    running: BTreeMap<String, usize>,
    /// Elements by the address of an each, of the present plan.
    opened: BTreeMap<String, usize>,
    /// All addresses that had an event, and the last attempt at each.
    heard: BTreeSet<String>,
    last: BTreeMap<String, usize>,
    /// Counts of events under the present plan that are not listed, by the id of the box.
    pub(crate) unlisted: event_log::Counts,
    /// Time in which no worker was at the run.
    pub(crate) idle_ms: u64,
    /// The times at which a process started or resumed it.
    pub(crate) starts_ms: Vec<u64>,
    pub(crate) last_ms: u64,
}

impl History {
    /// Makes the history from the lines of an event log.
    pub(crate) fn of(lines: &[event_log::Line]) -> Self {
        let mut history = History::default();
        lines.iter().for_each(|line| history.read_line(line));
        let last = history.last_ms;
        for at in history.running.values() {
            history.all[*at].to_ms = last;
        }
        history
    }

    fn read_line(&mut self, line: &event_log::Line) {
        if let Some(counts) = &line.unlisted {
            self.last_ms = self.last_ms.max(line.t);
            for (step, more) in counts {
                self.unlisted.entry(step.clone()).or_default().add(more);
            }
        }
        if line.resumed {
            self.resumes(line.t);
        }
        if let Some(what) = &line.what {
            self.saw(line.t, what);
        }
    }

    /// Ends what seems to run, because no process works on the run. It was interrupted, unless the step is not under
    /// way in the store any more: then it took effect, and its process was killed before it could log that.
    pub(crate) fn rests(&mut self, is_under_way: impl Fn(&str) -> bool) {
        for (address, at) in std::mem::take(&mut self.running) {
            self.ended_unseen(at, is_under_way(&address));
        }
        for at in 0..self.all.len() {
            let is_last = self.last.get(&self.all[at].address) == Some(&at);
            if is_last && at >= self.since && self.all[at].how == How::Interrupted {
                let is_under_way = is_under_way(&self.all[at].address);
                self.ended_unseen(at, is_under_way);
            }
        }
    }

    fn ended_unseen(&mut self, at: usize, is_under_way: bool) {
        let one = &mut self.all[at];
        one.how = if is_under_way { How::Interrupted } else { How::Done };
    }

    /// A process resumes the run: attempts that had not ended stopped at the last event before.
    fn resumes(&mut self, ms: u64) {
        let last = self.last_ms;
        for at in std::mem::take(&mut self.running).into_values() {
            (self.all[at].how, self.all[at].to_ms) = (How::Interrupted, last.max(self.all[at].from_ms));
        }
        self.idle_ms += ms.saturating_sub(last);
        self.starts_ms.push(ms);
        self.last_ms = last.max(ms);
    }

    /// The log has neither a start nor an attempt.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts_ms.is_empty() && self.all.is_empty()
    }

    /// Attempts under the present plan.
    pub(crate) fn now(&self) -> &[Happened] {
        &self.all[self.since..]
    }

    /// Elements of all lists that the each of this box went over.
    pub(crate) fn elements(&self, id: &str) -> Option<usize> {
        let of = self.opened.iter().filter(|(address, _)| box_id(address) == id).map(|(_, elements)| *elements);
        let unlisted = self.unlisted.get(id).map(|counts| counts.elements as usize).filter(|elements| *elements > 0);
        of.chain(unlisted).reduce(|a, b| a + b)
    }

    fn saw(&mut self, ms: u64, what: &EventKind) {
        match what {
            EventKind::DidStart { generation } => self.starts(ms, u64::from(*generation)),
            EventKind::WillRun { address, attempt } => {
                // The worker that had the step went, at the latest, at the last event of the run.
                self.ends(self.last_ms, address, How::Interrupted);
                self.running.insert(address.clone(), self.all.len());
                self.push(address, *attempt, ms, How::Running);
            }
            EventKind::DidCommit { address } => self.settles(ms, address, How::Done),
            EventKind::DidReuse { address } => self.push(address, 0, ms, How::Reused),
            EventKind::DidOpen { address, elements } => {
                self.opened.insert(address.clone(), *elements as usize);
            }
            // A step that waits for an event is under way until the event comes.
            EventKind::DidTurn { .. } | EventKind::WillWait { .. } | EventKind::HeldUp { .. } => {}
            EventKind::CleanupFailed { .. } => {}
            EventKind::DidUse { address, used, .. } => {
                if let Some(at) = self.running.get(address) {
                    // Several fused tasks are one attempt.
                    self.all[*at].used = both(self.all[*at].used, Some(*used));
                }
            }
            EventKind::DidFail(failed) => self.settles(ms, &failed.address, How::Failed),
            EventKind::DidMarkUnknown { address } => self.settles(ms, address, How::Unknown),
            EventKind::DidLose { address } => {
                self.ends(ms, address, How::Lost);
            }
            EventKind::DidUndo { address } => self.push(address, 0, ms, How::Undone),
            // Attempts that ran by then did take effect, and their processes were killed before they could log it.
            // Their end is not known.
            EventKind::DidEnd { how: RunStatus::Done } => {
                for at in std::mem::take(&mut self.running).into_values() {
                    (self.all[at].how, self.all[at].to_ms) = (How::Done, self.all[at].from_ms);
                }
                for at in self.last.values().copied().filter(|at| *at >= self.since) {
                    if self.all[at].how == How::Interrupted {
                        self.all[at].how = How::Done;
                    }
                }
            }
            EventKind::DidEnd { .. } => {}
        }
        self.last_ms = self.last_ms.max(ms);
    }

    fn starts(&mut self, ms: u64, plan: u64) {
        let last = self.last_ms;
        for at in std::mem::take(&mut self.running).into_values() {
            (self.all[at].how, self.all[at].to_ms) = (How::Interrupted, last);
        }
        if self.plan.is_some_and(|before| before != plan) {
            self.since = self.all.len();
            self.opened.clear();
            self.unlisted.clear();
        }
        self.plan = Some(plan);
        self.starts_ms.push(ms);
    }

    fn push(&mut self, address: &str, attempt: u32, ms: u64, how: How) {
        self.heard.insert(address.to_owned());
        self.last.insert(address.to_owned(), self.all.len());
        self.all.push(Happened { address: address.to_owned(), attempt, from_ms: ms, to_ms: ms, how, used: None });
    }

    /// Ends the attempt that runs at an address, if one does.
    fn ends(&mut self, ms: u64, address: &str, how: How) -> bool {
        let Some(at) = self.running.remove(address) else { return false };
        (self.all[at].how, self.all[at].to_ms) = (how, ms);
        true
    }

    /// Ends the attempt that runs at an address; if the log has none, adds one. Containers commit too, and are no
    /// attempts.
    fn settles(&mut self, ms: u64, address: &str, how: How) {
        if !self.ends(ms, address, how) && (how != How::Done || self.is_leaf(address)) {
            self.push(address, 0, ms, how);
        }
    }

    /// No event was inside this address.
    fn is_leaf(&self, address: &str) -> bool {
        let inside = |mark| format!("{address}{mark}");
        let is_heard = |begin: String| {
            let after = self.heard.range::<str, _>((Included(begin.as_str()), Unbounded)).next();
            after.is_some_and(|other| other.starts_with(&begin))
        };
        !self.opened.contains_key(address) && !['/', '[', '@'].map(inside).into_iter().any(is_heard)
    }

    /// The usage of all attempts, as far as it was measured.
    pub(crate) fn used(&self) -> Option<Used> {
        let unlisted = self.unlisted.values().filter_map(used_unlisted);
        self.all.iter().filter_map(|one| one.used).chain(unlisted).fold(None, |all, one| both(all, Some(one)))
    }

    /// The most attempts at work at a time, and the time spent in all of them.
    pub(crate) fn work(&self) -> (usize, u64) {
        let mut turns: Vec<(u64, i32)> = Vec::new();
        let mut spent = 0;
        for happened in self.all.iter().filter(|happened| happened.attempt > 0 && is_step(&happened.address)) {
            turns.push((happened.from_ms, 1));
            turns.push((happened.to_ms, -1));
            spent += happened.to_ms.saturating_sub(happened.from_ms);
        }
        spent += self.unlisted.values().map(|counts| counts.spent_ms).sum::<u64>();
        turns.sort_unstable();
        let (mut now, mut most) = (0, 0);
        for (_, turn) in turns {
            now += turn;
            most = most.max(now);
        }
        (usize::try_from(most).unwrap_or(0), spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(what: &[(u64, EventKind)]) -> History {
        let mut history = History::default();
        what.iter().for_each(|(ms, what)| history.saw(*ms, what));
        history
    }

    fn run(address: &str, attempt: u32) -> EventKind {
        EventKind::WillRun { address: address.into(), attempt }
    }

    fn commit(address: &str) -> EventKind {
        EventKind::DidCommit { address: address.into() }
    }

    fn start(generation: u32) -> EventKind {
        EventKind::DidStart { generation }
    }

    fn told(of: &[Happened]) -> Vec<String> {
        of.iter().map(|one| format!("{} {}-{} {}", one.address, one.from_ms, one.to_ms, one.how.word())).collect()
    }

    #[test]
    fn attempts_running_at_a_kill_are_interrupted_and_the_others_count() {
        let mut known = history(&[
            (1, start(0)),
            (2, run("/a", 1)),
            (5, commit("/a")),
            (6, run("/b", 1)),
            (7, run("/c", 1)),
            (100, start(0)),
            (101, run("/b", 1)),
        ]);
        assert_eq!(
            told(known.now()),
            ["/a 2-5 done", "/b 6-7 interrupted", "/c 7-7 interrupted", "/b 101-101 running"]
        );
        known.rests(|address| address == "/b");
        assert_eq!((known.now()[3].how, known.now()[2].how), (How::Interrupted, How::Done));
        assert_eq!(known.starts_ms, [1, 100]);
    }

    #[test]
    fn time_between_a_kill_and_going_on_is_no_work() {
        let mut known = history(&[(1, start(0)), (2, run("/b", 1)), (3, run("/c", 1)), (7, commit("/a"))]);
        known.read_line(&event_log::Line { t: 1000, resumed: true, ..event_log::Line::default() });
        for (ms, what) in [(1001, run("/b", 1)), (1002, run("/c", 1)), (1005, commit("/b")), (1006, commit("/c"))] {
            known.saw(ms, &what);
        }
        let expected =
            ["/b 2-7 interrupted", "/c 3-7 interrupted", "/a 7-7 done", "/b 1001-1005 done", "/c 1002-1006 done"];
        assert_eq!(told(known.now()), expected);
        assert_eq!((known.work(), known.idle_ms, known.starts_ms.len()), ((2, 5 + 4 + 4 + 4), 993, 2));
    }

    #[test]
    fn an_attempt_cut_by_a_kill_took_effect_if_its_run_is_done() {
        let known = history(&[
            (1, run("/a", 1)),
            (2, run("/b", 1)),
            (50, commit("/b")),
            (51, EventKind::DidEnd { how: RunStatus::Done }),
        ]);
        assert_eq!(told(known.now()), ["/a 1-1 done", "/b 2-50 done"]);
    }

    #[test]
    fn under_another_plan_only_what_happens_under_it_counts() {
        let known = history(&[
            (1, start(0)),
            (2, run("/a", 1)),
            (3, commit("/a")),
            (9, start(1)),
            (10, run("/b", 1)),
            (12, commit("/b")),
        ]);
        assert_eq!(told(known.now()), ["/b 10-12 done"]);
        assert_eq!(known.all.len(), 2);
        assert_eq!(known.work(), (1, 3));
    }

    #[test]
    fn a_container_counts_as_no_attempt() {
        let open = EventKind::DidOpen { address: "/each".into(), elements: 2 };
        let inside = [
            (2, open),
            (3, run("/each[0]", 1)),
            (4, run("/each[1]", 1)),
            (5, commit("/each[0]")),
            (6, commit("/each[1]")),
        ];
        let known = history(&[&inside[..], &[(7, commit("/each")), (8, commit("/alone"))]].concat());
        assert_eq!(told(known.now()), ["/each[0] 3-5 done", "/each[1] 4-6 done", "/alone 8-8 done"]);
        assert_eq!((known.elements("each"), known.work()), (Some(2), (2, 4)));
    }
}
