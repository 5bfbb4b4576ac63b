//! Sessions: windows of one key that grow with its records and merge when a record joins two.

use super::{Window, Windowing, pane::Pane};
use crate::{combine::Combine, event_time::EventTime};
use serde::{Deserialize, Serialize};

/// The open sessions of one key: in order of time, none overlapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions<A> {
    /// Each session's window and pane.
    pub open: Vec<(Window, Pane<A>)>,
}

impl<A> Default for Sessions<A> {
    fn default() -> Self {
        Sessions { open: Vec::new() }
    }
}

impl<A: Clone> Sessions<A> {
    /// Returns the place of the session that a record of this window belongs to, merging those it joins; `None` if that
    /// session has expired, so that the record is dropped.
    pub fn place<C: Combine<Acc = A>>(
        &mut self,
        windowing: &Windowing,
        combine: &C,
        record: Window,
        watermark: EventTime,
    ) -> Option<usize> {
        let from = self.open.partition_point(|(window, _)| window.end <= record.start);
        let to = self.open.partition_point(|(window, _)| window.start < record.end);
        let joined = self.open[from..to].iter().fold(record, |joined, (window, _)| Window {
            start: joined.start.min(window.start),
            end: joined.end.max(window.end),
        });
        if windowing.is_expired(joined, watermark) {
            return None;
        }
        let mut merged: Option<Pane<A>> = None;
        for (_, pane) in self.open.drain(from..to) {
            match &mut merged {
                Some(merged) => merged.absorb(combine, pane),
                None => merged = Some(pane),
            }
        }
        let mut pane = merged.unwrap_or_else(|| Pane::new(combine.identity()));
        if joined.end > watermark {
            pane.reopen();
        }
        self.open.insert(from, (joined, pane));
        Some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::combine::Sum;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sessions_are_the_maximal_runs_without_a_pause(times in prop::collection::vec(0i64..200, 0..40), gap in 1i64..20) {
            let (windowing, sum) = (Windowing::sessions(gap), Sum::<i64>::new());
            let mut sessions = Sessions::default();
            for time in &times {
                let window = Window::starting(EventTime(*time), gap);
                let at = sessions.place(&windowing, &sum, window, EventTime::MIN).unwrap();
                sum.add(&mut sessions.open[at].1.acc, 1);
            }
            let mut sorted = times;
            sorted.sort_unstable();
            let mut expected: Vec<(i64, i64, i64)> = Vec::new();
            for time in sorted {
                match expected.last_mut() {
                    Some((_, end, count)) if time < *end => (*end, *count) = (time + gap, *count + 1),
                    _ => expected.push((time, time + gap, 1)),
                }
            }
            let found: Vec<_> = sessions.open.iter().map(|(w, pane)| (w.start.0, w.end.0, pane.acc)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_record_of_an_expired_session_is_dropped_and_one_that_an_open_session_covers_is_not() {
        let (windowing, sum) = (Windowing::sessions(10), Sum::<i64>::new());
        let mut sessions = Sessions::default();
        let mut place = |time: i64, watermark: i64| {
            sessions.place(&windowing, &sum, Window::starting(EventTime(time), 10), EventTime(watermark))
        };
        assert_eq!(place(20, 0), Some(0));
        assert_eq!(place(15, 26), Some(0), "its own window has passed, but it joins one that has not");
        assert_eq!(place(0, 26), None);
    }
}
