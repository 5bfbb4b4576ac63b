//! Decides where a run resumes: which sub-modules run, and which values they read. The algorithm is ComputeResumeState.
//!
//! Everything starts *irrelevant*, but changed in-ports (I*) are *recompute* and requested out-ports (O*) *ready*; those
//! are pending. Pending vertices are taken, in any order, until none is left:
//!
//! 1. a ready vertex without a value that is not a sub-module turns to recompute;
//! 2. a recompute vertex makes its irrelevant predecessors ready and pending;
//! 3. a taken vertex *overtakes* its successors: they turn to recompute, pending if they were not recompute before; and
//!    the out-ports those edges go through must deliver.
//!
//! Only the graph from which O* can be reached counts. The ready vertices are the *frontier*: sub-modules there run,
//! ports there are read. The policies differ in who overtakes.
//!
//! # `Consistent`
//!
//! Every taken vertex overtakes. Each port has a value or not, on its own (H). The frontier F is *consistent*: every path
//! from a vertex without predecessors to O* holds exactly one vertex of F ∪ I*; F holds sub-modules and ports in H only.
//! And it is *optimal*: whatever it recomputes, every consistent frontier recomputes.
//!
//! # `Provenance`
//!
//! A value is stored once, where it was produced; a port has one iff what feeds it has a *valid* one, that is, one
//! computed by today's code from today's inputs, all the way up (see `validity`). To read such a value disturbs nobody,
//! so **a ready port overtakes nothing**: only recompute vertices and sub-modules overtake.
//!
//! Said without the algorithm: let R be the sub-modules that run, and *New* all that descends from R ∪ I*, by one edge or
//! more. Let *needed* be O*, and for every port in New the in-ports that the out-port feeding it depends on. R is
//! *sound* iff every port in New that a sub-module feeds is fed by one in R (what descends from a change comes from a
//! step that runs), and every needed port is in New or has a valid value. The answer is the least sound R; it reads
//! exactly the needed ports that are not New. (There is a least one: the rules above are forced.)
//!
//! The rules of `Provenance` are some of those of `Consistent`, and more states only ever lead to more states. So it never
//! runs a sub-module, nor recomputes a port, that `Consistent` would not, given at least the same ports with values.
//! Where it gains is in what counts as a value: an in-port that was never delivered to reads from its source, where
//! `Consistent` goes back to the source and overtakes all who read from there. (If in-ports have values exactly where
//! their sources do, the two agree: an in-port is read only by a sub-module that runs, and that overtakes already.)
//!
//! # Asking
//!
//! Whether a port has a value may be slow to find out, so it is asked: only for ready ports, all at once, and answers may
//! come late and in any order. A vertex whose answer is awaited is not taken yet. If something overtakes it meanwhile, its
//! answer no longer matters. Cost: every vertex is pending at most twice, every edge looked at four times at most.

use super::graph::{DependencyGraph, PortSource, Vertex, VertexKind};
use std::collections::VecDeque;

/// Who overtakes what descends from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everybody: any module may answer differently when it runs again.
    Consistent,
    /// Changes and steps that run: a value knows what it was computed from.
    Provenance,
}

/// Which pending vertex is taken next. The answer is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The youngest: the least memory.
    Lifo,
    /// Any, by this seed.
    Seeded(u64),
}

/// What becomes of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VertexState {
    /// Nothing: nobody needs it.
    Irrelevant,
    /// Part of the frontier: a port is read, a sub-module runs.
    Ready,
    /// It gets a new value.
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
    /// It stands among the pending.
    pending: bool,
    /// How often it was made pending.
    times: u8,
}

const UNSEEN: Mark =
    Mark { state: VertexState::Irrelevant, value: Value::Unasked, relevant: false, pending: false, times: 0 };

/// The algorithm, stopped wherever it has to ask.
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
    /// Begins. `changed` are the in-ports of the parent with a new value (I*), `requested` its out-ports that are
    /// wanted (O*).
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

    /// What must be known next, ready ports: has each a value? Empty while all that can be asked has been, and answers
    /// are awaited; `None` when the answer is found. Under [`Policy::Provenance`] the question is about
    /// [`DependencyGraph::value_at`]: has that place a valid value?
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

    /// Answers a question. Late, twice, or when it no longer matters: all harmless. What was never asked is a bug.
    pub fn answer(&mut self, vertex: Vertex, has_value: bool) {
        let mark = &mut self.marks[vertex as usize];
        assert!(mark.value != Value::Unasked, "nobody asked whether vertex {vertex} has a value");
        if mark.value == Value::Awaited {
            mark.value = Value::Known(has_value);
            if mark.state == VertexState::Ready {
                self.awaited -= 1;
                self.push(vertex);
            }
        }
    }

    /// Asks `has` whatever must be known, and answers.
    pub fn run(mut self, mut has: impl FnMut(Vertex) -> bool) -> Result<Frontier<'g>, MissingValues> {
        while let Some(questions) = self.questions() {
            for vertex in questions {
                self.answer(vertex, has(vertex));
            }
        }
        self.finish()
    }

    /// The answer, once there are no more questions; or all that is needed and can be had from nowhere.
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

    /// Marks all from which a requested out-port can be reached.
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

    /// Goes along an edge to `vertex`, if it is one that counts.
    fn pass(&mut self, vertex: Vertex) {
        if self.mark(vertex).relevant {
            let witness = self.graph.source_number(vertex).expect("an edge leads to what is fed");
            self.delivers[witness as usize] = true;
            self.overtake(vertex);
        }
    }

    /// An irrelevant vertex becomes ready; whether it has a value is asked.
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

    /// A vertex becomes recompute; what it may have been asked no longer matters.
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

/// What is needed and can be had from nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("in-ports {inputs:?} have no value and out-ports {outputs:?} no connection")]
pub struct MissingValues {
    /// In-ports of the parent without a value, all of them.
    pub inputs: Vec<u32>,
    /// Requested out-ports of the parent without a value that nothing feeds.
    pub outputs: Vec<u32>,
}

/// What runs and what is read.
#[derive(Clone, Debug)]
pub struct Frontier<'g> {
    graph: &'g DependencyGraph,
    states: Vec<VertexState>,
    delivers: Vec<bool>,
    taken: u64,
}

impl Frontier<'_> {
    /// What becomes of a vertex.
    pub fn state(&self, vertex: Vertex) -> VertexState {
        self.states[vertex as usize]
    }

    /// Whether a sub-module runs.
    pub fn runs(&self, module: u32) -> bool {
        self.state(self.graph.vertex(VertexKind::Module(module))) == VertexState::Ready
    }

    /// Whether an out-port of a sub-module must deliver (W).
    pub fn delivers(&self, module: u32, port: u32) -> bool {
        self.delivers[self.graph.place_number(PortSource::Port(module, port)) as usize]
    }

    /// The values the frontier reads, each once, in order.
    pub fn reads(&self) -> impl Iterator<Item = PortSource> {
        let ready = (0..self.graph.vertices()).filter(|vertex| self.state(*vertex) == VertexState::Ready);
        let mut places: Vec<_> = ready.filter_map(|vertex| self.graph.value_at(vertex)).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter()
    }

    /// How many vertices were taken: the cost.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}
