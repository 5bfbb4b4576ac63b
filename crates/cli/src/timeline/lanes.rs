//! Arranges the bars of one step in as few lanes as they need. Bars too small to be told apart are merged.

use super::axis::Axis;
use crate::history::{Happened, How};

/// The most lanes of a step; further concurrent attempts share the last.
const LANES_MAX: usize = 16;

/// Bars nearer than this are merged.
const NEAR: f64 = 0.7;

/// Only bars narrower than this are merged with others.
const NARROW: f64 = 3.0;

/// One attempt, or several that cannot be told apart.
pub(super) struct Bar<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) lane: usize,
    pub(super) how: How,
    pub(super) many: usize,
    pub(super) first: &'a Happened,
}

/// The lanes of a step.
#[derive(Default)]
pub(super) struct Lanes<'a> {
    bars: Vec<Bar<'a>>,
    /// The end time and the last bar of each lane.
    ends: Vec<(u64, usize)>,
}

impl<'a> Lanes<'a> {
    /// Adds an attempt; attempts come in the order in which they began.
    pub(super) fn put(&mut self, happened: &'a Happened, axis: &Axis) {
        let free = self.ends.iter().position(|(until, _)| *until <= happened.from_ms);
        let lane = free.unwrap_or(self.ends.len()).min(LANES_MAX - 1);
        let (from, to) = (axis.x(happened.from_ms), axis.x(happened.to_ms));
        if let Some((until, last)) = self.ends.get_mut(lane) {
            let bar = &mut self.bars[*last];
            let narrow = to - from < NARROW && bar.to - bar.from < NARROW || bar.many > 1;
            *until = happened.to_ms.max(*until);
            if bar.how == happened.how && narrow && from - bar.to < NEAR {
                bar.to = bar.to.max(to);
                bar.many += 1;
                return;
            }
            *last = self.bars.len();
        } else {
            self.ends.push((happened.to_ms, self.bars.len()));
        }
        self.bars.push(Bar { from, to, lane, how: happened.how, many: 1, first: happened });
    }

    /// The number of lanes.
    pub(super) fn many(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bars(&self) -> &[Bar<'a>] {
        &self.bars
    }
}
