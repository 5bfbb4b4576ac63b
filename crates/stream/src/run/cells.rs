//! The keyed state of a partition, as far as it is in memory. A cell is one row: the state of a key, or of a key and a
//! window. The partition is its only writer, so a cell that was read once stays right until the partition is lost.
//!
//! A bundle names the cells it needs before it runs; those that are not in memory are read together. Changed cells are
//! encoded once, when the bundle commits, however many records changed them.

use super::hashed::{HashedMap, hash_of};
use crate::data::{self, BadValue, StreamData};
use onceflow_core::{Batch, Group, Key, Name, Row};
use std::{any::Any, collections::BTreeMap};

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
    /// By the hash of a name, the cell with that name, or the first of several: names are with the cells only, so that
    /// looking one up reads little memory.
    places: HashedMap<CellId>,
    cells: Vec<Cell>,
    /// Places of cells that have left memory.
    vacant: Vec<CellId>,
    /// Cells that may have no state: the deleted ones, and those that were not found.
    maybe_absent: Vec<CellId>,
    /// The cells to read before the bundle runs.
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
    /// The next cell whose name has the same hash.
    next: Option<CellId>,
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
    /// No cell is at the place.
    Vacant,
    Unread,
    Absent,
    Encoded(Row),
    Live(Box<dyn LiveState>),
}

/// A decoded state, or none.
trait LiveState: Any + Send {
    /// Encodes the state, if there is one, behind the bytes that are there.
    fn encode_into(&self, bytes: Vec<u8>) -> Option<Vec<u8>>;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<S: StreamData> LiveState for Option<S> {
    fn encode_into(&self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.as_ref().map(|state| data::encode_into(bytes, state))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl CellContent {
    /// Returns the decoded state.
    #[inline]
    fn live<S: StreamData>(&mut self) -> Result<&mut Option<S>, BadValue> {
        match &*self {
            CellContent::Vacant | CellContent::Unread => {
                unreachable!("a cell is named before the bundle runs, so that it is read")
            }
            CellContent::Absent => *self = CellContent::Live(Box::new(None::<S>)),
            CellContent::Encoded(row) => *self = CellContent::Live(Box::new(Some(data::decode::<S>(row)?))),
            CellContent::Live(_) => {}
        }
        let CellContent::Live(live) = self else { unreachable!("it was decoded just now") };
        // Through the box: the box itself would be a state too.
        let live = (**live).as_any().downcast_mut();
        Ok(live.expect("all steps of a stage agree on the type of a cell"))
    }
}

impl Cells {
    pub(crate) fn new(group: Group) -> Self {
        Cells {
            group,
            places: HashedMap::default(),
            cells: Vec::new(),
            vacant: Vec::new(),
            maybe_absent: Vec::new(),
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
        let id = self.find_or_place(name);
        let cell = &mut self.cells[id.0 as usize];
        if std::mem::replace(&mut cell.named_in, bundle) != bundle {
            self.touched += 1;
            if matches!(cell.content, CellContent::Unread) {
                self.missing.push(id);
            }
        }
        id
    }

    fn find_or_place(&mut self, name: &[u8]) -> CellId {
        let hash = hash_of(name);
        let first = self.places.get(&hash).copied();
        let mut found = first;
        while let Some(id) = found {
            let cell = &self.cells[id.0 as usize];
            if cell.name.as_bytes() == name {
                return id;
            }
            found = cell.next;
        }
        let id = self.place(name, first);
        self.places.insert(hash, id);
        id
    }

    fn place(&mut self, name: &[u8], next: Option<CellId>) -> CellId {
        let cell = Cell {
            name: Name::new(name),
            next,
            content: CellContent::Unread,
            is_stored: false,
            is_changed: false,
            named_in: u64::MAX,
            bytes: 0,
        };
        match self.vacant.pop() {
            Some(id) => {
                self.cells[id.0 as usize] = cell;
                id
            }
            None => {
                self.cells.push(cell);
                CellId(u32::try_from(self.cells.len() - 1).expect("a partition keeps fewer cells in memory"))
            }
        }
    }

    /// Makes the place of a cell vacant.
    fn leave(&mut self, id: CellId) {
        let (hash, next) = (hash_of(self.cells[id.0 as usize].name.as_bytes()), self.cells[id.0 as usize].next);
        match self.places.get(&hash).copied() {
            Some(first) if first == id => match next {
                Some(next) => drop(self.places.insert(hash, next)),
                None => drop(self.places.remove(&hash)),
            },
            first => {
                let mut before = first.expect("a cell is found by the hash of its name");
                while self.cells[before.0 as usize].next != Some(id) {
                    before = self.cells[before.0 as usize].next.expect("a cell is behind the first of its hash");
                }
                self.cells[before.0 as usize].next = next;
            }
        }
        self.vacant.push(id);
    }

    /// The state of a cell is in memory, or known to be absent: it need not be read.
    pub(crate) fn is_read(&self, id: CellId) -> bool {
        !matches!(self.cells[id.0 as usize].content, CellContent::Unread)
    }

    /// Takes in a row that a scan found; a cell in memory is as it was committed, so it stays.
    pub(crate) fn found(&mut self, name: &Name, row: &Row, bundle: u64) -> CellId {
        let id = self.find_or_place(name.as_bytes());
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
            if !cell.is_stored {
                self.maybe_absent.push(id);
            }
        }
    }

    /// Returns how many rows the bundle may change.
    pub(crate) fn touched(&self) -> usize {
        self.touched + self.raw.len()
    }

    /// Returns the state of a cell, to be changed; `None` if there is none.
    pub(crate) fn get<S: StreamData>(&mut self, id: CellId) -> Result<Option<&mut S>, BadValue> {
        match self.cells[id.0 as usize].content {
            CellContent::Absent => Ok(None),
            _ => Ok(self.state(id)?.1.as_mut()),
        }
    }

    /// Returns the name and the state of a cell, to be changed: `None` deletes it.
    pub(crate) fn state<S: StreamData>(&mut self, id: CellId) -> Result<(&Name, &mut Option<S>), BadValue> {
        let Cell { name, content, is_changed, .. } = &mut self.cells[id.0 as usize];
        let state = content.live()?;
        if !std::mem::replace(is_changed, true) {
            self.changed.push(id);
        }
        Ok((name, state))
    }

    /// Returns the state of a cell, which this bundle does not change by that; `None` if there is none.
    pub(crate) fn look<S: StreamData>(&mut self, id: CellId) -> Result<Option<&S>, BadValue> {
        match &mut self.cells[id.0 as usize].content {
            CellContent::Absent => Ok(None),
            content => Ok(content.live()?.as_ref()),
        }
    }

    /// Sets or deletes the state of a cell.
    pub(crate) fn set<S: StreamData>(&mut self, id: CellId, state: Option<S>) -> Result<(), BadValue> {
        *self.state(id)?.1 = state;
        Ok(())
    }

    /// Returns the state of a cell, made by `new` if there is none.
    pub(crate) fn get_or<S: StreamData>(&mut self, id: CellId, new: impl FnOnce() -> S) -> Result<&mut S, BadValue> {
        Ok(self.state(id)?.1.get_or_insert_with(new))
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
        batch.ops.reserve(self.changed.len() + self.raw.len());
        // Most rows are small, and small rows take no memory of their own: so one buffer serves all of them.
        let mut encoded = Vec::new();
        for id in self.changed.drain(..) {
            let cell = &mut self.cells[id.0 as usize];
            cell.is_changed = false;
            let key = Key { group: self.group.clone(), name: cell.name.clone() };
            let CellContent::Live(live) = &cell.content else { unreachable!("an unread cell was not changed") };
            encoded.clear();
            match (**live).encode_into(std::mem::take(&mut encoded)) {
                Some(bytes) => {
                    let row = Row::new(&bytes);
                    encoded = bytes;
                    self.bytes = (self.bytes + row.len()).saturating_sub(cell.bytes);
                    self.batch_bytes += row.len();
                    cell.bytes = row.len();
                    batch.put(key, row);
                    cell.is_stored = true;
                }
                None => {
                    self.bytes = self.bytes.saturating_sub(cell.bytes);
                    (cell.bytes, cell.content) = (0, CellContent::Absent);
                    self.maybe_absent.push(id);
                    if std::mem::replace(&mut cell.is_stored, false) {
                        batch.delete(key);
                    }
                }
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
        if self.places.len() > CELLS_KEPT_MAX || self.bytes > CELL_BYTES_KEPT_MAX {
            self.places.clear();
            self.cells.clear();
            self.vacant.clear();
            self.maybe_absent.clear();
            self.bytes = 0;
        }
        // Windows end all the time: their cells must not stay.
        for id in std::mem::take(&mut self.maybe_absent) {
            // One that left already is noted twice.
            let cell = &mut self.cells[id.0 as usize];
            if matches!(cell.content, CellContent::Absent) {
                cell.content = CellContent::Vacant;
                self.leave(id);
            }
        }
    }

    fn key(&self, name: &Name) -> Key {
        Key { group: self.group.clone(), name: name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Shard;

    fn commit(cells: &mut Cells) -> usize {
        let mut batch = Batch::new(Shard(0));
        cells.commit_into(&mut batch);
        cells.committed();
        batch.ops.len()
    }

    #[test]
    fn deleted_cells_leave_memory_and_those_that_never_were_too() {
        let mut cells = Cells::new(Group::rows("state"));
        for bundle in 0..1000u64 {
            let (old, new, never) = (bundle.saturating_sub(1), bundle, bundle + 5000);
            let [old, new, never] = [old, new, never].map(|name| cells.need(&name.to_be_bytes(), bundle));
            let missing = cells.missing().len();
            cells.read(vec![None; missing]);
            if bundle > 0 {
                assert_eq!(cells.get::<u64>(old).unwrap().copied(), Some(bundle - 1));
                cells.set::<u64>(old, None).unwrap();
            }
            cells.set(new, Some(bundle)).unwrap();
            assert_eq!(cells.get::<u64>(never).unwrap(), None);
            assert_eq!(commit(&mut cells), if bundle > 0 { 2 } else { 1 });
            assert!(cells.places.len() == 1 && cells.cells.len() <= 3, "{} places", cells.cells.len());
        }
        assert_eq!(cells.bytes, 2);
    }

    #[test]
    fn cells_whose_names_share_a_hash_are_found_though_others_leave_between_them() {
        let mut cells = Cells::new(Group::rows("state"));
        let names = |bundle: u64| (0..40u64).filter(move |name| bundle == 0 || name % bundle == 0);
        for (bundle, kept) in [(0, 0), (1, 3), (2, 2), (3, 7)] {
            let ids: Vec<_> = (0..40u64).map(|name| (name, cells.need(&name.to_be_bytes(), bundle))).collect();
            let missing = cells.missing().len();
            cells.read(vec![None; missing]);
            for (name, id) in ids {
                assert_eq!(cells.name(id).as_bytes(), name.to_be_bytes());
                let is_kept = names(kept).any(|kept| kept == name);
                cells.set(id, is_kept.then_some(name)).unwrap();
            }
            commit(&mut cells);
            for name in names(kept) {
                let id = cells.need(&name.to_be_bytes(), bundle + 100);
                assert_eq!(cells.look(id).unwrap(), Some(&name), "kept by bundle {bundle}");
            }
            cells.committed();
        }
    }

    #[test]
    fn a_cell_that_is_deleted_and_set_again_in_one_bundle_is_put() {
        let mut cells = Cells::new(Group::rows("state"));
        let id = cells.need(b"a", 0);
        cells.read(vec![Some(Row::new([7]))]);
        assert_eq!(cells.state::<u64>(id).unwrap().1.take(), Some(7));
        assert_eq!(cells.get::<u64>(id).unwrap(), None);
        assert_eq!(*cells.get_or(id, || 9u64).unwrap(), 9);
        assert_eq!(commit(&mut cells), 1);
        let id = cells.need(b"a", 1);
        assert_eq!(cells.get::<u64>(id).unwrap(), Some(&mut 9));
    }
}
