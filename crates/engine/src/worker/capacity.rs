//! The capacity of a worker: how many steps it has at a time, in all, per class, and by the resources they need.

mod places;

use super::runner::Parking;
use crate::{options::Options, shared::lock};
use onceflow_core::{Group, protocol::keys};
use places::{Place, Places};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::Notified};

/// The capacity of a worker.
pub(crate) struct Capacity {
    slots: Arc<Semaphore>,
    pub(crate) blocking: Arc<Semaphore>,
    running: Arc<Semaphore>,
    running_max: usize,
    /// The number of steps that wait only for a place to run, and the signal that they are few.
    ready: AtomicUsize,
    few_ready: Notify,
    cpus: Arc<Semaphore>,
    cpus_max: u32,
    memory: Arc<Semaphore>,
    memory_max: u32,
    internal: Group,
    limited: Vec<Limited>,
    /// The limit of all limited classes together.
    together: Places,
    /// Known classes without a limit.
    others: std::sync::Mutex<Arc<[Group]>>,
    takes_others: bool,
    /// Queues of unserved tasks that this worker offers, each with the queue of its class.
    unserved: std::sync::Mutex<Arc<[(Group, Group)]>>,
    /// The limited class whose turn is next.
    turn: AtomicUsize,
    takes_turns: bool,
    changed: Arc<Notify>,
}

struct Limited {
    queue: Group,
    places: Places,
}

/// Capacity for one step.
pub(crate) struct Slot {
    /// Where its chain waits for the disk.
    pub(crate) parking: Arc<Parking>,
    /// Steps that it has performed.
    steps: usize,
    /// `None` while it is lent to others.
    permit: std::sync::Mutex<Option<OwnedSemaphorePermit>>,
    held: std::sync::Mutex<Held>,
    changed: Arc<Notify>,
}

/// The places that a slot holds.
#[derive(Default)]
struct Held {
    /// In the class of its step, if the class has a limit.
    class: Option<(Group, Place)>,
    /// Among the steps of all limited classes.
    together: Option<Place>,
    /// In classes that a claim on its way may take a step of: reserved meanwhile.
    asked: Vec<(Group, Place)>,
}

impl Held {
    /// Gives all places back. True if it held any that other slots may wait for.
    fn give_back(&mut self) -> bool {
        let had = self.class.take().is_some() | self.together.take().is_some() | !self.asked.is_empty();
        self.asked.clear();
        had
    }
}

const MIB: u64 = 1 << 20;

impl Capacity {
    pub(crate) fn new(options: &Options) -> Self {
        let limited =
            |(class, max): (&String, &usize)| Limited { queue: keys::class_queue(class), places: Places::new(*max) };
        let memory_max = u32::try_from(options.memory_bytes / MIB).unwrap_or(u32::MAX / 8).min(u32::MAX / 8);
        Capacity {
            slots: Arc::new(Semaphore::new(options.steps_max)),
            blocking: Arc::new(Semaphore::new(options.blocking_max)),
            running: Arc::new(Semaphore::new(options.running_max.min(Semaphore::MAX_PERMITS))),
            running_max: options.running_max,
            ready: AtomicUsize::new(0),
            few_ready: Notify::new(),
            cpus: Arc::new(Semaphore::new(options.cpu_milli as usize)),
            cpus_max: options.cpu_milli,
            memory: Arc::new(Semaphore::new(memory_max as usize)),
            memory_max,
            internal: keys::internal_queue(),
            limited: options.classes.iter().map(limited).collect(),
            together: Places::new(options.classes_max),
            others: std::sync::Mutex::new(Arc::new([])),
            takes_others: options.other_classes,
            unserved: std::sync::Mutex::new(Arc::new([])),
            turn: AtomicUsize::new(0),
            takes_turns: options.is_shared(),
            changed: Arc::default(),
        }
    }

    /// Waits for a free slot.
    pub(crate) async fn slot(&self) -> Slot {
        let permit = self.slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        Slot {
            parking: Arc::default(),
            steps: 0,
            permit: std::sync::Mutex::new(Some(permit)),
            held: std::sync::Mutex::default(),
            changed: self.changed.clone(),
        }
    }

    /// This worker claims steps of this class.
    pub(crate) fn takes(&self, class: &str) -> bool {
        let queue = keys::class_queue(class);
        self.takes_others || self.limited.iter().any(|limited| limited.queue == queue)
    }

    /// The classes it claims steps of, and how many at a time, if that is bounded.
    pub(crate) fn classes(&self) -> Vec<(String, Option<u64>)> {
        let name = |queue: &Group| keys::class_of(queue).unwrap_or_default().to_owned();
        let limited = self.limited.iter().map(|limited| (name(&limited.queue), Some(limited.places.max() as u64)));
        limited.chain(lock(&self.others).iter().map(|queue| (name(queue), None))).collect()
    }

    /// Sets the queues of unserved tasks that this worker offers, each with the queue of its class. True if one is new.
    pub(super) fn set_unserved(&self, queues: Vec<(Group, Group)>) -> bool {
        let mut unserved = lock(&self.unserved);
        let is_new = queues.iter().any(|queue| !unserved.contains(queue));
        if **unserved != *queues {
            *unserved = queues.into();
        }
        is_new
    }

    /// Learns of classes whose steps may become ready.
    pub(crate) fn learn(&self, classes: impl Iterator<Item = String>) {
        if !self.takes_others {
            return;
        }
        let mut others = self.others.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut all: Vec<_> = others.to_vec();
        for queue in classes.map(|class| keys::class_queue(&class)) {
            let is_limited = self.limited.iter().any(|limited| limited.queue == queue);
            if !is_limited && !all.contains(&queue) {
                all.push(queue);
            }
        }
        if all.len() != others.len() {
            *others = all.into();
            self.changed.notify_waiters();
        }
    }

    /// The queues that a step for this slot may be claimed from: internal steps first. Reserves places in limited
    /// classes until [`Capacity::assign`], the next call of this, or the end of the slot.
    pub(crate) fn queues(&self, slot: &Slot) -> Vec<Group> {
        let (others, unserved) = (lock(&self.others).clone(), lock(&self.unserved).clone());
        let mut queues = Vec::with_capacity(1 + others.len() + self.limited.len() + unserved.len());
        queues.push(self.internal.clone());
        let of =
            |class: &Group| unserved.iter().filter(|(_, of)| of == class).map(|(queue, _)| queue.clone()).collect();
        let is_limited = |class: &Group| self.limited.iter().any(|limited| limited.queue == *class);
        queues.extend(unserved.iter().filter(|(_, class)| !is_limited(class)).map(|(queue, _)| queue.clone()));
        queues.extend(others.iter().cloned());
        if !self.limited.is_empty() {
            let mut held = lock(&slot.held);
            held.asked.clear();
            if held.together.is_none() {
                held.together = self.together.take();
            }
            let may_take = held.together.is_some() && !self.together.is_exceeded();
            let turn = if self.takes_turns { self.turn.fetch_add(1, SeqCst) % self.limited.len() } else { 0 };
            let in_turn = self.limited[turn..].iter().chain(&self.limited[..turn]);
            for limited in in_turn.filter(|_| may_take) {
                let mine = held.class.as_ref().is_some_and(|(class, _)| *class == limited.queue);
                match mine {
                    true if limited.places.is_exceeded() => continue,
                    true => {}
                    false => {
                        let Some(place) = limited.places.take() else { continue };
                        held.asked.push((limited.queue.clone(), place));
                    }
                }
                queues.extend::<Vec<_>>(of(&limited.queue));
                queues.push(limited.queue.clone());
            }
        }
        queues.truncate(onceflow_core::limits::CLAIM_QUEUES_MAX);
        queues
    }

    /// All queues this worker looks at.
    pub(crate) fn all_queues(&self) -> Vec<Group> {
        let (others, unserved) = (lock(&self.others).clone(), lock(&self.unserved).clone());
        let limited = self.limited.iter().map(|limited| limited.queue.clone());
        let all = [self.internal.clone()].into_iter().chain(others.iter().cloned()).chain(limited);
        all.chain(unserved.iter().map(|(queue, _)| queue.clone())).collect()
    }

    /// Assigns the slot to a step from this queue, and gives the other reserved places back.
    pub(crate) fn assign(&self, slot: &mut Slot, queue: &Group) {
        if self.limited.is_empty() {
            return;
        }
        let class = lock(&self.unserved).iter().find(|(unserved, _)| unserved == queue).map(|(_, class)| class.clone());
        let queue = class.as_ref().unwrap_or(queue);
        let mut held = lock(&slot.held);
        if held.class.as_ref().is_none_or(|(class, _)| class != queue) {
            let at = held.asked.iter().position(|(class, _)| class == queue);
            held.class = at.map(|at| held.asked.swap_remove(at));
        }
        held.asked.clear();
        if held.class.is_none() {
            held.together = None;
        }
        drop(held);
        self.changed.notify_waiters();
    }

    /// Gives the slot's places to other steps while its own only waits. When the guard is dropped the step has its
    /// places back at once; if that exceeds a limit, no step is claimed until the number is below it again.
    pub(crate) fn rest<'a>(&'a self, slot: &'a Slot) -> Resting<'a> {
        // A limit below that of all classes is a promise about how many run: its place is kept.
        let is_narrow = |class: &Group| {
            self.limited.iter().any(|limited| limited.queue == *class && limited.places.max() < self.together.max())
        };
        let mut held = lock(&slot.held);
        held.asked.clear();
        let together = held.together.take().is_some();
        let class = held.class.take_if(|(class, _)| !is_narrow(class)).map(|(class, _)| class);
        drop(held);
        self.changed.notify_waiters();
        Resting { capacity: self, slot, class, together, permit: false }
    }

    /// As [`Capacity::rest`], for a step that waits for other steps: it gives all of its places away, also that of a narrow
    /// limit, for the steps that it waits for may need them.
    pub(crate) fn rest_for_others<'a>(&'a self, slot: &'a Slot) -> Resting<'a> {
        let mut held = lock(&slot.held);
        held.asked.clear();
        let together = held.together.take().is_some();
        let class = held.class.take().map(|(class, _)| class);
        drop(held);
        let permit = lock(&slot.permit).take().is_some();
        self.changed.notify_waiters();
        Resting { capacity: self, slot, class, together, permit }
    }

    /// The number of running tasks is bounded.
    pub(crate) fn bounds_running(&self) -> bool {
        self.running_max < usize::MAX
    }

    /// Ends when fewer steps wait to run than may run at a time. Until then a step may wait for a sync that serves
    /// many.
    pub(crate) async fn until_missed(&self) {
        loop {
            let few = self.few_ready.notified();
            if self.ready.load(SeqCst) < self.running_max {
                return;
            }
            few.await;
        }
    }

    /// Waits until a task may run, and reserves the resources it needs.
    pub(crate) async fn reserve(&self, needs: onceflow_core::model::ResourceRequest) -> Reserved {
        let cpus = needs.cpu_milli.min(self.cpus_max);
        let memory = u32::try_from(needs.memory_bytes / MIB).unwrap_or(u32::MAX).min(self.memory_max);
        let running = {
            let _ready = Ready::new(self);
            acquire(&self.running, 1).await
        };
        let cpus = acquire(&self.cpus, cpus).await;
        Reserved { _running: running, _cpus: cpus, _memory: acquire(&self.memory, memory).await }
    }

    pub(crate) fn ring(&self) {
        self.changed.notify_waiters();
    }

    /// Ends when capacity may have become free since this was called.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// Counts a step that waits only for a place to run, until dropped.
struct Ready<'a>(&'a Capacity);

impl<'a> Ready<'a> {
    fn new(capacity: &'a Capacity) -> Self {
        capacity.ready.fetch_add(1, SeqCst);
        Ready(capacity)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        let before = self.0.ready.fetch_sub(1, SeqCst);
        assert!(before > 0, "a step that waits for a place to run is counted while it waits");
        if before <= self.0.running_max {
            self.0.few_ready.notify_waiters();
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, permits: u32) -> Option<OwnedSemaphorePermit> {
    if permits == 0 {
        return None;
    }
    Some(semaphore.clone().acquire_many_owned(permits).await.expect("the semaphore is never closed"))
}

/// The reservation of a running task, until dropped.
pub(crate) struct Reserved {
    _running: Option<OwnedSemaphorePermit>,
    _cpus: Option<OwnedSemaphorePermit>,
    _memory: Option<OwnedSemaphorePermit>,
}

/// The places that a waiting step has lent to others, until dropped.
pub(crate) struct Resting<'a> {
    capacity: &'a Capacity,
    slot: &'a Slot,
    /// The class whose place it lent.
    class: Option<Group>,
    /// The step lent its place among all limited classes.
    together: bool,
    /// The step lent its place among all steps.
    permit: bool,
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        let class = self.class.take();
        let limited = self.capacity.limited.iter().find(|limited| Some(&limited.queue) == class.as_ref());
        let mut held = lock(&self.slot.held);
        if let Some(limited) = limited {
            held.class = Some((limited.queue.clone(), limited.places.insist()));
        }
        if self.together {
            held.together = Some(self.capacity.together.insist());
        }
        if self.permit {
            // If all are taken, this one step more has none.
            *lock(&self.slot.permit) = self.capacity.slots.clone().try_acquire_owned().ok();
        }
    }
}

/// Steps of a slot after which others have their turn: few enough that they wait only moments, many enough that a chain
/// stays where its rows are warm.
const STEPS_IN_A_ROW: usize = 32;

impl Slot {
    /// Counts a step that the slot has performed.
    pub(super) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// The slot has performed enough steps in a row: the next is that of the next run in turn.
    pub(super) fn is_turn_of_others(&self) -> bool {
        self.steps.is_multiple_of(STEPS_IN_A_ROW)
    }

    /// Gives the slot back without waking the dispatcher, which is the one that calls this.
    pub(crate) fn release(self) {
        let _had_places = lock(&self.held).give_back();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if lock(&self.held).give_back() {
            self.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
