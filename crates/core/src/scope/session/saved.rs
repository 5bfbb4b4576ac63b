//! A session as rows: one for each message it holds, each order, each operation that is not as it began; its own row has
//! phase and counts only. A durable driver writes the rows that an event changed, and restores the session from them.
//! Counts that follow from other rows (active orders, lacking buffers, reachability) are not stored but derived.
//!
//! | row | content |
//! |---|---|
//! | `s` | phase, the number of commits, the next order's turn, the numbers of the rows below |
//! | `r` | the result, or why there is none, once the session ends |
//! | `b` `c` `t`, slot, number | a message in a buffer, a collection, a trim |
//! | `o`, turn | an order: operation or cleanup flow, told to end, trims that wait for it |
//! | `p`, operation | rounds, gate, collection given, unless all are as in the beginning |
//! | `d`, operation, port | the last disposal |
//! | `m`, operation, port | a stream was sent by |
//! | `x`, number | a mishap |
//!
//! Collections and trims are not read once a session ends, nor are buffers once its cleanup flows have begun: from then on
//! their rows stay as they are, and go with the session's last commit.

use super::{
    Session, Shelf, Stage,
    counts::{RowCounts, is_before},
    orders::Open,
    orders::OrderKind,
};
use crate::{
    key::Name,
    protocol::rows::{read, write},
    row::Row,
    scope::{
        cause::{CancelCause, DisposalCause, Mishap},
        check::Scope,
        definition::{OpId, OpKind},
        effect::OrderId,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The state that was stored last, as far as it is compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    commits: u64,
    counts: RowCounts,
    ops: Vec<SavedOp>,
    has_outcome: bool,
    mishaps: usize,
    pub(crate) disposals: Vec<(OpId, u32)>,
    pub(crate) streamed: Vec<(OpId, u32)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedOp {
    rounds: u32,
    is_closed: bool,
    has_given: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum SavedPhase {
    Running { is_deferred: bool },
    CleaningOperations,
    CleaningBuffers,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedOrder {
    pub(crate) id: OrderId,
    open: Open,
}

/// The name of a session's own row.
pub const SESSION_ROW: &[u8] = b"s";

/// Returns the name of an order's row.
pub fn order_row(order: OrderId) -> Name {
    Name::join(&[b"o", &order.turn.to_be_bytes()])
}

/// An order was told to end, as its row says.
pub fn is_order_cancelled(row: &[u8]) -> Option<bool> {
    read::<SavedOrder>(row).map(|saved| saved.open.is_cancelled)
}

/// The order that a row stands for.
pub fn read_order(row: &[u8]) -> Option<OrderId> {
    read::<SavedOrder>(row).map(|saved| saved.id)
}

/// A row of the machine can be read, as far as that can be told without its scope. `None` for rows of other kinds.
pub fn is_readable<M: DeserializeOwned>(name: &[u8], row: &[u8]) -> Option<bool> {
    let (kind, rest) = name.split_first()?;
    Some(match kind {
        b's' if rest.is_empty() => read::<(SavedPhase, u64, u32, RowCounts)>(row).is_some(),
        b'r' => read::<Result<M, CancelCause>>(row).is_some(),
        b'b' | b'c' | b't' => be64(rest, 4).is_some() && read::<M>(row).is_some(),
        b'o' => read::<SavedOrder>(row).is_some_and(|saved| order_row(saved.id).as_bytes() == name),
        b'p' => be32(rest, 0).is_some() && read::<SavedOp>(row).is_some(),
        b'd' => be32(rest, 4).is_some() && read::<DisposalCause>(row).is_some(),
        b'm' => be32(rest, 4).is_some(),
        b'x' => read::<Mishap>(row).is_some(),
        _ => return None,
    })
}

fn numbered(kind: &[u8], slot: usize, number: u64) -> Name {
    let slot = u32::try_from(slot).expect("operations are numbered in 32 bits");
    Name::join(&[kind, &slot.to_be_bytes(), &number.to_be_bytes()])
}

fn port_row(kind: &[u8], (op, port): (OpId, u32)) -> Name {
    Name::join(&[kind, &op.0.to_be_bytes(), &port.to_be_bytes()])
}

impl<M: Serialize + DeserializeOwned> Session<M> {
    /// Creates a session that waits for its first message and records which of its rows change.
    pub fn recorded(scope: &Scope) -> Self {
        let mut session = Session::new(scope);
        session.record(Recorder { ops: vec![SavedOp::default(); scope.ops.len()], ..Recorder::default() });
        session
    }

    fn record(&mut self, recorder: Recorder) {
        let stores = self.stores.iter_mut().map(|store| &mut store.entries);
        let held = self.collections.iter_mut().map(|collection| &mut collection.held);
        stores.chain(held).chain(self.trims.iter_mut().map(|(_, held)| held)).for_each(Shelf::record);
        self.orders.record();
        self.recorder = Some(Box::new(recorder));
    }

    /// The rows that changed since they were last asked for; `None` for a row that is to be deleted. A session that is
    /// done has no rows.
    ///
    /// # Panics
    /// If the session is not [recorded](Session::recorded).
    pub fn take_changes(&mut self, scope: &Scope) -> Vec<(Name, Option<Row>)> {
        let mut rows = Vec::new();
        let mut recorder = self.recorder.take().expect("a session with rows is recorded");
        recorder.commits += 1;
        let (phase, outcome) = match &self.stage {
            Stage::New | Stage::Done => (None, None),
            Stage::Running { is_deferred } => (Some(SavedPhase::Running { is_deferred: *is_deferred }), None),
            Stage::CleaningOperations(outcome) => (Some(SavedPhase::CleaningOperations), Some(outcome)),
            Stage::CleaningBuffers(outcome) => (Some(SavedPhase::CleaningBuffers), Some(outcome)),
        };
        if let Some(outcome) = outcome.filter(|_| !recorder.has_outcome) {
            rows.push((Name::new("r"), Some(write(outcome))));
            recorder.has_outcome = true;
        }
        let shelves = (self
            .stores
            .iter_mut()
            .map(|store| &mut store.entries)
            .enumerate()
            .map(|(slot, shelf)| (b"b", slot, shelf)))
        .chain(self.collections.iter_mut().enumerate().map(|(slot, collection)| (b"c", slot, &mut collection.held)))
        .chain(self.trims.iter_mut().enumerate().map(|(slot, (_, held))| (b"t", slot, held)));
        // Nothing is read of them any more: their rows go with the session's others, however many there are.
        let unread: &[u8] = match &self.stage {
            Stage::New | Stage::Running { .. } => b"",
            Stage::CleaningOperations(_) => b"ct",
            Stage::CleaningBuffers(_) | Stage::Done => b"bct",
        };
        let mut held = [(b'b', 0), (b'c', 0), (b't', 0)];
        for (kind, slot, shelf) in shelves {
            let count = shelf.len();
            let touched = shelf.take_touched().into_iter();
            if unread.contains(&kind[0]) {
                continue;
            }
            held.iter_mut().filter(|(of, _)| *of == kind[0]).for_each(|(_, sum)| *sum += count);
            rows.extend(touched.map(|(number, message)| (numbered(kind, slot, number), message.map(write))));
        }
        // Rows that are not read any more stay as they are.
        let counted = held.iter().filter(|(kind, _)| !unread.contains(kind));
        counted.for_each(|(kind, count)| recorder.counts.set(*kind, *count));
        for id in self.orders.take_touched() {
            let row = self.orders.get(id).map(|open| write(&SavedOrder { id, open: open.clone() }));
            rows.push((order_row(id), row));
        }
        for at in 0..self.ops.len() {
            let op = OpId(u32::try_from(at).expect("operations are numbered in 32 bits"));
            let now = self.saved_op(scope, op);
            if now != recorder.ops[at] {
                recorder.ops[at] = now;
                let row = (now != SavedOp::default()).then(|| write(&now));
                rows.push((Name::join(&[b"p", &op.0.to_be_bytes()]), row));
            }
        }
        for at in std::mem::take(&mut recorder.disposals) {
            rows.push((port_row(b"d", at), self.disposals.get(&at).map(write)));
        }
        for at in std::mem::take(&mut recorder.streamed) {
            rows.push((port_row(b"m", at), Some(Row::default())));
        }
        let is_counted = matches!(self.mishaps.last(), Some(Mishap::Omitted { .. }));
        let written = recorder.mishaps.min(self.mishaps.len() - usize::from(is_counted));
        for (number, mishap) in self.mishaps.iter().enumerate().skip(written) {
            rows.push((numbered(b"x", 0, number as u64), Some(write(mishap))));
        }
        recorder.mishaps = self.mishaps.len();
        let changed = recorder.ops.iter().filter(|op| **op != SavedOp::default()).count();
        let (disposals, streamed) = (self.disposals.len(), self.streamed.len());
        let counts = [self.orders.len(), changed, disposals, streamed, self.mishaps.len()];
        b"opdmx".iter().zip(counts).for_each(|(kind, count)| recorder.counts.set(*kind, count));
        let own = phase.map(|phase| write(&(phase, recorder.commits, self.orders.turns(), recorder.counts)));
        rows.insert(0, (Name::new(SESSION_ROW), own));
        self.recorder = Some(recorder);
        rows
    }

    fn saved_op(&self, scope: &Scope, op: OpId) -> SavedOp {
        let rounds = self.ops[op.at()].rounds;
        match scope.op(op).kind {
            OpKind::Buffer { .. } => {
                SavedOp { rounds, is_closed: self.stores[scope.slot(op)].is_closed, has_given: false }
            }
            OpKind::Collect { .. } => {
                SavedOp { rounds, is_closed: false, has_given: self.collections[scope.slot(op)].has_given }
            }
            _ => SavedOp { rounds, is_closed: false, has_given: false },
        }
    }

    /// The number of times that changes were taken.
    pub fn commits(&self) -> u64 {
        self.recorder.as_ref().map_or(0, |recorder| recorder.commits)
    }

    /// The session that these rows describe, in order of their names; rows of other kinds are left alone. `None` if they
    /// cannot be read, are not all there, or describe no session of this scope.
    pub fn restore<'a>(scope: &Scope, rows: impl IntoIterator<Item = (&'a Name, &'a Row)>) -> Option<Self> {
        let mut session = Session::new(scope);
        let mut recorder = Recorder { ops: vec![SavedOp::default(); scope.ops.len()], ..Recorder::default() };
        let (mut phase, mut outcome) = (None, None);
        let mut found = RowCounts::default();
        for (name, row) in rows {
            found.add(name);
            let Some((kind, rest)) = name.as_bytes().split_first() else { continue };
            match kind {
                b's' if rest.is_empty() => {
                    let (stage, commits, turns, counts): (SavedPhase, u64, u32, RowCounts) = read(row)?;
                    (phase, recorder.commits, recorder.counts) = (Some(stage), commits, counts);
                    session.orders.set_turns(turns);
                }
                b'r' => outcome = Some(read::<Result<M, CancelCause>>(row)?),
                b'b' | b'c' | b't' => {
                    let (slot, number) = (be32(rest, 0)? as usize, be64(rest, 4)?);
                    let shelf = match kind {
                        b'b' => &mut session.stores.get_mut(slot)?.entries,
                        b'c' => &mut session.collections.get_mut(slot)?.held,
                        _ => &mut session.trims.get_mut(slot)?.1,
                    };
                    shelf.restore(number, read(row)?);
                }
                b'o' => {
                    let SavedOrder { id, open } = read(row)?;
                    session.orders.restore(id, open);
                }
                b'p' => {
                    let op = OpId(be32(rest, 0)?);
                    let saved: SavedOp = read(row)?;
                    *recorder.ops.get_mut(op.at())? = saved;
                    session.ops[op.at()].rounds = saved.rounds;
                    match scope.op(op).kind {
                        OpKind::Buffer { .. } => session.stores[scope.slot(op)].is_closed = saved.is_closed,
                        OpKind::Collect { .. } => session.collections[scope.slot(op)].has_given = saved.has_given,
                        _ => {}
                    }
                }
                b'd' => {
                    let cause: DisposalCause = read(row)?;
                    session.disposals.insert((OpId(be32(rest, 0)?), be32(rest, 4)?), cause);
                }
                b'm' => drop(session.streamed.insert((OpId(be32(rest, 0)?), be32(rest, 4)?))),
                b'x' => session.mishaps.push(read::<Mishap>(row)?),
                _ => {}
            }
        }
        let is_whole = found == recorder.counts;
        if !is_whole || session.orders.iter().any(|(order, _)| !is_before(order, session.orders.turns())) {
            return None;
        }
        recorder.has_outcome = outcome.is_some();
        recorder.mishaps = session.mishaps.len();
        session.stage = match phase? {
            SavedPhase::Running { is_deferred } => Stage::Running { is_deferred },
            SavedPhase::CleaningOperations => Stage::CleaningOperations(outcome?),
            SavedPhase::CleaningBuffers => Stage::CleaningBuffers(outcome?),
        };
        session.leave_unread();
        session.derive_counts(scope)?;
        session.record(recorder);
        Some(session)
    }

    /// Forgets messages whose rows are only there until the session's others go.
    fn leave_unread(&mut self) {
        if matches!(self.stage, Stage::Running { .. }) {
            return;
        }
        self.collections.iter_mut().for_each(|collection| collection.held = Shelf::new());
        self.trims.iter_mut().for_each(|(_, held)| *held = Shelf::new());
        if matches!(self.stage, Stage::CleaningBuffers(_)) {
            self.stores.iter_mut().for_each(|store| store.entries = Shelf::new());
        }
    }

    fn derive_counts(&mut self, scope: &Scope) -> Option<()> {
        self.orders.rebuild_free();
        if matches!(self.stage, Stage::CleaningOperations(_)) {
            self.orders.begin_telling();
        }
        for (_, open) in self.orders.iter() {
            match open.kind {
                OrderKind::Op(op) => self.ops.get_mut(op.at())?.active += 1,
                OrderKind::Cleanup(flow) => drop(scope.cleanups().get(flow as usize)?),
            }
            for trim in &open.trims {
                self.trims.get_mut(*trim as usize)?.0 += 1;
            }
        }
        for (trim, (_, held)) in scope.wiring.trims.iter().zip(&self.trims) {
            self.ops[trim.at()].active += u32::from(!held.is_empty());
        }
        for (component, _) in scope.wiring.graph.component.iter().zip(&self.ops).filter(|(_, cell)| cell.active > 0) {
            self.cycles[*component as usize] += 1;
        }
        for (join, lacking) in scope.wiring.joins.iter().zip(&mut self.lacking) {
            let OpKind::Join { inputs } = &scope.op(*join).kind else { return None };
            let stores = &self.stores;
            let lacks = inputs.iter().map(|input| &stores[scope.slot(input.buffer)]);
            *lacking = u32::try_from(lacks.filter(|store| store.is_closed || store.entries.is_empty()).count()).ok()?;
        }
        Some(())
    }
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
