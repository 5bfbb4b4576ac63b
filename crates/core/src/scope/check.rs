//! Checks a scope: finds all faults at once, and prepares what the machine looks up. A [`Scope`] has no faults.

use super::{
    definition::{CleanupFlow, OpId, OpKind, Operation, ScopeDraft, ScopeSettings, TrimSpan},
    operation,
    reach::graph::ReachGraph,
};
use std::{collections::BTreeSet, fmt};

/// A checked scope. Sessions of it share it.
#[derive(Debug)]
pub struct Scope {
    pub(crate) ops: Vec<Operation>,
    pub(crate) start: OpId,
    pub(crate) cleanups: Vec<CleanupFlow>,
    pub(crate) streams: Vec<String>,
    pub(crate) settings: ScopeSettings,
    pub(crate) wiring: Wiring,
}

/// Look-ups that the definition implies.
#[derive(Debug, Default)]
pub(crate) struct Wiring {
    /// Per operation: its number among the operations of its kind that have state of their own.
    pub(crate) slot: Vec<u32>,
    /// The operations with state, by slot.
    pub(crate) buffers: Vec<OpId>,
    pub(crate) collects: Vec<OpId>,
    pub(crate) joins: Vec<OpId>,
    pub(crate) trims: Vec<OpId>,
    /// Per buffer slot: the joins and the listens that read it.
    pub(crate) joins_of: Vec<Vec<OpId>>,
    pub(crate) listens_of: Vec<Vec<OpId>>,
    /// Per trim slot: the operations it cleans, ascending.
    pub(crate) trimmed: Vec<Vec<OpId>>,
    /// Per operation: the operations that watch its disposals.
    pub(crate) watchers: Vec<Vec<OpId>>,
    pub(crate) graph: ReachGraph,
}

/// A fault of a scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopeFault {
    /// No operation gets the first message.
    NoStart,
    /// Two operations, or two cleanup flows, have one name.
    DuplicateName(String),
    /// An operation refers to one that does not exist.
    UnknownOperation(String),
    /// An operation leads to one that takes no messages.
    TakesNoMessage {
        /// The operation.
        at: String,
        /// The one it leads to.
        target: String,
    },
    /// An operation or cleanup flow refers to one that is no buffer.
    NotABuffer {
        /// The operation or flow.
        at: String,
        /// The one it refers to.
        target: String,
    },
    /// An operation has too few or too many output ports.
    WrongPorts {
        /// The operation.
        at: String,
        /// So many it has.
        has: usize,
    },
    /// An operation has no buffers, or names one twice.
    Buffers(String),
    /// A limit of an operation can never be met.
    Bounds(String),
    /// An operation of a durable scope runs code or holds something, and has no name that stays.
    Unnamed(String),
    /// An operation sends by a stream that the scope does not have.
    UnknownStream(String),
    /// No way leads from the first operation to the second one of a span.
    EmptySpan(String),
    /// Nothing leads to terminate, or to a cancel operation.
    TerminateUnreachable,
    /// Two collects stand on one cycle: each waits for the other.
    CircularCollects(Vec<String>),
}

impl fmt::Display for ScopeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeFault::NoStart => f.write_str("no operation gets the first message: connect the start"),
            ScopeFault::DuplicateName(name) => write!(f, "two operations or cleanup flows are called {name}"),
            ScopeFault::UnknownOperation(at) => write!(f, "{at} refers to an operation that does not exist"),
            ScopeFault::TakesNoMessage { at, target } => write!(f, "{at} leads to {target}, which takes no messages"),
            ScopeFault::NotABuffer { at, target } => write!(f, "{at} refers to {target}, which is no buffer"),
            ScopeFault::WrongPorts { at, has } => write!(f, "{at} cannot have {has} output ports"),
            ScopeFault::Buffers(at) => write!(f, "{at} needs buffers, each of them once"),
            ScopeFault::Bounds(at) => write!(f, "{at} has a limit that can never be met"),
            ScopeFault::Unnamed(at) => {
                write!(f, "{at} needs a name that stays the same: in a durable scope it is found by it")
            }
            ScopeFault::UnknownStream(at) => write!(f, "{at} sends by a stream that the scope does not have"),
            ScopeFault::EmptySpan(at) => write!(f, "no way leads through the span that {at} trims"),
            ScopeFault::TerminateUnreachable => {
                f.write_str("nothing leads to terminate: no session could have a result")
            }
            ScopeFault::CircularCollects(ops) => write!(f, "{} wait for each other on one cycle", ops.join(" and ")),
        }
    }
}

impl std::error::Error for ScopeFault {}

/// The checking of one operation: reports faults, and adds what it supports.
pub(crate) struct Setup<'a> {
    pub(crate) draft: &'a ScopeDraft,
    pub(crate) wiring: &'a mut Wiring,
    pub(crate) edges: &'a mut Vec<Vec<usize>>,
    pub(crate) faults: &'a mut BTreeSet<ScopeFault>,
}

impl Setup<'_> {
    pub(crate) fn op(&self, at: OpId) -> &Operation {
        &self.draft.ops[at.at()]
    }

    pub(crate) fn fault(&mut self, fault: ScopeFault) {
        self.faults.insert(fault);
    }

    /// The operation has a number of ports between these.
    pub(crate) fn ports(&mut self, at: OpId, least: usize, most: usize) {
        let has = self.op(at).outputs.len();
        if has < least || has > most {
            self.fault(ScopeFault::WrongPorts { at: self.op(at).name.clone(), has });
        }
    }

    /// Records that a message at `from`, or its reachability, may make `to` reachable.
    pub(crate) fn supports(&mut self, from: OpId, to: OpId) {
        self.edges[from.at()].push(to.at());
    }

    /// Requires buffers, each of them once; returns those that are.
    pub(crate) fn buffers(&mut self, at: OpId, buffers: &[OpId]) -> Vec<OpId> {
        let name = self.op(at).name.clone();
        if buffers.is_empty() || buffers.iter().collect::<BTreeSet<_>>().len() < buffers.len() {
            self.fault(ScopeFault::Buffers(name.clone()));
        }
        buffers.iter().copied().filter(|buffer| is_buffer(self.draft, &name, *buffer, self.faults)).collect()
    }
}

fn is_buffer(draft: &ScopeDraft, at: &str, buffer: OpId, faults: &mut BTreeSet<ScopeFault>) -> bool {
    match draft.ops.get(buffer.at()) {
        Some(Operation { kind: OpKind::Buffer { .. }, .. }) => return true,
        Some(other) => faults.insert(ScopeFault::NotABuffer { at: at.into(), target: other.name.clone() }),
        None => faults.insert(ScopeFault::UnknownOperation(at.into())),
    };
    false
}

impl Scope {
    /// Checks a draft.
    ///
    /// # Errors
    /// All faults there are.
    pub fn check(draft: ScopeDraft) -> Result<Scope, Vec<ScopeFault>> {
        let count = draft.ops.len();
        let mut wiring = Wiring { slot: vec![0; count], watchers: vec![Vec::new(); count], ..Wiring::default() };
        let mut edges = vec![Vec::new(); count];
        let mut faults = BTreeSet::new();
        number_slots(&draft, &mut wiring);
        names(&draft, &mut faults);
        let mut setup = Setup { draft: &draft, wiring: &mut wiring, edges: &mut edges, faults: &mut faults };
        for at in (0..).take(count).map(OpId) {
            connections(&mut setup, at);
            operation::set_up(&mut setup, at);
        }
        for flow in &draft.cleanups {
            for buffer in &flow.buffers {
                is_buffer(&draft, &flow.name, *buffer, &mut faults);
            }
        }
        let start = draft.start.filter(|start| start.at() < count);
        let Some(start) = start.filter(|start| takes_messages(&draft.ops[start.at()].kind)) else {
            faults.insert(ScopeFault::NoStart);
            return Err(faults.into_iter().collect());
        };
        if faults.is_empty() {
            wiring.trimmed = wiring.trims.iter().map(|trim| span(&draft, &edges, *trim, &mut faults)).collect();
            wiring.graph = ReachGraph::new(&draft.ops, start, &edges);
            wiring.graph.find_faults(&draft.ops, start, &edges, &mut faults);
        }
        if !faults.is_empty() {
            return Err(faults.into_iter().collect());
        }
        let ScopeDraft { ops, cleanups, streams, settings, .. } = draft;
        Ok(Scope { ops, start, cleanups, streams, settings, wiring })
    }

    /// The operations.
    pub fn operations(&self) -> &[Operation] {
        &self.ops
    }

    /// The cleanup flows.
    pub fn cleanups(&self) -> &[CleanupFlow] {
        &self.cleanups
    }

    /// Names of the streams that it sends out.
    pub fn streams(&self) -> &[String] {
        &self.streams
    }

    pub(crate) fn op(&self, at: OpId) -> &Operation {
        &self.ops[at.at()]
    }

    pub(crate) fn slot(&self, at: OpId) -> usize {
        self.wiring.slot[at.at()] as usize
    }
}

fn takes_messages(kind: &OpKind) -> bool {
    !matches!(kind, OpKind::Join { .. } | OpKind::Listen { .. } | OpKind::Watch { .. })
}

fn number_slots(draft: &ScopeDraft, wiring: &mut Wiring) {
    for (at, op) in (0..).map(OpId).zip(&draft.ops) {
        let list = match &op.kind {
            OpKind::Buffer { .. } => &mut wiring.buffers,
            OpKind::Collect { .. } => &mut wiring.collects,
            OpKind::Join { .. } => &mut wiring.joins,
            OpKind::Trim { .. } => &mut wiring.trims,
            _ => continue,
        };
        wiring.slot[at.at()] = u32::try_from(list.len()).expect("operations are numbered in 32 bits");
        list.push(at);
    }
    wiring.joins_of = vec![Vec::new(); wiring.buffers.len()];
    wiring.listens_of = vec![Vec::new(); wiring.buffers.len()];
}

fn names(draft: &ScopeDraft, faults: &mut BTreeSet<ScopeFault>) {
    let mut seen = BTreeSet::new();
    let cleanups = draft.cleanups.iter().map(|flow| &flow.name);
    for name in draft.ops.iter().map(|op| &op.name).chain(cleanups) {
        if !seen.insert(name) {
            faults.insert(ScopeFault::DuplicateName(name.clone()));
        }
    }
}

fn connections(setup: &mut Setup<'_>, at: OpId) {
    for target in setup.op(at).outputs.clone().into_iter().flatten() {
        match setup.draft.ops.get(target.at()) {
            None => setup.fault(ScopeFault::UnknownOperation(setup.op(at).name.clone())),
            Some(op) if !takes_messages(&op.kind) => {
                let fault = ScopeFault::TakesNoMessage { at: setup.op(at).name.clone(), target: op.name.clone() };
                setup.fault(fault);
            }
            Some(_) => setup.supports(at, target),
        }
    }
}

/// Finds the operations that a trim cleans.
fn span(draft: &ScopeDraft, edges: &[Vec<usize>], trim: OpId, faults: &mut BTreeSet<ScopeFault>) -> Vec<OpId> {
    let OpKind::Trim { span } = &draft.ops[trim.at()].kind else { unreachable!("a trim is in the list of trims") };
    let (first, last) = match *span {
        TrimSpan::Point(point) => return vec![point],
        TrimSpan::Downstream(first) => (first, None),
        TrimSpan::Between(first, last) => (first, Some(last)),
    };
    let mut found = closure(edges, first, trim);
    if let Some(last) = last {
        let mut back = vec![Vec::new(); edges.len()];
        for (from, targets) in edges.iter().enumerate() {
            targets.iter().for_each(|to| back[*to].push(from));
        }
        let before = closure(&back, last, trim);
        found = &found & &before;
        if found.is_empty() {
            faults.insert(ScopeFault::EmptySpan(draft.ops[trim.at()].name.clone()));
        }
    }
    found.into_iter().filter(|op| draft.ops[op.at()].kind != OpKind::Terminate).collect()
}

/// Finds all operations on ways from `first` that do not pass `without`.
fn closure(edges: &[Vec<usize>], first: OpId, without: OpId) -> BTreeSet<OpId> {
    let mut found = BTreeSet::from([first]);
    let mut open = vec![first];
    while let Some(op) = open.pop() {
        for to in edges[op.at()].iter().map(|to| OpId(u32::try_from(*to).expect("numbered in 32 bits"))) {
            if to != without && found.insert(to) {
                open.push(to);
            }
        }
    }
    found
}
