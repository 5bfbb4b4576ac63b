//! One session in memory. The thread that brings an event drives the session as far as it goes; others leave their events in its
//! inbox meanwhile. So a session is driven by one thread at a time, effects keep their order, and user code runs
//! without a lock.

use super::{
    body::{LightScope, Packet},
    carry::Running,
    job::Job,
    keys::KeyTable,
    service::Lease,
};
use onceflow_core::scope::{
    CancelCause, Emitted, OpOverview, OrderFailure, OrderId, ScopeEffect, ScopeEvent, Session, SessionEnd, SessionPhase,
};
use onceflow_store::World;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Effects carried out before the session gives way to other tasks of its thread: a cycle without end must not keep it.
const EFFECTS_AT_ONCE: usize = 8192;

/// The place that streams and the end of a session go to.
pub trait SessionOutlet: Send + Sync {
    /// A message by a stream of the scope.
    fn stream(&self, stream: u32, message: Packet);

    /// The end. Called once, last.
    fn end(&self, end: SessionEnd<Packet>);
}

pub(super) enum Outlet {
    Caller(Arc<dyn SessionOutlet>),
    /// An order of another session.
    Parent(Arc<SessionCell>, OrderId),
}

pub(super) struct SessionCell {
    pub(super) scope: Arc<LightScope>,
    pub(super) world: Arc<dyn World>,
    inbox: Mutex<Inbox>,
    /// Something is in the inbox.
    has_mail: AtomicBool,
    state: Mutex<State>,
    pub(super) keys: Mutex<KeyTable>,
    pub(super) outlet: Outlet,
}

struct Inbox {
    events: VecDeque<ScopeEvent<Packet>>,
    /// A thread drives the session, and looks into the inbox before it stops.
    is_driven: bool,
}

pub(super) struct State {
    pub(super) session: Session<Packet>,
    pub(super) effects: VecDeque<ScopeEffect<Packet>>,
    /// Orders under way that can be cancelled, by number.
    pub(super) running: HashMap<u64, Running>,
    pub(super) timers: Vec<Arc<Job>>,
    /// Places at services that are to be left.
    leases: Vec<Lease>,
}

/// An effect to be carried out.
pub(super) struct Due {
    pub(super) effect: ScopeEffect<Packet>,
    /// The order was not cancelled before it began.
    pub(super) is_wanted: bool,
}

impl State {
    fn next_effect(&mut self) -> Option<Due> {
        let effect = self.effects.pop_front()?;
        let is_wanted = match &effect {
            ScopeEffect::Run { order, .. } => self.session.is_wanted(*order),
            _ => true,
        };
        Some(Due { effect, is_wanted })
    }

    /// An order is answered: its place at a service is free.
    fn order_left(&mut self, order: OrderId) {
        let left = if self.running.is_empty() { None } else { self.running.remove(&order.number()) };
        self.leases.extend(left.and_then(|running| running.lease));
    }
}

/// Locks; a panic of user code never happens under a lock, and one of ours has been reported.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionCell {
    pub(super) fn new(scope: Arc<LightScope>, world: Arc<dyn World>, outlet: Outlet) -> Arc<Self> {
        let session = Session::new(&scope.scope);
        let effects = VecDeque::new();
        Arc::new(SessionCell {
            scope,
            world,
            inbox: Mutex::new(Inbox { events: VecDeque::new(), is_driven: false }),
            has_mail: AtomicBool::new(false),
            state: Mutex::new(State {
                session,
                effects,
                running: HashMap::new(),
                timers: Vec::new(),
                leases: Vec::new(),
            }),
            keys: Mutex::new(KeyTable::default()),
            outlet,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues an event, and drives the session unless another thread does.
    pub(super) fn feed(self: &Arc<Self>, event: ScopeEvent<Packet>) {
        {
            let mut inbox = lock(&self.inbox);
            inbox.events.push_back(event);
            self.has_mail.store(true, Ordering::Release);
            if std::mem::replace(&mut inbox.is_driven, true) {
                return;
            }
        }
        self.drive();
    }

    /// Drives the session if it has effects and no other task drives it.
    pub(super) fn kick(self: &Arc<Self>) {
        if !std::mem::replace(&mut lock(&self.inbox).is_driven, true) {
            self.drive();
        }
    }

    fn drive(self: &Arc<Self>) {
        let mut budget = EFFECTS_AT_ONCE;
        while budget > 0 {
            let (effect, leases) = {
                let mut state = self.state();
                if self.has_mail.load(Ordering::Acquire) {
                    self.take_mail(&mut state);
                }
                if state.effects.is_empty() && state.session.phase() != SessionPhase::Done {
                    self.apply(&mut state, ScopeEvent::Idle);
                }
                (state.next_effect(), std::mem::take(&mut state.leases))
            };
            // The service may start another order, of any session: not under this session's lock.
            leases.into_iter().for_each(Lease::leave);
            match effect {
                Some(effect) => self.carry_out_chain(effect, &mut budget),
                None if self.stop_driving() => return,
                None => {}
            }
        }
        let cell = self.clone();
        self.world.spawn("scope", Box::pin(async move { cell.drive() }));
    }

    /// Carries out an effect. As long as effects are code that runs at once, its answer and the next effect share one
    /// lock.
    fn carry_out_chain(self: &Arc<Self>, first: Due, budget: &mut usize) {
        let mut next = Some(first);
        while let Some(effect) = next.take() {
            *budget = budget.saturating_sub(1);
            let Some(answer) = self.carry_out(effect) else { return };
            let mut state = self.state();
            self.apply(&mut state, answer);
            if *budget > 0 && !self.has_mail.load(Ordering::Relaxed) {
                next = state.next_effect();
            }
        }
    }

    fn apply(&self, state: &mut State, event: ScopeEvent<Packet>) {
        state.session.apply(&self.scope.scope, &*self.scope, event, &mut state.effects);
    }

    fn take_mail(self: &Arc<Self>, state: &mut State) {
        let events = {
            let mut inbox = lock(&self.inbox);
            self.has_mail.store(false, Ordering::Relaxed);
            std::mem::take(&mut inbox.events)
        };
        for event in events {
            match &event {
                ScopeEvent::Ended { order, .. }
                | ScopeEvent::Failed { order, .. }
                | ScopeEvent::Dropped { order, .. } => state.order_left(*order),
                ScopeEvent::KeysReleased { buffer } if lock(&self.keys).exist(*buffer) => continue,
                _ => {}
            }
            self.apply(state, event);
        }
    }

    fn stop_driving(&self) -> bool {
        let mut inbox = lock(&self.inbox);
        if inbox.events.is_empty() {
            inbox.is_driven = false;
        }
        !inbox.is_driven
    }

    /// Sends the end of the session on.
    pub(super) fn deliver(&self, end: SessionEnd<Packet>) {
        let (timers, running) = {
            let mut state = self.state();
            (std::mem::take(&mut state.timers), std::mem::take(&mut state.running))
        };
        assert!(running.is_empty(), "a session that is done has orders");
        timers.iter().for_each(|timer| timer.cancel(None));
        let (parent, order) = match &self.outlet {
            Outlet::Caller(outlet) => return outlet.end(end),
            Outlet::Parent(parent, order) => (parent, *order),
        };
        let SessionEnd { result, mishaps } = end;
        parent.feed(match result {
            Ok(message) => ScopeEvent::Ended { order, emitted: Emitted::One(0, message), mishaps },
            Err(cancelled) => match cancelled.cause {
                CancelCause::ParentEnded => ScopeEvent::Dropped { order, mishaps },
                CancelCause::Supplanted => ScopeEvent::Failed { order, why: OrderFailure::Supplanted, mishaps },
                _ => ScopeEvent::Failed { order, why: OrderFailure::Cancelled(Box::new(cancelled)), mishaps },
            },
        });
    }
}

/// A session from outside. Dropping it does nothing to the session.
#[derive(Clone)]
pub struct SessionHandle(pub(super) Arc<SessionCell>);

impl SessionHandle {
    /// Asks the session to end. An uninterruptible one goes on to its own end; one that ends already is not concerned.
    pub fn cancel(&self, cause: CancelCause) {
        self.0.feed(ScopeEvent::Cancel(cause));
    }

    /// Where the session stands.
    pub fn phase(&self) -> SessionPhase {
        self.0.state().session.phase()
    }

    /// Operations that are active or hold something: why the session is not done.
    pub fn overview(&self) -> Vec<OpOverview> {
        self.0.state().session.overview(&self.0.scope.scope)
    }

    /// Nothing is left of the session.
    pub fn is_empty(&self) -> bool {
        self.0.state().session.is_empty()
    }
}
