//! Takes events into the machine, carries out the effects that can be carried out at once, and turns the others into one
//! batch: rows of the session that changed, activities and nested sessions that begin, events for others.

use super::{
    body::{BufferAccess, DurableBody, DurableScope, keyed_buffers},
    keys::{
        self, Answers, EventPlace, Header, Hop, Note, SessionId, WriterTimer, activity_queue, feed_name, inbox,
        read_timer, timer_row,
    },
};
use onceflow_core::{
    Batch, Group, Name, Row, Shard, Timestamp,
    limits::ROW_BYTES_MAX,
    protocol::rows::{read, write},
    scope::{
        CancelCause, Emitted, Feed, OpId, OrderFailure, OrderId, OrderKind, ScopeEffect, ScopeEvent, Session,
        SessionEnd, SessionPhase,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Inline bodies that run before the batch is committed; the rest run in the next one. An endless cycle of inline bodies
/// must not keep the thread, and its session can be cancelled between two batches.
const INLINE_AT_ONCE: usize = 512;

/// A session in memory, as its rows describe it.
pub(super) struct SessionState {
    pub(super) header: Header,
    pub(super) scope: Arc<DurableScope>,
    session: Session<Row>,
    timers: BTreeMap<WriterTimer, Timestamp>,
    /// Inline orders that wait for the next batch.
    waiting: VecDeque<(OrderId, OpId, Feed<Row>)>,
    /// Messages of orders that only wait.
    slept: BTreeMap<OrderId, Feed<Row>>,
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

/// Bytes that a row costs a batch beside its content, about.
const ROW_BYTES: usize = 64;

struct Turn<'a> {
    state: &'a mut SessionState,
    queue: &'a Group,
    batch: Batch,
    effects: VecDeque<ScopeEffect<Row>>,
    /// Activities that begin with this batch: nobody has claimed them.
    begun: BTreeSet<OrderId>,
    /// Nested sessions that begin with this batch.
    opened: BTreeSet<SessionId>,
    end: TurnEnd,
    now: Timestamp,
    budget: usize,
    /// Events for other sessions that this batch has put.
    sent: u32,
    /// The bytes that orders of each operation put.
    fed: BTreeMap<OpId, usize>,
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
                    let (order, op, feed): (OrderId, OpId, Feed<Row>) = read(row)?;
                    match scope.bodies.get(op.at())? {
                        DurableBody::Inline(_) => waiting.push_back((order, op, feed)),
                        DurableBody::Sleep { .. } => drop(slept.insert(order, feed)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let commits = session.commits();
        Some(SessionState { header, scope, session, timers, waiting, slept, own_row, commits })
    }

    /// When the next timer is due.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.values().min().copied()
    }

    /// There is work that needs no event.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes events, and timers that are due. The batch requires the session's own row as it was read; the caller adds
    /// the claim.
    pub(super) fn turn(
        &mut self,
        events: Vec<(Name, ScopeEvent<Row>)>,
        (shard, queue): (Shard, &Group),
        now: Timestamp,
    ) -> (Batch, TurnEnd) {
        self.turn_after(None, events, (shard, queue), now)
    }

    /// The turn instead of one that was too large: the session is cancelled, and its events end their orders only.
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
        self.turn_after(Some(ScopeEvent::Cancel(cause)), events, store, now)
    }

    fn turn_after(
        &mut self,
        first: Option<ScopeEvent<Row>>,
        events: Vec<(Name, ScopeEvent<Row>)>,
        (shard, queue): (Shard, &Group),
        now: Timestamp,
    ) -> (Batch, TurnEnd) {
        let id = self.header.id;
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
            sent: 0,
            fed: BTreeMap::new(),
        };
        first.into_iter().for_each(|event| turn.take(event));
        for (name, event) in events {
            turn.batch.delete(id.key(&name));
            turn.take(event);
        }
        let due = turn.state.timers.iter().filter(|(_, due)| **due <= now).map(|(timer, _)| *timer);
        for timer in due.collect::<Vec<_>>() {
            turn.due(timer);
        }
        for (order, op, feed) in std::mem::take(&mut turn.state.waiting) {
            turn.batch.delete(id.feed(order));
            turn.effects.push_back(ScopeEffect::Run { order, op, feed });
        }
        turn.settle();
        turn.finish()
    }
}

impl Turn<'_> {
    fn id(&self) -> SessionId {
        self.state.header.id
    }

    fn take(&mut self, event: ScopeEvent<Row>) {
        let scope = &self.state.scope;
        self.state.session.apply(&scope.scope, &**scope, event, &mut self.effects);
        self.carry_out();
    }

    /// Carries out effects until nothing can be done at once.
    fn settle(&mut self) {
        loop {
            self.carry_out();
            if self.state.session.phase() == SessionPhase::Done || !self.state.waiting.is_empty() {
                return;
            }
            let scope = &self.state.scope;
            self.state.session.apply(&scope.scope, &**scope, ScopeEvent::Idle, &mut self.effects);
            if self.effects.is_empty() {
                return;
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
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
                // Their rows go with the changes of the session; nobody waits for a change of a durable buffer.
                ScopeEffect::Drop(_) | ScopeEffect::Changed { .. } => None,
                ScopeEffect::Deliver(end) => {
                    self.deliver(*end);
                    None
                }
            };
            if let Some(event) = answer {
                let scope = &self.state.scope;
                self.state.session.apply(&scope.scope, &**scope, event, &mut self.effects);
            }
        }
    }

    fn run(&mut self, order: OrderId, op: OpId, feed: Feed<Row>) -> Option<ScopeEvent<Row>> {
        let scope = self.state.scope.clone();
        *self.fed.entry(op).or_default() += ROW_BYTES + feed_bytes(&feed);
        match &scope.bodies[op.at()] {
            DurableBody::None => {
                Some(failed(order, format!("operation {} has no code", scope.scope.operations()[op.at()].name)))
            }
            DurableBody::Inline(_) if self.budget == 0 => {
                self.batch.put(self.id().feed(order), write(&(order, op, &feed)));
                self.state.waiting.push_back((order, op, feed));
                None
            }
            DurableBody::Inline(body) => {
                self.budget -= 1;
                let (session, effects) = (&mut self.state.session, &mut self.effects);
                let mut access = BufferAccess { scope: &scope, session, effects, by: Some(op) };
                let done = catch_unwind(AssertUnwindSafe(|| body(feed, &mut access)));
                let answer = answer(order, done);
                for buffer in keyed_buffers(&scope.scope.operations()[op.at()].kind) {
                    let released = ScopeEvent::KeysReleased { buffer: *buffer };
                    self.state.session.apply(&scope.scope, &*scope, released, &mut self.effects);
                }
                Some(answer)
            }
            DurableBody::Activity(_) => {
                let (id, path) = (self.id(), self.state.header.path.clone());
                let row = write(&(order, op, &feed));
                if row.len() > ROW_BYTES_MAX {
                    return Some(failed(order, too_large_input()));
                }
                self.batch.put(id.feed(order), row);
                let note = Note::Activity { session: id, path, op, order };
                self.batch.put(
                    activity_queue(self.queue).key(id.activity_name(order)),
                    inbox(id, feed_name(order).as_bytes(), &note),
                );
                self.begun.insert(order);
                None
            }
            DurableBody::Sleep { ms } => {
                self.batch.put(self.id().feed(order), write(&(order, op, &feed)));
                self.state.slept.insert(order, feed);
                self.set_timer(WriterTimer::Sleep(order), *ms);
                None
            }
            DurableBody::Wait { .. } => {
                let row = write(&(order, op, &feed));
                if row.len() > ROW_BYTES_MAX {
                    return Some(failed(order, too_large_input()));
                }
                self.batch.put(self.id().feed(order), row);
                None
            }
            DurableBody::Flow(_) => match feed {
                Feed::One(message) => {
                    self.open(order, Hop::Op(op), message);
                    None
                }
                _ => Some(failed(order, String::from("a nested scope takes one message"))),
            },
        }
    }

    fn clean(&mut self, order: OrderId, flow: u32) -> Option<ScopeEvent<Row>> {
        let scope = self.state.scope.clone();
        let first = &scope.cleanups[flow as usize].first;
        let (session, effects) = (&mut self.state.session, &mut self.effects);
        let mut access = BufferAccess { scope: &scope, session, effects, by: None };
        match catch_unwind(AssertUnwindSafe(|| first(&mut access))) {
            Ok(first) if first.len() > ROW_BYTES_MAX / 2 => Some(failed(order, too_large_input())),
            Ok(first) => {
                self.open(order, Hop::Cleanup(flow), first);
                None
            }
            Err(panic) => Some(answer(order, Err(panic))),
        }
    }

    /// Opens the nested session of an order.
    fn open(&mut self, order: OrderId, hop: Hop, first: Row) {
        let parent = &self.state.header;
        let path = parent.path.iter().copied().chain([hop]).collect();
        let nested = Header { id: parent.id.nested(order), path, answers: Answers::Order(parent.id, order) };
        open_session(&mut self.batch, self.queue, &nested, first);
        self.opened.insert(nested.id);
    }

    fn cancel(&mut self, order: OrderId) -> Option<ScopeEvent<Row>> {
        let gone = Some(ScopeEvent::Dropped { order, mishaps: Vec::new() });
        let id = self.id();
        let body = match self.state.session.order_kind(order)? {
            OrderKind::Op(op) => self.state.scope.bodies[op.at()].clone(),
            OrderKind::Cleanup(flow) => DurableBody::Flow(self.state.scope.cleanups[flow as usize].scope.clone()),
        };
        match body {
            DurableBody::Activity(_) if self.begun.remove(&order) => {
                self.batch.delete(activity_queue(self.queue).key(id.activity_name(order))).delete(id.feed(order));
                gone
            }
            // Its host ends it, or does not begin it, because the row of the order says that it is cancelled.
            DurableBody::Activity(_) => {
                self.end.cancelled.push(order);
                None
            }
            DurableBody::Sleep { .. } => {
                self.drop_timer(WriterTimer::Sleep(order));
                self.state.slept.remove(&order);
                self.batch.delete(id.feed(order));
                gone
            }
            // An event that is delivered in between finds no input any more, and goes to another order or to none.
            DurableBody::Wait { .. } => {
                self.batch.delete(id.feed(order));
                gone
            }
            DurableBody::Flow(_) => {
                let nested = id.nested(order);
                if !self.opened.contains(&nested) {
                    // One that has ended in between has left an event for this session, which is read again then.
                    self.batch.require_present(self.queue.key(nested.ready_name()));
                }
                let event: ScopeEvent<Row> = ScopeEvent::ParentEnds;
                self.batch.put(nested.event(&EventPlace::ParentEnds), write(&event));
                self.end.told.insert(nested);
                None
            }
            // One that waits for the next batch is looked at then.
            DurableBody::None | DurableBody::Inline(_) => None,
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

    fn set_timer(&mut self, timer: WriterTimer, after_ms: u64) {
        let due = self.now.plus_ms(after_ms);
        self.state.timers.insert(timer, due);
        self.batch.put(self.id().timer(timer), timer_row(timer, due));
    }

    fn drop_timer(&mut self, timer: WriterTimer) {
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
        self.tell(parent, order, &event);
    }

    fn finish(mut self) -> (Batch, TurnEnd) {
        let id = self.id();
        let busiest = self.fed.iter().max_by_key(|(_, bytes)| **bytes).map(|(op, _)| *op);
        self.end.busiest = busiest.map(|op| self.state.scope.scope.operations()[op.at()].name.clone());
        if self.end.is_done {
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

/// The event that tells the outcome of user code.
pub(super) fn answer(order: OrderId, outcome: std::thread::Result<Result<Emitted<Row>, String>>) -> ScopeEvent<Row> {
    match outcome {
        Ok(Ok(emitted)) if size(&emitted) > ROW_BYTES_MAX / 2 => {
            failed(order, format!("its messages have more than {} bytes", ROW_BYTES_MAX / 2))
        }
        Ok(Ok(emitted)) => ScopeEvent::Ended { order, emitted, mishaps: Vec::new() },
        Ok(Err(error)) => failed(order, error),
        Err(panic) => {
            let why = OrderFailure::Panic(crate::scope::carry::panic_words(&*panic));
            ScopeEvent::Failed { order, why, mishaps: Vec::new() }
        }
    }
}

fn feed_bytes(feed: &Feed<Row>) -> usize {
    match feed {
        Feed::One(message) => message.len(),
        Feed::Many(messages) => messages.iter().map(|message| message.len()).sum(),
        _ => 0,
    }
}

fn too_large_input() -> String {
    format!("its input has more than {} bytes", ROW_BYTES_MAX / 2)
}

fn failed(order: OrderId, error: String) -> ScopeEvent<Row> {
    ScopeEvent::Failed { order, why: OrderFailure::Error(error), mishaps: Vec::new() }
}

fn size(emitted: &Emitted<Row>) -> usize {
    match emitted {
        Emitted::Nothing => 0,
        Emitted::One(_, message) => message.len(),
        Emitted::Many(list) => list.iter().map(|(_, message)| message.len()).sum(),
    }
}
