//! The user's own state and timers per key.

use super::{CLOCK, KEY, TIMER, clock_time};
use crate::{
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        cells::{CellId, Cells},
        chain::{BoxPush, DueKind, DueRow, StageProgram, key_in, named},
    },
};
use onceflow_core::{Name, Row};

/// A step with a state per key and timers that call it.
///
/// Its calls for one key come one after the other, and what they change, emit and set takes effect once, with the
/// records that caused it, however often a call was repeated because of a crash. Calls may differ when repeated.
pub trait KeyedProcess: Send + 'static {
    /// The keys.
    type Key: StreamData;
    /// The records.
    type In: StreamData;
    /// The records it makes.
    type Out: StreamData;
    /// The state of a key; the store keeps it between calls.
    type State: StreamData;

    /// Takes a record. Setting `state` to `None` forgets the key.
    fn on_record(
        &mut self,
        context: &mut ProcessContext<'_, Self::Out>,
        key: &Self::Key,
        state: &mut Option<Self::State>,
        record: Self::In,
    );

    /// A timer of this key has come due: the watermark, or the clock, has reached its time.
    fn on_timer(
        &mut self,
        context: &mut ProcessContext<'_, Self::Out>,
        key: &Self::Key,
        state: &mut Option<Self::State>,
    ) {
        let _ = (context, key, state);
    }
}

/// A call of a [`KeyedProcess`]: its time, and what it does beside changing its state.
pub struct ProcessContext<'a, Out> {
    bundle: &'a mut Bundle,
    next: &'a mut BoxPush<Out>,
    time: EventTime,
    timers: Vec<(u8, EventTime, bool)>,
}

impl<Out> ProcessContext<'_, Out> {
    /// Returns the event time of the record or timer; that of a timer in processing time is the watermark.
    pub fn time(&self) -> EventTime {
        self.time
    }

    /// Returns the watermark: no record on time is earlier.
    pub fn watermark(&self) -> EventTime {
        self.bundle.watermark
    }

    /// Returns the time on the store's clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.bundle.now_ms
    }

    /// Emits a record with this call's time.
    pub fn emit(&mut self, record: Out) {
        let time = self.time;
        self.next.push(self.bundle, record, time);
    }

    /// Emits a record with another time, not before this call's.
    pub fn emit_at(&mut self, record: Out, time: EventTime) {
        let time = time.max(self.time);
        self.next.push(self.bundle, record, time);
    }

    /// Sets a timer of this key for when the watermark reaches `time`. A key has one timer for one time.
    pub fn set_timer(&mut self, time: EventTime) {
        self.timers.push((TIMER, time, true));
    }

    /// Removes a timer that was set for `time`; it will not come due.
    pub fn clear_timer(&mut self, time: EventTime) {
        self.timers.push((TIMER, time, false));
    }

    /// Sets a timer of this key for when the store's clock reaches `ms`.
    pub fn set_clock_timer(&mut self, ms: u64) {
        self.timers.push((CLOCK, clock_time(ms), true));
    }

    /// Removes a timer that was set for the clock.
    pub fn clear_clock_timer(&mut self, ms: u64) {
        self.timers.push((CLOCK, clock_time(ms), false));
    }
}

/// Makes the record of a step from the bytes that arrived at one of its inputs.
pub(crate) type DecodePort<T> = fn(usize, &[u8]) -> Result<T, BadValue>;

/// The program of a [`KeyedProcess`].
pub(crate) struct ProcessProgram<P: KeyedProcess> {
    process: P,
    decode: DecodePort<P::In>,
    kept: Vec<(CellId, P::In, EventTime)>,
    due: Vec<(CellId, EventTime, Name)>,
    name: Vec<u8>,
    timers: Vec<(u8, EventTime, bool)>,
    next: BoxPush<P::Out>,
}

impl<P: KeyedProcess> ProcessProgram<P> {
    pub(crate) fn new(process: P, decode: DecodePort<P::In>, next: BoxPush<P::Out>) -> Self {
        let (kept, due, name, timers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        ProcessProgram { process, decode, kept, due, name, timers, next }
    }

    fn call(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        cell: CellId,
        time: EventTime,
        record: Option<P::In>,
    ) -> Result<(), BadValue> {
        let (name, state) = cells.state::<P::State>(cell)?;
        let key = data::decode(key_in(name.as_bytes(), 0))?;
        let timers = std::mem::take(&mut self.timers);
        let mut context = ProcessContext { bundle, next: &mut self.next, time, timers };
        match record {
            Some(record) => self.process.on_record(&mut context, &key, state, record),
            None => self.process.on_timer(&mut context, &key, state),
        }
        let mut timers = context.timers;
        for (tag, time, is_set) in timers.drain(..) {
            named(&mut self.name, tag, &[time.to_sortable()], key_in(cells.name(cell).as_bytes(), 0));
            cells.put_raw(Name::new(&self.name), is_set.then(Row::default));
            if is_set {
                bundle.note_due(tag, time.0);
            }
        }
        self.timers = timers;
        Ok(())
    }
}

impl<P: KeyedProcess> StageProgram for ProcessProgram<P> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        port: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        let record = (self.decode)(port, value)?;
        named(&mut self.name, KEY, &[], key);
        let cell = cells.need(&self.name, bundle.number);
        self.kept.push((cell, record, time));
        Ok(())
    }

    fn run(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        let mut kept = std::mem::take(&mut self.kept);
        let called =
            kept.drain(..).try_for_each(|(cell, record, time)| self.call(bundle, cells, cell, time, Some(record)));
        self.kept = kept;
        called
    }

    fn due_kinds(&self) -> Vec<DueKind> {
        [(TIMER, false), (CLOCK, true)].map(|(tag, by_clock)| DueKind { tag, delay_ms: 0, by_clock }).into()
    }

    fn due(&mut self, bundle: &mut Bundle, cells: &mut Cells, kind: DueKind, due: &DueRow) {
        let name = due.name.as_bytes();
        let time = name.get(1..9).and_then(EventTime::from_sortable).expect("timers are named by their time");
        let key = key_in(name, 1).to_vec();
        named(&mut self.name, KEY, &[], &key);
        let cell = cells.need(&self.name, bundle.number);
        let time = if kind.by_clock { bundle.watermark } else { time };
        self.due.push((cell, time, due.name.clone()));
    }

    fn fire(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        for (cell, time, timer) in std::mem::take(&mut self.due) {
            // An earlier timer of this bundle may have removed this one.
            if cells.is_deleted(&timer) {
                continue;
            }
            cells.put_raw(timer, None);
            self.call(bundle, cells, cell, time, None)?;
        }
        Ok(())
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}
