//! Delivery of requests to a service: all at once, one at a time, or one at a time per label. A request may preempt
//! those before it, and may be immune to being preempted. Pure: the service asks which requests to start and to stop.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How a request is to be delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    /// Requests with the same label are served one at a time; without labels a serial service has one lane for all.
    pub label: Option<String>,
    /// Requests of its lane that wait are discarded, and the one that runs is stopped.
    pub preempt: bool,
    /// A request that preempts does not concern this one.
    pub ensure: bool,
}

/// The requests of a service. `T` names a request.
#[derive(Clone, Debug)]
pub struct Lanes<T> {
    is_serial: bool,
    lanes: BTreeMap<Option<String>, Lane<T>>,
}

#[derive(Clone, Debug)]
struct Lane<T> {
    running: Option<Entrant<T>>,
    waiting: VecDeque<Entrant<T>>,
}

#[derive(Clone, Debug)]
struct Entrant<T> {
    request: T,
    is_ensured: bool,
    is_stopping: bool,
}

/// A change that the service is to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneChange<T> {
    /// Start a request.
    Start(T),
    /// Stop a request that runs, and say that it left when it really has.
    Stop(T),
    /// Tell a request that waited that it will not be served.
    Discard(T),
}

impl<T: Clone + PartialEq> Lanes<T> {
    /// A service without requests. It serves requests without a label one at a time if it is serial, and all at once
    /// if it is not.
    pub fn new(is_serial: bool) -> Self {
        Lanes { is_serial, lanes: BTreeMap::new() }
    }

    /// A request arrives.
    pub fn arrive(&mut self, request: T, instruction: &Instruction) -> Vec<LaneChange<T>> {
        if !self.is_serial && instruction.label.is_none() {
            return vec![LaneChange::Start(request)];
        }
        let empty = || Lane { running: None, waiting: VecDeque::new() };
        let lane = self.lanes.entry(instruction.label.clone()).or_insert_with(empty);
        let mut changes = Vec::new();
        if instruction.preempt {
            let (kept, discarded) = std::mem::take(&mut lane.waiting).into_iter().partition(|other| other.is_ensured);
            lane.waiting = kept;
            changes.extend(VecDeque::into_iter(discarded).map(|other| LaneChange::Discard(other.request)));
            if let Some(running) = lane.running.as_mut().filter(|other| !other.is_ensured && !other.is_stopping) {
                running.is_stopping = true;
                changes.push(LaneChange::Stop(running.request.clone()));
            }
        }
        lane.waiting.push_back(Entrant { request, is_ensured: instruction.ensure, is_stopping: false });
        changes.extend(lane.start_next());
        changes
    }

    /// Puts a request back that arrived before. Requests of a lane are put back in the order in which they arrived, so the
    /// first is the one that runs.
    pub fn restore(&mut self, request: T, instruction: &Instruction, is_stopping: bool) {
        let empty = || Lane { running: None, waiting: VecDeque::new() };
        let lane = self.lanes.entry(instruction.label.clone()).or_insert_with(empty);
        let entrant = Entrant { request, is_ensured: instruction.ensure, is_stopping };
        match lane.running {
            None => lane.running = Some(entrant),
            Some(_) => lane.waiting.push_back(entrant),
        }
    }

    /// Removes a request that has ended, or that was cancelled while it waited. Returns the changes that follow.
    pub fn leave(&mut self, request: &T, instruction: &Instruction) -> Vec<LaneChange<T>> {
        let Some(lane) = self.lanes.get_mut(&instruction.label) else { return Vec::new() };
        if lane.running.as_ref().is_some_and(|running| running.request == *request) {
            lane.running = None;
        } else {
            lane.waiting.retain(|other| other.request != *request);
        }
        let changes = lane.start_next();
        if lane.running.is_none() {
            self.lanes.remove(&instruction.label);
        }
        changes.into_iter().collect()
    }

    /// The request waits for its turn.
    pub fn is_waiting(&self, request: &T, instruction: &Instruction) -> bool {
        let lane = self.lanes.get(&instruction.label);
        lane.is_some_and(|lane| lane.waiting.iter().any(|other| other.request == *request))
    }
}

impl<T: Clone> Lane<T> {
    fn start_next(&mut self) -> Option<LaneChange<T>> {
        if self.running.is_some() {
            return None;
        }
        self.running = self.waiting.pop_front();
        self.running.as_ref().map(|next| LaneChange::Start(next.request.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::{LaneChange::*, *};

    fn plain() -> Instruction {
        Instruction::default()
    }

    #[test]
    fn a_serial_service_serves_one_at_a_time_in_order() {
        let mut lanes = Lanes::new(true);
        assert_eq!(lanes.arrive(1, &plain()), [Start(1)]);
        assert_eq!(lanes.arrive(2, &plain()), []);
        assert_eq!(lanes.arrive(3, &plain()), []);
        assert_eq!(lanes.leave(&2, &plain()), [], "one that waits leaves without a trace");
        assert_eq!(lanes.leave(&1, &plain()), [Start(3)]);
        assert_eq!(lanes.leave(&3, &plain()), []);
        assert_eq!(lanes.lanes.len(), 0, "an empty lane is forgotten");
    }

    #[test]
    fn requests_that_are_put_back_go_on_as_they_were() {
        let mut lanes = Lanes::new(true);
        let preempt = Instruction { preempt: true, ..plain() };
        let ensure = Instruction { ensure: true, ..plain() };
        lanes.restore(1, &plain(), true);
        lanes.restore(2, &ensure, false);
        lanes.restore(3, &plain(), false);
        assert_eq!(lanes.arrive(4, &preempt), [Discard(3)], "the first is being stopped, the second immune");
        assert_eq!(lanes.leave(&1, &plain()), [Start(2)]);
        assert_eq!(lanes.leave(&2, &ensure), [Start(4)]);
    }

    #[test]
    fn labels_are_lanes_of_their_own_and_no_label_is_parallel() {
        let mut lanes = Lanes::new(false);
        let label = |name: &str| Instruction { label: Some(name.into()), ..plain() };
        assert_eq!(lanes.arrive(1, &label("a")), [Start(1)]);
        assert_eq!(lanes.arrive(2, &label("b")), [Start(2)]);
        assert_eq!(lanes.arrive(3, &label("a")), []);
        assert_eq!(lanes.arrive(4, &plain()), [Start(4)]);
        assert_eq!(lanes.arrive(5, &plain()), [Start(5)]);
        assert_eq!(lanes.leave(&1, &label("a")), [Start(3)]);
    }

    #[test]
    fn preempt_stops_what_runs_and_discards_what_waits_unless_it_is_ensured() {
        let mut lanes = Lanes::new(true);
        let preempt = Instruction { preempt: true, ..plain() };
        let ensure = Instruction { ensure: true, ..plain() };
        assert_eq!(lanes.arrive(1, &plain()), [Start(1)]);
        lanes.arrive(2, &plain());
        lanes.arrive(3, &ensure);
        assert_eq!(lanes.arrive(4, &preempt), [Discard(2), Stop(1)]);
        assert_eq!(lanes.arrive(5, &preempt), [Discard(4)], "one that is being stopped is not stopped again");
        assert_eq!(lanes.leave(&1, &plain()), [Start(3)]);
        assert_eq!(lanes.arrive(6, &preempt), [Discard(5)], "an ensured one runs to its end");
        assert_eq!(lanes.leave(&3, &ensure), [Start(6)]);
    }
}
