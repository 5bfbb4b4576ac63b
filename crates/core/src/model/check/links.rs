//! The modules of one graph by name, and the source of each of their inputs, by index.
//!
//! Checking and lowering look these up for every port of every module, so the tables are flat: four bytes a module and
//! eight an input. Lenient: connections from an unknown module are left out, and of two connections into one input the
//! first counts; the checks report both.

use super::face::Face;
use crate::{
    adjacency::{Adjacency, topological},
    model::{Connection, Endpoint, Graph, Module, Port},
};
use std::hash::{BuildHasher, RandomState};

/// Finds the modules of a graph by name; of two with the same name, the first.
pub(crate) struct ModuleNames<'a> {
    modules: &'a [Module],
    hasher: RandomState,
    /// Open addressing: the index of a module is at the slot its name hashes to, or at the next free slot after it.
    table: Vec<u32>,
}

const FREE: u32 = u32::MAX;

impl<'a> ModuleNames<'a> {
    /// Builds the table for `modules`.
    pub(crate) fn of(modules: &'a [Module]) -> Self {
        assert!(modules.len() < FREE as usize / 2, "a graph of {} modules has no indices of 32 bits", modules.len());
        let slots = (modules.len() * 2).next_power_of_two();
        let mut names = ModuleNames { modules, hasher: RandomState::new(), table: vec![FREE; slots] };
        for (at, module) in (0..).zip(modules) {
            let slot = names.slot(&module.name);
            if names.table[slot] == FREE {
                names.table[slot] = at;
            }
        }
        names
    }

    /// Returns the index of the module of this name.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        let at = self.table[self.slot(name)];
        (at != FREE).then_some(at as usize)
    }

    /// Returns the slot of this name, or the free one where it would be. Half of all slots are free, so the search
    /// ends.
    fn slot(&self, name: &str) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = self.hasher.hash_one(name) as usize & mask;
        while self.table[slot] != FREE && self.modules[self.table[slot] as usize].name != name {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// The source that feeds an input of a module, or an output of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Nothing is connected to it.
    Nothing,
    /// The connection to it comes from a module that does not exist.
    Nowhere,
    /// An input of the graph.
    Graph(u32),
    /// An output of a module.
    Module(u32, u16),
}

/// The number of a port that a module does not have: its connection is reported, and still links two modules.
pub(crate) const UNKNOWN_PORT: u16 = u16::MAX;

/// The source of every input of every module, and of every output of the graph.
pub(crate) struct Feeds {
    /// Per module, then for the outputs of the graph, and one more: where its feeds begin.
    starts: Vec<u32>,
    feeds: Vec<Feed>,
}

impl Feeds {
    /// Returns the feeds of a graph before any connection is added; `inputs` gives the number of inputs of each module.
    pub(crate) fn empty(graph: &Graph, inputs: impl Iterator<Item = usize>) -> Self {
        let mut starts = Vec::with_capacity(graph.modules.len() + 2);
        let mut all = 0;
        for count in inputs.chain([graph.outputs.len()]) {
            starts.push(all);
            all += u32::try_from(count).expect("a module has fewer than four billion ports");
        }
        starts.push(all);
        assert_eq!(starts.len(), graph.modules.len() + 2, "every module says how many inputs it has");
        Feeds { starts, feeds: vec![Feed::Nothing; all as usize] }
    }

    /// Returns the feeds of a checked graph.
    pub(crate) fn of(graph: &Graph, faces: &[Face<'_>]) -> Self {
        let names = ModuleNames::of(&graph.modules);
        let mut feeds = Feeds::empty(graph, faces.iter().map(|face| face.inputs.len()));
        let module = |name: &str| names.index(name).expect("checked: the module is there");
        for Connection { from, to, .. } in &graph.connections {
            let feed = match &from.module {
                None => Feed::Graph(port(&graph.inputs, from) as u32),
                Some(name) => {
                    let at = module(name);
                    Feed::Module(at as u32, port(&faces[at].outputs, from) as u16)
                }
            };
            let is_first = match &to.module {
                None => feeds.connect(graph.modules.len(), port(&graph.outputs, to), feed),
                Some(name) => {
                    let at = module(name);
                    feeds.connect(at, port(&faces[at].inputs, to), feed)
                }
            };
            assert!(is_first, "checked: {to:?} is fed once");
        }
        feeds
    }

    /// Records the source of an input of a module (or of an output of the graph, which comes after all modules).
    /// Returns false if the input was connected before: the earlier connection stays, unless it comes from nowhere.
    pub(crate) fn connect(&mut self, module: usize, port: usize, feed: Feed) -> bool {
        let place = &mut self.feeds[self.starts[module] as usize + port];
        let is_first = *place == Feed::Nothing;
        if matches!(*place, Feed::Nothing | Feed::Nowhere) {
            *place = feed;
        }
        is_first
    }

    /// Returns the sources of the inputs of a module, in their order; after the last module: of the outputs of the
    /// graph.
    pub(crate) fn to(&self, module: usize) -> &[Feed] {
        &self.feeds[self.starts[module] as usize..self.starts[module + 1] as usize]
    }

    /// Returns the pairs of modules where the first feeds the second, once per connected input.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let modules = 0..self.starts.len() as u32 - 2;
        modules.flat_map(|to| {
            self.to(to as usize).iter().filter_map(move |feed| match feed {
                Feed::Module(from, _) => Some((*from, to)),
                Feed::Nothing | Feed::Nowhere | Feed::Graph(_) => None,
            })
        })
    }

    /// Returns the modules, each after those that feed it, otherwise in the order they were written; `None` if they
    /// were written in such an order. Modules on cycles are left out.
    pub(crate) fn order(&self) -> Option<Vec<u32>> {
        order(self.starts.len() - 2, self.links())
    }
}

/// As [`topological`]; `None` if every link leads forward, so that all nodes are in order already.
pub(crate) fn order(nodes: usize, links: impl Iterator<Item = (u32, u32)> + Clone) -> Option<Vec<u32>> {
    let is_forward = links.clone().all(|(from, to)| from < to);
    (!is_forward).then(|| topological(&Adjacency::new(nodes, links)))
}

fn port(ports: &[Port], of: &Endpoint) -> usize {
    ports.iter().position(|port| port.name == of.port).expect("checked: the port is there")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TaskSpec, graph::ModuleKind};

    #[test]
    fn modules_are_found_by_name_and_the_first_of_two_counts() {
        let task = std::sync::Arc::new(TaskSpec::new("t", vec![], vec![]));
        let module = |at: usize| Module {
            name: format!("m{}", at % 900).as_str().into(),
            kind: ModuleKind::Task(task.clone()),
            origin: None,
            attempt: false,
        };
        let modules: Vec<_> = (0..1000).map(module).collect();
        let names = ModuleNames::of(&modules);
        assert!((0..900).all(|at| names.index(&format!("m{at}")) == Some(at)));
        assert_eq!(names.index("m900"), None);
        assert_eq!(ModuleNames::of(&[]).index("m0"), None);
    }

    #[test]
    fn a_feed_takes_eight_bytes() {
        assert_eq!(size_of::<Feed>(), 8);
    }
}
