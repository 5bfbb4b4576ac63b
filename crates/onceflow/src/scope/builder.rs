//! Describes a scope: where it starts and ends, its buffers, cleanup flows and limits. Chains of operations begin here.

use super::{
    buffer::{BufferRef, JoinSet, KeySet},
    chain::Chain,
};
use onceflow_core::scope::{
    self as core, BufferKeep, CleanupFlow, CleanupWhen, Disposal, Emitted, Feed, OpId, OpKind, Operation, ScopeDraft,
    ScopeFault, TrimSpan,
};
use onceflow_engine::scope::{BrokenCopy, CleanupBody, CopyBody, DescribeBody, LightScope, Packet, ScopeBody};
use std::{any::Any, cell::RefCell, fmt::Display, marker::PhantomData, sync::Arc, time::Duration};

/// A scope that takes an `I` and gives an `O`. Clones share it.
pub struct Scope<I, O> {
    pub(super) light: Arc<LightScope>,
    pub(super) types: PhantomData<fn(I) -> O>,
}

impl<I, O> Clone for Scope<I, O> {
    fn clone(&self) -> Self {
        Scope { light: self.light.clone(), types: PhantomData }
    }
}

impl<I: Send + 'static, O: Send + 'static> Scope<I, O> {
    /// Builds a scope.
    ///
    /// # Errors
    /// All faults of the scope, such as that nothing leads to terminate.
    pub fn build(describe: impl FnOnce(&ScopeBuilder<I, O>)) -> Result<Self, ScopeFaults> {
        let builder = ScopeBuilder { parts: RefCell::default(), types: PhantomData };
        let end = builder.parts.borrow_mut().add("terminate", OpKind::Terminate, 0);
        assert_eq!(end, TERMINATE, "the end of a scope is its first operation");
        describe(&builder);
        let Parts { draft, bodies, copies, describes, cleanups, foreign } = builder.parts.into_inner();
        let checked = core::Scope::check(draft);
        let faults = |mut faults: Vec<ScopeFault>| {
            faults.extend(foreign.iter().cloned());
            ScopeFaults(faults)
        };
        match checked {
            Ok(scope) if foreign.is_empty() => {
                Ok(Scope { light: LightScope::new(scope, bodies, copies, describes, cleanups), types: PhantomData })
            }
            Ok(_) => Err(faults(Vec::new())),
            Err(found) => Err(faults(found)),
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

/// Describes a scope from `I` to `O`; see [`Scope::build`].
pub struct ScopeBuilder<I, O> {
    pub(super) parts: RefCell<Parts>,
    types: PhantomData<fn(I) -> O>,
}

#[derive(Default)]
pub(super) struct Parts {
    pub(super) draft: ScopeDraft,
    pub(super) bodies: Vec<ScopeBody>,
    pub(super) copies: Vec<Option<CopyBody>>,
    describes: Vec<Option<DescribeBody>>,
    cleanups: Vec<CleanupBody>,
    /// Faults that the core cannot see.
    pub(super) foreign: Vec<ScopeFault>,
}

impl Parts {
    /// Adds an operation with so many ports, all of which lead nowhere yet.
    pub(super) fn add(&mut self, word: &str, kind: OpKind, ports: usize) -> OpId {
        let number = u32::try_from(self.draft.ops.len()).expect("fewer than four billion operations");
        let name = if number == 0 { word.into() } else { format!("{word}-{number}") };
        self.draft.ops.push(Operation { name, kind, outputs: vec![None; ports] });
        self.bodies.push(ScopeBody::None);
        self.copies.push(None);
        self.describes.push(None);
        OpId(number)
    }

    pub(super) fn add_blocking(
        &mut self,
        word: &str,
        kind: OpKind,
        ports: usize,
        body: impl Fn(Feed<Packet>, &onceflow_engine::scope::Carrier<'_>) -> Result<Emitted<Packet>, String>
        + Send
        + Sync
        + 'static,
    ) -> OpId {
        let op = self.add(word, kind, ports);
        self.bodies[op.at()] = ScopeBody::Blocking(Arc::new(body));
        op
    }
}

/// The value of a packet.
///
/// # Panics
/// When its copying panicked. Another type is ruled out by the builder.
pub(super) fn value<T: 'static>(packet: Packet) -> T {
    *packet.downcast::<T>().unwrap_or_else(|packet| panic!("{}", mismatch::<T>(&packet)))
}

pub(super) fn value_ref<T: 'static>(packet: &Packet) -> &T {
    let value = (**packet).downcast_ref::<T>();
    value.unwrap_or_else(|| panic!("{}", mismatch::<T>(packet)))
}

/// Says why a packet has no value of the type it should have.
pub(super) fn mismatch<T>(packet: &Packet) -> String {
    match (**packet).downcast_ref::<BrokenCopy>() {
        Some(BrokenCopy(why)) => format!("copying the message panicked: {why}"),
        None => format!("a message is not a {}", std::any::type_name::<T>()),
    }
}

/// The message of an order that takes one.
pub(super) fn one(feed: Feed<Packet>) -> Packet {
    match feed {
        Feed::One(packet) => packet,
        _ => unreachable!("an operation that takes messages was given something else"),
    }
}

/// A place that takes messages. Any number of chains may lead to it.
pub struct Slot<'s, T> {
    pub(super) parts: &'s RefCell<Parts>,
    pub(super) op: OpId,
    types: PhantomData<fn(T)>,
}

impl<T> Clone for Slot<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<'_, T> {}

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
pub struct CleanupLimit<'s> {
    parts: &'s RefCell<Parts>,
    flow: usize,
}

impl CleanupLimit<'_> {
    /// The flow is cancelled after this time, and the session's end says so.
    pub fn timeout(self, after: Duration) {
        self.parts.borrow_mut().draft.cleanups[self.flow].timeout_ms = Some(milliseconds(after));
    }

    /// The flow may take as long as it likes.
    pub fn unlimited(self) {}
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<I: Send + 'static, O: Send + 'static> ScopeBuilder<I, O> {
    fn chain<T>(&self, op: OpId) -> Chain<'_, T> {
        Chain::new(&self.parts, Some(op), 0)
    }

    /// The message that a session is opened with. Only the last chain from here counts.
    pub fn start(&self) -> Chain<'_, I> {
        Chain::new(&self.parts, None, 0)
    }

    /// The end of the scope: the first message decides the result.
    pub fn end(&self) -> Slot<'_, O> {
        self.slot_at(TERMINATE)
    }

    fn slot_at<T>(&self, op: OpId) -> Slot<'_, T> {
        Slot { parts: &self.parts, op, types: PhantomData }
    }

    /// A place that takes messages, and the chain they leave by: where ways meet, and where a cycle closes.
    pub fn junction<T: Send + 'static>(&self) -> (Slot<'_, T>, Chain<'_, T>) {
        let op = self.parts.borrow_mut().add("junction", OpKind::Clone, 1);
        (self.slot_at(op), self.chain(op))
    }

    /// A slot that cancels the session; its message is the reason.
    pub fn cancel<T: Display + Send + 'static>(&self) -> Slot<'_, T> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("cancel", OpKind::Cancel { implicit: false }, 0);
        parts.describes[op.at()] = Some(Arc::new(|packet| Some(value_ref::<T>(packet).to_string())));
        drop(parts);
        self.slot_at(op)
    }

    /// A place that cancels the session without a reason, and does not count as an end that a session could reach.
    pub fn cancel_implicitly<T: Send + 'static>(&self) -> Slot<'_, T> {
        let op = self.parts.borrow_mut().add("cancel", OpKind::Cancel { implicit: true }, 0);
        self.slot_at(op)
    }

    /// A buffer.
    pub fn buffer<T: Send + 'static>(&self, keep: BufferKeep) -> BufferRef<T> {
        BufferRef::new(self.parts.borrow_mut().add("buffer", OpKind::Buffer { keep }, 0))
    }

    /// A place that sends messages out of the scope, in order.
    pub fn stream<T: Send + 'static>(&self, tag: StreamTag<T>) -> Slot<'_, T> {
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

    /// Gives one entry of each buffer together, whenever all have one: the oldest of each, in order.
    pub fn join<B: JoinSet>(&self, buffers: B) -> Chain<'_, B::Joined> {
        let mut parts = self.parts.borrow_mut();
        buffers.copies(&mut |buffer, copy| parts.copies[buffer.at()] = Some(copy));
        let kind = OpKind::Join { inputs: buffers.inputs() };
        let op = parts.add_blocking("join", kind, 1, move |feed, _| match feed {
            Feed::Many(entries) => Ok(Emitted::One(0, Box::new(buffers.joined(&mut entries.into_iter())))),
            _ => unreachable!("a join was given something else than entries"),
        });
        drop(parts);
        self.chain(op)
    }

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
        let body = move |_: Feed<Packet>, carrier: &onceflow_engine::scope::Carrier<'_>| {
            Ok(Emitted::One(0, Box::new(buffers.keys(carrier)) as Box<dyn Any + Send>))
        };
        let op = self.parts.borrow_mut().add_blocking("listen", kind, 1, body);
        self.chain(op)
    }

    /// Gives every disposal of these operations: a branch that was not taken, a failure, a trim.
    pub fn disposals(&self, of: &[Point]) -> Chain<'_, Disposal> {
        let kind = OpKind::Watch { of: of.iter().map(|point| point.0).collect() };
        let op = self.parts.borrow_mut().add_blocking("disposals", kind, 1, |feed, _| match feed {
            Feed::Disposal(disposal) => Ok(Emitted::One(0, disposal as Packet)),
            _ => unreachable!("a watch was given something else than a disposal"),
        });
        self.chain(op)
    }

    /// Runs a flow when a session is cancelled, with keys to these buffers. All cleanup flows of a session run at once.
    pub fn on_cancel<B: KeySet, R: Send + 'static>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Keys, R>,
    ) -> CleanupLimit<'_> {
        self.cleanup(name, CleanupWhen::Cancelled, buffers, flow)
    }

    /// Runs a flow when a session has a result.
    pub fn on_terminate<B: KeySet, R: Send + 'static>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Keys, R>,
    ) -> CleanupLimit<'_> {
        self.cleanup(name, CleanupWhen::Terminated, buffers, flow)
    }

    /// Runs a flow when a session ends, in either way.
    pub fn on_cleanup<B: KeySet, R: Send + 'static>(
        &self,
        name: &str,
        buffers: B,
        flow: &Scope<B::Keys, R>,
    ) -> CleanupLimit<'_> {
        self.cleanup(name, CleanupWhen::Ended, buffers, flow)
    }

    fn cleanup<B: KeySet, R>(
        &self,
        name: &str,
        when: CleanupWhen,
        buffers: B,
        flow: &Scope<B::Keys, R>,
    ) -> CleanupLimit<'_> {
        let mut parts = self.parts.borrow_mut();
        let at = parts.draft.cleanups.len();
        let buffer_ids = buffers.buffers();
        parts.draft.cleanups.push(CleanupFlow { name: name.into(), when, buffers: buffer_ids, timeout_ms: None });
        let first =
            Arc::new(move |carrier: &onceflow_engine::scope::Carrier<'_>| Box::new(buffers.keys(carrier)) as Packet);
        parts.cleanups.push(CleanupBody { scope: flow.light.clone(), first });
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
