//! The guarantees of `resume`, defined without its algorithm, for graphs of at most 32 vertices; and the comparison.

use super::late::run_late;
use super::rng::Rng;
use crate::plan::{
    DependencyGraph, Frontier, MissingValues, Order, Policy, PortSource, Resume, Vertex, VertexKind, VertexState,
};

/// A set of vertices, or of places.
pub(super) type Set = u32;

fn bit(at: u32) -> Set {
    1 << at
}

/// Returns the elements of a set.
pub(super) fn each(set: Set) -> impl Iterator<Item = u32> {
    (0..32).filter(move |at| set & bit(*at) != 0)
}

/// A frontier and the vertices it recomputes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) frontier: Set,
    pub(super) recompute: Set,
}

/// A graph pruned to the requested out-ports, in a form on which the definition can be stated directly.
pub(super) struct Small<'g> {
    pub(super) graph: &'g DependencyGraph,
    requested: Vec<u32>,
    outputs: Set,
    modules: Set,
    successors: Vec<Set>,
    predecessors: Vec<Set>,
    /// Every path from a vertex without predecessors to a requested out-port.
    paths: Vec<Set>,
}

impl<'g> Small<'g> {
    pub(super) fn new(graph: &'g DependencyGraph, requested: &[u32]) -> Self {
        assert!(graph.vertices() <= 32, "too large to be small");
        let outputs = requested.iter().map(|at| bit(graph.vertex(VertexKind::Output(*at)))).fold(0, |a, b| a | b);
        let modules = (0..graph.vertices()).filter(|at| graph.is_module(*at)).map(bit).fold(0, |a, b| a | b);
        let mut predecessors = vec![0; graph.vertices() as usize];
        let mut successors = predecessors.clone();
        let (mut relevant, mut todo) = (outputs, outputs);
        while todo != 0 {
            let vertex = todo.trailing_zeros();
            todo &= todo - 1;
            graph.each_predecessor(vertex, |before| {
                predecessors[vertex as usize] |= bit(before);
                successors[before as usize] |= bit(vertex);
                todo |= bit(before) & !relevant;
                relevant |= bit(before);
            });
        }
        let mut small =
            Small { graph, requested: requested.to_vec(), outputs, modules, successors, predecessors, paths: vec![] };
        each(outputs).for_each(|vertex| small.walk(vertex, 0));
        small
    }

    /// Adds all paths that end with `vertex` and then `rest`.
    fn walk(&mut self, vertex: Vertex, rest: Set) {
        let path = rest | bit(vertex);
        match self.predecessors[vertex as usize] {
            0 => self.paths.push(path),
            before => each(before).for_each(|before| self.walk(before, path)),
        }
    }

    /// Returns all descendants of these vertices, by one edge or more.
    fn descendants(&self, from: Set) -> Set {
        let (mut found, mut todo) = (0, from);
        while todo != 0 {
            let vertex = todo.trailing_zeros();
            todo &= todo - 1;
            todo |= self.successors[vertex as usize] & !found;
            found |= self.successors[vertex as usize];
        }
        found
    }

    fn on_paths(&self) -> Set {
        self.paths.iter().fold(0, |all, path| all | path)
    }

    /// Returns every set of vertices that contains, together with `changed`, exactly one vertex of every path.
    pub(super) fn cuts(&self, changed: Set) -> Vec<Cut> {
        let changed = changed & self.on_paths();
        let mut cuts = Vec::new();
        self.extend(changed, changed, &mut cuts);
        cuts
    }

    fn extend(&self, chosen: Set, changed: Set, cuts: &mut Vec<Cut>) {
        if self.paths.iter().any(|path| (path & chosen).count_ones() > 1) {
            return;
        }
        match self.paths.iter().find(|path| *path & chosen == 0) {
            None => {
                let recompute = self.descendants(chosen) | changed;
                cuts.push(Cut { frontier: chosen & !changed, recompute });
            }
            Some(path) => each(*path).for_each(|vertex| self.extend(chosen | bit(vertex), changed, cuts)),
        }
    }

    /// Returns the best of the consistent frontiers that read only ports in `has`: the one that recomputes nothing that
    /// another does not. `None` if there is no consistent one.
    pub(super) fn best(&self, cuts: &[Cut], has: Set) -> Option<Cut> {
        let possible = || cuts.iter().filter(|cut| cut.frontier & !(has | self.modules) == 0);
        let least = possible().fold(!0, |all, cut| all & cut.recompute);
        let best = possible().find(|cut| cut.recompute == least);
        assert!(possible().next().is_none() || best.is_some(), "of the consistent frontiers none is best");
        best.copied()
    }

    /// Returns the ports with a valid value, from the places with one.
    pub(super) fn ports(&self, places: Set) -> Set {
        let at = |port| self.graph.value_at(port).is_some_and(|at| places & bit(self.graph.place_number(at)) != 0);
        (0..self.graph.vertices()).filter(|port| at(*port)).map(bit).fold(0, |a, b| a | b)
    }

    /// Returns the expected answer of `Provenance`: the least sound set of sub-modules. `None` if no set is sound.
    pub(super) fn least_sound(&self, changed: Set, has: Set) -> Option<Cut> {
        let changed = changed & self.on_paths();
        let modules = self.modules & self.on_paths();
        let (mut least, mut answer) = (modules, None);
        let mut runs = modules;
        loop {
            if let Some(read) = self.reads(runs, changed, has) {
                least &= runs;
                if least == runs {
                    answer = Some(Cut { frontier: runs | read, recompute: self.descendants(runs | changed) | changed });
                }
            }
            if runs == 0 {
                break;
            }
            runs = (runs - 1) & modules;
        }
        assert!(answer.is_none_or(|cut| cut.frontier & self.modules == least), "of the sound sets none is least");
        answer
    }

    /// Returns the ports that must be read if these sub-modules run; `None` if that is not sound.
    fn reads(&self, runs: Set, changed: Set, has: Set) -> Option<Set> {
        let new = self.descendants(runs | changed);
        let mut needed = self.outputs;
        for port in each(new) {
            if let Some(PortSource::Port(module, _)) = self.graph.source(port) {
                let from = bit(self.graph.vertex(VertexKind::Module(module)));
                if runs & from == 0 {
                    return None;
                }
                needed |= self.predecessors[port as usize] & !from;
            }
        }
        let read = needed & !new;
        (read & !has == 0).then_some(read)
    }

    /// Runs the algorithm itself, with order and delays chosen by this seed.
    pub(super) fn resume(&self, policy: Policy, seed: u64, changed: Set, has: Set) -> Result<Cut, MissingValues> {
        let changed: Vec<_> = each(changed).collect();
        let order = [Order::Fifo, Order::Lifo, Order::Seeded(seed)][seed as usize % 3];
        let resume = Resume::new(self.graph, policy, order, &changed, &self.requested);
        let has = |vertex| has & bit(vertex) != 0;
        let found = if seed.is_multiple_of(5) { run_late(resume, &mut Rng::new(seed), has) } else { resume.run(has) };
        found.map(|frontier| self.read_off(&frontier))
    }

    /// Returns a frontier as sets, after checking that exactly those out-ports deliver that feed recomputed vertices.
    pub(super) fn read_off(&self, frontier: &Frontier<'_>) -> Cut {
        let in_state = |state| {
            (0..self.graph.vertices()).filter(|at| frontier.state(*at) == state).map(bit).fold(0, |all, at| all | at)
        };
        let recompute = in_state(VertexState::Recompute);
        let feeding: Set =
            each(recompute).filter_map(|port| self.graph.source_number(port)).map(bit).fold(0, |a, b| a | b);
        for module in 0..self.graph.modules() {
            for port in 0..self.graph.module_outputs(module) {
                let feeds = feeding & bit(self.graph.place_number(PortSource::Port(module, port))) != 0;
                assert_eq!(frontier.delivers(module, port), feeds, "whether out-port {port} of {module} delivers");
            }
        }
        Cut { frontier: in_state(VertexState::Ready), recompute }
    }

    /// Checks all guarantees of `Provenance` for one set of facts: `places` have values (every port has its source's).
    pub(super) fn check_provenance(&self, cuts: &[Cut], seed: u64, changed: Set, places: Set) {
        let has = self.ports(places);
        let least = self.least_sound(changed, has);
        let found = self.resume(Policy::Provenance, seed, changed, has);
        assert_eq!(found.as_ref().ok().copied(), least, "changed {changed:b}, values {places:b}, {found:?}");
        // Where every port has a copy of its own, it has one only if the value was delivered: some have, some have not.
        let delivered = has & Rng::new(seed).next() as Set;
        for has in [has, delivered] {
            if let Some(consistent) = self.best(cuts, has) {
                let found = found.as_ref().expect("what is consistent is sound");
                let runs = |cut: &Cut| cut.frontier & self.modules;
                assert_eq!(runs(found) & !runs(&consistent), 0, "Provenance runs what Consistent does not");
                assert_eq!(
                    found.recompute & !consistent.recompute,
                    0,
                    "Provenance recomputes what Consistent does not"
                );
            }
        }
    }

    /// Checks all guarantees of `Consistent` for one set of facts: `has` are the ports with values, each on its own.
    pub(super) fn check_consistent(&self, cuts: &[Cut], seed: u64, changed: Set, has: Set) {
        let found = self.resume(Policy::Consistent, seed, changed, has);
        let best = self.best(cuts, has);
        assert_eq!(found.as_ref().ok().copied(), best, "changed {changed:b}, values {has:b}, {found:?}");
        if let Err(missing) = found {
            let without =
                each(self.on_paths()).filter(|at| *at < self.graph.inputs() && (has | changed) & bit(*at) == 0);
            let without: Vec<_> = without.collect();
            assert!(missing.inputs.iter().all(|at| without.contains(at)), "{missing:?} of {without:?}");
        }
    }
}
