//! The law that connects planning and reclaiming: a value is needed exactly while the frontier reads it.
//!
//! A run is simulated: every step runs once, in any order its inputs allow; a value is held while a step that has not
//! run yet needs it, or it is requested. At every moment of every such run, the frontier reads exactly the values that
//! are held; and after all other values have been dropped, a resume would run the same steps.

use super::{
    every::every_graph,
    rng::{Rng, seeds},
    sampled::{random, requested},
};
use crate::plan::{DependencyGraph, Order, Policy, PortSource, PortTarget, Resume, VertexKind};
use std::collections::BTreeSet;

/// A run of a graph for some of its out-ports, derived from connections and dependencies alone.
struct Run<'g> {
    graph: &'g DependencyGraph,
    requested: &'g [u32],
    /// Connections that a requested out-port needs. Those to in-ports lead to steps that run.
    needed: Vec<(PortSource, PortTarget)>,
    /// The out-ports that are needed.
    outs: BTreeSet<(u32, u32)>,
    /// The steps that run.
    steps: BTreeSet<u32>,
}

impl<'g> Run<'g> {
    fn new(graph: &'g DependencyGraph, requested: &'g [u32]) -> Self {
        let mut run = Run { graph, requested, needed: vec![], outs: BTreeSet::new(), steps: BTreeSet::new() };
        requested.iter().for_each(|output| run.need(PortTarget::Output(*output)));
        run
    }

    fn vertex(&self, target: PortTarget) -> u32 {
        self.graph.vertex(match target {
            PortTarget::Output(at) => VertexKind::Output(at),
            PortTarget::Port(module, port) => VertexKind::Port(module, port),
        })
    }

    fn need(&mut self, target: PortTarget) {
        let Some(from) = self.graph.source(self.vertex(target)) else { return };
        if self.needed.contains(&(from, target)) {
            return;
        }
        self.needed.push((from, target));
        if let PortSource::Port(module, port) = from {
            self.outs.insert((module, port));
            self.steps.insert(module);
            // The target's predecessors include the in-ports it depends on.
            let mut on = vec![];
            self.graph.each_predecessor(self.vertex(target), |before| on.push(self.graph.kind(before)));
            for before in on {
                if let VertexKind::Port(module, port) = before {
                    self.need(PortTarget::Port(module, port));
                }
            }
        }
    }

    /// Returns the steps that could run next.
    fn enabled(&self, ran: &BTreeSet<u32>) -> Vec<u32> {
        let waits = |step: u32| {
            self.needed.iter().any(|(from, to)| match (from, to) {
                (PortSource::Port(by, _), PortTarget::Port(of, _)) => *of == step && !ran.contains(by),
                _ => false,
            })
        };
        self.steps.iter().copied().filter(|step| !ran.contains(step) && !waits(*step)).collect()
    }

    fn is_produced(&self, place: PortSource, ran: &BTreeSet<u32>) -> bool {
        match place {
            PortSource::Input(_) => true,
            PortSource::Port(module, port) => ran.contains(&module) && self.outs.contains(&(module, port)),
        }
    }

    /// Returns the values that a step that has not run, or a requested output, still needs.
    fn held(&self, ran: &BTreeSet<u32>) -> BTreeSet<PortSource> {
        let waiting = self.needed.iter().filter(|(_, to)| match to {
            PortTarget::Output(_) => true,
            PortTarget::Port(module, _) => !ran.contains(module),
        });
        waiting.map(|(from, _)| *from).filter(|from| self.is_produced(*from, ran)).collect()
    }

    /// Returns the steps that a resume would run, and the values it would read.
    fn resume(&self, has: impl Fn(PortSource) -> bool) -> (BTreeSet<u32>, BTreeSet<PortSource>) {
        let resume = Resume::new(self.graph, Policy::Provenance, Order::Lifo, &[], self.requested);
        let frontier = resume.run(|port| self.graph.value_at(port).is_some_and(&has)).expect("nothing missing");
        ((0..self.graph.modules()).filter(|module| frontier.runs(*module)).collect(), frontier.reads().collect())
    }

    fn check(&self, ran: &BTreeSet<u32>) {
        let held = self.held(ran);
        let left: BTreeSet<_> = self.steps.difference(ran).copied().collect();
        let kept = self.resume(|place| self.is_produced(place, ran));
        assert_eq!(kept, (left.clone(), held.clone()), "with everything kept, after {ran:?}");
        let eager = self.resume(|place| held.contains(&place));
        assert_eq!(eager, (left, held), "with everything else dropped, after {ran:?}");
    }

    /// Checks every moment of every run.
    fn check_all(&self, ran: &mut BTreeSet<u32>, seen: &mut BTreeSet<BTreeSet<u32>>) {
        if !seen.insert(ran.clone()) {
            return;
        }
        self.check(ran);
        for step in self.enabled(ran) {
            ran.insert(step);
            self.check_all(ran, seen);
            ran.remove(&step);
        }
    }
}

#[test]
fn the_frontier_reads_exactly_the_held_values_in_every_small_graph() {
    for modules in 0..=3 {
        every_graph(modules, 2, |graph| {
            let all: Vec<_> = (0..graph.outputs()).collect();
            for requested in [&all[..], &all[..1]] {
                Run::new(graph, requested).check_all(&mut BTreeSet::new(), &mut BTreeSet::new());
            }
        });
    }
}

#[test]
fn the_frontier_reads_exactly_the_held_values_in_sampled_runs() {
    for seed in seeds(300) {
        let rng = &mut Rng::new(seed);
        let graph = random(rng, 40, 4);
        let mut requested = requested(rng, &graph);
        requested.retain(|at| graph.source(graph.vertex(VertexKind::Output(*at))).is_some());
        let run = Run::new(&graph, &requested);
        let mut ran = BTreeSet::new();
        run.check(&ran);
        loop {
            let enabled = run.enabled(&ran);
            if enabled.is_empty() {
                break;
            }
            ran.insert(rng.pick(&enabled));
            run.check(&ran);
        }
        assert_eq!(ran, run.steps, "seed {seed}: the run came to its end");
    }
}
