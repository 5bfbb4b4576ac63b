//! The cost of large graphs is proportional to their size: measured by the vertices taken, not by the clock.

use crate::plan::{
    DependencyGraph, DependencyGraphBuilder, Order, Policy, PortSource, PortTarget, Resume, VertexKind, VertexState,
};

/// Returns the iterations of a loop that computes Fibonacci numbers, one after the other: three carried ports a, b and
/// a count.
fn fibonacci(n: u32) -> DependencyGraph {
    let mut builder = DependencyGraphBuilder::new(3, 1);
    let mut carried = [PortSource::Input(0), PortSource::Input(1), PortSource::Input(2)];
    for _ in 1..n {
        // a' = b, b' = a + b, count' = count - 1
        let step = builder.module_with(3, &[vec![1], vec![0, 1], vec![2]]);
        (0..).zip(carried).for_each(|(port, from)| builder.connect(from, PortTarget::Port(step, port)));
        carried = [0, 1, 2].map(|port| PortSource::Port(step, port));
    }
    builder.connect(carried[1], PortTarget::Output(0));
    builder.build()
}

/// Returns Pascal's triangle as one composite: n(n-1)/2 adders; the ones at the sides are an in-port.
fn pascal(n: u32) -> DependencyGraph {
    let mut builder = DependencyGraphBuilder::new(1, n - 1);
    let one = PortSource::Input(0);
    let mut row = vec![one, one];
    for _ in 2..=n {
        let mut next = vec![one];
        for pair in row.windows(2) {
            let adder = builder.module(2, 1);
            builder.connect(pair[0], PortTarget::Port(adder, 0));
            builder.connect(pair[1], PortTarget::Port(adder, 1));
            next.push(PortSource::Port(adder, 0));
        }
        next.push(one);
        row = next;
    }
    (0..n - 1).for_each(|at| builder.connect(row[at as usize + 1], PortTarget::Output(at)));
    builder.build()
}

/// Returns the elements of an each, side by side: ten steps in a row, with a direct connection from the first to the
/// last.
fn elements(count: u32) -> DependencyGraph {
    let mut builder = DependencyGraphBuilder::new(1, count);
    for element in 0..count {
        let first = builder.module(1, 2);
        builder.connect(PortSource::Input(0), PortTarget::Port(first, 0));
        for step in first + 1..first + 9 {
            builder.module(1, 1);
            builder.connect(PortSource::Port(step - 1, 0), PortTarget::Port(step, 0));
        }
        let last = builder.module(2, 1);
        builder.connect(PortSource::Port(last - 1, 0), PortTarget::Port(last, 0));
        builder.connect(PortSource::Port(first, 1), PortTarget::Port(last, 1));
        builder.connect(PortSource::Port(last, 0), PortTarget::Output(element));
    }
    builder.build()
}

/// Returns the vertices taken, and the steps that run, when only the in-ports have values.
fn fresh(graph: &DependencyGraph, policy: Policy, order: Order) -> (u64, u32) {
    let all: Vec<_> = (0..graph.outputs()).collect();
    let resume = Resume::new(graph, policy, order, &[], &all);
    let frontier =
        resume.run(|port| matches!(graph.value_at(port), Some(PortSource::Input(_)))).expect("nothing missing");
    let runs = (0..graph.modules()).filter(|module| frontier.runs(*module)).count() as u32;
    assert!(frontier.taken() <= 2 * u64::from(graph.vertices()));
    (frontier.taken(), runs)
}

#[test]
fn fibonacci_and_pascal_grow_in_a_straight_line() {
    for order in [Order::Fifo, Order::Lifo] {
        for policy in [Policy::Provenance, Policy::Consistent] {
            let of = |n| fresh(&fibonacci(n), policy, order);
            let (small, large) = (of(1_001), of(100_001));
            assert_eq!(small.1, 1_000);
            assert_eq!(large.1, 100_000, "every iteration runs");
            assert!(large.0 <= small.0 * 100, "{small:?} {large:?}");
            let of = |n| fresh(&pascal(n), policy, order);
            let (small, large) = (of(51), of(501));
            assert_eq!((small.1, large.1), (51 * 50 / 2, 501 * 500 / 2));
            assert!(large.0 <= small.0 * 100, "{small:?} {large:?}");
        }
    }
}

#[test]
fn a_count_that_nothing_requested_depends_on_is_not_carried() {
    let graph = fibonacci(10);
    let resume = Resume::new(&graph, Policy::Provenance, Order::Fifo, &[], &[0]);
    let frontier =
        resume.run(|port| matches!(graph.value_at(port), Some(PortSource::Input(_)))).expect("nothing missing");
    let of_count = |module| frontier.state(graph.vertex(VertexKind::Port(module, 2)));
    assert!((0..9).all(|module| of_count(module) == VertexState::Irrelevant && !frontier.delivers(module, 2)));
}

#[test]
fn a_million_steps_are_explained_side_by_side() {
    let count = 100_000;
    let graph = elements(count);
    assert_eq!(graph.modules(), 1_000_000);
    // Every element is at another step: the steps before it are done, and their values are already reclaimed.
    let all: Vec<_> = (0..count).collect();
    let resume = Resume::new(&graph, Policy::Provenance, Order::Lifo, &[], &all);
    let has = |port| match graph.value_at(port) {
        Some(PortSource::Port(module, _)) => module % 10 < module / 10 % 11,
        Some(PortSource::Input(_)) => true,
        None => false,
    };
    let frontier = resume.run(has).expect("nothing missing");
    let runs = (0..graph.modules()).filter(|module| frontier.runs(*module)).count() as u32;
    let expected: u32 = (0..count).map(|element| 10 - element % 11).sum();
    assert_eq!(runs, expected);
    assert!(frontier.taken() <= 2 * u64::from(graph.vertices()));
}

#[test]
fn a_hundred_thousand_elements_are_explained_one_by_one() {
    let body = elements(1);
    let mut taken = 0;
    for element in 0..100_000_u32 {
        let done = element % 11;
        let resume = Resume::new(&body, Policy::Provenance, Order::Lifo, &[], &[0]);
        let has = |port| match body.value_at(port) {
            Some(PortSource::Port(module, _)) => module < done,
            Some(PortSource::Input(_)) => true,
            None => false,
        };
        let frontier = resume.run(has).expect("nothing missing");
        assert_eq!((0..10).filter(|module| frontier.runs(*module)).count() as u32, 10 - done);
        taken += frontier.taken();
    }
    assert!(taken <= 100_000 * 2 * u64::from(body.vertices()));
}
