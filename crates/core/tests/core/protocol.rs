//! The decisions of the kernel, without a store: how runs end, how lists are opened, and that deliveries give the same
//! result in every order of commits.

mod machine;

use machine::{Machine, each_graph, tasks_graph};
use onceflow_core::{
    Fences, Timestamp, limits,
    protocol::{
        rows::{Failed, Phase, Why},
        run::{Ending, ending},
        step::elements,
    },
};
use std::collections::BTreeSet;

const PHASES: [Phase; 13] = [
    Phase::Running,
    Phase::Failing,
    Phase::Cancelling,
    Phase::Failed { until: Timestamp::from_ms(7) },
    Phase::Waiting,
    Phase::UndoingFailed,
    Phase::UndoingCancelled,
    Phase::Frozen,
    Phase::RemovingFailed,
    Phase::RemovingCancelled,
    Phase::Expired,
    Phase::NotUndone { cancelled: false },
    Phase::NotUndone { cancelled: true },
];

#[test]
fn a_run_ends_as_the_worst_of_its_steps_says_and_a_cancel_outdoes_all() {
    let failed = Why::Failed(Failed { address: "/a".into(), attempt: 1, causes: vec![], started: false });
    let unknown = Why::Unknown { started: Fences::new(1).next(), address: "/b".into() };
    let whys = [Why::NotStarted, failed, unknown];
    for phase in PHASES {
        for (outputs, undos) in [(false, false), (false, true), (true, false), (true, true)] {
            for some in 0..8_u8 {
                let has = |at: u8| some & (1 << at) != 0;
                let parked: Vec<_> = (0..3).filter(|at| has(*at)).map(|at| whys[usize::from(at)].clone()).collect();
                let reversed: Vec<_> = parked.iter().rev().cloned().collect();
                let told = ending(phase, outputs, &parked, undos);
                assert_eq!(told, ending(phase, outputs, &reversed, undos), "the order of steps says nothing");
                let expected = match phase {
                    Phase::Cancelling if undos => Ending::Undo(Phase::UndoingCancelled),
                    Phase::UndoingCancelled
                    | Phase::RemovingCancelled
                    | Phase::UndoingFailed
                    | Phase::RemovingFailed
                    | Phase::NotUndone { .. }
                    | Phase::Frozen => Ending::Leave,
                    Phase::Cancelling => Ending::Remove(Phase::RemovingCancelled),
                    Phase::Expired if undos => Ending::Undo(Phase::UndoingFailed),
                    Phase::Expired => Ending::Remove(Phase::RemovingFailed),
                    _ => match (has(2), has(1), has(0), outputs) {
                        (true, ..) => Ending::Wait,
                        (_, true, ..) if undos => Ending::Undo(Phase::UndoingFailed),
                        (_, true, ..) => Ending::Fail,
                        (_, _, true, _) => Ending::Unpark,
                        (_, _, _, true) => Ending::Done,
                        _ => Ending::Damaged,
                    },
                };
                assert_eq!(told, expected, "{phase:?} outputs {outputs} undos {undos} parked {parked:?}");
            }
        }
    }
}

#[test]
fn chunks_cover_every_element_once_and_no_more_are_in_flight_than_may_be() {
    let sizes = (1..=40).chain([199, 200, 201, 799, 800, 801, 10_000]);
    for n in sizes {
        for ops in [0, 1, 3, 7, 100, 699, 700, 701, 5000] {
            for concurrency in [None, Some(0), Some(1), Some(2), Some(3), Some(5), Some(64), Some(100_000)] {
                let place = format!("{n} elements of {ops} operations, {concurrency:?} at a time");
                let elements = elements(n, ops, concurrency);
                let mut next = 0;
                for chunk in 0..elements.chunks() {
                    let range = elements.of_chunk(chunk);
                    assert_eq!(range.start, next, "{place}");
                    assert!(!range.is_empty(), "{place}: an empty chunk never ends");
                    assert!(range.clone().all(|element| elements.chunk_of(element) == chunk), "{place}");
                    next = range.end;
                }
                assert_eq!(next, n, "{place}");
                assert!((1..=elements.chunks().min(limits::LANES_MAX)).contains(&elements.lanes), "{place}");
                let chunk = elements.chunk as usize;
                assert!(chunk == 1 || chunk * ops <= limits::OPENING_OPS_MAX, "{place}: a chunk is too large");
                let in_flight = elements.lanes * elements.chunk;
                assert!(concurrency.is_none_or(|most| in_flight <= most.max(1)), "{place}: {in_flight} in flight");
            }
        }
    }
}

/// Tries every order in which ready steps can commit, and collects the orders in `seen`.
fn every_order(machine: &Machine, seen: &mut BTreeSet<Vec<String>>, trail: &mut Vec<String>) {
    let ready = machine.ready();
    if ready == ["settle"] {
        machine.is_at_rest();
        // A lane is ready once for each of its chunks.
        let mut ran: Vec<_> = trail.iter().filter(|step| !step.starts_with("lane")).cloned().collect();
        ran.sort();
        let steps = ran.len();
        ran.dedup();
        assert_eq!(ran.len(), steps, "a step was ready twice: {trail:?}");
        seen.insert(trail.clone());
        return;
    }
    assert!(!ready.is_empty(), "no step is ready after {trail:?}");
    for step in ready {
        assert_ne!(step, "settle", "it is settled while others are ready, after {trail:?}");
        let mut next = machine.clone();
        next.perform(&step);
        trail.push(step);
        every_order(&next, seen, trail);
        trail.pop();
    }
}

#[test]
fn each_step_is_ready_once_and_every_edge_is_cleared_in_every_order() {
    let graphs = [
        ("chain", "x -> a; a -> b; b -> c; c -> y", 1),
        ("diamond", "x -> a; a -> b; a -> c; b -> d; c -> d; d -> y", 2),
        ("fan", "x -> a; x -> b; x -> c; a -> d; b -> d; c -> d; d -> y", 6),
        ("fold", "x -> a; x -> b; a -> b; x -> c; b -> c; x -> d; c -> d; d -> y", 1),
        ("two joins", "x -> a; x -> b; a -> c; b -> c; a -> d; b -> d; c -> y; d -> z", 4),
        ("twice", "x -> a; a -> b; a -> b2; a -> y; b -> y2; b2 -> y3", 2),
    ];
    for (name, graph, orders) in graphs {
        let mut seen = BTreeSet::new();
        every_order(&Machine::new(&tasks_graph(graph), 0), &mut seen, &mut vec![]);
        assert_eq!(seen.len(), orders, "{name}: {seen:?}");
    }
}

#[test]
fn an_each_opens_and_gathers_every_element_once_in_every_order() {
    for n in 1..=3 {
        for concurrency in [None, Some(1), Some(2)] {
            let mut seen = BTreeSet::new();
            every_order(&Machine::new(&each_graph(concurrency), n), &mut seen, &mut vec![]);
            assert!(!seen.is_empty(), "{n} elements, {concurrency:?} at a time");
        }
    }
}
