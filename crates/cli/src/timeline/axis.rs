//! Maps times to positions. Long idle times take little space.

use crate::history::{Happened, History};

/// The width of a cut.
const CUT: f64 = 26.0;

/// Shorter idle times are not cut.
const IDLE_MS_MIN: u64 = 20_000;

/// The approximate number of ticks.
const TICKS: u64 = 9;

/// Candidates for the interval between ticks, in milliseconds.
const STEPS: [u64; 22] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000,
    3_600_000, 10_800_000, 43_200_000, 86_400_000,
];

/// The busy times, and their positions.
pub(super) struct Axis {
    /// Start, end, first position, last position.
    spans: Vec<(u64, u64, f64, f64)>,
    zero: u64,
}

impl Axis {
    /// Makes the axis for these attempts, on this width.
    pub(super) fn of(shown: &[&Happened], history: &History, width: f64) -> Self {
        let mut busy: Vec<_> = shown.iter().map(|one| (one.from_ms, one.to_ms.max(one.from_ms))).collect();
        busy.extend(history.starts_ms.iter().map(|ms| (*ms, *ms)));
        busy.sort_unstable();
        let zero = busy.first().map_or(0, |(from, _)| *from);
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let all: u64 = active(&busy);
        let idle = (all / 3).max(IDLE_MS_MIN);
        for (from, to) in busy {
            match spans.last_mut() {
                Some(last) if from <= last.1.saturating_add(idle) => last.1 = last.1.max(to),
                _ => spans.push((from, to)),
            }
        }
        let time: u64 = spans.iter().map(|(from, to)| (to - from).max(1)).sum();
        // However many cuts there are, half of the width is for busy times.
        let cut = CUT.min(width / 2.0 / spans.len().max(1) as f64);
        let scale = (width - cut * spans.len().saturating_sub(1) as f64) / time.max(1) as f64;
        let mut x = 0.0;
        let place = |(from, to): (u64, u64)| {
            let begins = x;
            let ends = x + (to - from).max(1) as f64 * scale;
            x = ends + cut;
            (from, to, begins, ends)
        };
        Axis { spans: spans.into_iter().map(place).collect(), zero }
    }

    /// Returns the position of a time.
    pub(super) fn x(&self, ms: u64) -> f64 {
        let after = self.spans.iter().position(|(from, ..)| *from > ms).unwrap_or(self.spans.len());
        let Some((from, to, begins, ends)) = self.spans[..after].last() else { return 0.0 };
        let part = (ms.min(*to) - from) as f64 / (to - from).max(1) as f64;
        begins + (ends - begins) * part
    }

    /// Returns the ticks, each with its label: the time since the beginning.
    pub(super) fn ticks(&self) -> Vec<(u64, String)> {
        let time: u64 = self.spans.iter().map(|(from, to, ..)| to - from).sum();
        let step = STEPS.into_iter().find(|step| time / step <= TICKS).unwrap_or_else(|| (time / TICKS).max(1));
        let mut ticks = Vec::new();
        for (from, to, ..) in &self.spans {
            let first = (from - self.zero).div_ceil(step);
            let last = (to - self.zero) / step;
            // Of a run that was interrupted often, each part has at least one tick, at its beginning.
            ticks.extend((first..=last).take(4 * TICKS as usize).map(|n| (self.zero + n * step, label(n * step))));
        }
        ticks
    }

    /// Returns the cuts: position and time left out.
    pub(super) fn cuts(&self) -> Vec<(f64, u64)> {
        self.spans.windows(2).map(|pair| ((pair[0].3 + pair[1].2) / 2.0, pair[1].0 - pair[0].1)).collect()
    }
}

/// Returns the time in which at least one interval was open; intervals are ordered by their beginnings.
fn active(busy: &[(u64, u64)]) -> u64 {
    let (mut sum, mut until) = (0, 0);
    for (from, to) in busy {
        sum += to.saturating_sub(until.max(*from));
        until = until.max(*to);
    }
    sum
}

/// Formats a time since the beginning, as short as possible.
fn label(ms: u64) -> String {
    match ms {
        0 => String::from("0"),
        1..=999 => format!("{ms}ms"),
        1000..=59_999 if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        1000..=59_999 => format!("{:.1}s", ms as f64 / 1000.0),
        60_000..=3_599_999 if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        3_600_000.. if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        ms => crate::words::duration(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::How;

    fn at(from_ms: u64, to_ms: u64) -> Happened {
        Happened { address: String::from("/a"), attempt: 1, from_ms, to_ms, how: How::Done, used: None }
    }

    #[test]
    fn times_keep_their_order_and_long_pauses_are_cut() {
        let all = [at(1000, 2000), at(2000, 5000), at(500_000_000, 500_004_000)];
        let axis = Axis::of(&all.each_ref(), &History::default(), 800.0);
        let places: Vec<_> = [0, 1000, 2000, 5000, 9000, 500_000_000, 500_004_000].map(|ms| axis.x(ms)).into();
        assert!(places.windows(2).all(|pair| pair[0] <= pair[1]), "{places:?}");
        assert!((places[6] - 800.0).abs() < 0.01 && places[1] == 0.0, "{places:?}");
        assert_eq!(axis.cuts().len(), 1);
        assert_eq!(axis.cuts()[0].1, 499_995_000);
        assert_eq!(
            axis.ticks()[..3],
            [(1000, String::from("0")), (2000, String::from("1s")), (3000, String::from("2s"))]
        );
    }

    #[test]
    fn nothing_that_happened_can_be_drawn_too() {
        let axis = Axis::of(&[], &History::default(), 800.0);
        assert_eq!((axis.x(5), axis.ticks().len(), axis.cuts().len()), (0.0, 0, 0));
        let one = [at(7, 7)];
        assert_eq!(Axis::of(&one.each_ref(), &History::default(), 800.0).x(7), 0.0);
    }
}
