//! Joins of two keyed streams: every pair of records that belong together is given once, when the second of them comes.
//! A record leaves the state when the watermark has passed everything it could still meet.

use super::process::{KeyedProcess, ProcessContext};
use crate::{
    data::{self, BadValue, StreamData},
    event_time::EventTime,
};
use serde::{Deserialize, Serialize};
use std::{fmt, marker::PhantomData};

/// A record of one of two streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side<A, B> {
    /// Of the first stream.
    Left(A),
    /// Of the second stream.
    Right(B),
}

/// Decodes the record of a step that reads two streams.
pub(crate) fn decode_side<A: StreamData, B: StreamData>(port: usize, value: &[u8]) -> Result<Side<A, B>, BadValue> {
    Ok(if port == 0 { Side::Left(data::decode(value)?) } else { Side::Right(data::decode(value)?) })
}

/// Which records of the same key belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRange {
    /// Records of the same tumbling window.
    Window {
        /// The size of a window.
        size_ms: i64,
    },
    /// Right records from `before_ms` before a left one until `after_ms` after it.
    Interval {
        /// How much earlier the right record may be.
        before_ms: i64,
        /// How much later the right record may be.
        after_ms: i64,
    },
}

impl fmt::Display for JoinRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinRange::Window { size_ms } => write!(f, "windows of {size_ms} ms"),
            JoinRange::Interval { before_ms, after_ms } => write!(f, "{before_ms} ms before to {after_ms} ms after"),
        }
    }
}

impl JoinRange {
    fn matches(self, left: EventTime, right: EventTime) -> bool {
        match self {
            JoinRange::Window { size_ms } => left.0.div_euclid(size_ms) == right.0.div_euclid(size_ms),
            JoinRange::Interval { before_ms, after_ms } => {
                left.plus_ms(-before_ms) <= right && right <= left.plus_ms(after_ms)
            }
        }
    }

    /// Returns the time from which on no record that is on time can meet one of this side and time.
    fn useless_from(self, is_left: bool, time: EventTime) -> EventTime {
        match self {
            JoinRange::Window { size_ms } => EventTime((time.0.div_euclid(size_ms) + 1).saturating_mul(size_ms)),
            JoinRange::Interval { after_ms, .. } if is_left => time.plus_ms(after_ms.saturating_add(1)),
            JoinRange::Interval { before_ms, .. } => time.plus_ms(before_ms.saturating_add(1)),
        }
    }
}

/// The records of a key that may still meet others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinState<A, B> {
    left: Vec<(EventTime, A)>,
    right: Vec<(EventTime, B)>,
}

/// Joins two streams; see [`JoinRange`].
pub(crate) struct Join<K, A, B> {
    range: JoinRange,
    of: PhantomData<fn(K, A, B)>,
}

impl<K, A, B> Join<K, A, B> {
    pub(crate) fn new(range: JoinRange) -> Self {
        Join { range, of: PhantomData }
    }
}

impl<K: StreamData, A: StreamData, B: StreamData> KeyedProcess for Join<K, A, B> {
    type Key = K;
    type In = Side<A, B>;
    type Out = (K, A, B);
    type State = JoinState<A, B>;

    fn on_record(
        &mut self,
        context: &mut ProcessContext<'_, (K, A, B)>,
        key: &K,
        state: &mut Option<JoinState<A, B>>,
        record: Side<A, B>,
    ) {
        let (range, time) = (self.range, context.time());
        let is_left = matches!(record, Side::Left(_));
        let end = range.useless_from(is_left, time);
        let kept = state.get_or_insert_with(|| JoinState { left: Vec::new(), right: Vec::new() });
        match record {
            Side::Left(a) => {
                for (other, b) in kept.right.iter().filter(|(other, _)| range.matches(time, *other)) {
                    context.emit_at((key.clone(), a.clone(), b.clone()), *other);
                }
                kept.left.push((time, a));
            }
            Side::Right(b) => {
                for (other, a) in kept.left.iter().filter(|(other, _)| range.matches(*other, time)) {
                    context.emit_at((key.clone(), a.clone(), b.clone()), *other);
                }
                kept.right.push((time, b));
            }
        }
        context.set_timer(end);
    }

    fn on_timer(&mut self, context: &mut ProcessContext<'_, (K, A, B)>, _: &K, state: &mut Option<JoinState<A, B>>) {
        let Some(kept) = state else { return };
        let watermark = context.watermark();
        kept.left.retain(|(time, _)| self.range.useless_from(true, *time) > watermark);
        kept.right.retain(|(time, _)| self.range.useless_from(false, *time) > watermark);
        if kept.left.is_empty() && kept.right.is_empty() {
            *state = None;
        }
    }
}
