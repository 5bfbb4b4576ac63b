//! Orders of a session: begun as rows of the batch, or run in it, and told to end.

use super::{
    body::{BufferAccess, DurableBody, InlineBody, keyed_buffers},
    keys::{Answers, Awaits, EventPlace, Header, Hop, Note, WriterTimer, activity_queue, call_queue, feed_name, inbox},
    turn::{Turn, open_session},
};
use crate::seams;
use onceflow_core::{
    Group, Row,
    limits::{BATCH_BYTES_MAX, ERROR_CHARS_MAX, ROW_BYTES_MAX},
    protocol::rows::write,
    scope::{Emitted, Feed, OpId, OrderFailure, OrderId, OrderKind, ScopeEvent},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Bytes of the first messages of cleanup flows that one batch opens.
const FIRST_BYTES_MAX: usize = BATCH_BYTES_MAX / 4 * 3;

/// Bytes that a row costs a batch beside its content, about.
const ROW_BYTES: usize = 64;

impl Turn<'_> {
    pub(super) fn begin(&mut self, order: OrderId, op: OpId, feed: Feed<Row>) -> Option<ScopeEvent<Row>> {
        let scope = self.state.scope.clone();
        *self.fed.entry(op).or_default() += ROW_BYTES + feed_bytes(&feed);
        match &scope.bodies[op.at()] {
            DurableBody::None => {
                Some(failed(order, format!("operation {} has no code", scope.scope.operations()[op.at()].name)))
            }
            // One that waits goes first.
            DurableBody::Inline(_) if self.budget == 0 || !self.state.waiting.is_empty() => {
                self.batch.put(self.id().feed(order), write(&(order, op, Awaits::Turn, &feed)));
                self.state.waiting.push_back((order, op, feed));
                None
            }
            DurableBody::Inline(body) => Some(self.run_inline(order, op, feed, body)),
            DurableBody::Activity(_) | DurableBody::Call(_) => {
                let (id, shape, path) = (self.id(), self.state.header.shape, self.state.header.path.clone());
                let row = write(&(order, op, Awaits::Host, &feed));
                if row.len() > ROW_BYTES_MAX {
                    return Some(failed(order, too_large_input()));
                }
                self.batch.put(id.feed(order), row);
                let note = Note::Activity { session: id, shape, path, op, order };
                let queue = self.queue_of(&scope.bodies[op.at()]);
                self.batch.put(queue.key(id.activity_name(order)), inbox(id, feed_name(order).as_bytes(), &note));
                self.begun.insert(order);
                None
            }
            DurableBody::Sleep { ms } => {
                self.batch.put(self.id().feed(order), write(&(order, op, Awaits::Timer, &feed)));
                self.state.slept.insert(order, feed);
                self.set_timer(WriterTimer::Sleep(order), *ms);
                None
            }
            DurableBody::Wait { .. } => {
                let row = write(&(order, op, Awaits::Event, &feed));
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

    /// Takes up an inline order that waited for this batch.
    pub(super) fn resume(&mut self, order: OrderId, op: OpId, feed: Feed<Row>) {
        let scope = self.state.scope.clone();
        let event = match &scope.bodies[op.at()] {
            DurableBody::Inline(body) if self.state.session.is_wanted(order) => self.run_inline(order, op, feed, body),
            _ => ScopeEvent::Dropped { order, mishaps: Vec::new() },
        };
        self.state.session.apply(&scope.scope, &*scope, event, &mut self.effects);
        self.carry_out();
    }

    fn run_inline(&mut self, order: OrderId, op: OpId, feed: Feed<Row>, body: &Arc<InlineBody>) -> ScopeEvent<Row> {
        self.budget = self.budget.saturating_sub(1);
        let scope = self.state.scope.clone();
        let (session, effects) = (&mut self.state.session, &mut self.effects);
        let mut access = BufferAccess { scope: &scope, session, effects, by: Some(op) };
        let done = catch_unwind(AssertUnwindSafe(|| body(feed, &mut access)));
        for buffer in keyed_buffers(&scope.scope.operations()[op.at()].kind) {
            let released = ScopeEvent::KeysReleased { buffer: *buffer };
            self.state.session.apply(&scope.scope, &*scope, released, &mut self.effects);
        }
        answer(order, done)
    }

    pub(super) fn clean(&mut self, order: OrderId, flow: u32) -> Option<ScopeEvent<Row>> {
        let scope = self.state.scope.clone();
        let first = &scope.cleanups[flow as usize].first;
        let (session, effects) = (&mut self.state.session, &mut self.effects);
        let mut access = BufferAccess { scope: &scope, session, effects, by: None };
        match catch_unwind(AssertUnwindSafe(|| first(&mut access))) {
            Ok(first) if first.len() > ROW_BYTES_MAX / 2 => Some(failed(order, too_large_input())),
            Ok(first) if self.first_bytes + first.len() > FIRST_BYTES_MAX => Some(failed(
                order,
                format!("its input and those of the cleanup flows before it have more than {FIRST_BYTES_MAX} bytes"),
            )),
            Ok(first) => {
                self.first_bytes += first.len();
                self.open(order, Hop::Cleanup(flow), first);
                None
            }
            Err(panic) => Some(answer(order, Err(panic))),
        }
    }

    /// The queue of the orders of an activity, or of a call.
    fn queue_of(&self, body: &DurableBody) -> Group {
        match body {
            DurableBody::Call(_) => call_queue(self.queue),
            _ => activity_queue(self.queue),
        }
    }

    /// Opens the nested session of an order.
    fn open(&mut self, order: OrderId, hop: Hop, first: Row) {
        let parent = &self.state.header;
        let path = parent.path.iter().copied().chain([hop]).collect();
        let answers = Answers::Order(parent.id, order);
        let nested = Header { id: parent.id.nested(order), shape: parent.shape, path, answers };
        open_session(&mut self.batch, self.queue, &nested, first);
        self.opened.insert(nested.id);
    }

    pub(super) fn cancel(&mut self, order: OrderId) -> Option<ScopeEvent<Row>> {
        let gone = Some(ScopeEvent::Dropped { order, mishaps: Vec::new() });
        if self.state.queued.waits(order) {
            return gone;
        }
        self.stop(order, &ScopeEvent::ParentEnds, &EventPlace::ParentEnds)
    }

    /// Stops the work of an order; answers it if nothing of it has begun. A nested session is told by this event.
    pub(super) fn stop(
        &mut self,
        order: OrderId,
        tells: &ScopeEvent<Row>,
        place: &EventPlace,
    ) -> Option<ScopeEvent<Row>> {
        let gone = Some(ScopeEvent::Dropped { order, mishaps: Vec::new() });
        let id = self.id();
        let body = match self.state.session.order_kind(order)? {
            OrderKind::Op(op) => self.state.scope.bodies[op.at()].clone(),
            OrderKind::Cleanup(flow) => DurableBody::Flow(self.state.scope.cleanups[flow as usize].scope.clone()),
        };
        match body {
            DurableBody::Activity(_) | DurableBody::Call(_)
                if self.begun.remove(&order) || !seams::waits_for_host() =>
            {
                let queue = self.queue_of(&body);
                self.batch.delete(queue.key(id.activity_name(order))).delete(id.feed(order));
                gone
            }
            // Its host ends it, or does not begin it, because the row of the order says that it is cancelled.
            DurableBody::Activity(_) | DurableBody::Call(_) => {
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
                    seams::require_nested(&mut self.batch, self.queue.key(nested.ready_name()));
                }
                self.batch.put(nested.event(place), write(tells));
                self.end.told.insert(nested);
                None
            }
            // One that waits for the next batch is looked at then.
            DurableBody::None | DurableBody::Inline(_) => None,
        }
    }
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
            let why = OrderFailure::Panic(clipped(crate::scope::carry::panic_words(&*panic)));
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

pub(super) fn failed(order: OrderId, error: String) -> ScopeEvent<Row> {
    ScopeEvent::Failed { order, why: OrderFailure::Error(clipped(error)), mishaps: Vec::new() }
}

fn size(emitted: &Emitted<Row>) -> usize {
    match emitted {
        Emitted::Nothing => 0,
        Emitted::One(_, message) => message.len(),
        Emitted::Many(list) => list.iter().map(|(_, message)| message.len()).sum(),
    }
}

/// The words of an error that go into a row.
fn clipped(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(ERROR_CHARS_MAX) {
        words.truncate(end);
        words.push('…');
    }
    words
}
