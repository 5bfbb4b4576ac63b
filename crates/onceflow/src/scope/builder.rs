//! Describes a scope: where it starts and ends, its buffers, cleanup flows and limits. Chains of operations begin here.

use super::{
    buffer::{Access, BufferRef, BufferSet, Handed, JoinSet, KeySet},
    chain::Chain,
    medium::{Code, Durable, Light, Medium, Message, accessing, describing, to_port},
    provider::Provider,
};
use onceflow_core::scope::{
    self as core, BufferKeep, CleanupFlow, CleanupWhen, Disposal, Feed, OpId, OpKind, Operation, ScopeDraft,
    ScopeFault, TrimSpan,
};
use onceflow_engine::scope::ScopeBody;
use std::{cell::RefCell, collections::BTreeSet, fmt::Display, marker::PhantomData, sync::Arc, time::Duration};

/// A scope that takes an `I` and gives an `O`: in memory, or [`Durable`]. Clones share it.
pub struct Scope<I, O, M: Medium = Light> {
    pub(super) compiled: M::Compiled,
    pub(super) types: PhantomData<fn(I) -> O>,
}

/// A scope whose sessions are rows of a store; see [`Scope::durable`].
pub type DurableScope<I, O> = Scope<I, O, Durable>;

impl<I, O, M: Medium> Clone for Scope<I, O, M> {
    fn clone(&self) -> Self {
        Scope { compiled: self.compiled.clone(), types: PhantomData }
    }
}

impl<I: Send + 'static, O: Send + 'static> Scope<I, O> {
    /// Builds a scope whose sessions are in memory.
    ///
    /// # Errors
    /// All faults of the scope, such as that nothing leads to terminate.
    pub fn build(describe: impl FnOnce(&ScopeBuilder<I, O>)) -> Result<Self, ScopeFaults> {
        Self::built(describe)
    }
}

impl<I: Message<Durable>, O: Message<Durable>> Scope<I, O, Durable> {
    /// Builds a scope whose sessions are rows of a store, and survive a crash at any time. All operations are those of a scope
    /// in memory, but for [keys](super::BufferKey): code that ends at once reads and writes buffers by
    /// [`Chain::access_with`] and [`ScopeBuilder::listen_with`].
    ///
    /// Operations that run code of yours, or hold something, are [named](Chain::named): a session finds them by their
    /// names, and is only continued by a program in which the scope has the same operations, with the same connections.
    ///
    /// # Errors
    /// All faults of the scope; an operation that lacks a name is one.
    pub fn durable(describe: impl FnOnce(&ScopeBuilder<I, O, Durable>)) -> Result<Self, ScopeFaults> {
        Self::built(describe)
    }
}

impl<I: Message<M>, O: Message<M>, M: Medium> Scope<I, O, M> {
    fn built(describe: impl FnOnce(&ScopeBuilder<I, O, M>)) -> Result<Self, ScopeFaults> {
        let builder = ScopeBuilder { parts: RefCell::new(Parts::new()), types: PhantomData };
        let end = builder.parts.borrow_mut().add("terminate", OpKind::Terminate, 0);
        assert_eq!(end, TERMINATE, "the end of a scope is its first operation");
        describe(&builder);
        let Parts { draft, code, foreign, unnamed } = builder.parts.into_inner();
        let nameless = unnamed.iter().map(|op| ScopeFault::Unnamed(draft.ops[op.at()].name.clone()));
        let mut faults: Vec<ScopeFault> = if M::NEEDS_NAMES { nameless.collect() } else { Vec::new() };
        faults.extend(foreign);
        match core::Scope::check(draft) {
            Ok(scope) if faults.is_empty() => Ok(Scope { compiled: M::compile(scope, code), types: PhantomData }),
            Ok(_) => Err(ScopeFaults(faults)),
            Err(mut found) => {
                found.extend(faults);
                Err(ScopeFaults(found))
            }
        }
    }
}

/// All faults of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeFaults(pub Vec<ScopeFault>);

impl Display for ScopeFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join("; "))
    }
}

impl std::error::Error for ScopeFaults {}

pub(super) const TERMINATE: OpId = OpId(0);

/// Describes a scope from `I` to `O`; see [`Scope::build`] and [`Scope::durable`].
pub struct ScopeBuilder<I, O, M: Medium = Light> {
    pub(super) parts: RefCell<Parts<M>>,
    types: PhantomData<fn(I) -> O>,
}

pub(super) struct Parts<M: Medium> {
    pub(super) draft: ScopeDraft,
    pub(super) code: Code<M>,
    /// Operations whose name the program has not given, though they run code or hold something.
    unnamed: BTreeSet<OpId>,
    /// Faults that the core cannot see.
    pub(super) foreign: Vec<ScopeFault>,
}

impl<M: Medium> Parts<M> {
    fn new() -> Self {
        Parts { draft: ScopeDraft::default(), code: Code::default(), unnamed: BTreeSet::new(), foreign: Vec::new() }
    }

    /// Adds an operation with so many ports, all of which lead nowhere yet.
    pub(super) fn add(&mut self, word: &str, kind: OpKind, ports: usize) -> OpId {
        let number = u32::try_from(self.draft.ops.len()).expect("fewer than four billion operations");
        let name = if number == 0 { word.into() } else { format!("{word}-{number}") };
        if needs_name(&kind) {
            self.unnamed.insert(OpId(number));
        }
        self.draft.ops.push(Operation { name, kind, outputs: vec![None; ports] });
        self.code.bodies.push(M::nothing());
        self.code.copies.push(None);
        self.code.describes.push(None);
        OpId(number)
    }

    pub(super) fn add_code(&mut self, word: &str, kind: OpKind, ports: usize, body: M::Body) -> OpId {
        let op = self.add(word, kind, ports);
        self.code.bodies[op.at()] = body;
        op
    }

    pub(super) fn add_task<T, U>(&mut self, provider: Provider<T, U, M>) -> OpId {
        let Provider { body, mode, word, .. } = provider;
        self.add_code(word, OpKind::Task { mode, streams: 0 }, 1, body)
    }

    pub(super) fn name(&mut self, op: OpId, name: &str) {
        self.unnamed.remove(&op);
        self.draft.ops[op.at()].name = name.into();
    }
}

/// The operation runs code of the program, or holds something.
fn needs_name(kind: &OpKind) -> bool {
    match kind {
        OpKind::Task { .. }
        | OpKind::Collect { .. }
        | OpKind::Join { .. }
        | OpKind::Listen { .. }
        | OpKind::Buffer { .. }
        | OpKind::Access { .. }
        | OpKind::Trim { .. }
        | OpKind::Watch { .. } => true,
        OpKind::Distribute(_)
        | OpKind::Clone
        | OpKind::Push { .. }
        | OpKind::Gate { .. }
        | OpKind::StreamOut { .. }
        | OpKind::Cancel { .. }
        | OpKind::Dispose
        | OpKind::Terminate => false,
    }
}

/// A place that takes messages. Any number of chains may lead to it.
pub struct Slot<'s, T, M: Medium = Light> {
    pub(super) parts: &'s RefCell<Parts<M>>,
    pub(super) op: OpId,
    types: PhantomData<fn(T)>,
}

impl<T, M: Medium> Clone for Slot<'_, T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M: Medium> Copy for Slot<'_, T, M> {}

/// An operation of a scope, to be trimmed or watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point(pub(super) OpId);

/// The part of a scope that a trim cleans.
#[derive(Clone, Copy, Debug)]
pub enum TrimPart {
    /// One operation.
    Point(Point),
    /// An operation and all that it leads to.
    Downstream(Point),
    /// All operations on a way from the first to the second.
    Between(Point, Point),
}

impl TrimPart {
    pub(super) fn span(self) -> TrimSpan {
        match self {
            TrimPart::Point(Point(op)) => TrimSpan::Point(op),
            TrimPart::Downstream(Point(op)) => TrimSpan::Downstream(op),
            TrimPart::Between(Point(first), Point(last)) => TrimSpan::Between(first, last),
        }
    }
}

/// The name and type of a stream that a scope sends out.
///
/// ```
/// use onceflow::scope::StreamTag;
///
/// const POSE: StreamTag<(f64, f64)> = StreamTag::new("pose");
/// ```
pub struct StreamTag<T> {
    pub(super) name: &'static str,
    types: PhantomData<fn() -> T>,
}

impl<T> StreamTag<T> {
    /// A stream of this name.
    pub const fn new(name: &'static str) -> Self {
        StreamTag { name, types: PhantomData }
    }
}

impl<T> Clone for StreamTag<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for StreamTag<T> {}

/// Limits a cleanup flow.
#[must_use = "without a call of `timeout` the flow has no limit"]
pub struct CleanupLimit<'s, M: Medium = Light> {
    parts: &'s RefCell<Parts<M>>,
    flow: usize,
}

impl<M: Medium> CleanupLimit<'_, M> {
    /// The flow is cancelled after this time, and the session's end says so.
    pub fn timeout(self, after: Duration) {
        self.parts.borrow_mut().draft.cleanups[self.flow].timeout_ms = Some(milliseconds(after));
    }

    /// The flow may take as long as it likes.
    pub fn unlimited(self) {}
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<I: Message<M>, O: Message<M>, M: Medium> ScopeBuilder<I, O, M> {
    fn chain<T>(&self, op: OpId) -> Chain<'_, T, M> {
        Chain::new(&self.parts, Some(op), 0)
    }

    /// The message that a session is opened with. Only the last chain from here counts.
    pub fn start(&self) -> Chain<'_, I, M> {
        Chain::new(&self.parts, None, 0)
    }

    /// The end of the scope: the first message decides the result.
    pub fn end(&self) -> Slot<'_, O, M> {
        self.slot_at(TERMINATE)
    }

    fn slot_at<T>(&self, op: OpId) -> Slot<'_, T, M> {
        Slot { parts: &self.parts, op, types: PhantomData }
    }

    /// A place that takes messages, and the chain they leave by: where ways meet, and where a cycle closes.
    pub fn junction<T: Message<M>>(&self) -> (Slot<'_, T, M>, Chain<'_, T, M>) {
        let op = self.parts.borrow_mut().add("junction", OpKind::Clone, 1);
        (self.slot_at(op), self.chain(op))
    }

    /// A slot that cancels the session; its message is the reason.
    pub fn cancel<T: Message<M> + Display>(&self) -> Slot<'_, T, M> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("cancel", OpKind::Cancel { implicit: false }, 0);
        parts.code.describes[op.at()] = Some(describing::<T, M>());
        drop(parts);
        self.slot_at(op)
    }

    /// A place that cancels the session without a reason, and does not count as an end that a session could reach.
    pub fn cancel_implicitly<T: Message<M>>(&self) -> Slot<'_, T, M> {
        let op = self.parts.borrow_mut().add("cancel", OpKind::Cancel { implicit: true }, 0);
        self.slot_at(op)
    }

    /// A buffer.
    pub fn buffer<T: Message<M>>(&self, keep: BufferKeep) -> BufferRef<T> {
        BufferRef::new(self.parts.borrow_mut().add("buffer", OpKind::Buffer { keep }, 0))
    }

    /// A place that sends messages out of the scope, in order.
    pub fn stream<T: Message<M>>(&self, tag: StreamTag<T>) -> Slot<'_, T, M> {
        let mut parts = self.parts.borrow_mut();
        let known = parts.draft.streams.iter().position(|name| name == tag.name);
        let at = known.unwrap_or(parts.draft.streams.len());
        if known.is_none() {
            parts.draft.streams.push(tag.name.into());
        }
        let stream = u32::try_from(at).expect("fewer than four billion streams");
        let op = parts.add("stream", OpKind::StreamOut { stream }, 0);
        drop(parts);
        self.slot_at(op)
    }

    /// A buffer with a name, as a durable scope needs it.
    pub fn buffer_named<T: Message<M>>(&self, name: &str, keep: BufferKeep) -> BufferRef<T> {
        let buffer = self.buffer(keep);
        self.parts.borrow_mut().name(buffer.op, name);
        buffer
    }

    /// Gives one entry of each buffer together, whenever all have one: the oldest of each, in order.
    pub fn join<B: JoinSet<M>>(&self, buffers: B) -> Chain<'_, B::Joined, M>
    where
        B::Joined: Message<M>,
    {
        let mut parts = self.parts.borrow_mut();
        buffers.copies(&mut |buffer, copy| parts.code.copies[buffer.at()] = Some(copy));
        let kind = OpKind::Join { inputs: buffers.inputs() };
        let body = M::inline(move |feed, _| match feed {
            Feed::Many(entries) => to_port(0, buffers.joined(&mut entries.into_iter())?),
            _ => unreachable!("a join was given something else than entries"),
        });
        let op = parts.add_code("join", kind, 1, body);
        drop(parts);
        self.chain(op)
    }

    /// Runs a function that ends at once whenever one of the buffers has changed, but not for changes of its own.
    pub fn listen_with<B: BufferSet, U: Message<M>>(
        &self,
        buffers: &B,
        f: impl Fn(&Access<'_, M>) -> U + Send + Sync + 'static,
    ) -> Chain<'_, U, M>
    where
        (): Message<M>,
    {
        let kind = OpKind::Listen { buffers: buffers.buffers(), own_writes: false };
        let body = accessing(buffers.buffers(), move |_: Option<()>, access: &Access<'_, M>| f(access));
        let op = self.parts.borrow_mut().add_code("listen", kind, 1, body);
        self.chain(op)
    }

    /// Gives every disposal of these operations: a branch that was not taken, a failure, a trim.
    pub fn disposals(&self, of: &[Point]) -> Chain<'_, Disposal, M>
    where
        Disposal: Message<M>,
    {
        let kind = OpKind::Watch { of: of.iter().map(|point| point.0).collect() };
        let body = M::inline(|feed, _| match feed {
            Feed::Disposal(disposal) => to_port(0, *disposal),
            _ => unreachable!("a watch was given something else than a disposal"),
        });
        let op = self.parts.borrow_mut().add_code("disposals", kind, 1, body);
        self.chain(op)
    }

    /// Runs a flow when a session is cancelled, with these buffers: keys to them in a scope in memory, lists of their entries
    /// in a durable one. All cleanup flows of a session run at once.
    pub fn on_cancel<B: Handed<M>, R: Message<M>>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Given, R, M>,
    ) -> CleanupLimit<'_, M> {
        self.cleanup(name, CleanupWhen::Cancelled, buffers, flow)
    }

    /// Runs a flow when a session has a result.
    pub fn on_terminate<B: Handed<M>, R: Message<M>>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Given, R, M>,
    ) -> CleanupLimit<'_, M> {
        self.cleanup(name, CleanupWhen::Terminated, buffers, flow)
    }

    /// Runs a flow when a session ends, in either way.
    pub fn on_cleanup<B: Handed<M>, R: Message<M>>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Given, R, M>,
    ) -> CleanupLimit<'_, M> {
        self.cleanup(name, CleanupWhen::Ended, buffers, flow)
    }

    fn cleanup<B: Handed<M>, R>(
        &self,
        name: &str,
        when: CleanupWhen,
        buffers: B,
        flow: &Scope<B::Given, R, M>,
    ) -> CleanupLimit<'_, M> {
        let mut parts = self.parts.borrow_mut();
        let at = parts.draft.cleanups.len();
        let buffer_ids = buffers.buffers();
        parts.draft.cleanups.push(CleanupFlow { name: name.into(), when, buffers: buffer_ids, timeout_ms: None });
        parts.code.cleanups.push(buffers.cleanup(flow.compiled.clone()));
        CleanupLimit { parts: &self.parts, flow: at }
    }

    /// A session of this scope is not interrupted by the end of its parent, nor by a request to cancel it: it goes on
    /// to its own end, and is waited for.
    pub fn uninterruptible(&self) {
        self.parts.borrow_mut().draft.settings.uninterruptible = true;
    }

    /// A session is cancelled after this time.
    pub fn deadline(&self, after: Duration) {
        self.parts.borrow_mut().draft.settings.deadline_ms = Some(milliseconds(after));
    }

    /// A session is cancelled when an operation on a cycle would take more messages than this.
    pub fn rounds_max(&self, rounds: u32) {
        self.parts.borrow_mut().draft.settings.rounds_max = Some(rounds);
    }
}

impl<I: Send + 'static, O: Send + 'static> ScopeBuilder<I, O> {
    /// Gives keys whenever one of the buffers has changed, but not for changes by its own keys.
    pub fn listen<B: KeySet>(&self, buffers: B) -> Chain<'_, B::Keys> {
        self.listening(buffers, false)
    }

    /// Gives keys whenever one of the buffers has changed, also by its own keys.
    pub fn listen_to_itself<B: KeySet>(&self, buffers: B) -> Chain<'_, B::Keys> {
        self.listening(buffers, true)
    }

    fn listening<B: KeySet>(&self, buffers: B, own_writes: bool) -> Chain<'_, B::Keys> {
        let kind = OpKind::Listen { buffers: buffers.buffers(), own_writes };
        let body = move |_: Feed<_>, carrier: &onceflow_engine::scope::Carrier<'_>| {
            to_port::<_, Light>(0, buffers.keys(carrier))
        };
        let op = self.parts.borrow_mut().add_code("listen", kind, 1, ScopeBody::Blocking(Arc::new(body)));
        self.chain(op)
    }
}
