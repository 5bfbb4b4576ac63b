//! Services that many operations ask, in many sessions: delivery one at a time, per label, with preemption; and
//! continuous services, which see all their open orders at each tick.

use super::{
    body::{Packet, ScopeBody},
    carry::{Work, failed, outcome, panic_words},
    cell::{SessionCell, lock},
};
use onceflow_core::scope::{Emitted, Instruction, LaneChange, Lanes, OrderFailure, OrderId, ScopeEvent};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

/// A service.
pub struct LightService {
    body: ServiceBody,
    state: Mutex<ServiceState>,
}

enum ServiceBody {
    Plain(ScopeBody),
    Continuous { tick: Mutex<Box<dyn FnMut(&mut OpenOrders) + Send>>, every_ms: Option<u64> },
}

struct ServiceState {
    lanes: Lanes<u64>,
    tickets: u64,
    /// Requests that wait or are served.
    entrants: BTreeMap<u64, Entrant>,
    /// Orders that a continuous service sees, by ticket.
    open: OpenOrders,
    is_ticking: bool,
    tick_again: bool,
    is_timer_set: bool,
    /// Orders that were withdrawn while the service looked at them.
    withdrawn: BTreeMap<u64, Option<OrderFailure>>,
}

struct Entrant {
    cell: Arc<SessionCell>,
    order: OrderId,
    /// Until it is served.
    message: Option<Packet>,
}

/// The place of an order at a service.
#[derive(Clone)]
pub(super) struct Lease {
    service: Arc<LightService>,
    ticket: u64,
    instruction: Instruction,
}

impl Lease {
    /// The order is answered.
    pub(super) fn leave(self) {
        let changes = {
            let mut state = lock(&self.service.state);
            state.entrants.remove(&self.ticket);
            state.lanes.leave(&self.ticket, &self.instruction)
        };
        self.service.make(changes, &self.instruction);
    }

    /// The order is not wanted any more: answers it, unless it is being started.
    pub(super) fn withdraw(&self, why: Option<OrderFailure>) {
        let entrant = {
            let mut state = lock(&self.service.state);
            let open = state.open.0.iter().position(|order| order.ticket == self.ticket);
            if let Some(at) = open {
                let order = state.open.0.remove(at);
                Some((order.cell.clone(), order.order, Some(order)))
            } else if state.lanes.is_waiting(&self.ticket, &self.instruction) {
                // It cannot be started any more, so that it is answered once.
                let changes = state.lanes.leave(&self.ticket, &self.instruction);
                assert!(changes.is_empty(), "one that waits keeps no lane from others");
                state.entrants.remove(&self.ticket).map(|entrant| (entrant.cell, entrant.order, None))
            } else {
                if state.is_ticking {
                    state.withdrawn.insert(self.ticket, why.clone());
                }
                None
            }
        };
        // A lane that it holds is left when the answer has arrived.
        if let Some((cell, order, request)) = entrant {
            drop(request);
            cell.feed(dropped(order, why));
        }
    }
}

fn dropped(order: OrderId, why: Option<OrderFailure>) -> ScopeEvent<Packet> {
    match why {
        Some(why) => failed(order, why),
        None => ScopeEvent::Dropped { order, mishaps: Vec::new() },
    }
}

impl LightService {
    /// A service with a body of its own; requests without a label are served one at a time if it is serial.
    pub fn new(body: ScopeBody, is_serial: bool) -> Arc<Self> {
        Self::with(ServiceBody::Plain(body), is_serial)
    }

    /// A service that sees its open orders whenever one arrives, and every so many milliseconds while there are any.
    pub fn continuous(
        tick: impl FnMut(&mut OpenOrders) + Send + 'static,
        every_ms: Option<u64>,
        is_serial: bool,
    ) -> Arc<Self> {
        Self::with(ServiceBody::Continuous { tick: Mutex::new(Box::new(tick)), every_ms }, is_serial)
    }

    fn with(body: ServiceBody, is_serial: bool) -> Arc<Self> {
        let state = ServiceState {
            lanes: Lanes::new(is_serial),
            tickets: 0,
            entrants: BTreeMap::new(),
            open: OpenOrders(Vec::new()),
            is_ticking: false,
            tick_again: false,
            is_timer_set: false,
            withdrawn: BTreeMap::new(),
        };
        Arc::new(LightService { body, state: Mutex::new(state) })
    }

    pub(super) fn arrive(
        self: &Arc<Self>,
        cell: &Arc<SessionCell>,
        order: OrderId,
        message: Packet,
        instruction: &Instruction,
    ) {
        let ticket = {
            let mut state = lock(&self.state);
            state.tickets += 1;
            let ticket = state.tickets;
            state.entrants.insert(ticket, Entrant { cell: cell.clone(), order, message: Some(message) });
            ticket
        };
        cell.register(order, Work::AtService, Some(self.lease(ticket, instruction)));
        let changes = lock(&self.state).lanes.arrive(ticket, instruction);
        self.make(changes, instruction);
    }

    fn lease(self: &Arc<Self>, ticket: u64, instruction: &Instruction) -> Lease {
        Lease { service: self.clone(), ticket, instruction: instruction.clone() }
    }

    fn make(self: &Arc<Self>, changes: Vec<LaneChange<u64>>, instruction: &Instruction) {
        for change in changes {
            let ticket = match &change {
                LaneChange::Start(ticket) | LaneChange::Stop(ticket) | LaneChange::Discard(ticket) => *ticket,
            };
            let found = {
                let mut state = lock(&self.state);
                let entrant = state.entrants.get_mut(&ticket);
                entrant.map(|entrant| (entrant.cell.clone(), entrant.order, entrant.message.take()))
            };
            // One that is gone has been answered, and has left its lane by that.
            let Some((cell, order, message)) = found else { continue };
            match change {
                LaneChange::Start(_) => {
                    let message = message.expect("an order is started once");
                    self.serve(ticket, &cell, order, message, instruction);
                }
                LaneChange::Stop(_) => cell.supplant(order),
                LaneChange::Discard(_) => cell.feed(failed(order, OrderFailure::Supplanted)),
            }
        }
    }

    fn serve(
        self: &Arc<Self>,
        ticket: u64,
        cell: &Arc<SessionCell>,
        order: OrderId,
        message: Packet,
        instruction: &Instruction,
    ) {
        match &self.body {
            ServiceBody::Plain(body) => cell.start(order, body, message, Some(self.lease(ticket, instruction))),
            ServiceBody::Continuous { .. } => {
                if !cell.state().session.is_wanted(order) {
                    return cell.feed(dropped(order, None));
                }
                let open = OpenOrder { ticket, cell: cell.clone(), order, request: Some(message), answer: None };
                lock(&self.state).open.0.push(open);
                self.tick();
            }
        }
    }

    /// Shows a continuous service its open orders.
    fn tick(self: &Arc<Self>) {
        let ServiceBody::Continuous { tick, every_ms } = &self.body else { return };
        loop {
            let mut orders = {
                let mut state = lock(&self.state);
                if std::mem::replace(&mut state.is_ticking, true) {
                    state.tick_again = true;
                    return;
                }
                OpenOrders(std::mem::take(&mut state.open.0))
            };
            let ticked = catch_unwind(AssertUnwindSafe(|| lock(tick)(&mut orders)));
            if let Err(panic) = ticked {
                let why = panic_words(&*panic);
                orders.0.iter_mut().for_each(|order| {
                    order.answer = Some(Err(OrderFailure::Panic(why.clone())));
                });
            }
            let (answered, withdrawn, again, world) = self.after_tick(orders);
            for order in answered {
                order.cell.clone().feed(match order.answer {
                    Some(Ok(emitted)) => outcome(order.order, Ok(Ok(emitted))),
                    Some(Err(why)) => failed(order.order, why),
                    None => unreachable!("only answered orders are answered"),
                });
            }
            for (order, why) in withdrawn {
                order.cell.feed(dropped(order.order, why));
            }
            if let (Some(world), Some(ms)) = (world, every_ms) {
                let (service, sleep) = (Arc::downgrade(self), world.sleep(*ms));
                let tick = async move {
                    sleep.await;
                    if let Some(service) = service.upgrade() {
                        lock(&service.state).is_timer_set = false;
                        service.tick();
                    }
                };
                world.spawn("scope service", Box::pin(tick));
            }
            if !again {
                return;
            }
        }
    }

    /// Sorts the orders after a tick, and returns a world when a timer must be set.
    fn after_tick(&self, orders: OpenOrders) -> AfterTick {
        let mut state = lock(&self.state);
        state.is_ticking = false;
        let mut withdrawn = std::mem::take(&mut state.withdrawn);
        let (answered, open): (Vec<_>, Vec<_>) = orders.0.into_iter().partition(|order| order.answer.is_some());
        let mut rest = Vec::new();
        let mut gone = Vec::new();
        for order in open {
            match withdrawn.remove(&order.ticket) {
                Some(why) => gone.push((order, why)),
                None => rest.push(order),
            }
        }
        rest.append(&mut state.open.0);
        state.open.0 = rest;
        let first = state.open.0.first().map(|order| order.cell.world.clone());
        let is_due = first.is_some() && matches!(self.body, ServiceBody::Continuous { every_ms: Some(_), .. });
        let world = first.filter(|_| is_due && !state.is_timer_set);
        state.is_timer_set |= world.is_some();
        (answered, gone, std::mem::take(&mut state.tick_again), world)
    }
}

type AfterTick = (Vec<OpenOrder>, Vec<(OpenOrder, Option<OrderFailure>)>, bool, Option<Arc<dyn onceflow_store::World>>);

/// The open orders of a continuous service, the oldest first.
pub struct OpenOrders(Vec<OpenOrder>);

impl OpenOrders {
    /// The orders.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenOrder> {
        self.0.iter_mut()
    }

    /// So many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One open order of a continuous service.
pub struct OpenOrder {
    ticket: u64,
    cell: Arc<SessionCell>,
    order: OrderId,
    request: Option<Packet>,
    answer: Option<Result<Emitted<Packet>, OrderFailure>>,
}

impl OpenOrder {
    /// The message of the order.
    pub fn request(&self) -> &Packet {
        self.request.as_ref().expect("an order has its message while it is open")
    }

    /// Answers it. The first answer counts.
    pub fn answer(&mut self, result: Result<Packet, String>) {
        let answer = result.map(|message| Emitted::One(0, message)).map_err(OrderFailure::Error);
        self.answer.get_or_insert(answer);
    }

    /// It was answered in this tick.
    pub fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Sends a message by a stream port; streams begin at 1.
    pub fn stream(&self, port: u32, message: Packet) {
        self.cell.feed(ScopeEvent::Streamed { order: self.order, port, message });
    }
}
