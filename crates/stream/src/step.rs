//! The steps that keep state per key, as programs of a stage.
//!
//! | module | the step |
//! |---|---|
//! | `call` | calls something outside for each record |
//! | `client_ids` | passes each record on once, by an id that its client chose |
//! | `combine` | combines the records of each key and window |
//! | `lifted` | the half of a combine in front of the shuffle |
//! | `session` | combines the records of each key and session |
//! | `process` | the user's own state and timers per key |
//! | `join` | joins of two keyed streams, on top of [`process`] |
//! | `lookup` | enriches records with the row that a table had for their key at their time |

pub(crate) mod call;
pub(crate) mod client_ids;
pub(crate) mod combine;
pub mod join;
pub(crate) mod lifted;
pub(crate) mod lookup;
pub mod process;
pub(crate) mod session;

use crate::{
    combine::Combine,
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        chain::{AnyPush, BoxPush, Last, any},
    },
    window::{Timing, Window},
};
use serde::{Deserialize, Serialize};

/// Open panes, in order of their window's end.
pub(crate) const OPEN: u8 = 0;
/// Panes whose window has ended and that still take late records, in order of their window's end.
pub(crate) const CLOSED: u8 = 1;
/// Timers in processing time.
pub(crate) const CLOCK: u8 = 2;
/// Timers in event time.
pub(crate) const TIMER: u8 = 3;
/// The state of a key.
pub(crate) const KEY: u8 = 4;

/// The record of a call that is open.
pub(crate) const CALL: u8 = 5;
/// A call that ended, and is to be forgotten.
pub(crate) const CALLED: u8 = 6;

/// A record with its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRecord<K, V> {
    /// The key: records of equal keys meet in one partition.
    pub key: K,
    /// The value.
    pub value: V,
}

/// A result of a window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PaneResult<K, R> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
    /// The result's place in the life of the window.
    pub timing: Timing,
    /// The combined value.
    pub value: R,
}

/// Sends keyed records on an edge.
pub(crate) fn keyed_sender<K: StreamData, V: StreamData>(edge: usize) -> AnyPush {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    any::<KeyedRecord<K, V>>(Last(move |bundle: &mut Bundle, record: KeyedRecord<K, V>, time| {
        key.clear();
        key = data::encode_into(std::mem::take(&mut key), &record.key);
        value.clear();
        value = data::encode_into(std::mem::take(&mut value), &record.value);
        bundle.send(edge, &key, &value, time);
    }))
}

/// The outputs of a combine: results of windows, and, where they are read, the records that came after their windows.
pub(crate) struct PaneOutputs<K, C: Combine, O> {
    pub(crate) pane: fn(PaneResult<K, C::Out>) -> O,
    pub(crate) late: Option<fn(KeyedRecord<K, C::In>) -> O>,
}

impl<K, C: Combine, O> Clone for PaneOutputs<K, C, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, C: Combine, O> Copy for PaneOutputs<K, C, O> {}

impl<K: StreamData, C: Combine, O: StreamData> PaneOutputs<K, C, O> {
    /// Passes a window's result on.
    fn give(
        self,
        next: &mut BoxPush<O>,
        bundle: &mut Bundle,
        key: &[u8],
        (window, timing): (Window, Timing),
        value: C::Out,
    ) -> Result<(), BadValue> {
        let key = data::decode(key)?;
        next.push(bundle, (self.pane)(PaneResult { key, window, timing, value }), window.last_moment());
        Ok(())
    }

    /// Passes a record on that is in no window any more, if such records are read.
    fn give_late(
        self,
        next: &mut BoxPush<O>,
        bundle: &mut Bundle,
        key: &[u8],
        value: C::In,
        time: EventTime,
    ) -> Result<(), BadValue> {
        if let Some(late) = self.late {
            let key = data::decode(key)?;
            next.push(bundle, late(KeyedRecord { key, value }), time);
        }
        Ok(())
    }
}

/// The clock of processing time as the time in a name.
pub(crate) fn clock_time(ms: u64) -> EventTime {
    EventTime(i64::try_from(ms).unwrap_or(i64::MAX))
}
