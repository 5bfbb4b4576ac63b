//! Looks into the sessions that a run has open: which operations they wait for, with which messages, and what their
//! buffers hold. Reads rows only, so any process can look, also while another one drives the session, or none does.

use super::{
    body::{DurableBody, DurableScope},
    call::run_key,
    keys::{EventPlace, FeedRow, LanePlace, LaneRow, SessionId, WriterTimer, read_timer},
    open_sessions::{OpenSession, end_key},
};
use crate::{Error, Handle, handle::report_key, kernel::Kernel};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Key, Name, Row, Timestamp,
    limits::ROW_BYTES_MAX,
    model::TaskSpec,
    protocol::rows::{read, write},
    scope::{
        CancelCause, Emitted, Feed, OpOverview, OrderId, OrderKind, SESSION_ROW, ScopeEvent, Session, SessionPhase,
    },
};
use onceflow_store::records;
use std::sync::Arc;

/// Times that a session is read again because it changed meanwhile. Then its rows are taken as they were found: each is
/// right, but they may be of different moments.
const READS_MAX: usize = 8;

/// An open session, as its rows describe it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The address of the step that opened the outermost session.
    pub step: String,
    /// Names of operations and cleanup flows on the way from the outermost session to this one.
    pub path: Vec<String>,
    /// Where it stands.
    pub phase: SessionPhase,
    /// Why it was cancelled, while it is cleaned.
    pub cancelled: Option<CancelCause>,
    /// The orders that it waits for.
    pub waits: Vec<OrderView>,
    /// Buffers and collections that hold messages, and buffers that are closed.
    pub holds: Vec<OpOverview>,
}

/// An order that a session waits for.
#[derive(Clone, Debug)]
pub struct OrderView {
    /// The operation or cleanup flow.
    pub name: String,
    /// The kind of work it is.
    pub kind: OrderWork,
    /// The key that all attempts at it have, if it is an activity; that of its run, if it is a call.
    pub key: Option<String>,
    /// Its message, if it has one.
    pub message: Option<Row>,
    /// It waits for the order before it to end: the operation takes its messages in turn.
    pub is_queued: bool,
    /// It was told to end, and has not yet.
    pub is_cancelled: bool,
    /// The event that it waits for.
    pub event: Option<String>,
    /// When it ends by itself: a sleep, or the time limit of a cleanup flow.
    pub due: Option<Timestamp>,
    place: (SessionId, OrderId),
}

/// The kind of work of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderWork {
    /// User code.
    Task,
    /// A run of a flow.
    Call,
    /// A nested session, which has a view of its own.
    Nested,
    /// A cleanup flow, which is a nested session.
    Cleanup,
    /// A time.
    Sleep,
    /// An event from outside.
    Event,
    /// Inline code that runs with the next batch.
    Inline,
}

impl Handle {
    /// The sessions that the run has open, each before those nested in it. `scope_of` gives the scope that a task enters,
    /// or `None` if this process does not know it: such a session is left out.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn open_sessions<'a>(
        &'a self,
        scope_of: &'a (dyn Fn(&TaskSpec) -> Option<Arc<DurableScope>> + Sync),
    ) -> BoxFuture<'a, Result<Vec<SessionView>, Error>> {
        Box::pin(async move {
            let kernel = &self.shared.kernel;
            let mut views = Vec::new();
            for (_, open) in OpenSession::all(kernel, self.id()).await? {
                if let Some(scope) = scope_of(&open.task) {
                    let id = SessionId::of_key(&open.session, "");
                    let outermost = Visit { step: open.address.clone(), path: vec![], id, scope };
                    outermost.into_all(kernel, (self, &open.session), &mut views).await?;
                }
            }
            Ok(views)
        })
    }
}

impl Handle {
    /// Delivers an event to an order that waits for it: the order ends with this message. With an id, an event that was
    /// delivered to the run under it before is not delivered again. False if the order does not wait any more, or the id
    /// was used: [`Handle::is_resolved`] tells which. Durable when it returns.
    ///
    /// # Errors
    /// If the message is too large for a row, or the store does not answer. After an error the event may have been
    /// delivered; to send it again without harm takes an id.
    pub fn deliver<'a>(
        &'a self,
        to: &'a OrderView,
        message: Row,
        id: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            if message.len() > ROW_BYTES_MAX / 2 {
                return Err(Error::Inputs(format!("the event has more than {} bytes", ROW_BYTES_MAX / 2)));
            }
            let delivery = Delivery::new(self, to, id);
            let is_delivered = delivery.commit(message).await?;
            let records = &self.shared.records;
            records.durable(records.position()).await?;
            if is_delivered && id.is_none() {
                delivery.forget().await;
            }
            Ok(is_delivered)
        })
    }
}

/// An event on its way to an order. Its receipt is a row that is put with it and holds a drawn number, so that after a lost
/// reply this event is told from every other.
struct Delivery<'a> {
    kernel: &'a Kernel,
    place: (SessionId, OrderId),
    receipt: (Key, Row),
}

impl<'a> Delivery<'a> {
    /// Without an id, the drawn number stands for one.
    fn new(handle: &'a Handle, to: &OrderView, id: Option<&str>) -> Self {
        let drawn = handle.shared.world.random();
        let key = match id {
            Some(id) => report_key(handle.id(), id),
            None => report_key(handle.id(), &format!("{drawn:032x}")),
        };
        Delivery { kernel: &handle.shared.kernel, place: to.place, receipt: (key, Row::new(drawn.to_le_bytes())) }
    }

    /// Commits the event; false if the order does not wait any more, or the id was used.
    async fn commit(&self, message: Row) -> Result<bool, Error> {
        let ((session, order), (receipt, drawn)) = (self.place, &self.receipt);
        let mut batch = Batch::new(self.kernel.shard);
        // The input goes with the event, so a second one does not find it.
        batch.require_present(session.feed(order)).delete(session.feed(order));
        batch.require_absent(receipt.clone()).put(receipt.clone(), drawn.clone());
        let emitted = Emitted::One(0, message);
        let event = ScopeEvent::Ended { order, emitted, mishaps: Vec::new() };
        batch.put(session.event(&EventPlace::Order(order, u64::MAX)), write(&event));
        match self.kernel.commit_outside(batch.into(), &[]).await {
            Ok(result) => Ok(result.is_applied()),
            Err(Error::Store(lost @ records::Error::Unknown(_))) => match self.kernel.row(receipt.clone()).await? {
                Some(found) => Ok(found == *drawn),
                // While its input is there, the order waits: nothing was delivered, and the store does not answer.
                None if self.kernel.row(session.feed(order)).await?.is_some() => Err(lost.into()),
                None => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// Deletes the receipt of an event that no caller can send again.
    async fn forget(&self) {
        let mut batch = Batch::new(self.kernel.shard);
        batch.delete(self.receipt.0.clone());
        if let Err(error) = self.kernel.commit_outside(batch.into(), &[]).await {
            tracing::debug!(%error, "failed to delete the receipt of an event; it goes with its run");
        }
    }
}

/// A session that is to be looked at.
struct Visit {
    step: String,
    path: Vec<String>,
    id: SessionId,
    scope: Arc<DurableScope>,
}

impl Visit {
    /// Looks at the session and at all that are nested in it.
    async fn into_all(
        self,
        kernel: &Kernel,
        (run, name): (&Handle, &str),
        views: &mut Vec<SessionView>,
    ) -> Result<(), Error> {
        let mut open = vec![self];
        while let Some(visit) = open.pop() {
            let rows = visit.rows(kernel).await?;
            let mut view = SessionView {
                step: visit.step.clone(),
                path: visit.path.clone(),
                phase: SessionPhase::New,
                cancelled: None,
                waits: vec![],
                holds: vec![],
            };
            if rows.is_empty() {
                // A nested one that is gone has left an event for its parent; an outermost one has left its end.
                let has_ended = visit.path.is_empty() && kernel.row(end_key(run.id(), name)).await?.is_some();
                view.phase = if has_ended { SessionPhase::Done } else { continue };
            } else if rows.iter().any(|(name, _)| name.as_bytes() == SESSION_ROW) {
                let Some(session) = Session::<Row>::glimpse(&visit.scope.scope, rows.iter().map(|(n, r)| (n, r)))
                else {
                    continue;
                };
                visit.look(run.key(), &session, &rows, &mut view);
                open.extend(visit.nested(&session));
            }
            views.push(view);
        }
        Ok(())
    }

    /// The rows of the session, all of one moment if it holds still for long enough.
    async fn rows(&self, kernel: &Kernel) -> Result<Vec<(Name, Row)>, Error> {
        let mut rows = kernel.all_rows(self.id.group(), b"").await?;
        for _ in 0..READS_MAX {
            let own = rows.iter().find(|(name, _)| name.as_bytes() == SESSION_ROW).map(|(_, row)| row.clone());
            if kernel.row(self.id.own_row()).await? == own {
                break;
            }
            rows = kernel.all_rows(self.id.group(), b"").await?;
        }
        Ok(rows)
    }

    fn look(&self, run: &str, session: &Session<Row>, rows: &[(Name, Row)], view: &mut SessionView) {
        let scope = &self.scope.scope;
        view.phase = session.phase();
        view.cancelled = session.cancelled_by().cloned();
        view.holds = session.overview(scope).into_iter().filter(|op| op.holds > 0 || op.is_closed).collect();
        let named = |name: &Name| rows.iter().find(|(other, _)| other == name).map(|(_, row)| row);
        let due = |timer: WriterTimer| named(&self.id.timer(timer).name).and_then(read_timer).map(|(_, due)| due);
        for (order, kind, is_cancelled) in session.open_orders() {
            // One whose answer has come is not waited for any more.
            if named(&self.id.event(&EventPlace::Order(order, u64::MAX)).name).is_some() {
                continue;
            }
            let (name, work) = self.work(kind);
            let feed = named(&self.id.feed(order).name).and_then(|row| read::<FeedRow>(row));
            let lane = named(&self.id.lane(order).name).and_then(|row| read::<LaneRow>(row));
            let waits = match lane {
                Some((.., LanePlace::Waits(feed))) => Some(feed),
                _ => None,
            };
            let is_queued = waits.is_some();
            let message = match feed.map(|(.., feed)| feed).or(waits) {
                Some(Feed::One(message) | Feed::Keys(Some(message))) => Some(message),
                _ => None,
            };
            let due = match work {
                OrderWork::Sleep => due(WriterTimer::Sleep(order)),
                OrderWork::Cleanup => due(WriterTimer::Session(onceflow_core::scope::SessionTimer::Cleanup(order))),
                _ => None,
            };
            let key = match work {
                OrderWork::Task => Some(self.id.activity_key(order)),
                OrderWork::Call => Some(run_key(run, &name, &self.id.activity_key(order))),
                _ => None,
            };
            let place = (self.id, order);
            let event = self.event(kind);
            view.waits.push(OrderView { name, kind: work, key, message, is_queued, is_cancelled, event, due, place });
        }
    }

    fn work(&self, kind: OrderKind) -> (String, OrderWork) {
        match kind {
            OrderKind::Cleanup(flow) => (self.scope.scope.cleanups()[flow as usize].name.clone(), OrderWork::Cleanup),
            OrderKind::Op(op) => {
                let work = match &self.scope.bodies[op.at()] {
                    DurableBody::Flow(_) => OrderWork::Nested,
                    DurableBody::Call(_) => OrderWork::Call,
                    DurableBody::Sleep { .. } => OrderWork::Sleep,
                    DurableBody::Wait { .. } => OrderWork::Event,
                    DurableBody::Inline(_) => OrderWork::Inline,
                    // A scope that is only looked at has no code for its activities.
                    DurableBody::Activity(_) | DurableBody::None => OrderWork::Task,
                };
                (self.scope.scope.operations()[op.at()].name.clone(), work)
            }
        }
    }

    fn event(&self, kind: OrderKind) -> Option<String> {
        let OrderKind::Op(op) = kind else { return None };
        match &self.scope.bodies[op.at()] {
            DurableBody::Wait { event } => Some(event.clone()),
            _ => None,
        }
    }

    fn nested(&self, session: &Session<Row>) -> Vec<Visit> {
        let visit = |(order, kind, _): (OrderId, OrderKind, bool)| {
            let scope = match kind {
                OrderKind::Cleanup(flow) => self.scope.cleanups[flow as usize].scope.clone(),
                OrderKind::Op(op) => match &self.scope.bodies[op.at()] {
                    DurableBody::Flow(scope) => scope.clone(),
                    _ => return None,
                },
            };
            let path = self.path.iter().cloned().chain([self.work(kind).0]).collect();
            Some(Visit { step: self.step.clone(), path, id: self.id.nested(order), scope })
        };
        let mut nested: Vec<_> = session.open_orders().filter_map(visit).collect();
        // The last one is looked at first.
        nested.reverse();
        nested
    }
}
