//! Decides where a run resumes: which sub-modules run, and which values they read. The algorithm is ComputeResumeState.
//!
//! All vertices start *irrelevant*, but changed in-ports (I*) are *recompute* and requested out-ports (O*) *ready*;
//! those are pending. Pending vertices are taken, in any order, until none is left:
//!
//! 1. a ready vertex without a value that is not a sub-module turns to recompute;
//! 2. a recompute vertex makes its irrelevant predecessors ready and pending;
//! 3. a taken vertex *overtakes* its successors: they turn to recompute, pending if they were not recompute before; and
//!    the out-ports those edges go through must deliver.
//!
//! Only vertices from which O* can be reached count. The ready vertices are the *frontier*: sub-modules there run,
//! ports there are read. The policies differ in which vertices overtake.
//!
//! # `Consistent`
//!
//! Every taken vertex overtakes. Each port has a value or not, independently of others (H). The frontier F is
//! *consistent*: every path from a vertex without predecessors to O* contains exactly one vertex of F ∪ I*; F contains
//! only sub-modules and ports in H. And it is *optimal*: every consistent frontier recomputes at least the vertices
//! that F recomputes.
//!
//! # `Provenance`
//!
//! A value is stored once, where it was produced; a port has one iff its source has a *valid* one, that is, one
//! computed by the current code from the current inputs, all the way up (see `validity`). Reading such a value affects
//! no other reader, so **a ready port overtakes nothing**: only recompute vertices and sub-modules overtake.
//!
//! Without the algorithm: let R be the sub-modules that run, and *New* all vertices that descend from R ∪ I*, by one
//! edge or more. Let *needed* be O*, and for every port in New the in-ports that the out-port feeding it depends on. R
//! is *sound* iff every port in New that a sub-module feeds is fed by one in R (a port that descends from a change gets
//! its value from a step that runs), and every needed port is in New or has a valid value. The result is the least
//! sound R; it reads exactly the needed ports that are not New. (There is a least one: the rules above are forced.)
//!
//! The rules of `Provenance` are a subset of those of `Consistent`, and more states only ever lead to more states. So
//! it never runs a sub-module, nor recomputes a port, that `Consistent` would not, given at least the same ports with
//! values. Its gain is in what counts as a value: an in-port that was never delivered to reads from its source, where
//! `Consistent` goes back to the source and overtakes all readers of that source. (If in-ports have values exactly
//! where their sources do, the two agree: an in-port is read only by a sub-module that runs, and that overtakes
//! already.)
//!
//! # Asking
//!
//! Finding out whether a port has a value may be slow, so the algorithm asks its caller: only for ready ports, all at
//! once, and answers may arrive late and in any order. A vertex whose answer is awaited is not taken yet. If another
//! vertex overtakes it meanwhile, its answer no longer matters. Cost: every vertex is pending at most twice, every edge
//! is followed at most four times.

use super::graph::{DependencyGraph, PortSource, Vertex, VertexKind};
use std::collections::VecDeque;

/// The vertices that overtake their descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every vertex: any module may give another result when it runs again.
    Consistent,
    /// Changed in-ports, recomputed ports and steps that run: a stored value records what it was computed from.
    Provenance,
}

/// The order in which pending vertices are taken. The result is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The youngest: the least memory.
    Lifo,
    /// A pseudo-random one, by this seed.
    Seeded(u64),
}

/// The state of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VertexState {
    /// The vertex is not needed.
    Irrelevant,
    /// The vertex is part of the frontier: a port is read, a sub-module runs.
    Ready,
    /// The vertex gets a new value.
    Recompute,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Unasked,
    Awaited,
    Known(bool),
}

#[derive(Clone, Copy)]
struct Mark {
    state: VertexState,
    value: Value,
    /// A requested out-port can be reached from here.
    relevant: bool,
    /// The vertex is in the pending queue.
    pending: bool,
    /// How many times the vertex was made pending.
    times: u8,
}

const UNSEEN: Mark =
    Mark { state: VertexState::Irrelevant, value: Value::Unasked, relevant: false, pending: false, times: 0 };

/// The algorithm, suspended whenever it needs an answer.
///
/// ```
/// use onceflow_core::plan::{DependencyGraphBuilder, Order, Policy, PortSource, PortTarget, Resume};
/// let mut graph = DependencyGraphBuilder::new(1, 1);               // x -> a.i; a.o -> p
/// let a = graph.module(1, 1);
/// graph.connect(PortSource::Input(0), PortTarget::Port(a, 0));
/// graph.connect(PortSource::Port(a, 0), PortTarget::Output(0));
/// let graph = graph.build();
/// let mut resume = Resume::new(&graph, Policy::Provenance, Order::Lifo, &[], &[0]);
/// while let Some(questions) = resume.questions() {
///     for vertex in questions {
///         let has = matches!(graph.source(vertex), Some(PortSource::Input(0)));
///         resume.answer(vertex, has);
///     }
/// }
/// let frontier = resume.finish().unwrap();
/// assert!(frontier.runs(a));
/// assert_eq!(frontier.reads().collect::<Vec<_>>(), [PortSource::Input(0)]);
/// ```
pub struct Resume<'g> {
    graph: &'g DependencyGraph,
    policy: Policy,
    order: Order,
    marks: Vec<Mark>,
    pending: VecDeque<Vertex>,
    questions: Vec<Vertex>,
    awaited: u32,
    taken: u64,
    delivers: Vec<bool>,
    changed: Vec<u32>,
}

impl<'g> Resume<'g> {
    /// Starts the algorithm. `changed` are the in-ports of the parent with a new value (I*), `requested` the out-ports
    /// that are requested (O*).
    pub fn new(graph: &'g DependencyGraph, policy: Policy, order: Order, changed: &[u32], requested: &[u32]) -> Self {
        let mut resume = Resume {
            graph,
            policy,
            order,
            marks: vec![UNSEEN; graph.vertices() as usize],
            pending: VecDeque::new(),
            questions: Vec::new(),
            awaited: 0,
            taken: 0,
            delivers: vec![false; graph.places() as usize],
            changed: changed.to_vec(),
        };
        resume.changed.sort_unstable();
        resume.prune(requested);
        for input in changed {
            let vertex = graph.vertex(VertexKind::Input(*input));
            if resume.mark(vertex).relevant {
                resume.overtake(vertex);
            }
        }
        for output in requested {
            resume.want(graph.vertex(VertexKind::Output(*output)));
        }
        resume
    }

    /// Returns the ready ports for which the caller must answer whether they have a value. Empty while all possible
    /// questions have been asked and answers are awaited; `None` when the result is found. Under [`Policy::Provenance`]
    /// the question is about [`DependencyGraph::value_at`]: does that place have a valid value?
    pub fn questions(&mut self) -> Option<Vec<Vertex>> {
        while let Some(vertex) = self.next() {
            self.take(vertex);
        }
        if self.awaited == 0 {
            return None;
        }
        let mut questions = std::mem::take(&mut self.questions);
        questions.retain(|vertex| self.mark(*vertex).state == VertexState::Ready);
        Some(questions)
    }

    /// Answers a question. Answering late, twice, or after it no longer matters is harmless; answering a question that
    /// was never asked panics.
    pub fn answer(&mut self, vertex: Vertex, has_value: bool) {
        let mark = &mut self.marks[vertex as usize];
        assert!(mark.value != Value::Unasked, "vertex {vertex} is decided before it was asked whether it has a value");
        if mark.value == Value::Awaited {
            mark.value = Value::Known(has_value);
            if mark.state == VertexState::Ready {
                self.awaited -= 1;
                self.push(vertex);
            }
        }
    }

    /// Runs to the end, answering every question with `has`.
    pub fn run(mut self, mut has: impl FnMut(Vertex) -> bool) -> Result<Frontier<'g>, MissingValues> {
        while let Some(questions) = self.questions() {
            for vertex in questions {
                self.answer(vertex, has(vertex));
            }
        }
        self.finish()
    }

    /// Returns the frontier, once there are no more questions; or all needed values that cannot be obtained.
    pub fn finish(self) -> Result<Frontier<'g>, MissingValues> {
        assert!(self.awaited == 0 && self.pending.is_empty(), "there are open questions; ask `questions` until none");
        let missing = self.missing();
        let states = self.marks.iter().map(|mark| mark.state).collect();
        let frontier = Frontier { graph: self.graph, states, delivers: self.delivers, taken: self.taken };
        if missing == MissingValues::default() { Ok(frontier) } else { Err(missing) }
    }

    fn missing(&self) -> MissingValues {
        let lost = |vertex: Vertex| self.mark(vertex).state == VertexState::Recompute;
        let output = |at: &u32| {
            let vertex = self.graph.vertex(VertexKind::Output(*at));
            lost(vertex) && self.graph.source_number(vertex).is_none()
        };
        let inputs =
            (0..self.graph.inputs()).filter(|at| lost(*at) && self.changed.binary_search(at).is_err()).collect();
        MissingValues { inputs, outputs: (0..self.graph.outputs()).filter(output).collect() }
    }

    /// Marks all vertices from which a requested out-port can be reached.
    fn prune(&mut self, requested: &[u32]) {
        let graph = self.graph;
        let mut todo: Vec<_> = requested.iter().map(|at| graph.vertex(VertexKind::Output(*at))).collect();
        todo.iter().for_each(|vertex| self.marks[*vertex as usize].relevant = true);
        while let Some(vertex) = todo.pop() {
            graph.each_predecessor(vertex, |before| {
                let seen = std::mem::replace(&mut self.marks[before as usize].relevant, true);
                if !seen {
                    todo.push(before);
                }
            });
        }
    }

    fn mark(&self, vertex: Vertex) -> Mark {
        self.marks[vertex as usize]
    }

    fn next(&mut self) -> Option<Vertex> {
        match &mut self.order {
            Order::Fifo => self.pending.pop_front(),
            Order::Lifo => self.pending.pop_back(),
            Order::Seeded(seed) => {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (*seed >> 33) as usize % self.pending.len().max(1);
                self.pending.swap_remove_back(at)
            }
        }
    }

    fn take(&mut self, vertex: Vertex) {
        let (graph, is_module) = (self.graph, self.graph.is_module(vertex));
        self.taken += 1;
        let mark = &mut self.marks[vertex as usize];
        mark.pending = false;
        if mark.state == VertexState::Ready && !is_module && mark.value == Value::Known(false) {
            mark.state = VertexState::Recompute;
        }
        let recompute = mark.state == VertexState::Recompute;
        if recompute {
            graph.each_predecessor(vertex, |before| self.want(before));
        }
        if recompute || is_module || self.policy == Policy::Consistent {
            graph.each_successor(vertex, |after| self.pass(after));
        }
    }

    /// Follows an edge to `vertex`, if a requested out-port can be reached from there.
    fn pass(&mut self, vertex: Vertex) {
        if self.mark(vertex).relevant {
            let witness = self.graph.source_number(vertex).expect("an edge leads to what is fed");
            self.delivers[witness as usize] = true;
            self.overtake(vertex);
        }
    }

    /// Makes an irrelevant vertex ready; for a port, queues the question whether it has a value.
    fn want(&mut self, vertex: Vertex) {
        let mark = &mut self.marks[vertex as usize];
        if mark.state != VertexState::Irrelevant {
            return;
        }
        mark.state = VertexState::Ready;
        if self.graph.is_module(vertex) {
            return self.push(vertex);
        }
        mark.value = Value::Awaited;
        self.awaited += 1;
        self.questions.push(vertex);
    }

    /// Marks a vertex as recompute; an open question about it no longer matters.
    fn overtake(&mut self, vertex: Vertex) {
        let mark = &mut self.marks[vertex as usize];
        if mark.state == VertexState::Recompute {
            return;
        }
        if mark.state == VertexState::Ready && mark.value == Value::Awaited {
            self.awaited -= 1;
        }
        mark.state = VertexState::Recompute;
        if !mark.pending {
            self.push(vertex);
        }
    }

    fn push(&mut self, vertex: Vertex) {
        let mark = &mut self.marks[vertex as usize];
        mark.pending = true;
        mark.times += 1;
        assert!(mark.times <= 2, "vertex {vertex} is pending for the third time");
        self.pending.push_back(vertex);
    }
}

/// Values that are needed and cannot be obtained.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("in-ports {inputs:?} have no value and out-ports {outputs:?} no connection")]
pub struct MissingValues {
    /// In-ports of the parent without a value, all of them.
    pub inputs: Vec<u32>,
    /// Requested out-ports of the parent without a value that nothing feeds.
    pub outputs: Vec<u32>,
}

/// The frontier: the sub-modules that run, and the values that are read.
#[derive(Clone, Debug)]
pub struct Frontier<'g> {
    graph: &'g DependencyGraph,
    states: Vec<VertexState>,
    delivers: Vec<bool>,
    taken: u64,
}

impl Frontier<'_> {
    /// Returns the state of a vertex.
    pub fn state(&self, vertex: Vertex) -> VertexState {
        self.states[vertex as usize]
    }

    /// The sub-module runs.
    pub fn runs(&self, module: u32) -> bool {
        self.state(self.graph.vertex(VertexKind::Module(module))) == VertexState::Ready
    }

    /// The out-port of the sub-module must deliver (W).
    pub fn delivers(&self, module: u32, port: u32) -> bool {
        self.delivers[self.graph.place_number(PortSource::Port(module, port)) as usize]
    }

    /// Returns the places of the values the frontier reads, each once, in order.
    pub fn reads(&self) -> impl Iterator<Item = PortSource> {
        let ready = (0..self.graph.vertices()).filter(|vertex| self.state(*vertex) == VertexState::Ready);
        let mut places: Vec<_> = ready.filter_map(|vertex| self.graph.value_at(vertex)).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter()
    }

    /// Returns how many vertices were taken: the cost.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}
