//! One entry into a scope: its state as data, and the function that an event goes into and effects come out of. Total:
//! an event that does not fit the state (a late answer, a second start) changes nothing, and drops what it brought.

pub(crate) mod counts;
mod ending;
pub(crate) mod machine;
pub(crate) mod orders;
pub(crate) mod saved;
mod shelf;

use super::{
    cause::{CancelCause, DisposalCause, Mishap},
    check::Scope,
    definition::{OpId, OpKind},
    effect::{Contents, OrderId, ScopeEffect, ScopeEvent},
    reach::Reach,
};
pub use counts::check_rows;
pub(crate) use machine::Machine;
pub use orders::OrderKind;
use orders::Orders;
use saved::Recorder;
pub use saved::{SESSION_ROW, is_order_cancelled, is_readable, order_row, read_order};
pub(crate) use shelf::Shelf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The state of a session.
#[derive(Clone, Debug)]
pub struct Session<M> {
    pub(crate) stage: Stage<M>,
    /// Messages that have left an operation and not yet arrived at the next.
    pub(crate) queue: VecDeque<(OpId, M)>,
    pub(crate) ops: Vec<OpCell>,
    /// Per component: its operations that are active, kept for cycles only.
    pub(crate) cycles: Vec<u32>,
    pub(crate) stores: Vec<Store<M>>,
    pub(crate) collections: Vec<Collection<M>>,
    /// Per join: the buffers it lacks.
    pub(crate) lacking: Vec<u32>,
    /// Per trim: the orders it waits for, and the messages it passes on then.
    pub(crate) trims: Vec<(u32, Shelf<M>)>,
    pub(crate) orders: Orders,
    pub(crate) reach: Option<Box<Reach>>,
    /// Stream ports that were sent by.
    pub(crate) streamed: BTreeSet<(OpId, u32)>,
    /// The last disposal of each port.
    pub(crate) disposals: BTreeMap<(OpId, u32), DisposalCause>,
    pub(crate) mishaps: Vec<Mishap>,
    /// Notes which rows change, for a driver that stores them.
    pub(crate) recorder: Option<Box<Recorder>>,
}

/// Where a session stands, with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) enum Stage<M> {
    New,
    Running { is_deferred: bool },
    CleaningOperations(Result<M, CancelCause>),
    CleaningBuffers(Result<M, CancelCause>),
    Done,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// It waits for its first message.
    New,
    /// Messages pass.
    Running,
    /// Messages pass; its parent ends, but the scope is uninterruptible.
    Deferred,
    /// It has a result; its operations end.
    Terminating,
    /// It was cancelled; its operations end.
    Cancelling,
    /// Its cleanup flows run.
    CleaningBuffers,
    /// Its end is delivered.
    Done,
}

/// The state of any operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpCell {
    /// Orders that are under way; for a buffer, one while keys to it exist; for a trim, one while it waits.
    pub(crate) active: u32,
    /// Messages taken, counted on cycles if there is a limit.
    pub(crate) rounds: u32,
}

/// The state of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Store<M> {
    /// The oldest first.
    pub(crate) entries: Shelf<M>,
    pub(crate) is_closed: bool,
    pub(crate) has_keys: bool,
}

/// The state of a collect.
#[derive(Clone, Debug)]
pub(crate) struct Collection<M> {
    pub(crate) held: Shelf<M>,
    /// It has given something on before.
    pub(crate) has_given: bool,
}

/// One operation of a session that has something, for people who ask why the session is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpOverview {
    /// The operation.
    pub name: String,
    /// The number of orders that have not ended; for a buffer, 1 while keys to it exist.
    pub active: u32,
    /// Messages it holds: entries of a buffer, parts of a collection.
    pub holds: usize,
    /// A gate is closed.
    pub is_closed: bool,
}

impl<M> Session<M> {
    /// A session that waits for its first message.
    pub fn new(scope: &Scope) -> Self {
        let wiring = &scope.wiring;
        let inputs = |join: &OpId| match &scope.op(*join).kind {
            OpKind::Join { inputs } => u32::try_from(inputs.len()).expect("operations are numbered in 32 bits"),
            _ => unreachable!("a join is in the list of joins"),
        };
        let store = |_| Store { entries: Shelf::new(), is_closed: false, has_keys: false };
        Session {
            stage: Stage::New,
            queue: VecDeque::new(),
            ops: vec![OpCell::default(); scope.ops.len()],
            cycles: vec![0; wiring.graph.members.rows()],
            stores: wiring.buffers.iter().map(store).collect(),
            collections: wiring.collects.iter().map(|_| Collection { held: Shelf::new(), has_given: false }).collect(),
            lacking: wiring.joins.iter().map(inputs).collect(),
            trims: wiring.trims.iter().map(|_| (0, Shelf::new())).collect(),
            orders: Orders::default(),
            reach: None,
            streamed: BTreeSet::new(),
            disposals: BTreeMap::new(),
            mishaps: Vec::new(),
            recorder: None,
        }
    }

    /// Applies an event. Effects are added to `effects`, and are to be carried out in order.
    pub fn apply(
        &mut self,
        scope: &Scope,
        contents: &impl Contents<M>,
        event: ScopeEvent<M>,
        effects: &mut VecDeque<ScopeEffect<M>>,
    ) {
        Machine { scope, contents, session: self, effects }.apply(event);
    }

    /// Where the session stands.
    pub fn phase(&self) -> SessionPhase {
        match &self.stage {
            Stage::New => SessionPhase::New,
            Stage::Running { is_deferred: false } => SessionPhase::Running,
            Stage::Running { is_deferred: true } => SessionPhase::Deferred,
            Stage::CleaningOperations(Ok(_)) => SessionPhase::Terminating,
            Stage::CleaningOperations(Err(_)) => SessionPhase::Cancelling,
            Stage::CleaningBuffers(_) => SessionPhase::CleaningBuffers,
            Stage::Done => SessionPhase::Done,
        }
    }

    /// An order is under way, and was not told to end.
    pub fn is_wanted(&self, order: OrderId) -> bool {
        let is_ending = matches!(self.stage, Stage::CleaningOperations(_));
        self.orders.get(order).is_some_and(|open| !open.is_cancelled && !is_ending)
    }

    /// The session ends, and orders of it must still be told: [`ScopeEvent::Idle`] tells the next ones.
    pub fn has_untold_orders(&self) -> bool {
        matches!(self.stage, Stage::CleaningOperations(_)) && self.orders.has_untold()
    }

    /// The operation or cleanup flow that an open order works for.
    pub fn order_kind(&self, order: OrderId) -> Option<OrderKind> {
        self.orders.get(order).map(|open| open.kind)
    }

    /// The orders under way, each with its kind; true for one that was told to end.
    pub fn open_orders(&self) -> impl Iterator<Item = (OrderId, OrderKind, bool)> {
        self.orders.iter().map(|(order, open)| (order, open.kind, open.is_cancelled))
    }

    /// Why the session was cancelled, while it is cleaned.
    pub fn cancelled_by(&self) -> Option<&CancelCause> {
        match &self.stage {
            Stage::CleaningOperations(Err(cause)) | Stage::CleaningBuffers(Err(cause)) => Some(cause),
            _ => None,
        }
    }

    /// The entries of a buffer that a key shows, the oldest first: none while its gate is closed, all while cleanup
    /// flows run.
    pub fn entries(&self, scope: &Scope, buffer: OpId) -> impl ExactSizeIterator<Item = &M> {
        let store = &self.stores[scope.slot(buffer)];
        let count = if self.shows(store) { store.entries.len() } else { 0 };
        store.entries.iter().take(count)
    }

    /// Takes an entry of a buffer through a key; `by` is the operation that gave out the key.
    pub fn pull(
        &mut self,
        scope: &Scope,
        contents: &impl Contents<M>,
        buffer: OpId,
        index: usize,
        by: Option<OpId>,
        effects: &mut VecDeque<ScopeEffect<M>>,
    ) -> Option<M> {
        if !self.shows(&self.stores[scope.slot(buffer)]) {
            return None;
        }
        let mut machine = Machine { scope, contents, session: self, effects };
        let taken = machine.take_entry(buffer, index)?;
        machine.changed(buffer, by, false);
        Some(taken)
    }

    fn shows(&self, store: &Store<M>) -> bool {
        !store.is_closed || matches!(self.stage, Stage::CleaningBuffers(_))
    }

    /// Operations that are active or hold something.
    pub fn overview(&self, scope: &Scope) -> Vec<OpOverview> {
        let view = |(op, cell): (OpId, &OpCell)| {
            let (holds, is_closed) = match &scope.op(op).kind {
                OpKind::Buffer { .. } => {
                    let store = &self.stores[scope.slot(op)];
                    (store.entries.len(), store.is_closed)
                }
                OpKind::Collect { .. } => (self.collections[scope.slot(op)].held.len(), false),
                _ => (0, false),
            };
            let overview = OpOverview { name: scope.op(op).name.clone(), active: cell.active, holds, is_closed };
            (cell.active > 0 || holds > 0 || is_closed).then_some(overview)
        };
        (0..).map(OpId).zip(&self.ops).filter_map(view).collect()
    }

    /// Nothing is left of the session: no message, no entry, no order.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
            && self.orders.len() == 0
            && self.stores.iter().all(|store| store.entries.is_empty())
            && self.collections.iter().all(|collection| collection.held.is_empty())
            && self.trims.iter().all(|(_, held)| held.is_empty())
    }
}
