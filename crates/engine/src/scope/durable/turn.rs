//! Takes events into the machine, carries out the effects that can be carried out at once, and turns the others into one
//! batch: rows of the session that changed, activities and nested sessions that begin, events for others.

use super::{
    body::DurableScope,
    keys::{self, Answers, Awaits, EventPlace, FeedRow, Header, SessionId, WriterTimer, read_timer, timer_row},
    lanes::Queued,
};
use crate::seams;
use onceflow_core::{
    Batch, Group, Name, Row, Shard, Timestamp,
    protocol::rows::{read, write},
    scope::{
        CancelCause, Emitted, Feed, OpId, OrderFailure, OrderId, ScopeEffect, ScopeEvent, Session, SessionEnd,
        SessionPhase,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Inline bodies that run before the batch is committed; the rest run in the next one. An endless cycle of inline bodies
/// must not keep the thread, and its session can be cancelled between two batches.
const INLINE_AT_ONCE: usize = 512;

/// Timers that are due, and inline orders that waited, that one turn takes up. Each deletes up to three rows.
const WAITING_AT_ONCE: usize = 128;

/// A turn that has carried out more effects does not tell orders to end as well: that is left to the next turn.
const EFFECTS_BESIDE_TELLING: usize = 100;

/// A session in memory, as its rows describe it.
pub(super) struct SessionState {
    pub(super) header: Header,
    pub(super) scope: Arc<DurableScope>,
    pub(super) session: Session<Row>,
    timers: BTreeMap<WriterTimer, Timestamp>,
    /// Inline orders that wait for the next batch.
    pub(super) waiting: VecDeque<(OrderId, OpId, Feed<Row>)>,
    /// Orders that are served in lanes.
    pub(super) queued: Queued,
    /// Messages of orders that only wait.
    pub(super) slept: BTreeMap<OrderId, Feed<Row>>,
    /// Its own row as it was last stored.
    own_row: Option<Row>,
    commits: u64,
}

/// Work that is left once the batch of a turn is committed.
#[derive(Default)]
pub(super) struct TurnEnd {
    /// Activities that must end.
    pub(super) cancelled: Vec<OrderId>,
    /// Sessions that have got an event.
    pub(super) told: BTreeSet<SessionId>,
    /// The session is done, and its rows are gone.
    pub(super) is_done: bool,
    /// The operation that got most messages, by their bytes and rows.
    pub(super) busiest: Option<String>,
}

/// One turn under way.
pub(super) struct Turn<'a> {
    pub(super) state: &'a mut SessionState,
    pub(super) queue: &'a Group,
    pub(super) batch: Batch,
    pub(super) effects: VecDeque<ScopeEffect<Row>>,
    /// Activities that begin with this batch: no host has claimed them.
    pub(super) begun: BTreeSet<OrderId>,
    /// Nested sessions that begin with this batch.
    pub(super) opened: BTreeSet<SessionId>,
    pub(super) end: TurnEnd,
    now: Timestamp,
    pub(super) budget: usize,
    /// Effects that were carried out.
    carried: usize,
    /// Bytes of the first messages of cleanup flows.
    pub(super) first_bytes: usize,
    /// Events for other sessions that this batch has put.
    sent: u32,
    /// The bytes that orders of each operation put.
    pub(super) fed: BTreeMap<OpId, usize>,
}

impl SessionState {
    /// The session of these rows, in order of their names. `None` if they cannot be read.
    pub(super) fn restore(header: Header, scope: Arc<DurableScope>, rows: &[(Name, Row)]) -> Option<Self> {
        let own_row = rows.iter().find(|(name, _)| name.as_bytes() == onceflow_core::scope::SESSION_ROW);
        let session = match own_row {
            Some(_) => Session::restore(&scope.scope, rows.iter().map(|(name, row)| (name, row)))?,
            None => Session::recorded(&scope.scope),
        };
        let own_row = own_row.map(|(_, row)| row.clone());
        let (mut timers, mut waiting, mut slept) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        for (name, row) in rows {
            match name.as_bytes().first() {
                Some(b'k') => timers.extend([read_timer(row)?]),
                Some(b'a') => {
                    let (order, op, awaits, feed): FeedRow = read(row)?;
                    match awaits {
                        Awaits::Turn => waiting.push_back((order, op, feed)),
                        Awaits::Timer => drop(slept.insert(order, feed)),
                        Awaits::Host | Awaits::Event => {}
                    }
                }
                _ => {}
            }
        }
        let commits = session.commits();
        let queued = Queued::restore(rows)?;
        Some(SessionState { header, scope, session, timers, waiting, queued, slept, own_row, commits })
    }

    /// When the next timer is due.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.values().min().copied()
    }

    /// There is work that needs no event.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.session.has_untold_orders()
    }

    /// Takes events, and timers that are due. The batch requires the session's own row as it was read; the caller adds
    /// the claim.
    pub(super) fn turn(
        &mut self,
        events: Vec<(Name, ScopeEvent<Row>)>,
        store: (Shard, &Group),
        now: Timestamp,
    ) -> (Batch, TurnEnd) {
        self.turn_after(None, events, store, now, WAITING_AT_ONCE)
    }

    /// The turn instead of one that was too large: it takes one event, and less of the work that waits.
    pub(super) fn small_turn(
        &mut self,
        event: Option<(Name, ScopeEvent<Row>)>,
        store: (Shard, &Group),
        now: Timestamp,
    ) -> (Batch, TurnEnd) {
        self.turn_after(None, event.into_iter().collect(), store, now, 1)
    }

    /// The turn instead of a small one that was too large: the session is cancelled, and its events end their orders only.
    pub(super) fn refuse_turn(
        &mut self,
        cause: CancelCause,
        events: Vec<(Name, ScopeEvent<Row>)>,
        store: (Shard, &Group),
        now: Timestamp,
    ) -> (Batch, TurnEnd) {
        let answered = |event| match event {
            ScopeEvent::Ended { order, mishaps, .. } => ScopeEvent::Dropped { order, mishaps },
            other => other,
        };
        let events = events.into_iter().map(|(name, event)| (name, answered(event))).collect();
        self.turn_after(Some(ScopeEvent::Cancel(cause)), events, store, now, WAITING_AT_ONCE)
    }

    fn turn_after(
        &mut self,
        first: Option<ScopeEvent<Row>>,
        events: Vec<(Name, ScopeEvent<Row>)>,
        (shard, queue): (Shard, &Group),
        now: Timestamp,
        at_once: usize,
    ) -> (Batch, TurnEnd) {
        let id = self.header.id;
        assert!(
            self.session.phase() != SessionPhase::Done,
            "a session that is done has no rows that a turn could change"
        );
        let mut batch = Batch::new(shard);
        batch.require_seen(id.own_row(), self.own_row.clone());
        self.commits += 1;
        let mut turn = Turn {
            state: self,
            queue,
            batch,
            effects: VecDeque::new(),
            begun: BTreeSet::new(),
            opened: BTreeSet::new(),
            end: TurnEnd::default(),
            now,
            budget: INLINE_AT_ONCE,
            carried: 0,
            first_bytes: 0,
            sent: 0,
            fed: BTreeMap::new(),
        };
        first.into_iter().for_each(|event| turn.take(event));
        for (name, event) in events {
            turn.batch.delete(id.key(&name));
            let is_answer = matches!(event, ScopeEvent::Ended { .. } | ScopeEvent::Dropped { .. });
            if is_answer && seams::takes_answer_again() {
                turn.take(event.clone());
            }
            if !is_answer || seams::takes_answer() {
                turn.take(event);
            }
        }
        let due = turn.state.timers.iter().filter(|(_, due)| **due <= now).map(|(timer, _)| *timer).take(at_once);
        for timer in due.collect::<Vec<_>>() {
            turn.due(timer);
        }
        let waited = turn.state.waiting.len().min(at_once);
        for (order, op, feed) in turn.state.waiting.drain(..waited).collect::<Vec<_>>() {
            turn.batch.delete(id.feed(order));
            turn.resume(order, op, feed);
        }
        turn.settle();
        turn.finish()
    }
}

impl Turn<'_> {
    pub(super) fn id(&self) -> SessionId {
        self.state.header.id
    }

    fn take(&mut self, event: ScopeEvent<Row>) {
        self.apply(event);
        self.carry_out();
    }

    /// Carries out effects until nothing can be done at once. Orders of a session that ends are told once a turn.
    fn settle(&mut self) {
        let mut has_told = false;
        loop {
            self.carry_out();
            if self.state.session.phase() == SessionPhase::Done || !self.state.waiting.is_empty() {
                return;
            }
            let tells = self.state.session.has_untold_orders();
            if tells && (has_told || self.carried > EFFECTS_BESIDE_TELLING) {
                return;
            }
            has_told |= tells;
            let scope = &self.state.scope;
            self.state.session.apply(&scope.scope, &**scope, ScopeEvent::Idle, &mut self.effects);
            if self.effects.is_empty() {
                return;
            }
        }
    }

    pub(super) fn carry_out(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            self.carried += 1;
            let answer = match effect {
                ScopeEffect::Run { order, .. } if !self.state.session.is_wanted(order) => {
                    Some(ScopeEvent::Dropped { order, mishaps: Vec::new() })
                }
                ScopeEffect::Run { order, op, feed } => self.run(order, op, feed),
                ScopeEffect::Cancel { order } => self.cancel(order),
                ScopeEffect::Clean { order, flow } => self.clean(order, flow),
                ScopeEffect::Stream { stream, message } => {
                    self.stream(stream, message);
                    None
                }
                ScopeEffect::SetTimer { timer, after_ms } => {
                    self.set_timer(WriterTimer::Session(timer), after_ms);
                    None
                }
                // Their rows go with the changes of the session; no code waits for a change of a durable buffer.
                ScopeEffect::Drop(_) | ScopeEffect::Changed { .. } => None,
                ScopeEffect::Deliver(end) => {
                    self.deliver(*end);
                    None
                }
            };
            if let Some(event) = answer {
                self.apply(event);
            }
        }
    }

    fn stream(&mut self, stream: u32, message: Row) {
        self.sent += 1;
        match self.state.header.answers.clone() {
            Answers::Caller(end) => {
                self.batch.put(keys::streamed(&end, self.state.commits, self.sent), write(&(stream, message)));
            }
            Answers::Order(parent, order) => {
                self.tell(parent, order, &ScopeEvent::Streamed { order, port: stream + 1, message });
            }
        }
    }

    fn tell(&mut self, parent: SessionId, order: OrderId, event: &ScopeEvent<Row>) {
        let number = (self.state.commits << 20) | u64::from(self.sent.min((1 << 20) - 1));
        self.batch.put(parent.event(&EventPlace::Order(order, number)), write(event));
        self.end.told.insert(parent);
    }

    pub(super) fn set_timer(&mut self, timer: WriterTimer, after_ms: u64) {
        let due = self.now.plus_ms(after_ms);
        self.state.timers.insert(timer, due);
        if seams::stores_timer() {
            self.batch.put(self.id().timer(timer), timer_row(timer, due));
        }
    }

    pub(super) fn drop_timer(&mut self, timer: WriterTimer) {
        self.state.timers.remove(&timer);
        self.batch.delete(self.id().timer(timer));
    }

    fn due(&mut self, timer: WriterTimer) {
        self.drop_timer(timer);
        match timer {
            WriterTimer::Session(timer) => self.take(ScopeEvent::Due(timer)),
            WriterTimer::Sleep(order) => {
                self.batch.delete(self.id().feed(order));
                if let Some(Feed::One(message)) = self.state.slept.remove(&order) {
                    let emitted = Emitted::One(0, message);
                    self.take(ScopeEvent::Ended { order, emitted, mishaps: Vec::new() });
                }
            }
        }
    }

    fn deliver(&mut self, end: SessionEnd<Row>) {
        self.end.is_done = true;
        self.sent += 1;
        let SessionEnd { result, mishaps } = end;
        let (parent, order) = match self.state.header.answers.clone() {
            Answers::Order(parent, order) => (parent, order),
            Answers::Caller(end) => {
                self.batch.put(end, write(&(result, mishaps)));
                return;
            }
        };
        let event = match result {
            Ok(message) => ScopeEvent::Ended { order, emitted: Emitted::One(0, message), mishaps },
            Err(cancelled) => match cancelled.cause {
                CancelCause::ParentEnded => ScopeEvent::Dropped { order, mishaps },
                CancelCause::Supplanted => ScopeEvent::Failed { order, why: OrderFailure::Supplanted, mishaps },
                _ => ScopeEvent::Failed { order, why: OrderFailure::Cancelled(Box::new(cancelled)), mishaps },
            },
        };
        if seams::tells_parent() {
            self.tell(parent, order, &event);
        }
    }

    fn finish(mut self) -> (Batch, TurnEnd) {
        let id = self.id();
        let busiest = self.fed.iter().max_by_key(|(_, bytes)| **bytes).map(|(op, _)| *op);
        self.end.busiest = busiest.map(|op| self.state.scope.scope.operations()[op.at()].name.clone());
        if self.end.is_done {
            assert!(self.begun.is_empty() && self.opened.is_empty(), "a session is done while work of it begins");
            self.batch.delete_group(id.group());
            return (self.batch, self.end);
        }
        let scope = self.state.scope.clone();
        for (name, row) in self.state.session.take_changes(&scope.scope) {
            match row {
                Some(row) => {
                    if name.as_bytes() == onceflow_core::scope::SESSION_ROW {
                        self.state.own_row = Some(row.clone());
                    }
                    self.batch.put(id.key(&name), row);
                }
                None => drop(self.batch.delete(id.key(&name))),
            }
        }
        (self.batch, self.end)
    }
}

/// Puts the rows of a session that is to be opened.
pub(super) fn open_session(batch: &mut Batch, queue: &Group, header: &Header, first: Row) {
    batch.put(queue.key(header.id.ready_name()), header.ready());
    batch.put(header.id.event(&EventPlace::Start), write(&ScopeEvent::Start(first)));
}
