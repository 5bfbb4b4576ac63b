//! The code behind the operations of a durable scope. Messages are rows: bytes in whatever encoding the front end
//! chooses.

use super::{call::FlowCall, keys::Hop};
use onceflow_core::{
    Row,
    scope::{Contents, Emitted, Feed, Instruction, OpId, OpKind, Scope, ScopeEffect, ScopeEvent, Session},
};
use onceflow_store::BoxFuture;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Code that decides about messages at once: forks, joins, transforms. It is part of the batch of its event, and runs
/// again if that batch is not committed; so it must not touch the world.
pub type InlineBody = dyn Fn(Feed<Row>, &mut BufferAccess<'_>) -> Result<Emitted<Row>, String> + Send + Sync;

/// Code that touches the world. Any host may run it; its answer is committed once. It runs again, with the same
/// [key](Activity::key), if its host dies before that.
pub type ActivityBody = dyn Fn(Activity) -> BoxFuture<'static, Result<Emitted<Row>, String>> + Send + Sync;

/// One execution of an activity.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The same for every attempt at this activity, and for no other: give it to other systems so that they perform a
    /// request once.
    pub key: String,
    /// Its input.
    pub feed: Feed<Row>,
}

/// The code of one operation.
#[derive(Clone)]
pub enum DurableBody {
    /// The machine needs none.
    None,
    /// Runs in the batch of its event.
    Inline(Arc<InlineBody>),
    /// Runs on any host.
    Activity(Arc<ActivityBody>),
    /// Starts a run of a flow, and gives its outputs.
    Call(Arc<FlowCall>),
    /// Opens a nested session; stream `i` of the scope leaves by port `i + 1`.
    Flow(Arc<DurableScope>),
    /// Passes the message on after so many milliseconds, also if processes end meanwhile.
    Sleep {
        /// The milliseconds.
        ms: u64,
    },
    /// Waits for an event from outside, whose value is the message that it gives. An event is delivered to one order,
    /// once.
    Wait {
        /// The name of the event.
        event: String,
    },
}

impl DurableBody {
    /// It calls a flow, or opens a session that can.
    fn calls(&self) -> bool {
        match self {
            DurableBody::Call(_) => true,
            DurableBody::Flow(scope) => scope.calls,
            _ => false,
        }
    }
}

/// Says how a message is delivered to an operation whose orders are not all served at once.
pub type DeliveryRule = Arc<dyn Fn(&Row) -> Result<Instruction, String> + Send + Sync>;

/// A cleanup flow.
pub struct DurableCleanup {
    /// The scope that is opened.
    pub scope: Arc<DurableScope>,
    /// Makes its first message. An entry that is pulled here is this flow's alone, and is stored with it in one batch.
    pub first: Arc<dyn Fn(&mut BufferAccess<'_>) -> Row + Send + Sync>,
}

/// Says in words what a message means to a cancel operation.
pub type DescribeRow = Arc<dyn Fn(OpId, &Row) -> Option<String> + Send + Sync>;

/// The parts of a scope that the rows of its sessions rely on: the operations of it and of those inside it, with their names,
/// in their order, and their connections. A session that was opened with another shape is not driven: its messages would be given to the
/// operations that have their numbers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScopeShape(u64);

impl ScopeShape {
    fn of(scope: &Scope, bodies: &[DurableBody], cleanups: &[DurableCleanup]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("onceflow shape of a scope");
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        };
        for (operation, body) in scope.operations().iter().zip(bodies) {
            add(operation.name.as_bytes());
            add(format!("{:?} {:?}", operation.kind, operation.outputs).as_bytes());
            match body {
                DurableBody::Flow(nested) => add(&nested.shape.0.to_le_bytes()),
                DurableBody::Sleep { .. } => add(b"sleep"),
                DurableBody::Wait { .. } => add(b"wait"),
                DurableBody::Call(_) => add(b"call"),
                // The kind of the operation says how its code is run.
                _ => add(b"code"),
            }
        }
        for (flow, cleanup) in scope.cleanups().iter().zip(cleanups) {
            add(flow.name.as_bytes());
            add(format!("{:?} {:?}", flow.when, flow.buffers).as_bytes());
            add(&cleanup.scope.shape.0.to_le_bytes());
        }
        scope.streams().iter().for_each(|stream| add(stream.as_bytes()));
        ScopeShape(u64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")))
    }
}

/// A checked scope with its code.
pub struct DurableScope {
    pub(super) scope: Scope,
    pub(super) bodies: Vec<DurableBody>,
    pub(super) cleanups: Vec<DurableCleanup>,
    /// The delivery of operations whose orders are served in lanes.
    pub(super) deliveries: BTreeMap<OpId, DeliveryRule>,
    /// An operation of it, or of a scope in it, calls a flow.
    pub(super) calls: bool,
    describe: DescribeRow,
    shape: ScopeShape,
}

impl DurableScope {
    /// A scope with a body for every operation that needs one.
    ///
    /// # Panics
    /// When the lists are not as long as the scope has operations, or cleanup flows.
    pub fn new(
        scope: Scope,
        bodies: Vec<DurableBody>,
        cleanups: Vec<DurableCleanup>,
        describe: DescribeRow,
    ) -> Arc<Self> {
        DurableScope::with_deliveries(scope, bodies, cleanups, BTreeMap::new(), describe)
    }

    /// As [`DurableScope::new`], with operations that take their messages one at a time: orders of such an operation are
    /// served in lanes of their session. Only activities, calls and nested sessions can be among them.
    ///
    /// # Panics
    /// As [`DurableScope::new`].
    pub fn with_deliveries(
        scope: Scope,
        bodies: Vec<DurableBody>,
        cleanups: Vec<DurableCleanup>,
        deliveries: BTreeMap<OpId, DeliveryRule>,
        describe: DescribeRow,
    ) -> Arc<Self> {
        assert_eq!(scope.operations().len(), bodies.len(), "every operation has a body, or none");
        assert_eq!(scope.cleanups().len(), cleanups.len(), "every cleanup flow has a body");
        let calls = bodies.iter().any(DurableBody::calls) || cleanups.iter().any(|cleanup| cleanup.scope.calls);
        let shape = ScopeShape::of(&scope, &bodies, &cleanups);
        Arc::new(DurableScope { scope, bodies, cleanups, deliveries, calls, describe, shape })
    }

    /// The shape of the scope.
    pub(super) fn shape(&self) -> ScopeShape {
        self.shape
    }

    /// The checked scope.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The scope that a path of operations and cleanup flows leads to.
    pub(super) fn at(self: &Arc<Self>, path: &[Hop]) -> Option<Arc<Self>> {
        let mut here = self.clone();
        for hop in path {
            here = match hop {
                Hop::Op(op) => match here.bodies.get(op.at())? {
                    DurableBody::Flow(scope) => scope.clone(),
                    _ => return None,
                },
                Hop::Cleanup(flow) => here.cleanups.get(*flow as usize)?.scope.clone(),
            };
        }
        Some(here)
    }
}

impl Contents<Row> for DurableScope {
    fn duplicate(&self, _: OpId, message: &Row) -> Row {
        message.clone()
    }

    fn describe(&self, op: OpId, message: &Row) -> Option<String> {
        (self.describe)(op, message)
    }
}

/// Access to the buffers of a session, for code that runs in the batch of an event.
pub struct BufferAccess<'a> {
    pub(super) scope: &'a DurableScope,
    pub(super) session: &'a mut Session<Row>,
    pub(super) effects: &'a mut VecDeque<ScopeEffect<Row>>,
    /// The operation whose code it is; `None` for a cleanup flow.
    pub(super) by: Option<OpId>,
}

impl BufferAccess<'_> {
    /// The entries of a buffer, the oldest first. None while its gate is closed.
    pub fn entries(&self, buffer: OpId) -> Vec<Row> {
        self.session.entries(&self.scope.scope, buffer).cloned().collect()
    }

    /// Takes the oldest entry, or the newest.
    pub fn pull(&mut self, buffer: OpId, is_newest: bool) -> Option<Row> {
        let count = self.session.entries(&self.scope.scope, buffer).len();
        let index = if is_newest { count.checked_sub(1)? } else { 0 };
        self.session.pull(&self.scope.scope, self.scope, buffer, index, self.by, self.effects)
    }

    /// Takes all entries, the oldest first.
    pub fn pull_all(&mut self, buffer: OpId) -> Vec<Row> {
        std::iter::from_fn(|| self.pull(buffer, false)).collect()
    }

    /// Puts a message into a buffer.
    pub fn push(&mut self, buffer: OpId, message: Row) {
        let event = ScopeEvent::Push { buffer, by: self.by, message };
        self.session.apply(&self.scope.scope, self.scope, event, self.effects);
    }
}

/// The buffers that an operation gives keys for.
pub(super) fn keyed_buffers(kind: &OpKind) -> &[OpId] {
    match kind {
        OpKind::Listen { buffers, .. } | OpKind::Access { buffers } => buffers,
        _ => &[],
    }
}
