//! The call graph of flows: which flows recur, which can never end, and how deep and how large they are with all calls
//! expanded.

use super::components::{components, is_cycle};
use crate::model::{Graph, Library, graph::ModuleKind};
use std::collections::{BTreeMap, BTreeSet};

/// The calls between the flows of a library.
pub(crate) struct Calls<'a> {
    flows: Vec<(&'a str, &'a Graph)>,
    by_name: BTreeMap<&'a str, usize>,
    edges: Vec<Vec<usize>>,
    /// Strongly connected components, callees first.
    components: Vec<Vec<usize>>,
}

/// The size of a flow with all non-recursive calls expanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) depth: usize,
    pub(crate) modules: u64,
}

impl<'a> Calls<'a> {
    /// Collects the calls between `main` and all flows that can be reached from it.
    pub(crate) fn of(library: &'a Library, main: &'a str) -> Self {
        let mut reached = BTreeMap::new();
        let mut todo = vec![main];
        while let Some(flow) = todo.pop() {
            if let Some(graph) = library.flows.get(flow)
                && reached.insert(flow, graph).is_none()
            {
                called_by(graph, "", &mut |flow, _| todo.push(flow));
            }
        }
        let flows: Vec<_> = reached.into_iter().collect();
        let by_name: BTreeMap<_, _> = flows.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let edges = flows.iter().map(|(_, graph)| {
            let mut called = BTreeSet::new();
            called_by(graph, "", &mut |flow, _| called.extend(by_name.get(flow).copied()));
            called.into_iter().collect()
        });
        let edges: Vec<Vec<usize>> = edges.collect();
        Calls { components: components(&edges), flows, by_name, edges }
    }

    fn cyclic(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.components.iter().filter(|component| is_cycle(&self.edges, component))
    }

    /// Returns the flows that may call themselves, directly or through others.
    pub(crate) fn recursive(&self) -> BTreeSet<&'a str> {
        self.cyclic().flatten().map(|flow| self.flows[*flow].0).collect()
    }

    /// Returns groups of flows of which each, once called, calls the group again for ever.
    pub(crate) fn endless(&self) -> Vec<Vec<&'a str>> {
        let mut ends = vec![false; self.flows.len()];
        loop {
            let next: Vec<_> = (0..ends.len()).map(|at| self.ends(self.flows[at].1, &ends)).collect();
            if next == ends {
                break;
            }
            ends = next;
        }
        let never = |group: &&Vec<usize>| group.iter().any(|flow| !ends[*flow]) && self.is_own_fault(group, &ends);
        let groups = self.cyclic().filter(never);
        groups
            .map(|group| group.iter().filter(|flow| !ends[**flow]).map(|flow| self.flows[*flow].0).collect())
            .collect()
    }

    /// The group would not end even if all flows it calls outside itself did.
    fn is_own_fault(&self, group: &[usize], ends: &[bool]) -> bool {
        let mut outside: Vec<bool> = (0..ends.len()).map(|flow| !group.contains(&flow) || ends[flow]).collect();
        loop {
            let mut changed = false;
            for flow in group {
                if !outside[*flow] && self.ends(self.flows[*flow].1, &outside) {
                    outside[*flow] = true;
                    changed = true;
                }
            }
            if !changed {
                return group.iter().any(|flow| !outside[*flow]);
            }
        }
    }

    /// There is a way through the graph that calls only flows that end. An each may have no elements.
    fn ends(&self, graph: &Graph, ends: &[bool]) -> bool {
        graph.modules.iter().all(|module| match &module.kind {
            ModuleKind::Task(_) | ModuleKind::Constant(..) | ModuleKind::Each { .. } => true,
            ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } => self.ends(body, ends),
            ModuleKind::Choice { arms } => {
                arms.iter().all(|arm| arm.guard.is_some()) || arms.iter().any(|arm| self.ends(&arm.body, ends))
            }
            ModuleKind::Call { flow } => self.by_name.get(flow.as_str()).is_none_or(|flow| ends[*flow]),
        })
    }

    /// Returns the size of every flow.
    pub(crate) fn sizes(&self) -> BTreeMap<&'a str, Size> {
        let recursive = self.recursive();
        let mut sizes = BTreeMap::new();
        for flow in self.components.iter().flatten() {
            let (name, graph) = self.flows[*flow];
            let size = size(graph, &|flow| if recursive.contains(flow) { None } else { sizes.get(flow).copied() });
            sizes.insert(name, size);
        }
        sizes
    }
}

/// Returns the size of a graph; `called` returns the sizes of the flows that are expanded.
fn size(graph: &Graph, called: &impl Fn(&str) -> Option<Size>) -> Size {
    let mut all = Size { depth: 1, modules: 0 };
    let mut add = |inner: Size| {
        all.depth = all.depth.max(inner.depth.saturating_add(1));
        all.modules = all.modules.saturating_add(inner.modules);
    };
    for module in &graph.modules {
        add(Size { depth: 0, modules: 1 });
        match &module.kind {
            ModuleKind::Task(_) | ModuleKind::Constant(..) => {}
            ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                add(size(body, called));
            }
            ModuleKind::Choice { arms } => arms.iter().for_each(|arm| add(size(&arm.body, called))),
            ModuleKind::Call { flow } => add(called(flow).unwrap_or_default()),
        }
    }
    all
}

/// Calls `found` with every flow that a graph at `place` calls, however deep inside, and the address of the call.
pub(crate) fn called_by<'a>(graph: &'a Graph, place: &str, found: &mut impl FnMut(&'a str, String)) {
    for module in &graph.modules {
        let place = || format!("{place}/{}", module.name);
        match &module.kind {
            ModuleKind::Task(_) | ModuleKind::Constant(..) => {}
            ModuleKind::Composite(body) => called_by(body, &place(), found),
            ModuleKind::Loop { body, .. } => called_by(body, &format!("{}@*", place()), found),
            ModuleKind::Each { body, .. } => called_by(body, &format!("{}[*]", place()), found),
            ModuleKind::Choice { arms } => {
                arms.iter().for_each(|arm| called_by(&arm.body, &format!("{}/{}", place(), arm.name), found));
            }
            ModuleKind::Call { flow } => found(flow, place()),
        }
    }
}

/// Returns how deep graphs are nested in a graph, calls not counted. Not recursive, because it detects the graphs that
/// are too deep for a recursive walk.
pub(crate) fn nesting(graph: &Graph) -> usize {
    let mut todo = vec![(graph, 0)];
    let mut deepest = 0;
    while let Some((graph, depth)) = todo.pop() {
        deepest = deepest.max(depth);
        for module in &graph.modules {
            match &module.kind {
                ModuleKind::Task(_) | ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
                ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                    todo.push((body, depth + 1));
                }
                ModuleKind::Choice { arms } => todo.extend(arms.iter().map(|arm| (&arm.body, depth + 1))),
            }
        }
    }
    deepest
}
