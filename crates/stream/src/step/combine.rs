//! Combines the records of each key and window, for windows that do not merge. One cell holds one pane. Open panes are
//! named by their window's end, so the store's order finds those that the watermark has passed, without timers.

use super::{CLOCK, CLOSED, OPEN, PaneOutputs, clock_time};
use crate::{
    combine::{Combine, Partial},
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        cells::{CellId, Cells},
        chain::{BoxPush, DueKind, DueRow, StageProgram, key_in, named},
    },
    window::{Early, Timing, Window, WindowKind, Windowing, pane::Pane},
};
use onceflow_core::{Name, Row};

/// The program of a combine.
pub(crate) struct CombineProgram<K: StreamData, C: Combine, O> {
    combine: C,
    windowing: Windowing,
    is_lifted: bool,
    kept: Vec<Kept<C>>,
    due: Vec<Due>,
    /// The windows of the record that is offered.
    windows: Vec<Window>,
    name: Vec<u8>,
    outputs: PaneOutputs<K, C, O>,
    next: BoxPush<O>,
}

struct Kept<C: Combine> {
    open: CellId,
    /// Only needed once the window has ended.
    closed: Option<CellId>,
    window: Window,
    records: Contribution<C>,
}

enum Contribution<C: Combine> {
    Record(C::In),
    Partial(Partial<C::Acc>),
}

struct Due {
    tag: u8,
    cell: CellId,
    /// Where the pane goes when its window has ended and late records are taken.
    closed: Option<CellId>,
    window: Window,
    timer: Name,
}

impl<K: StreamData, C: Combine, O: StreamData> CombineProgram<K, C, O> {
    pub(crate) fn new(
        combine: C,
        windowing: Windowing,
        is_lifted: bool,
        outputs: PaneOutputs<K, C, O>,
        next: BoxPush<O>,
    ) -> Self {
        let (kept, due, windows, name) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        CombineProgram { combine, windowing, is_lifted, kept, due, windows, name, outputs, next }
    }

    fn pane_cell(&mut self, bundle: &Bundle, cells: &mut Cells, tag: u8, end: EventTime, key: &[u8]) -> CellId {
        named(&mut self.name, tag, &[end.to_sortable()], key);
        cells.need(&self.name, bundle.number)
    }

    /// Adds the records to their pane if it is in memory, as most are; else keeps them until it is. The records of one
    /// pane stay in order: while it is not read, all of them are kept.
    fn keep(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        key: &[u8],
        window: Window,
        records: Contribution<C>,
    ) -> Result<(), BadValue> {
        if self.windowing.is_expired(window, bundle.watermark) {
            bundle.late += match records {
                Contribution::Record(_) => 1,
                Contribution::Partial(partial) => partial.records,
            };
            return Ok(());
        }
        let open = self.pane_cell(bundle, cells, OPEN, window.end, key);
        let has_ended = window.end <= bundle.watermark;
        let closed = has_ended.then(|| self.pane_cell(bundle, cells, CLOSED, window.end, key));
        let kept = Kept { open, closed, window, records };
        if closed.is_none() && cells.is_read(open) {
            return self.add(bundle, cells, kept);
        }
        self.kept.push(kept);
        Ok(())
    }

    fn add(&mut self, bundle: &mut Bundle, cells: &mut Cells, kept: Kept<C>) -> Result<(), BadValue> {
        let is_open = kept.closed.is_none() || cells.get::<Pane<C::Acc>>(kept.open)?.is_some();
        let cell = kept.closed.filter(|_| !is_open).unwrap_or(kept.open);
        if is_open {
            bundle.note_due(OPEN, kept.window.end.0);
        } else {
            bundle.note_due(CLOSED, kept.window.end.0);
        }
        let pane = cells.get_or(cell, || Pane::new(self.combine.identity()))?;
        if !is_open {
            pane.closed();
        }
        let records = match kept.records {
            Contribution::Record(record) => {
                self.combine.add(&mut pane.acc, record);
                1
            }
            Contribution::Partial(partial) => {
                self.combine.merge(&mut pane.acc, partial.acc);
                partial.records
            }
        };
        let due_before = pane.due_ms();
        let timing = pane.added(&self.windowing.trigger, records, bundle.now_ms);
        let due_now = pane.due_ms().filter(|due| Some(*due) != due_before);
        if let Some(due) = due_now {
            let key = key_in(cells.name(cell).as_bytes(), 1).to_vec();
            let times = [clock_time(due).to_sortable(), kept.window.end.to_sortable()];
            named(&mut self.name, CLOCK, &times, &key);
            cells.put_raw(Name::new(&self.name), Some(Row::default()));
            bundle.note_due(CLOCK, clock_time(due).0);
        }
        match timing {
            Some(timing) => self.give(bundle, cells, cell, kept.window, timing),
            None => Ok(()),
        }
    }

    fn give(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        cell: CellId,
        window: Window,
        timing: Timing,
    ) -> Result<(), BadValue> {
        let (name, pane) = cells.state::<Pane<C::Acc>>(cell)?;
        let Some(pane) = pane else { return Ok(()) };
        let acc = pane.give(self.windowing.trigger.mode, || self.combine.identity());
        self.outputs.give(
            &mut self.next,
            bundle,
            key_in(name.as_bytes(), 1),
            (window, timing),
            self.combine.result(acc),
        )
    }

    fn fire_one(&mut self, bundle: &mut Bundle, cells: &mut Cells, mut due: Due) -> Result<(), BadValue> {
        if let (CLOCK, Some(closed)) = (due.tag, due.closed)
            && cells.look::<Pane<C::Acc>>(due.cell)?.is_none()
        {
            due.cell = closed;
        }
        let timing = match (cells.get::<Pane<C::Acc>>(due.cell)?, due.tag) {
            (None, _) => None,
            (Some(pane), CLOCK) => pane.at(bundle.now_ms),
            (Some(pane), OPEN) => pane.closed(),
            (Some(pane), _) => pane.expired(),
        };
        if let Some(timing) = timing {
            self.give(bundle, cells, due.cell, due.window, timing)?;
        }
        match (due.tag, due.closed) {
            (CLOCK, _) => cells.put_raw(due.timer, None),
            (_, Some(closed)) => {
                let pane = cells.state::<Pane<C::Acc>>(due.cell)?.1.take();
                bundle.note_due(CLOSED, due.window.end.0);
                cells.set(closed, pane)?;
            }
            (_, None) => cells.set::<Pane<C::Acc>>(due.cell, None)?,
        }
        Ok(())
    }
}

/// The window of this kind that has this end.
fn window_with_end(kind: WindowKind, end: EventTime) -> Window {
    match kind {
        WindowKind::Global => Window::GLOBAL,
        WindowKind::Tumbling { size_ms } | WindowKind::Sliding { size_ms, .. } => {
            Window { start: end.plus_ms(-size_ms), end }
        }
        WindowKind::Session { .. } => unreachable!("sessions have a program of their own"),
    }
}

impl<K: StreamData, C: Combine, O: StreamData> StageProgram for CombineProgram<K, C, O> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        _: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        let kind = self.windowing.kind;
        if self.is_lifted {
            let partial: Partial<C::Acc> = data::decode(value)?;
            let mut window = Window::GLOBAL;
            kind.assign(time, |assigned| window = assigned);
            return self.keep(bundle, cells, key, window, Contribution::Partial(partial));
        }
        let record: C::In = data::decode(value)?;
        let mut windows = std::mem::take(&mut self.windows);
        kind.assign(time, |window| windows.push(window));
        let is_expired = |window: &Window| self.windowing.is_expired(*window, bundle.watermark);
        // A record between two windows is in none, and so not late.
        if !windows.is_empty() && windows.iter().all(is_expired) {
            bundle.late += windows.len() as u64;
            return self.outputs.give_late(&mut self.next, bundle, key, record, time);
        }
        let mut record = Some(record);
        let last = windows.len().saturating_sub(1);
        for (at, window) in windows.drain(..).enumerate() {
            let record = if at == last { record.take() } else { record.clone() };
            let record = record.expect("the record is taken by its last window only");
            self.keep(bundle, cells, key, window, Contribution::Record(record))?;
        }
        self.windows = windows;
        Ok(())
    }

    fn run(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        let mut kept = std::mem::take(&mut self.kept);
        let result = kept.drain(..).try_for_each(|kept| self.add(bundle, cells, kept));
        self.kept = kept;
        result
    }

    fn due_kinds(&self) -> Vec<DueKind> {
        let mut kinds = vec![DueKind { tag: OPEN, delay_ms: 0, by_clock: false }];
        if self.windowing.lateness_ms > 0 {
            kinds.push(DueKind { tag: CLOSED, delay_ms: self.windowing.lateness_ms, by_clock: false });
        }
        let trigger = &self.windowing.trigger;
        if matches!(trigger.early, Some(Early::AfterMs(_))) || trigger.late_after_ms.is_some() {
            kinds.push(DueKind { tag: CLOCK, delay_ms: 0, by_clock: true });
        }
        kinds
    }

    fn due(&mut self, bundle: &mut Bundle, cells: &mut Cells, kind: DueKind, due: &DueRow) {
        let name = due.name.as_bytes();
        let times = if kind.tag == CLOCK { 2 } else { 1 };
        let end = name.get(1 + 8 * (times - 1)..1 + 8 * times).and_then(EventTime::from_sortable);
        let end = end.expect("the rows of panes and timers are named by their times");
        let window = window_with_end(self.windowing.kind, end);
        let cell = match kind.tag {
            CLOCK => self.pane_cell(bundle, cells, OPEN, end, key_in(name, 2)),
            _ => cells.found(&due.name, &due.row, bundle.number),
        };
        // The pane of a timer is open, or closed by now.
        let needs_closed = kind.tag != CLOSED && self.windowing.lateness_ms > 0;
        let closed = needs_closed.then(|| self.pane_cell(bundle, cells, CLOSED, end, key_in(name, times)));
        self.due.push(Due { tag: kind.tag, cell, closed, window, timer: due.name.clone() });
    }

    fn fire(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        std::mem::take(&mut self.due).into_iter().try_for_each(|due| self.fire_one(bundle, cells, due))
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}
