//! Larger random graphs: with parts that no requested out-port needs, in-ports that nothing feeds, and a mix of
//! declared and maximal dependencies.

use super::{
    brute::{Set, Small},
    late::run_late,
    rng::{Rng, seeds},
};
use crate::plan::{DependencyGraph, DependencyGraphBuilder, Order, Policy, PortSource, PortTarget, Resume};

/// Returns a random graph of up to `modules_max` sub-modules.
pub(super) fn random(rng: &mut Rng, modules_max: u64, ports_max: u64) -> DependencyGraph {
    let (inputs, outputs) = (rng.below(3) as u32, 1 + rng.below(3) as u32);
    let mut builder = DependencyGraphBuilder::new(inputs, outputs);
    let mut places: Vec<_> = (0..inputs).map(PortSource::Input).collect();
    for _ in 0..1 + rng.below(modules_max) {
        let (ins, outs) = (rng.below(ports_max + 1) as u32, rng.below(ports_max + 1) as u32);
        let module = if rng.one_in(2) {
            builder.module(ins, outs)
        } else {
            let rows: Vec<Vec<u32>> = (0..outs).map(|_| (0..ins).filter(|_| rng.one_in(2)).collect()).collect();
            builder.module_with(ins, &rows)
        };
        for port in 0..ins {
            if !places.is_empty() && !rng.one_in(8) {
                builder.connect(rng.pick(&places), PortTarget::Port(module, port));
            }
        }
        places.extend((0..outs).map(|port| PortSource::Port(module, port)));
    }
    for output in 0..outputs {
        if !places.is_empty() && !rng.one_in(20) {
            builder.connect(rng.pick(&places), PortTarget::Output(output));
        }
    }
    builder.build()
}

/// Returns a random selection of the parent's out-ports, at least one.
pub(super) fn requested(rng: &mut Rng, graph: &DependencyGraph) -> Vec<u32> {
    let first = rng.below(u64::from(graph.outputs())) as u32;
    (0..graph.outputs()).filter(|at| *at == first || rng.one_in(2)).collect()
}

#[test]
fn sampled_frontiers_are_consistent_and_optimal_and_provenance_is_sound_and_least() {
    for seed in seeds(20_000) {
        let rng = &mut Rng::new(seed);
        let graph = random(rng, 5, 3);
        if graph.vertices() > 24 || graph.places() > 31 {
            continue;
        }
        let small = Small::new(&graph, &requested(rng, &graph));
        let changed = rng.next() as Set & ((1 << graph.inputs()) - 1);
        let cuts = small.cuts(changed);
        for _ in 0..8 {
            let mask = rng.next() as Set | if rng.one_in(2) { rng.next() as Set } else { 0 };
            small.check_consistent(&cuts, rng.next(), changed, mask);
            small.check_provenance(&cuts, rng.next(), changed, mask & ((1 << graph.places()) - 1));
        }
    }
}

#[test]
fn neither_order_nor_delay_changes_the_answer_and_provenance_never_runs_more() {
    let mut less = 0;
    for seed in seeds(2_000) {
        let rng = &mut Rng::new(seed);
        let graph = random(rng, 60, 6);
        let requested = requested(rng, &graph);
        let changed: Vec<_> = (0..graph.inputs()).filter(|_| rng.one_in(3)).collect();
        let some = 1 + rng.below(6);
        let valid: Vec<_> = (0..graph.places()).map(|at| at < graph.inputs() || !rng.one_in(some)).collect();
        let has = |at| graph.value_at(at).is_some_and(|place| valid[graph.place_number(place) as usize]);
        let answer = |policy, order, late: Option<u64>| {
            let resume = Resume::new(&graph, policy, order, &changed, &requested);
            let found = match late {
                None => resume.run(has),
                Some(seed) => run_late(resume, &mut Rng::new(seed), has),
            };
            found.map(|frontier| (0..graph.vertices()).map(|at| frontier.state(at)).collect::<Vec<_>>())
        };
        for policy in [Policy::Consistent, Policy::Provenance] {
            let first = answer(policy, Order::Fifo, None);
            assert_eq!(answer(policy, Order::Lifo, None), first, "seed {seed}");
            assert_eq!(answer(policy, Order::Seeded(rng.next()), None), first, "seed {seed}");
            assert_eq!(answer(policy, Order::Seeded(rng.next()), Some(rng.next())), first, "seed {seed}");
        }
        let provenance = answer(Policy::Provenance, Order::Fifo, None);
        let delivered = rng.next();
        let has_copy = |at: u32| has(at) && (at < graph.inputs() || Rng::new(delivered ^ u64::from(at)).one_in(2));
        let consistent = Resume::new(&graph, Policy::Consistent, Order::Fifo, &changed, &requested).run(has_copy);
        let consistent =
            consistent.map(|frontier| (0..graph.vertices()).map(|at| frontier.state(at)).collect::<Vec<_>>());
        if let (Ok(provenance), Ok(consistent)) = (provenance, consistent) {
            assert!(provenance.iter().zip(&consistent).all(|(less, more)| less <= more), "seed {seed}");
            less += u64::from(provenance != consistent);
        }
    }
    assert!(less > 100, "only {less} times was there a difference");
}
