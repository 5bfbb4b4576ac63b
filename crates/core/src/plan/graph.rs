//! The dependencies inside one parent module, port by port.
//!
//! The *vertices* are the parent's in-ports and out-ports, its sub-modules, and their in-ports. The *edges*: a parent's
//! in-port leads to every port it is connected to; a sub-module to every port one of its out-ports is connected to; a
//! sub-module's in-port to every port that an out-port *depending on it* is connected to. A port is fed by at most one
//! connection, so the out-port an edge goes through (its *witness*) is simply the source of the vertex it leads to.
//!
//! Edges are never stored: they follow from connections and dependencies, so a sub-module with a hundred in-ports and a
//! hundred out-ports costs two hundred entries, not ten thousand. All tables are flat: numbers in a few vectors.
//!
//! An in-port of a sub-module that nothing feeds (a constant, an option left open) is a vertex without edges: it can
//! neither change nor be missing.

use crate::adjacency::Adjacency;

/// Number of a vertex of a [`DependencyGraph`]: in-ports of the parent, then its out-ports, the sub-modules, their
/// in-ports.
pub type Vertex = u32;

const UNFED: u32 = u32::MAX;

/// The source of a port, which is also the place where its value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortSource {
    /// An in-port of the parent.
    Input(u32),
    /// An out-port of a sub-module.
    Port(u32, u32),
}

/// A port that a connection can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortTarget {
    /// An out-port of the parent.
    Output(u32),
    /// An in-port of a sub-module.
    Port(u32, u32),
}

/// The port or sub-module that a vertex stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VertexKind {
    /// An in-port of the parent.
    Input(u32),
    /// An out-port of the parent.
    Output(u32),
    /// A sub-module.
    Module(u32),
    /// An in-port of a sub-module.
    Port(u32, u32),
}

/// The dependency graph of a parent module; see the module. Built by a [`DependencyGraphBuilder`]. Memory: ports,
/// connections and declared dependencies, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyGraph {
    inputs: u32,
    outputs: u32,
    /// Per sub-module and one more: where its in-ports begin, as vertices.
    ins_from: Vec<Vertex>,
    /// Per sub-module and one more: where its out-ports begin, as places.
    outs_from: Vec<u32>,
    /// Per vertex that can be fed, from the parent's first out-port on (sub-modules never are): its place, or `UNFED`.
    source: Vec<u32>,
    /// The vertices that each place feeds.
    targets: Adjacency,
    /// Per sub-module: every out-port depends on every in-port.
    dense: Vec<bool>,
    /// Per out-port (numbered across all sub-modules), the in-ports it depends on; empty where dense.
    depends: Adjacency,
    /// Per in-port (numbered across all sub-modules), the places that depend on it; empty where dense.
    dependents: Adjacency,
    /// Per in-port (numbered across all sub-modules), its sub-module.
    in_owner: Vec<u32>,
    /// Per out-port (numbered across all sub-modules), its sub-module.
    out_owner: Vec<u32>,
}

impl DependencyGraph {
    /// Returns the number of vertices.
    pub fn vertices(&self) -> u32 {
        self.ins_from[self.ins_from.len() - 1]
    }

    /// Returns the number of sub-modules.
    pub fn modules(&self) -> u32 {
        self.dense.len() as u32
    }

    /// Returns the number of in-ports of the parent.
    pub fn inputs(&self) -> u32 {
        self.inputs
    }

    /// Returns the number of out-ports of the parent.
    pub fn outputs(&self) -> u32 {
        self.outputs
    }

    /// Returns the number of out-ports of a sub-module.
    pub fn module_outputs(&self, module: u32) -> u32 {
        self.outs_from[module as usize + 1] - self.outs_from[module as usize]
    }

    /// Returns the number of in-ports of a sub-module.
    pub fn module_inputs(&self, module: u32) -> u32 {
        self.ins_from[module as usize + 1] - self.ins_from[module as usize]
    }

    /// Returns the vertex of an in-port or out-port of the parent, of a sub-module, or of an in-port of one.
    pub fn vertex(&self, kind: VertexKind) -> Vertex {
        match kind {
            VertexKind::Input(at) => at,
            VertexKind::Output(at) => self.inputs + at,
            VertexKind::Module(at) => self.inputs + self.outputs + at,
            VertexKind::Port(module, port) => self.ins_from[module as usize] + port,
        }
    }

    /// Returns the port or sub-module that a vertex stands for.
    pub fn kind(&self, vertex: Vertex) -> VertexKind {
        if vertex < self.inputs {
            VertexKind::Input(vertex)
        } else if vertex < self.inputs + self.outputs {
            VertexKind::Output(vertex - self.inputs)
        } else if vertex < self.ins_from[0] {
            VertexKind::Module(vertex - self.inputs - self.outputs)
        } else {
            let module = self.in_owner[(vertex - self.ins_from[0]) as usize];
            VertexKind::Port(module, vertex - self.ins_from[module as usize])
        }
    }

    /// The vertex is a sub-module.
    pub fn is_module(&self, vertex: Vertex) -> bool {
        (self.inputs + self.outputs..self.ins_from[0]).contains(&vertex)
    }

    /// Returns the source of a vertex; `None` for ports that nothing feeds, and for sub-modules and the parent's
    /// in-ports.
    pub fn source(&self, vertex: Vertex) -> Option<PortSource> {
        self.source_number(vertex).map(|place| self.place(place))
    }

    /// Returns the place of a port's value: its source, or the port itself if it is an in-port of the parent.
    pub fn value_at(&self, port: Vertex) -> Option<PortSource> {
        if port < self.inputs { Some(PortSource::Input(port)) } else { self.source(port) }
    }

    /// Returns the source of a vertex as a place number: the parent's in-ports, then the out-ports of all sub-modules.
    pub(super) fn source_number(&self, vertex: Vertex) -> Option<u32> {
        let place = *self.source.get(vertex.checked_sub(self.inputs)? as usize)?;
        (place != UNFED).then_some(place)
    }

    /// Returns the number of places.
    pub(super) fn places(&self) -> u32 {
        self.outs_from[self.outs_from.len() - 1]
    }

    /// Returns the place with this number.
    pub(super) fn place(&self, place: u32) -> PortSource {
        match place.checked_sub(self.inputs) {
            None => PortSource::Input(place),
            Some(out) => {
                let module = self.out_owner[out as usize];
                PortSource::Port(module, place - self.outs_from[module as usize])
            }
        }
    }

    /// Returns the number of a place.
    pub(super) fn place_number(&self, place: PortSource) -> u32 {
        match place {
            PortSource::Input(at) => at,
            PortSource::Port(module, port) => self.outs_from[module as usize] + port,
        }
    }

    /// Calls `then` with the start of every edge that leads to `vertex`.
    pub fn each_predecessor(&self, vertex: Vertex, mut then: impl FnMut(Vertex)) {
        let Some(place) = self.source_number(vertex) else { return };
        let Some(out) = place.checked_sub(self.inputs) else { return then(place) };
        let module = self.out_owner[out as usize];
        then(self.vertex(VertexKind::Module(module)));
        let fed = |port: &Vertex| self.source_number(*port).is_some();
        if self.dense[module as usize] {
            (self.ins_from[module as usize]..self.ins_from[module as usize + 1]).filter(fed).for_each(then);
        } else {
            self.depends.row(out as usize).iter().copied().filter(fed).for_each(then);
        }
    }

    /// Calls `then` with the end of every edge that begins at `vertex`.
    pub fn each_successor(&self, vertex: Vertex, mut then: impl FnMut(Vertex)) {
        let mut feed = |place: u32| self.targets.row(place as usize).iter().copied().for_each(&mut then);
        match self.kind(vertex) {
            VertexKind::Input(at) => feed(at),
            VertexKind::Output(_) => {}
            VertexKind::Module(module) => self.module_places(module).for_each(feed),
            VertexKind::Port(..) if self.source_number(vertex).is_none() => {}
            VertexKind::Port(module, _) if self.dense[module as usize] => self.module_places(module).for_each(feed),
            VertexKind::Port(..) => {
                self.dependents.row((vertex - self.ins_from[0]) as usize).iter().copied().for_each(feed);
            }
        }
    }

    fn module_places(&self, module: u32) -> std::ops::Range<u32> {
        self.outs_from[module as usize]..self.outs_from[module as usize + 1]
    }
}

/// Builds a [`DependencyGraph`].
#[derive(Clone, Debug)]
pub struct DependencyGraphBuilder {
    inputs: u32,
    outputs: u32,
    /// Per sub-module and one more: where its in-ports begin, from 0.
    ins: Vec<u32>,
    /// Per sub-module and one more: where its out-ports begin, from 0.
    outs: Vec<u32>,
    dense: Vec<bool>,
    /// (out-port, in-port), both numbered across all sub-modules.
    depends: Vec<(u32, u32)>,
    connections: Vec<(PortSource, PortTarget)>,
}

impl DependencyGraphBuilder {
    /// Creates a parent with this many in-ports and out-ports, and no sub-modules.
    pub fn new(inputs: u32, outputs: u32) -> Self {
        let (ins, outs) = (vec![0], vec![0]);
        DependencyGraphBuilder {
            inputs,
            outputs,
            ins,
            outs,
            dense: Vec::new(),
            depends: Vec::new(),
            connections: Vec::new(),
        }
    }

    /// Adds a sub-module of which every out-port depends on every in-port; returns its number.
    pub fn module(&mut self, ins: u32, outs: u32) -> u32 {
        self.ins.push(self.ins[self.ins.len() - 1] + ins);
        self.outs.push(self.outs[self.outs.len() - 1] + outs);
        self.dense.push(true);
        self.dense.len() as u32 - 1
    }

    /// Adds a sub-module with, per out-port, the in-ports it depends on; returns its number.
    pub fn module_with(&mut self, ins: u32, depends: &[Vec<u32>]) -> u32 {
        let module = self.module(ins, depends.len() as u32);
        self.dense[module as usize] = false;
        let (first_in, first_out) = (self.ins[module as usize], self.outs[module as usize]);
        for (out, on) in (first_out..).zip(depends) {
            assert!(on.iter().all(|port| *port < ins), "sub-module {module} depends on an in-port it does not have");
            self.depends.extend(on.iter().map(|port| (out, first_in + port)));
        }
        module
    }

    /// Adds a connection. No port may be fed twice.
    pub fn connect(&mut self, from: PortSource, to: PortTarget) {
        self.connections.push((from, to));
    }

    /// Builds the graph. Panics if a connection names a port that does not exist, or feeds a port that is fed already:
    /// the check of flows must have reported these.
    pub fn build(self) -> DependencyGraph {
        let DependencyGraphBuilder { inputs, outputs, ins, outs, dense, depends, connections } = self;
        let modules = dense.len();
        let ports_from = inputs + outputs + modules as u32;
        let mut graph = DependencyGraph {
            inputs,
            outputs,
            source: vec![UNFED; outputs as usize + modules + ins[modules] as usize],
            targets: Adjacency::default(),
            in_owner: owners(&ins),
            out_owner: owners(&outs),
            ins_from: ins.iter().map(|from| ports_from + from).collect(),
            outs_from: outs.iter().map(|from| inputs + from).collect(),
            dense,
            depends: Adjacency::default(),
            dependents: Adjacency::default(),
        };
        for (from, to) in &connections {
            let (place, vertex) = graph.resolve(*from, *to);
            let source = &mut graph.source[(vertex - inputs) as usize];
            assert!(*source == UNFED, "{to:?} is fed twice");
            *source = place;
        }
        let targets = connections.iter().map(|(from, to)| graph.resolve(*from, *to));
        let on = depends.iter().map(|(out, port)| (*out, ports_from + port));
        let of = depends.iter().map(|(out, port)| (*port, inputs + out));
        let targets = Adjacency::new(graph.places() as usize, targets);
        graph.targets = targets;
        graph.depends = Adjacency::new(outs[modules] as usize, on);
        graph.dependents = Adjacency::new(ins[modules] as usize, of);
        graph
    }
}

/// Returns, per port, the sub-module it belongs to, given where the ports of each begin.
fn owners(from: &[u32]) -> Vec<u32> {
    let modules = from.windows(2).zip(0..);
    modules.flat_map(|(span, module)| (span[0]..span[1]).map(move |_| module)).collect()
}

impl DependencyGraph {
    /// Returns the place number and the vertex that a connection joins.
    fn resolve(&self, from: PortSource, to: PortTarget) -> (u32, Vertex) {
        let known = match from {
            PortSource::Input(at) => at < self.inputs,
            PortSource::Port(module, port) => module < self.modules() && port < self.module_outputs(module),
        };
        assert!(known, "nothing can come from {from:?}");
        let vertex = match to {
            PortTarget::Output(at) => (at < self.outputs).then(|| self.vertex(VertexKind::Output(at))),
            PortTarget::Port(module, port) => (module < self.modules() && port < self.module_inputs(module))
                .then(|| self.vertex(VertexKind::Port(module, port))),
        };
        (self.place_number(from), vertex.unwrap_or_else(|| panic!("{to:?} cannot be fed")))
    }
}
