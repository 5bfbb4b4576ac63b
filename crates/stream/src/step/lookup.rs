//! Enriches records with the row that a table had for their key at their time. The table is a stream of rows; of each key,
//! the latest row that is not after a record's time is the record's.
//!
//! A record waits until the watermark of both streams has passed its time, as a row that comes due then; so its row does
//! not depend on what came first, and a replay gives the same.

use super::{KEY, TIMER};
use crate::{
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        cells::{CellId, Cells},
        chain::{BoxPush, DueKind, DueRow, StageProgram, named},
    },
};
use onceflow_core::{Name, Row};

/// A record with its key, and the row of its key if the table has one.
pub(crate) type Enriched<K, V, W> = (K, V, Option<W>);

/// The rows of one key, by the times from which they hold.
type Versions<W> = Vec<(EventTime, W)>;

struct Found<V> {
    cell: CellId,
    key: Vec<u8>,
    record: V,
    time: EventTime,
}

/// The program of a lookup: records come at port 0, the rows of the table at port 1.
pub(crate) struct LookupProgram<K, V, W> {
    rows: Vec<(CellId, EventTime, W)>,
    /// Records that came after the watermark had passed their time.
    late: Vec<Found<V>>,
    due: Vec<(Found<V>, Name)>,
    name: Vec<u8>,
    next: BoxPush<Enriched<K, V, W>>,
}

impl<K: StreamData, V: StreamData, W: StreamData> LookupProgram<K, V, W> {
    pub(crate) fn new(next: BoxPush<Enriched<K, V, W>>) -> Self {
        LookupProgram { rows: Vec::new(), late: Vec::new(), due: Vec::new(), name: Vec::new(), next }
    }

    fn cell(&mut self, bundle: &Bundle, cells: &mut Cells, key: &[u8]) -> CellId {
        named(&mut self.name, KEY, &[], key);
        cells.need(&self.name, bundle.number)
    }

    /// Passes a record on with the row that held at a time.
    fn give(&mut self, bundle: &mut Bundle, cells: &mut Cells, found: Found<V>, at: EventTime) -> Result<(), BadValue> {
        let versions = cells.look::<Versions<W>>(found.cell)?.map(Vec::as_slice).unwrap_or_default();
        let row = versions.iter().rev().find(|(from, _)| *from <= at).map(|(_, row)| row.clone());
        self.next.push(bundle, (data::decode(&found.key)?, found.record, row), found.time);
        Ok(())
    }
}

/// Adds a row of a key. Of rows of the same time, the one with the larger bytes holds, whichever came first. Rows that no
/// record on time can have any more are left out.
fn add_version<W: StreamData>(versions: &mut Versions<W>, time: EventTime, row: W, watermark: EventTime) {
    let at = versions.partition_point(|(from, _)| *from < time);
    match versions.get_mut(at).filter(|(from, _)| *from == time) {
        Some((_, other)) if data::encode(other) >= data::encode(&row) => {}
        Some((_, other)) => *other = row,
        None => versions.insert(at, (time, row)),
    }
    let current = versions.partition_point(|(from, _)| *from <= watermark).saturating_sub(1);
    versions.drain(..current);
}

impl<K: StreamData, V: StreamData, W: StreamData> StageProgram for LookupProgram<K, V, W> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        port: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        if port == 1 {
            let cell = self.cell(bundle, cells, key);
            self.rows.push((cell, time, data::decode(value)?));
        } else if time < bundle.watermark {
            let cell = self.cell(bundle, cells, key);
            self.late.push(Found { cell, key: key.to_vec(), record: data::decode(value)?, time });
        } else {
            let due = time.plus_ms(1);
            named(&mut self.name, TIMER, &[due.to_sortable()], &bundle.unique_id());
            let row = data::encode(&(time, key, value));
            cells.put_raw(Name::new(&self.name), Some(Row::from(row)));
            bundle.note_due(TIMER, due.0);
        }
        Ok(())
    }

    fn run(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        for (cell, time, row) in std::mem::take(&mut self.rows) {
            add_version(cells.get_or(cell, Versions::new)?, time, row, bundle.watermark);
        }
        // The rows of their own time may be forgotten: they get those that hold now.
        for found in std::mem::take(&mut self.late) {
            let at = found.time.max(bundle.watermark);
            self.give(bundle, cells, found, at)?;
        }
        Ok(())
    }

    fn due_kinds(&self) -> Vec<DueKind> {
        vec![DueKind { tag: TIMER, delay_ms: 0, by_clock: false }]
    }

    fn due(&mut self, bundle: &mut Bundle, cells: &mut Cells, _: DueKind, due: &DueRow) {
        match data::decode::<(EventTime, Vec<u8>, Vec<u8>)>(&due.row) {
            Ok((time, key, value)) => match data::decode(&value) {
                Ok(record) => {
                    let cell = self.cell(bundle, cells, &key);
                    self.due.push((Found { cell, key, record, time }, due.name.clone()));
                }
                Err(wrong) => bundle.fail(wrong),
            },
            Err(wrong) => bundle.fail(wrong),
        }
    }

    fn fire(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        for (found, timer) in std::mem::take(&mut self.due) {
            cells.put_raw(timer, None);
            let at = found.time;
            self.give(bundle, cells, found, at)?;
        }
        Ok(())
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_no_record_on_time_can_have_are_forgotten_and_equal_times_do_not_depend_on_order() {
        let at = |ms| EventTime(ms);
        for order in [[1, 2], [2, 1]] {
            let mut versions = Versions::new();
            order.into_iter().for_each(|row| add_version(&mut versions, at(10), row, at(0)));
            assert_eq!(versions, [(at(10), 2)]);
        }
        let mut versions = Versions::new();
        for (time, watermark) in [(10, 0), (30, 0), (20, 0), (40, 25)] {
            add_version(&mut versions, at(time), time, at(watermark));
        }
        assert_eq!(versions, [(at(20), 20), (at(30), 30), (at(40), 40)], "the row of 10 ended at 20");
        add_version(&mut versions, at(5), 5, at(25));
        assert_eq!(versions.len(), 3, "a row that came too late changes nothing");
    }
}
