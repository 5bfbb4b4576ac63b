//! The keyed state of a partition, as far as it is in memory. A cell is one row: the state of a key, or of a key and a
//! window. The partition is its only writer, so a cell that was read once stays right until the partition is lost.
//!
//! A bundle names the cells it needs before it runs; those that are not in memory are read together. Changed cells are
//! encoded once, when the bundle commits, however many records changed them.

use crate::data::{self, BadValue, StreamData};
use foldhash::fast::FixedState;
use onceflow_core::{Batch, Group, Key, Name, Row};
use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
};

/// Cells that are kept in memory between bundles; with more, all are dropped and read again when needed.
const CELLS_KEPT_MAX: usize = 1 << 18;

/// Bytes of the cells, as rows, that are kept in memory between bundles: states may be large, so their number says little.
const CELL_BYTES_KEPT_MAX: usize = 32 << 20;

/// A cell's place in memory, valid until the bundle has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellId(u32);

/// The state of a partition.
pub(crate) struct Cells {
    group: Group,
    places: HashMap<Name, CellId, FixedState>,
    cells: Vec<Cell>,
    /// Cells to be read before the bundle runs.
    missing: Vec<CellId>,
    /// Cells that this bundle changed.
    changed: Vec<CellId>,
    /// Cells that this bundle may change: the rows its batch may need.
    touched: usize,
    /// Bytes of the cells in memory, as rows.
    bytes: usize,
    /// Bytes of the rows that the bundle has put into its batch.
    batch_bytes: usize,
    /// Rows put or deleted by name, timers among them.
    raw: BTreeMap<Name, Option<Row>>,
}

struct Cell {
    name: Name,
    content: CellContent,
    /// The store has a row.
    is_stored: bool,
    is_changed: bool,
    /// The bundle that named it last.
    named_in: u64,
    /// The size of its row when it was last read or written.
    bytes: usize,
}

enum CellContent {
    Unread,
    Absent,
    Encoded(Row),
    Live(Box<dyn LiveState>),
}

/// A decoded state.
trait LiveState: Any + Send {
    fn encode(&self) -> Vec<u8>;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<S: StreamData> LiveState for S {
    fn encode(&self) -> Vec<u8> {
        data::encode(self)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Cells {
    pub(crate) fn new(group: Group) -> Self {
        Cells {
            group,
            places: HashMap::default(),
            cells: Vec::new(),
            missing: Vec::new(),
            changed: Vec::new(),
            touched: 0,
            bytes: 0,
            batch_bytes: 0,
            raw: BTreeMap::new(),
        }
    }

    /// Names a cell that the bundle will use.
    pub(crate) fn need(&mut self, name: &[u8], bundle: u64) -> CellId {
        let id = match self.places.get(name) {
            Some(id) => *id,
            None => self.place(name, CellContent::Unread, false),
        };
        let cell = &mut self.cells[id.0 as usize];
        if std::mem::replace(&mut cell.named_in, bundle) != bundle {
            self.touched += 1;
            if matches!(cell.content, CellContent::Unread) {
                self.missing.push(id);
            }
        }
        id
    }

    fn place(&mut self, name: &[u8], content: CellContent, is_stored: bool) -> CellId {
        let id = CellId(u32::try_from(self.cells.len()).expect("a partition keeps fewer cells in memory"));
        let name = Name::new(name);
        self.places.insert(name.clone(), id);
        self.cells.push(Cell { name, content, is_stored, is_changed: false, named_in: u64::MAX, bytes: 0 });
        id
    }

    /// Takes in a row that a scan found; a cell in memory is as it was committed, so it stays.
    pub(crate) fn found(&mut self, name: &Name, row: &Row, bundle: u64) -> CellId {
        let id = match self.places.get(name) {
            Some(id) => *id,
            None => self.place(name.as_bytes(), CellContent::Unread, false),
        };
        let cell = &mut self.cells[id.0 as usize];
        if matches!(cell.content, CellContent::Unread) {
            (cell.content, cell.is_stored, cell.bytes) = (CellContent::Encoded(row.clone()), true, row.len());
            self.bytes += row.len();
        }
        if std::mem::replace(&mut cell.named_in, bundle) != bundle {
            self.touched += 1;
        }
        id
    }

    /// Returns the name of a cell.
    pub(crate) fn name(&self, id: CellId) -> &Name {
        &self.cells[id.0 as usize].name
    }

    /// Returns the keys of cells to read before the bundle runs.
    pub(crate) fn missing(&self) -> Vec<Key> {
        self.missing.iter().map(|id| self.key(&self.cells[id.0 as usize].name)).collect()
    }

    /// Takes in the rows of [`Cells::missing`], in that order.
    pub(crate) fn read(&mut self, rows: Vec<Option<Row>>) {
        assert_eq!(rows.len(), self.missing.len(), "every missing cell was read");
        for (id, row) in self.missing.drain(..).zip(rows) {
            let cell = &mut self.cells[id.0 as usize];
            cell.is_stored = row.is_some();
            cell.bytes = row.as_ref().map_or(0, |row| row.len());
            self.bytes += cell.bytes;
            cell.content = row.map_or(CellContent::Absent, CellContent::Encoded);
        }
    }

    /// Returns how many rows the bundle may change.
    pub(crate) fn touched(&self) -> usize {
        self.touched + self.raw.len()
    }

    /// Returns the state of a cell, to be changed; `None` if there is none.
    pub(crate) fn get<S: StreamData>(&mut self, id: CellId) -> Result<Option<&mut S>, BadValue> {
        self.decode::<S>(id)?;
        let cell = &mut self.cells[id.0 as usize];
        let CellContent::Live(live) = &mut cell.content else { return Ok(None) };
        if !std::mem::replace(&mut cell.is_changed, true) {
            self.changed.push(id);
        }
        // Through the box: the box itself would be a state too.
        let live = (**live).as_any().downcast_mut();
        Ok(Some(live.expect("all steps of a stage agree on the type of a cell")))
    }

    /// Returns the state of a cell, which this bundle does not change by that; `None` if there is none.
    pub(crate) fn look<S: StreamData>(&mut self, id: CellId) -> Result<Option<&S>, BadValue> {
        self.decode::<S>(id)?;
        let CellContent::Live(live) = &mut self.cells[id.0 as usize].content else { return Ok(None) };
        let live = (**live).as_any().downcast_ref();
        Ok(Some(live.expect("all steps of a stage agree on the type of a cell")))
    }

    fn decode<S: StreamData>(&mut self, id: CellId) -> Result<(), BadValue> {
        let cell = &mut self.cells[id.0 as usize];
        match &cell.content {
            CellContent::Unread => {
                unreachable!("the cell {:?} was named before the bundle ran, so it was read", cell.name)
            }
            CellContent::Encoded(row) => cell.content = CellContent::Live(Box::new(data::decode::<S>(row)?)),
            CellContent::Absent | CellContent::Live(_) => {}
        }
        Ok(())
    }

    /// Sets or deletes the state of a cell.
    pub(crate) fn set<S: StreamData>(&mut self, id: CellId, state: Option<S>) {
        let cell = &mut self.cells[id.0 as usize];
        assert!(!matches!(cell.content, CellContent::Unread), "a cell is read before it is set");
        cell.content = match state {
            Some(state) => CellContent::Live(Box::new(state)),
            None => CellContent::Absent,
        };
        if !std::mem::replace(&mut cell.is_changed, true) {
            self.changed.push(id);
        }
    }

    /// Returns the state of a cell, made by `new` if there is none.
    pub(crate) fn get_or<S: StreamData>(&mut self, id: CellId, new: impl FnOnce() -> S) -> Result<&mut S, BadValue> {
        if matches!(self.cells[id.0 as usize].content, CellContent::Absent) {
            self.set(id, Some(new()));
        }
        Ok(self.get(id)?.expect("the cell has a state now"))
    }

    /// Puts or deletes a row that is not kept in memory, such as a timer.
    pub(crate) fn put_raw(&mut self, name: Name, row: Option<Row>) {
        self.raw.insert(name, row);
    }

    /// This bundle has deleted the row.
    pub(crate) fn is_deleted(&self, name: &Name) -> bool {
        matches!(self.raw.get(name), Some(None))
    }

    /// Adds every change of this bundle to its batch.
    pub(crate) fn commit_into(&mut self, batch: &mut Batch) {
        self.batch_bytes = 0;
        for id in std::mem::take(&mut self.changed) {
            let cell = &mut self.cells[id.0 as usize];
            cell.is_changed = false;
            let key = Key { group: self.group.clone(), name: cell.name.clone() };
            match &cell.content {
                CellContent::Live(live) => {
                    let row = Row::from((**live).encode());
                    self.bytes = (self.bytes + row.len()).saturating_sub(cell.bytes);
                    self.batch_bytes += row.len();
                    cell.bytes = row.len();
                    batch.put(key, row);
                    cell.is_stored = true;
                }
                CellContent::Absent if cell.is_stored => {
                    batch.delete(key);
                    cell.is_stored = false;
                }
                CellContent::Absent => {}
                CellContent::Unread | CellContent::Encoded(_) => unreachable!("an unread cell was not changed"),
            }
        }
        for (name, row) in std::mem::take(&mut self.raw) {
            let key = self.key(&name);
            match row {
                Some(row) => {
                    self.batch_bytes += row.len();
                    batch.put(key, row)
                }
                None => batch.delete(key),
            };
        }
    }

    /// Returns the bytes of the rows that the last [`Cells::commit_into`] has put.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Ends a bundle that was committed: cells that were deleted, or are too many, leave memory.
    pub(crate) fn committed(&mut self) {
        assert!(self.changed.is_empty() && self.raw.is_empty(), "all changes were in the batch");
        self.touched = 0;
        self.missing.clear();
        if self.cells.len() > CELLS_KEPT_MAX || self.bytes > CELL_BYTES_KEPT_MAX {
            self.places.clear();
            self.cells.clear();
            self.bytes = 0;
        }
    }

    fn key(&self, name: &Name) -> Key {
        Key { group: self.group.clone(), name: name.clone() }
    }
}
