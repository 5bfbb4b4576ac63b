//! Delivery in lanes: the orders of an operation that takes one message at a time, or one of each label, and lets a message
//! take the place of those before it. Each order that is served in a lane has a row, from which the lanes are restored; an
//! order that waits has no other row of its own.

use super::{
    body::DeliveryRule,
    keys::{EventPlace, LANE, LanePlace, LaneRow},
    orders::failed,
    turn::Turn,
};
use onceflow_core::{
    Name, Row,
    limits::ROW_BYTES_MAX,
    protocol::rows::{read, write},
    scope::{CancelCause, Feed, Instruction, LaneChange, Lanes, OpId, OrderFailure, OrderId, ScopeEvent},
};
use std::collections::{BTreeMap, VecDeque};

/// The lanes of all operations of a session, and the orders in them.
#[derive(Default)]
pub(super) struct Queued {
    lanes: BTreeMap<OpId, Lanes<OrderId>>,
    orders: BTreeMap<OrderId, (OpId, Instruction, LanePlace)>,
}

impl Queued {
    /// The lanes that these rows of a session describe; `None` if one cannot be read.
    pub(super) fn restore(rows: &[(Name, Row)]) -> Option<Self> {
        let of_lanes = rows.iter().filter(|(name, _)| name.as_bytes().starts_with(LANE));
        let mut found = of_lanes.map(|(_, row)| read::<LaneRow>(row)).collect::<Option<Vec<_>>>()?;
        // Those that wait arrived after the one that runs, in the order of their turns.
        found.sort_by_key(|(order, _, _, place)| (matches!(place, LanePlace::Waits(_)), order.turn()));
        let mut queued = Queued::default();
        for (order, op, instruction, place) in found {
            let lanes = queued.lanes.entry(op).or_insert_with(|| Lanes::new(true));
            lanes.restore(order, &instruction, matches!(place, LanePlace::Stops));
            queued.orders.insert(order, (op, instruction, place));
        }
        Some(queued)
    }

    /// The order waits for its turn.
    pub(super) fn waits(&self, order: OrderId) -> bool {
        self.orders.get(&order).is_some_and(|(.., place)| matches!(place, LanePlace::Waits(_)))
    }

    fn is_stopped(&self, order: OrderId) -> bool {
        self.orders.get(&order).is_some_and(|(.., place)| matches!(place, LanePlace::Stops))
    }
}

impl Turn<'_> {
    /// Begins an order, or queues it in the lane of its message.
    pub(super) fn run(&mut self, order: OrderId, op: OpId, feed: Feed<Row>) -> Option<ScopeEvent<Row>> {
        match self.state.scope.deliveries.get(&op).cloned() {
            Some(delivery) => self.arrive((order, op), feed, &delivery),
            None => self.begin(order, op, feed),
        }
    }

    fn arrive(
        &mut self,
        (order, op): (OrderId, OpId),
        feed: Feed<Row>,
        delivery: &DeliveryRule,
    ) -> Option<ScopeEvent<Row>> {
        let Feed::One(message) = &feed else {
            return Some(failed(order, String::from("a message that is delivered in turn is one message")));
        };
        let instruction = match delivery(message) {
            Ok(instruction) => instruction,
            Err(why) => return Some(failed(order, why)),
        };
        if message.len() > ROW_BYTES_MAX / 2 {
            return Some(failed(order, format!("its input has more than {} bytes", ROW_BYTES_MAX / 2)));
        }
        let lanes = self.state.queued.lanes.entry(op).or_insert_with(|| Lanes::new(true));
        let changes = lanes.arrive(order, &instruction);
        self.place(order, op, instruction, LanePlace::Waits(feed));
        for change in changes {
            if let Some(answer) = self.change(change) {
                self.apply(answer);
            }
        }
        None
    }

    /// Puts an order into its place.
    fn place(&mut self, order: OrderId, op: OpId, instruction: Instruction, place: LanePlace) {
        let row = (order, op, instruction, place);
        self.batch.put(self.id().lane(order), write(&row));
        let (_, op, instruction, place) = row;
        self.state.queued.orders.insert(order, (op, instruction, place));
    }

    /// Carries out a change of a lane. The answer of an order that it ends at once.
    fn change(&mut self, change: LaneChange<OrderId>) -> Option<ScopeEvent<Row>> {
        match change {
            LaneChange::Start(order) => self.start(order),
            LaneChange::Stop(order) => self.supplant(order),
            LaneChange::Discard(order) => Some(supplanted(order)),
        }
    }

    /// An order has its turn.
    fn start(&mut self, order: OrderId) -> Option<ScopeEvent<Row>> {
        let (op, instruction, place) = self.state.queued.orders.get(&order)?.clone();
        let LanePlace::Waits(feed) = place else { return None };
        // A session that ends tells its orders in turns, this one too.
        if !self.state.session.is_wanted(order) {
            return None;
        }
        self.place(order, op, instruction, LanePlace::Runs);
        self.begin(order, op, feed)
    }

    /// A later order takes the place of one that is served.
    fn supplant(&mut self, order: OrderId) -> Option<ScopeEvent<Row>> {
        let (op, instruction, _) = self.state.queued.orders.get(&order)?.clone();
        self.place(order, op, instruction, LanePlace::Stops);
        self.stop(order, &ScopeEvent::Cancel(CancelCause::Supplanted), &EventPlace::Cancel)
    }

    /// Takes an event into the machine. The answer of an order that was served in a lane gives its place to the next, whose
    /// answer may be certain at once.
    pub(super) fn apply(&mut self, event: ScopeEvent<Row>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let changes = self.apply_one(event);
            events.extend(changes.into_iter().filter_map(|change| self.change(change)));
        }
    }

    fn apply_one(&mut self, event: ScopeEvent<Row>) -> Vec<LaneChange<OrderId>> {
        let answered = match &event {
            ScopeEvent::Ended { order, .. } | ScopeEvent::Failed { order, .. } | ScopeEvent::Dropped { order, .. } => {
                Some(*order)
            }
            _ => None,
        };
        let event = match event {
            // Its work was ended for a later one. If the session has ended it as well, that is the reason.
            ScopeEvent::Dropped { order, mishaps }
                if self.state.queued.is_stopped(order) && self.state.session.is_wanted(order) =>
            {
                ScopeEvent::Failed { order, why: OrderFailure::Supplanted, mishaps }
            }
            event => event,
        };
        let scope = self.state.scope.clone();
        self.state.session.apply(&scope.scope, &*scope, event, &mut self.effects);
        let Some(order) = answered else { return Vec::new() };
        let Some((op, instruction, _)) = self.state.queued.orders.remove(&order) else { return Vec::new() };
        self.batch.delete(self.id().lane(order));
        let lanes = self.state.queued.lanes.get_mut(&op).expect("an order in a lane has lanes");
        lanes.leave(&order, &instruction)
    }
}

fn supplanted(order: OrderId) -> ScopeEvent<Row> {
    ScopeEvent::Failed { order, why: OrderFailure::Supplanted, mishaps: Vec::new() }
}
