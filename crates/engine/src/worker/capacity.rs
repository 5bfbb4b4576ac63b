//! How many steps a worker may have taken at a time: in all, per class, and by what they need of the machine.

mod places;

use crate::{options::Options, shared::lock};
use onceflow_core::{Group, protocol::keys};
use places::{Place, Places};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::Notified};

/// The capacity a worker has.
pub(crate) struct Capacity {
    slots: Arc<Semaphore>,
    pub(crate) blocking: Arc<Semaphore>,
    running: Arc<Semaphore>,
    running_max: usize,
    /// Steps that wait for nothing but to run, and who waits for those to become few.
    ready: AtomicUsize,
    few_ready: Notify,
    cpus: Arc<Semaphore>,
    cpus_max: u32,
    memory: Arc<Semaphore>,
    memory_max: u32,
    internal: Group,
    limited: Vec<Limited>,
    /// For the steps of those classes together.
    together: Places,
    /// Classes this worker has heard of, beside the limited ones.
    others: std::sync::Mutex<Arc<[Group]>>,
    takes_others: bool,
    /// Queues of tasks that others do not have and this worker has, each with the queue of its class.
    unserved: std::sync::Mutex<Arc<[(Group, Group)]>>,
    /// Whose turn it is among the classes with a limit.
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
    _permit: OwnedSemaphorePermit,
    held: std::sync::Mutex<Held>,
    changed: Arc<Notify>,
}

/// The places that a slot has.
#[derive(Default)]
struct Held {
    /// In the class of its step, if that has a limit.
    class: Option<(Group, Place)>,
    /// Among all steps of classes with a limit.
    together: Option<Place>,
    /// In classes that a claim on its way may take a step of: nobody else may meanwhile.
    asked: Vec<(Group, Place)>,
}

impl Held {
    /// Whether some were given back that others may wait for.
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

    /// Waits for capacity for one more step.
    pub(crate) async fn slot(&self) -> Slot {
        let permit = self.slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        Slot { _permit: permit, held: std::sync::Mutex::default(), changed: self.changed.clone() }
    }

    /// Whether steps of this class are taken here.
    pub(crate) fn takes(&self, class: &str) -> bool {
        let queue = keys::class_queue(class);
        self.takes_others || self.limited.iter().any(|limited| limited.queue == queue)
    }

    /// The classes it takes steps of, and how many at a time, if that is bounded.
    pub(crate) fn classes(&self) -> Vec<(String, Option<u64>)> {
        let name = |queue: &Group| keys::class_of(queue).unwrap_or_default().to_owned();
        let limited = self.limited.iter().map(|limited| (name(&limited.queue), Some(limited.places.max() as u64)));
        limited.chain(lock(&self.others).iter().map(|queue| (name(queue), None))).collect()
    }

    /// Steps also stand in these queues, each with the queue of its class. Whether that is new.
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

    /// Where a step for this slot may be taken from: internal steps first. Places in classes with a limit are held until
    /// [`Capacity::assign`], the next call of this, or the end of the slot.
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

    /// The slot is used for a step from this queue now.
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

    /// The step of this slot only waits from now on: others may be taken, until this is dropped. Then it has its place
    /// again at once, and for a moment there may be more steps than there is capacity for: none is taken before they are few.
    pub(crate) fn rest<'a>(&'a self, slot: &'a Slot) -> Resting<'a> {
        // A class that is narrower than the capacity is somebody's promise about how many run: its place is kept.
        let is_narrow = |class: &Group| {
            self.limited.iter().any(|limited| limited.queue == *class && limited.places.max() < self.together.max())
        };
        let mut held = lock(&slot.held);
        held.asked.clear();
        let together = held.together.take().is_some();
        let class = held.class.take_if(|(class, _)| !is_narrow(class)).map(|(class, _)| class);
        drop(held);
        self.changed.notify_waiters();
        Resting { capacity: self, slot, class, together }
    }

    /// Whether only so many tasks may run at a time.
    pub(crate) fn bounds_running(&self) -> bool {
        self.running_max < usize::MAX
    }

    /// Ends when so few steps are ready to run that another would soon be missed: until then, what others do can be waited
    /// for together.
    pub(crate) async fn until_missed(&self) {
        loop {
            let few = self.few_ready.notified();
            if self.ready.load(SeqCst) < self.running_max {
                return;
            }
            few.await;
        }
    }

    /// Waits until a task may run, and the machine has what it needs.
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

    /// Ends when there may be capacity that was not there when this was called.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// A step that waits for nothing but to run, until this is dropped.
struct Ready<'a>(&'a Capacity);

impl<'a> Ready<'a> {
    fn new(capacity: &'a Capacity) -> Self {
        capacity.ready.fetch_add(1, SeqCst);
        Ready(capacity)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if self.0.ready.fetch_sub(1, SeqCst) <= self.0.running_max {
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

/// What a task has reserved, until it is dropped.
pub(crate) struct Reserved {
    _running: Option<OwnedSemaphorePermit>,
    _cpus: Option<OwnedSemaphorePermit>,
    _memory: Option<OwnedSemaphorePermit>,
}

/// A step that only waits, until this is dropped.
pub(crate) struct Resting<'a> {
    capacity: &'a Capacity,
    slot: &'a Slot,
    /// The class whose place it gave back.
    class: Option<Group>,
    /// Whether it gave its place among all back.
    together: bool,
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
    }
}

impl Slot {
    /// Leaves without telling whoever waits for capacity: the one who leaves is the one who waits.
    pub(crate) fn release(self) {
        let _nobody_is_told = lock(&self.held).give_back();
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
