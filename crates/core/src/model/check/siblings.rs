//! The modules of one graph and what joins them, by index. Lenient: connections that lead nowhere are left out, of two
//! into one port the first counts; the checks complain.

use crate::model::{Endpoint, Graph};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

/// A port of a graph's inside: of a module, by index, or of the graph itself.
pub(crate) type PortOf<'a> = (Option<usize>, &'a str);

/// Modules and what joins them.
pub(crate) struct Siblings<'a> {
    modules: HashMap<&'a str, usize>,
    pub(crate) feeding: Feeding<'a>,
    /// Per module those it feeds, ascending, each once.
    pub(crate) feeds: Vec<Vec<usize>>,
}

/// What is fed, ascending, each once, and by what.
#[derive(Default)]
pub(crate) struct Feeding<'a>(Vec<(PortOf<'a>, PortOf<'a>)>);

impl<'a> Feeding<'a> {
    /// What feeds this input of a module, or this output of the graph.
    pub(crate) fn of(&self, module: Option<usize>, port: &'a str) -> Option<PortOf<'a>> {
        let at = self.0.binary_search_by_key(&(module, port), |(end, _)| *end).ok()?;
        Some(self.0[at].1)
    }
}

impl<'a> Siblings<'a> {
    /// Those of `graph`.
    pub(crate) fn of(graph: &'a Graph) -> Self {
        let names = graph.modules.iter().enumerate().rev().map(|(at, module)| (module.name.as_str(), at));
        let mut siblings = Siblings {
            modules: names.collect(),
            feeding: Feeding::default(),
            feeds: vec![vec![]; graph.modules.len()],
        };
        for connection in &graph.connections {
            siblings.join(&connection.from, &connection.to);
        }
        // In the order they were written down, so that of two into one port the first is left.
        siblings.feeding.0.sort_by_key(|(end, _)| *end);
        siblings.feeding.0.dedup_by_key(|(end, _)| *end);
        for feeds in &mut siblings.feeds {
            feeds.sort_unstable();
            feeds.dedup();
        }
        siblings
    }

    fn join(&mut self, from: &'a Endpoint, to: &'a Endpoint) {
        let (Some(start), Some(end)) = (self.end(from), self.end(to)) else { return };
        if let (Some(start), Some(end)) = (start.0, end.0) {
            self.feeds[start].push(end);
        }
        self.feeding.0.push((end, start));
    }

    fn end(&self, endpoint: &'a Endpoint) -> Option<PortOf<'a>> {
        let module = match &endpoint.module {
            Some(module) => Some(self.index(module)?),
            None => None,
        };
        Some((module, endpoint.port.as_str()))
    }

    /// The module of this name.
    pub(crate) fn index(&self, module: &str) -> Option<usize> {
        self.modules.get(module).copied()
    }

    /// What is fed by what. The rest goes, and leaves its room to what is made of the modules.
    pub(crate) fn into_feeding(self) -> Feeding<'a> {
        self.feeding
    }

    /// The modules, each after those that feed it, otherwise as they were written down. Those on cycles are left out.
    pub(crate) fn order(&self) -> Vec<usize> {
        topological(&self.feeds)
    }
}

/// All nodes, each after those that lead to it, otherwise ascending; without those on cycles or behind one.
pub(crate) fn topological(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut missing = vec![0_usize; edges.len()];
    for to in edges.iter().flatten() {
        missing[*to] += 1;
    }
    let mut ready: BinaryHeap<_> = (0..edges.len()).filter(|node| missing[*node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for to in &edges[node] {
            missing[*to] -= 1;
            if missing[*to] == 0 {
                ready.push(Reverse(*to));
            }
        }
    }
    order
}
