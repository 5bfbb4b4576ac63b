//! Every graph of up to three sub-modules with up to two in-ports and two out-ports, up to two in-ports and two
//! out-ports of the parent, every dependency, every set of values, every set of changes: proved against the definition.
//!
//! Left out are only cases that cannot matter: graphs that differ by the names of ports (kept: one order of each
//! sub-module's in-ports and of the parent's out-ports), and vertices from which no requested out-port can be reached
//! (those are pruned; `sampled` has them).

use super::{
    brute::{Set, Small},
    rng::long,
};
use crate::plan::{DependencyGraph, DependencyGraphBuilder, PortSource, PortTarget};

/// The source of an in-port, and the out-ports of its sub-module that depend on it.
type Fed = (usize, u32);

#[derive(Clone, Debug)]
struct Module {
    outs: u32,
    ins: Vec<Fed>,
}

struct Shapes<'v> {
    modules: u32,
    inputs: u32,
    outputs_max: u32,
    places: Vec<PortSource>,
    chosen: Vec<Module>,
    visit: &'v mut dyn FnMut(&DependencyGraph),
}

impl Shapes<'_> {
    /// Chooses the next sub-module in every way; then the parent's out-ports.
    fn next(&mut self) {
        if self.chosen.len() as u32 == self.modules {
            return self.outputs(&mut Vec::new());
        }
        for outs in 1..=2 {
            let feeds: Vec<Fed> =
                (0..self.places.len()).flat_map(|at| (1..1 << outs).map(move |depend| (at, depend))).collect();
            self.with(outs, vec![]);
            for (at, first) in feeds.iter().enumerate() {
                self.with(outs, vec![*first]);
                feeds[at..].iter().for_each(|second| self.with(outs, vec![*first, *second]));
            }
        }
    }

    fn with(&mut self, outs: u32, ins: Vec<Fed>) {
        let (module, before) = (self.chosen.len() as u32, self.places.len());
        self.places.extend((0..outs).map(|port| PortSource::Port(module, port)));
        self.chosen.push(Module { outs, ins });
        self.next();
        self.chosen.pop();
        self.places.truncate(before);
    }

    fn outputs(&mut self, from: &mut Vec<usize>) {
        let used = |at: usize, from: &[usize]| {
            from.contains(&at) || self.chosen.iter().any(|module| module.ins.iter().any(|fed| fed.0 == at))
        };
        if !from.is_empty() && (0..self.places.len()).all(|at| used(at, from)) {
            let graph = self.build(from);
            (self.visit)(&graph);
        }
        if (from.len() as u32) < self.outputs_max {
            for at in from.last().copied().unwrap_or(0)..self.places.len() {
                from.push(at);
                self.outputs(from);
                from.pop();
            }
        }
    }

    fn build(&self, outputs: &[usize]) -> DependencyGraph {
        let mut builder = DependencyGraphBuilder::new(self.inputs, outputs.len() as u32);
        for (number, module) in (0..).zip(&self.chosen) {
            let depends = |out: u32| {
                let on = (0..).zip(&module.ins).filter(|(_, fed)| fed.1 & (1 << out) != 0);
                on.map(|(port, _)| port).collect::<Vec<u32>>()
            };
            let rows: Vec<_> = (0..module.outs).map(depends).collect();
            builder.module_with(module.ins.len() as u32, &rows);
            let feeds = (0..).zip(&module.ins);
            feeds.for_each(|(port, fed)| builder.connect(self.places[fed.0], PortTarget::Port(number, port)));
        }
        let feeds = (0..).zip(outputs);
        feeds.for_each(|(output, at)| builder.connect(self.places[*at], PortTarget::Output(output)));
        builder.build()
    }
}

pub(super) fn every_graph(modules: u32, outputs_max: u32, mut visit: impl FnMut(&DependencyGraph)) {
    for inputs in 0..=2 {
        let places = (0..inputs).map(PortSource::Input).collect();
        let visit = &mut visit;
        Shapes { modules, inputs, outputs_max, places, chosen: vec![], visit }.next();
    }
}

/// Returns every subset of a set.
fn subsets(of: Set) -> impl Iterator<Item = Set> {
    let mut next = Some(of);
    std::iter::from_fn(move || {
        let this = next?;
        next = (this != 0).then(|| (this - 1) & of);
        Some(this)
    })
}

/// Checks a graph with every set of changes and every set of values; of those `Consistent` is checked for, one in
/// `stride`.
fn check(graph: &DependencyGraph, stride: u64, count: &mut u64) {
    let requested: Vec<_> = (0..graph.outputs()).collect();
    let small = Small::new(graph, &requested);
    let inputs: Set = (1 << graph.inputs()) - 1;
    let ports: Set = (0..graph.vertices()).filter(|at| !graph.is_module(*at)).fold(0, |all, at| all | 1 << at);
    let places: Set = (1 << graph.places()) - 1;
    for changed in subsets(inputs) {
        let cuts = small.cuts(changed);
        for has in subsets(ports & !changed) {
            *count += 1;
            if count.is_multiple_of(stride) {
                small.check_consistent(&cuts, *count, changed, has);
            }
        }
        for has in subsets(places & !changed) {
            *count += 1;
            small.check_provenance(&cuts, *count, changed, has);
        }
    }
}

#[test]
fn every_small_frontier_is_consistent_and_optimal_and_provenance_is_sound_and_least() {
    let (mut graphs, mut count) = (0_u64, 0_u64);
    for modules in 0..=3 {
        // All cases take a minute: without `ONCEFLOW_LONG`, a third of them where there are most.
        let stride = if modules == 3 && !long() { 3 } else { 1 };
        every_graph(modules, 2, |graph| {
            graphs += 1;
            check(graph, stride, &mut count);
        });
    }
    assert_eq!((graphs, count), (22_155, 33_758_537), "fewer than there are would prove less");
}

#[test]
fn every_small_frontier_of_three_requested_ports_is_right_too() {
    let mut count = 0;
    (0..=2).for_each(|modules| every_graph(modules, 3, |graph| check(graph, 1, &mut count)));
    // With three sub-modules there are too many even for a long run: one in twenty.
    let mut graphs = 0_u64;
    if long() {
        every_graph(3, 3, |graph| {
            graphs += 1;
            if graphs.is_multiple_of(20) {
                check(graph, 3, &mut count);
            }
        });
    }
    assert!(count > 2_000_000, "only {count}");
}
