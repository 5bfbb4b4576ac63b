//! Timers: durable deadlines of work that is suspended. A timer stands as long as the work does: the batch that suspends
//! puts both, the batch that wakes deletes both. Names sort by deadline, so that one sleeper per process serves them all.

use super::ids::{Generation, RunId, StepId};
use crate::{
    key::{Group, Key, Name},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The content of a timer's row: the work that is woken at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timer {
    /// A suspended step of a run.
    Step {
        /// The run.
        run: RunId,
        /// The generation of the step.
        generation: Generation,
        /// The step.
        step: StepId,
    },
}

/// Returns the group of all timers.
pub fn timers() -> Group {
    Group::rows("timers")
}

impl Timer {
    /// Returns the key of the timer with this deadline.
    pub fn key(&self, deadline: Timestamp) -> Key {
        let Timer::Step { run, generation, step } = self;
        let name = step.queue_name(*run, *generation);
        timers().key(Name::join(&[&deadline.to_sortable(), name.as_bytes()]))
    }
}

/// Returns the deadline in a name that [`Timer::key`] made.
pub fn deadline_of(name: &Name) -> Option<Timestamp> {
    Timestamp::from_sortable(name.as_bytes().get(..8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_sort_by_deadline_and_two_steps_never_share_one() {
        let timer = |node| Timer::Step { run: RunId([9; 8]), generation: Generation(1), step: StepId::of_run(node) };
        let [soon, late] = [5, 300].map(Timestamp::from_ms);
        assert!(timer(7).key(soon).name < timer(1).key(late).name);
        assert_ne!(timer(7).key(soon), timer(8).key(soon));
        assert_eq!(deadline_of(&timer(7).key(late).name), Some(late));
        assert_eq!(deadline_of(&Name::new("short")), None);
    }
}
