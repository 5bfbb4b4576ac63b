//! A minimal in-memory store, and a worker that knows only tasks and eaches: enough to observe the effect of batches.

use onceflow_core::{
    Batch, Digest, EdgeName, Fences, Group, Inbox, Key, Kind as GroupKind, Name, Op, Require, Row, Shard, Timestamp,
    ValueChange, ValueId,
    model::{
        Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, Wiring, check,
        graph::ModuleKind,
        program::{self, Program},
    },
    payload::{Outcome, Payload, Stored},
    protocol::{
        claim::WorkClaim,
        draft::InstalledProgram,
        ids::{END, FrameId, Generation, LANE, RunId, SETTLE, StepId},
        keys::Keys,
        rows::{self, Frame, Header, Held, Phase, ReadyStep, Received, RunState, Shape},
        run, step,
    },
    value::Element,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const STATE: RunState = RunState { generation: Generation(0), phase: Phase::Running, settings: 0 };

fn end(text: &str, port: &str) -> Endpoint {
    let is_module = |name: &str| !name.starts_with(['x', 'y', 'z']);
    match is_module(text) {
        true => Endpoint { module: Some(text.into()), port: port.into() },
        false => Endpoint { module: None, port: text.into() },
    }
}

/// Returns a graph of tasks, connected as in `x -> a; a -> b; b -> y`. Names with x are inputs, those with y or z
/// outputs.
pub(crate) fn tasks_graph(text: &str) -> Graph {
    let mut graph = Graph::default();
    let pairs: Vec<_> = text.split(';').map(|pair| pair.trim().split_once(" -> ").expect("a -> b")).collect();
    let mut names: Vec<&str> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let feeds: Vec<_> = pairs.iter().filter(|(_, to)| *to == name).map(|(from, _)| *from).collect();
        match name.as_bytes()[0] {
            b'x' => graph.inputs.push(Port::new(name, Type::Bytes)),
            b'y' | b'z' => graph.outputs.push(Port::new(name, Type::Bytes)),
            _ => {
                let ports = feeds.iter().map(|from| Port::new(*from, Type::Bytes)).collect();
                let task = TaskSpec::new(name, ports, vec![Port::new("out", Type::Bytes)]);
                let module =
                    Module { name: name.into(), kind: ModuleKind::Task(task.into()), origin: None, attempt: false };
                graph.modules.push(module);
            }
        }
        for from in feeds {
            let to = end(name, from);
            graph.connections.push(Connection { from: end(from, "out"), to, origin: None });
        }
    }
    graph
}

/// Returns a graph that sends every element of `x` through two tasks, one after the other.
pub(crate) fn each_graph(concurrency: Option<u32>) -> Graph {
    let body = tasks_graph("x -> a; a -> b; b -> y");
    let kind = ModuleKind::Each { body, over: vec!["x".into()], concurrency };
    let list = || Type::list(Type::Bytes);
    Graph {
        inputs: vec![Port::new("x", list())],
        outputs: vec![Port::new("y", list())],
        modules: vec![Module { name: "each".into(), kind, origin: None, attempt: false }],
        connections: vec![
            Connection {
                from: end("x", ""),
                to: Endpoint { module: Some("each".into()), port: "x".into() },
                origin: None,
            },
            Connection {
                from: Endpoint { module: Some("each".into()), port: "y".into() },
                to: end("y", ""),
                origin: None,
            },
        ],
    }
}

fn stored(name: &str, len: u64) -> Stored {
    Stored { id: ValueId::new(name), digest: Digest::default(), len }
}

fn value(name: &str) -> Outcome {
    Outcome::Value(Payload::Stored(stored(name, 1)))
}

/// The state of the store: rows, bitmaps, counters, and the edges that hold values.
#[derive(Clone)]
pub(crate) struct Machine {
    plan: Arc<InstalledProgram>,
    rows: BTreeMap<Key, Row>,
    bits: BTreeMap<Key, BTreeSet<u32>>,
    counters: BTreeMap<Key, i64>,
    edges: BTreeMap<EdgeName, ValueId>,
    elements: BTreeMap<(Name, u64), Element>,
    gathered: usize,
    n: u64,
}

impl Machine {
    /// Starts a run of the graph. `n` is the length of its lists.
    pub(crate) fn new(graph: &Graph, n: u64) -> Self {
        let library = Library { flows: [(String::from("main"), graph.clone())].into() };
        let program: Program = check(&library, "main", None).expect("a graph that checks");
        let wiring = Arc::new(Wiring::of(&program));
        let inputs = graph.inputs.iter().map(|port| {
            let outcome = match &port.ty {
                Type::List(_) => Outcome::Value(Payload::StoredList(stored(&port.name, n))),
                _ => value(&port.name),
            };
            Some(Held { owned: true, outcome })
        });
        let inputs = inputs.collect();
        let keys = Keys::new(RunId([7; 8]), Generation(0));
        let plan = Arc::new(InstalledProgram::new(Shard(0), keys, Arc::new(program), wiring));
        let mut machine = Machine {
            plan: plan.clone(),
            rows: BTreeMap::new(),
            bits: BTreeMap::new(),
            counters: BTreeMap::new(),
            edges: BTreeMap::new(),
            elements: BTreeMap::new(),
            gathered: 0,
            n,
        };
        let frame =
            Frame { block: 0, opened_by: None, depth: 0, guarded: false, shape: Shape::Run, inputs, memo: None };
        let header = Header {
            key: "r".into(),
            flow: "main".into(),
            program: stored("program", 1),
            full: None,
            asked: Digest::default(),
            inputs: vec![],
            requested: None,
            finish_independent: false,
            keep_ms: None,
            history_ms: 1,
            started: Timestamp::ZERO,
            done_before: vec![],
        };
        let (batch, edges) = run::start(&plan, &header, &frame, None).finish();
        machine.apply(&batch, edges);
        machine
    }

    fn queue_rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter().filter(|(key, _)| key.group.kind() == GroupKind::Queue)
    }

    /// Returns the ready steps, by unique names.
    pub(crate) fn ready(&self) -> Vec<String> {
        self.queue_rows().map(|(key, _)| name_of(key)).collect()
    }

    /// Claims a step, runs it, and commits its outputs.
    pub(crate) fn perform(&mut self, name: &str) {
        let (key, row) = self.queue_rows().find(|(key, _)| name_of(key) == name).expect("it is ready");
        let (key, inbox) = (key.clone(), Inbox::from_row(row).expect("an inbox"));
        let ready_step: ReadyStep = rows::read(&inbox.note).expect("a ready row");
        let (_, step) = StepId::from_queue_name(key.name.as_bytes()).expect("a step");
        let frame: Frame = rows::read(&self.rows[&self.plan.keys.frame(step.frame)]).expect("a frame");
        let arrived = self
            .rows
            .iter()
            .filter(|(at, _)| at.group == inbox.group && at.name.as_bytes().starts_with(inbox.prefix.as_bytes()));
        let arrived: Vec<Received> = match inbox.group == self.plan.keys.rows {
            true => arrived.map(|(_, row)| rows::read(row).expect("an arrival")).collect(),
            false => vec![],
        };
        let fence = Fences::new(9).next();
        self.rows.insert(key.group.claims().key(&key.name), Row::new(fence.to_bytes()));
        self.rows.insert(key.group.deadlines().key(&key.name), Row::new("later"));
        let (queue, name_there) = (key.group.clone(), key.name.clone());
        let claim = WorkClaim { queue, name: name_there, fence, row: self.rows[&key].clone() };
        let taken = step::Taken { step, claim, ready_step, frame: Arc::new(frame), inbox: arrived };
        for received in taken.received().iter().filter(|received| received.owned) {
            let edge = self.plan.keys.edge(&self.plan.keys.arrival(step, received.port), received.port);
            assert!(self.edges.contains_key(&edge), "{name} was given something that it does not hold");
        }
        let (batch, edges) = self.decide(&taken, name);
        let again = batch.clone();
        self.apply(&batch, edges);
        assert!(!self.holds(&again), "{name} could commit twice");
    }

    fn decide(&self, taken: &step::Taken, name: &str) -> (Batch, Vec<ValueChange>) {
        let plan = &*self.plan;
        let draft = match taken.step.node {
            LANE => step::open_chunk(plan, STATE, taken, &|_, index| value(&format!("element {index}"))),
            END => {
                assert!(step::is_close_of_each(taken), "only eaches are known here");
                let (opener, _) = taken.frame.opened_by.expect("opened by a step");
                let outer = &self.rows[&plan.keys.frame(opener.frame)];
                let outer: Frame = rows::read(outer).expect("a frame");
                let prefix = plan.keys.elements(taken.step.frame, 0);
                let found = self.elements.keys().filter(|(of, _)| *of == prefix).count();
                assert_eq!(found as u64, self.n, "it closes before every element has ended");
                let list = Outcome::Value(Payload::StoredList(stored("list", self.n)));
                let mut draft = step::close(plan, STATE, taken, &outer, &[list]);
                let gather = ValueChange::gather(ValueId::new("list"), prefix, self.n, Digest::default());
                draft.changes.insert(0, gather);
                draft
            }
            _ => {
                let node = taken.node(plan);
                let inputs = taken.inputs(plan, &node.inputs).expect("every input has arrived");
                match &node.op {
                    program::NodeOp::Each { body, concurrency } => {
                        let elements = step::elements(self.n as u32, 5, *concurrency);
                        step::open_each(plan, STATE, taken, *body, elements, &inputs, None)
                    }
                    program::NodeOp::Task(_) => {
                        let outputs: Vec<_> = node.outputs.iter().map(|_| value(name)).collect();
                        step::commit(plan, STATE, taken, &outputs)
                    }
                    other => panic!("{other:?} is not known here"),
                }
            }
        };
        draft.finish()
    }

    fn holds(&self, batch: &Batch) -> bool {
        batch.requires.iter().all(|require: &Require| require.holds(self.rows.get(require.key())))
    }

    fn apply(&mut self, batch: &Batch, changes: Vec<ValueChange>) {
        batch.check().expect("a lawful batch");
        assert!(batch.is_repeatable(), "a batch that acts twice: {batch:?}");
        assert!(self.holds(batch), "refused: {batch:?}");
        let (mut todo, mut waiting): (Vec<Op>, Vec<Op>) = (batch.ops.clone(), vec![]);
        while !todo.is_empty() {
            todo.iter().for_each(|op| self.plain(op));
            waiting.append(&mut todo);
            // Full bitmaps fire first: a counter that they raise again was never zero.
            let full = |op: &Op| matches!(op, Op::SetBit { .. }) && self.is_complete(op);
            let next = waiting.iter().position(full).or_else(|| waiting.iter().position(|op| self.is_complete(op)));
            if let Some(next) = next
                && let Op::SetBit { key, when_full: then, .. } | Op::Add { key, at_zero: then, .. } =
                    waiting.remove(next)
            {
                self.bits.remove(&key);
                self.counters.remove(&key);
                todo = then;
            }
        }
        for change in changes {
            self.change(change);
        }
    }

    fn plain(&mut self, op: &Op) {
        match op {
            Op::Put(key, row) => drop(self.rows.insert(key.clone(), row.clone())),
            Op::Delete(key) => drop(self.rows.remove(key)),
            Op::DeleteGroup(group) => self.rows.retain(|key, _| key.group != *group),
            Op::SetBit { key, bit, .. } => {
                assert!(self.bits.entry(key.clone()).or_default().insert(*bit), "{key}: {bit} arrived twice");
            }
            Op::Add { key, delta, .. } => *self.counters.entry(key.clone()).or_default() += delta,
        }
    }

    fn is_complete(&self, op: &Op) -> bool {
        match op {
            Op::SetBit { key, of, .. } => self.bits.get(key).is_some_and(|bits| bits.len() == *of as usize),
            Op::Add { key, .. } => self.counters.get(key) == Some(&0),
            _ => false,
        }
    }

    fn change(&mut self, change: ValueChange) {
        match change {
            ValueChange::Set { edge, to, deadline: None } => {
                let before = self.edges.insert(edge, to);
                assert!(before.is_none(), "an edge is set twice");
            }
            ValueChange::Clear { edge, from, deadline: None } => {
                assert_eq!(self.edges.remove(&edge), Some(from), "an edge that is not set");
            }
            ValueChange::Element { prefix, index, element } => {
                assert!(self.elements.insert((prefix, index), element).is_none(), "an element came twice");
            }
            ValueChange::Put { .. } => self.gathered += 1,
            other => panic!("no step fails and no run ends here: {other:?}"),
        }
    }

    /// Asserts that nothing is in flight: only the root frame, its outputs and the settling step are left.
    pub(crate) fn is_at_rest(&self) {
        let keys = &self.plan.keys;
        assert!(self.bits.is_empty() && self.counters.is_empty(), "{:?} {:?}", self.bits, self.counters);
        let outputs = self.plan.program.blocks[0].outputs.len();
        let inputs = self.plan.program.blocks[0].inputs.len();
        let left = self.rows.keys().filter(|key| key.group == keys.rows).count();
        assert_eq!(left, 1 + outputs, "rows are left beside the frame and the outputs: {:?}", self.rows.keys());
        assert!(self.rows.contains_key(&keys.frame(FrameId::ROOT)));
        // The edges of the inputs, of the program, and of the outputs that have arrived at the end.
        assert_eq!(self.edges.len(), inputs + 1 + outputs, "{:?}", self.edges);
        assert_eq!(self.elements.is_empty(), self.gathered == 0);
    }
}

fn name_of(key: &Key) -> String {
    let (_, step) = StepId::from_queue_name(key.name.as_bytes()).expect("a step");
    let queue: &Group = &key.group;
    match step.node {
        SETTLE => "settle".into(),
        LANE => format!("lane {} of {:?}", step.index, step.frame),
        END => format!("end {} of {:?}", step.index, step.frame),
        node => format!("{node}[{}] of {:?} in {queue:?}", step.index, step.frame),
    }
}
