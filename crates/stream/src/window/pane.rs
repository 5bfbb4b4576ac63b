//! A window's accumulated value, and the decision when it is given. Pure: what happened goes in, the timing of a result
//! comes out.

use super::trigger::{Early, PaneMode, Timing, Trigger};
use crate::combine::Combine;
use serde::{Deserialize, Serialize};

/// The value of one window of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pane<A> {
    /// The combined records: all of them, or those since the last result when the mode is discarding.
    pub acc: A,
    /// Records since the last result.
    waiting: u64,
    /// The watermark has passed the end.
    is_closed: bool,
    /// When the early or late result is due, in processing time.
    due_ms: Option<u64>,
}

impl<A: Clone> Pane<A> {
    /// Creates the pane of a window without records.
    pub fn new(identity: A) -> Self {
        Pane { acc: identity, waiting: 0, is_closed: false, due_ms: None }
    }

    /// Says that `records` were combined into the pane, and answers whether a result is given now.
    pub fn added(&mut self, trigger: &Trigger, records: u64, now_ms: u64) -> Option<Timing> {
        self.waiting += records;
        match (self.is_closed, trigger.early) {
            (true, _) => {
                if let Some(ms) = trigger.late_after_ms {
                    self.due_ms.get_or_insert(now_ms.saturating_add(ms));
                }
                (self.waiting >= trigger.late_count).then_some(Timing::Late)
            }
            (false, Some(Early::Count(count))) => (self.waiting >= count).then_some(Timing::Early),
            (false, Some(Early::AfterMs(ms))) => {
                self.due_ms.get_or_insert(now_ms.saturating_add(ms));
                None
            }
            (false, None) => None,
        }
    }

    /// Says that the watermark has passed the window's end.
    pub fn closed(&mut self) -> Option<Timing> {
        let was_closed = std::mem::replace(&mut self.is_closed, true);
        if !was_closed {
            self.due_ms = None;
        }
        (!was_closed && self.waiting > 0).then_some(Timing::OnTime)
    }

    /// Says that the window has expired: what still waits is given.
    pub fn expired(&mut self) -> Option<Timing> {
        let on_time = self.closed();
        on_time.or_else(|| (self.waiting > 0).then_some(Timing::Late))
    }

    /// Says what time it is.
    pub fn at(&mut self, now_ms: u64) -> Option<Timing> {
        let is_due = self.due_ms.is_some_and(|due| due <= now_ms);
        let timing = if self.is_closed { Timing::Late } else { Timing::Early };
        (is_due && self.waiting > 0).then_some(timing)
    }

    /// Returns when the early or late result is due, in processing time.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// The watermark has passed the end.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Says that the window has grown beyond the watermark again.
    pub(crate) fn reopen(&mut self) {
        self.is_closed = false;
    }

    /// Returns the accumulated value of a result that is given now.
    pub fn give(&mut self, mode: PaneMode, identity: impl FnOnce() -> A) -> A {
        (self.waiting, self.due_ms) = (0, None);
        match mode {
            PaneMode::Accumulating => self.acc.clone(),
            PaneMode::Discarding => std::mem::replace(&mut self.acc, identity()),
        }
    }

    /// Takes in another pane of what is one window now.
    pub fn absorb<C: Combine<Acc = A>>(&mut self, combine: &C, other: Pane<A>) {
        combine.merge(&mut self.acc, other.acc);
        self.waiting += other.waiting;
        self.is_closed &= other.is_closed;
        self.due_ms = match (self.due_ms, other.due_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::combine::Sum;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Happens {
        Record(i64),
        Close,
        Clock(u64),
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            4 => (1i64..9).prop_map(Happens::Record),
            1 => Just(Happens::Close),
            1 => (0u64..20).prop_map(Happens::Clock),
        ]
    }

    fn early() -> impl Strategy<Value = Option<Early>> {
        prop_oneof![
            Just(None),
            (1u64..4).prop_map(|n| Some(Early::Count(n))),
            (1u64..9).prop_map(|ms| Some(Early::AfterMs(ms)))
        ]
    }

    proptest! {
        #[test]
        fn every_record_is_in_the_results_once_or_in_all_that_follow(
            events in prop::collection::vec(happens(), 0..40),
            early in early(),
            late_count in prop_oneof![1u64..4, Just(u64::MAX)],
            late_after_ms in proptest::option::of(1u64..9),
            discarding: bool,
        ) {
            let trigger = Trigger { early, late_count, late_after_ms, ..if discarding { Trigger::at_end().discarding() } else { Trigger::at_end() } };
            let (sum, mut pane, mut now) = (Sum::<i64>::new(), Pane::new(0i64), 0);
            let (mut results, mut total) = (Vec::new(), 0);
            for event in events {
                let timing = match event {
                    Happens::Record(value) => {
                        total += value;
                        sum.add(&mut pane.acc, value);
                        pane.added(&trigger, 1, now)
                    }
                    Happens::Close => pane.closed(),
                    Happens::Clock(ms) => { now += ms; pane.at(now) }
                };
                if let Some(timing) = timing {
                    results.push((timing, pane.give(trigger.mode, || 0)));
                }
            }
            if let Some(timing) = pane.expired() {
                results.push((timing, pane.give(trigger.mode, || 0)));
            }
            let given = if discarding { results.iter().map(|r| r.1).sum() } else { results.last().map_or(0, |r| r.1) };
            prop_assert_eq!(given, total);
            prop_assert!(results.is_sorted_by_key(|r| r.0), "{:?}", results);
            prop_assert!(results.iter().filter(|r| r.0 == Timing::OnTime).count() <= 1);
            prop_assert!(!discarding || results.iter().all(|r| r.1 > 0), "an empty result: {:?}", results);
        }
    }
}
