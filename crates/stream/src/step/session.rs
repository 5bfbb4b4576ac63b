//! Combines the records of each key and session. One cell holds all open sessions of a key, because a record may merge
//! them; one timer per key wakes it for whichever comes first.

use super::{CLOCK, KEY, PaneOutputs, TIMER, clock_time};
use crate::{
    combine::Combine,
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        cells::{CellId, Cells},
        chain::{BoxPush, DueKind, DueRow, StageProgram, key_in, named},
    },
    window::{Timing, Window, Windowing, pane::Pane, session::Sessions},
};
use onceflow_core::{Name, Row};
use serde::{Deserialize, Serialize};

/// The sessions of a key, and the timers that are set for them: event time, processing time.
#[derive(Clone, Serialize, Deserialize)]
struct KeySessions<A> {
    sessions: Sessions<A>,
    timers: [Option<EventTime>; 2],
}

/// The program of a combine over sessions.
pub(crate) struct SessionProgram<K: StreamData, C: Combine, O> {
    combine: C,
    windowing: Windowing,
    kept: Vec<(CellId, C::In, Window)>,
    due: Vec<(CellId, Name)>,
    name: Vec<u8>,
    outputs: PaneOutputs<K, C, O>,
    next: BoxPush<O>,
}

impl<K: StreamData, C: Combine, O: StreamData> SessionProgram<K, C, O> {
    pub(crate) fn new(combine: C, windowing: Windowing, outputs: PaneOutputs<K, C, O>, next: BoxPush<O>) -> Self {
        SessionProgram { combine, windowing, kept: Vec::new(), due: Vec::new(), name: Vec::new(), outputs, next }
    }

    /// Takes the sessions of a key out of its cell; they are to be put back.
    fn load(cells: &mut Cells, cell: CellId) -> Result<KeySessions<C::Acc>, BadValue> {
        let stored = cells.state::<KeySessions<C::Acc>>(cell)?.1.take();
        Ok(stored.unwrap_or_else(|| KeySessions { sessions: Sessions::default(), timers: [None; 2] }))
    }

    fn give(
        &mut self,
        bundle: &mut Bundle,
        key: &[u8],
        window: Window,
        pane: &mut Pane<C::Acc>,
        timing: Timing,
    ) -> Result<(), BadValue> {
        let acc = pane.give(self.windowing.trigger.mode, || self.combine.identity());
        self.outputs.give(&mut self.next, bundle, key, (window, timing), self.combine.result(acc))
    }

    fn add(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        cell: CellId,
        record: C::In,
        window: Window,
    ) -> Result<(), BadValue> {
        let mut state = Self::load(cells, cell)?;
        let Some(at) = state.sessions.place(&self.windowing, &self.combine, window, bundle.watermark) else {
            bundle.late += 1;
            Self::put_back(cells, cell, state)?;
            let key = key_in(cells.name(cell).as_bytes(), 0).to_vec();
            return self.outputs.give_late(&mut self.next, bundle, &key, record, window.start);
        };
        let (window, pane) = &mut state.sessions.open[at];
        if window.end <= bundle.watermark {
            pane.closed();
        }
        self.combine.add(&mut pane.acc, record);
        let key = key_in(cells.name(cell).as_bytes(), 0).to_vec();
        if let Some(timing) = pane.added(&self.windowing.trigger, 1, bundle.now_ms) {
            self.give(bundle, &key, *window, pane, timing)?;
        }
        self.store(bundle, cells, cell, &key, state)
    }

    fn put_back(cells: &mut Cells, cell: CellId, state: KeySessions<C::Acc>) -> Result<(), BadValue> {
        let is_empty = state.sessions.open.is_empty();
        cells.set(cell, (!is_empty).then_some(state))
    }

    /// Stores the sessions of a key, with timers no later than whichever of them comes due first. A session grows with
    /// every record: its timer stays where it is, and is set anew when it fires too early.
    fn store(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        cell: CellId,
        key: &[u8],
        mut state: KeySessions<C::Acc>,
    ) -> Result<(), BadValue> {
        let open = &state.sessions.open;
        let due = |(window, pane): &(Window, Pane<C::Acc>)| {
            if pane.is_closed() { self.windowing.expiry(*window) } else { window.end }
        };
        let wanted =
            [open.iter().map(due).min(), open.iter().filter_map(|(_, pane)| pane.due_ms()).min().map(clock_time)];
        for (at, tag) in [TIMER, CLOCK].into_iter().enumerate() {
            if state.timers[at] == wanted[at]
                || wanted[at].is_some_and(|time| state.timers[at].is_some_and(|set| set < time))
            {
                continue;
            }
            for (time, row) in [(state.timers[at], None), (wanted[at], Some(Row::default()))] {
                let Some(time) = time else { continue };
                named(&mut self.name, tag, &[time.to_sortable()], key);
                cells.put_raw(Name::new(&self.name), row);
            }
            if let Some(time) = wanted[at] {
                bundle.note_due(tag, time.0);
            }
            state.timers[at] = wanted[at];
        }
        Self::put_back(cells, cell, state)
    }

    fn fire_one(&mut self, bundle: &mut Bundle, cells: &mut Cells, cell: CellId, timer: Name) -> Result<(), BadValue> {
        cells.put_raw(timer.clone(), None);
        let mut state = Self::load(cells, cell)?;
        let at = usize::from(timer.as_bytes()[0] == CLOCK);
        let time = timer.as_bytes().get(1..9).and_then(EventTime::from_sortable);
        if state.timers[at] == time {
            state.timers[at] = None;
        }
        let key = key_in(cells.name(cell).as_bytes(), 0).to_vec();
        for (window, mut pane) in std::mem::take(&mut state.sessions.open) {
            let is_expired = self.windowing.is_expired(window, bundle.watermark);
            let timing = match () {
                () if is_expired => pane.expired(),
                () if window.end <= bundle.watermark => match pane.closed() {
                    None => pane.at(bundle.now_ms),
                    on_time => on_time,
                },
                () => pane.at(bundle.now_ms),
            };
            if let Some(timing) = timing {
                self.give(bundle, &key, window, &mut pane, timing)?;
            }
            if !is_expired {
                state.sessions.open.push((window, pane));
            }
        }
        self.store(bundle, cells, cell, &key, state)
    }
}

impl<K: StreamData, C: Combine, O: StreamData> StageProgram for SessionProgram<K, C, O> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        _: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        let record = data::decode(value)?;
        named(&mut self.name, KEY, &[], key);
        let cell = cells.need(&self.name, bundle.number);
        self.windowing.kind.assign(time, |window| self.kept.push((cell, Clone::clone(&record), window)));
        Ok(())
    }

    fn run(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().try_for_each(|(cell, record, window)| self.add(bundle, cells, cell, record, window))
    }

    fn due_kinds(&self) -> Vec<DueKind> {
        [(TIMER, false), (CLOCK, true)].map(|(tag, by_clock)| DueKind { tag, delay_ms: 0, by_clock }).into()
    }

    fn due(&mut self, bundle: &mut Bundle, cells: &mut Cells, _: DueKind, due: &DueRow) {
        let key = key_in(due.name.as_bytes(), 1).to_vec();
        named(&mut self.name, KEY, &[], &key);
        self.due.push((cells.need(&self.name, bundle.number), due.name.clone()));
    }

    fn fire(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        std::mem::take(&mut self.due)
            .into_iter()
            .try_for_each(|(cell, timer)| self.fire_one(bundle, cells, cell, timer))
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}
