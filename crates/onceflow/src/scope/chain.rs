//! A chain of operations: each method adds one and gives the chain that leaves it. A chain must be brought to an end:
//! terminate, a slot, a buffer, or `dispose`.

use super::{
    buffer::{Access, BufferRef, BufferSet, KeySet},
    builder::{Parts, Point, Scope, ScopeBuilder, Slot, StreamTag, TERMINATE, TrimPart},
    medium::{Durable, Light, Medium, Message, accessing, inline, one, to_port},
    provider::{Provider, Service, StreamSender},
};
use onceflow_core::scope::{Distribution, Emitted, Feed, GateAction, OpId, OpKind, ScopeFault, TaskMode};
use onceflow_engine::scope::{DurableBody, ScopeBody};
use std::{cell::RefCell, fmt::Display, future::Future, marker::PhantomData, sync::Arc, time::Duration};

/// An output of an operation that leads nowhere yet.
#[must_use = "a chain leads nowhere until it is connected, stored, terminated or disposed of"]
pub struct Chain<'s, T, M: Medium = Light> {
    pub(super) parts: &'s RefCell<Parts<M>>,
    /// `None`: the start of the scope.
    from: Option<OpId>,
    port: usize,
    types: PhantomData<fn() -> T>,
}

impl<'s, T, M: Medium> Chain<'s, T, M> {
    pub(super) fn new(parts: &'s RefCell<Parts<M>>, from: Option<OpId>, port: usize) -> Self {
        Chain { parts, from, port, types: PhantomData }
    }

    pub(super) fn lead_to(&self, target: OpId) {
        let mut parts = self.parts.borrow_mut();
        match self.from {
            Some(from) => parts.draft.ops[from.at()].outputs[self.port] = Some(target),
            None => parts.draft.start = Some(target),
        }
    }

    /// Leads to a new operation, and gives the chain that leaves it.
    pub(super) fn then_op<U>(self, op: OpId) -> Chain<'s, U, M> {
        self.lead_to(op);
        Chain::new(self.parts, Some(op), 0)
    }

    pub(super) fn then_ops<U, const N: usize>(self, op: OpId) -> [Chain<'s, U, M>; N] {
        self.lead_to(op);
        std::array::from_fn(|port| Chain::new(self.parts, Some(op), port))
    }

    /// Names the operation that this chain leaves, for addresses and reasons. In a durable scope, operations that run code
    /// of yours or hold something need a name.
    pub fn named(self, name: &str) -> Self {
        if let Some(op) = self.from {
            self.parts.borrow_mut().name(op, name);
        }
        self
    }

    /// The operation that this chain leaves, to be trimmed or watched.
    ///
    /// # Panics
    /// For the start of a scope, which is no operation.
    pub fn point(&self) -> Point {
        Point(self.from.expect("the start of a scope is no operation"))
    }
}

impl<'s, T: Message<M>, M: Medium> Chain<'s, T, M> {
    /// Runs a provider on each message: a function, a future, a service, a scope.
    pub fn then<U: Message<M>>(self, provider: Provider<T, U, M>) -> Chain<'s, U, M> {
        let op = self.parts.borrow_mut().add_task(provider);
        self.then_op(op)
    }

    /// Runs a function that ends at once. In a durable scope it is part of a commit, and runs again if that does not happen:
    /// it must not touch the world.
    pub fn map<U: Message<M>>(self, f: impl Fn(T) -> U + Send + Sync + 'static) -> Chain<'s, U, M> {
        self.then(Provider::map(f))
    }

    /// Runs a function that may fail. A failure is a disposal: the session goes on while something else can end it.
    pub fn try_map<U: Message<M>, E: Display>(
        self,
        f: impl Fn(T) -> Result<U, E> + Send + Sync + 'static,
    ) -> Chain<'s, U, M> {
        self.then(Provider::try_map(f))
    }

    /// Runs a future. In a durable scope its result is committed once; it is started again if its process dies before that:
    /// see [`Chain::map_keyed`].
    pub fn map_async<U: Message<M>, F: Future<Output = U> + Send + 'static>(
        self,
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U, M> {
        self.then(Provider::future(f))
    }

    /// Runs a future that may fail.
    pub fn try_map_async<U: Message<M>, E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        self,
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U, M> {
        self.then(Provider::try_future(f))
    }

    /// Runs a future that also sends messages by a stream while it goes on; in a durable scope they leave with its result.
    pub fn stream_async<U: Message<M>, S: Message<M>, F: Future<Output = U> + Send + 'static>(
        self,
        f: impl Fn(T, StreamSender<S, M>) -> F + Send + Sync + 'static,
    ) -> (Chain<'s, U, M>, Chain<'s, S, M>) {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("stream-task", OpKind::Task { mode: TaskMode::Async, streams: 1 }, 2);
        parts.code.bodies[op.at()] = M::future(move |packet, attempt| {
            let future = T::unpack(packet).map(|message| f(message, StreamSender::new(attempt)));
            async move { future?.await.pack() }
        });
        drop(parts);
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }

    /// Opens a session of another scope for each message.
    pub fn call<U: Message<M>>(self, scope: &Scope<T, U, M>) -> NestedNode<'s, U, M> {
        let streams = M::scope(&scope.compiled).streams().to_vec();
        let mut parts = self.parts.borrow_mut();
        let count = u32::try_from(streams.len()).expect("fewer than four billion streams");
        let kind = OpKind::Task { mode: TaskMode::Flow, streams: count };
        let op = parts.add("scope", kind, 1 + streams.len());
        parts.code.bodies[op.at()] = M::flow(scope.compiled.clone());
        drop(parts);
        NestedNode { result: self.then_op(op), streams }
    }

    /// Asks a service, as it is instructed; see [`Provider::service`].
    pub fn serve<U: Message<M>>(self, service: &Service<T, U>) -> Chain<'s, U, M> {
        self.then(Provider::service(service))
    }

    /// Lets messages pass for which the function gives something; others are disposed of.
    pub fn filter_map<U: Message<M>>(self, f: impl Fn(T) -> Option<U> + Send + Sync + 'static) -> Chain<'s, U, M> {
        let kind = OpKind::Distribute(Distribution::Filter);
        let body = inline(move |message| f(message).map_or(Ok(Emitted::Nothing), |passed| to_port::<_, M>(0, passed)));
        let op = self.parts.borrow_mut().add_code("filter", kind, 1, body);
        self.then_op(op)
    }

    /// Gathers messages until there are `max`, or until none can arrive any more; fewer than `min` are disposed of.
    pub fn collect(self, min: u32, max: Option<u32>) -> Chain<'s, Vec<T>, M>
    where
        Vec<T>: Message<M>,
    {
        let body = M::inline(|feed, _| match feed {
            Feed::Many(held) => to_port(0, held.into_iter().map(T::unpack).collect::<Result<Vec<T>, String>>()?),
            _ => unreachable!("a collect was given something else than a collection"),
        });
        let op = self.parts.borrow_mut().add_code("collect", OpKind::Collect { min, max }, 1, body);
        self.then_op(op)
    }

    /// Passes on a message without content for each message.
    pub fn trigger(self) -> Chain<'s, (), M>
    where
        (): Message<M>,
    {
        let kind = OpKind::Distribute(Distribution::Filter);
        let body = M::inline(|_, _| to_port(0, ()));
        let op = self.parts.borrow_mut().add_code("trigger", kind, 1, body);
        self.then_op(op)
    }

    /// Stores messages in a buffer.
    pub fn store(self, buffer: BufferRef<T>) {
        self.lead_to(buffer.op);
    }

    /// Stores each message in a buffer, then goes on with a trigger.
    pub fn push(self, buffer: BufferRef<T>) -> Chain<'s, (), M>
    where
        (): Message<M>,
    {
        let kind = OpKind::Push { buffer: buffer.op };
        let op = self.parts.borrow_mut().add_code("push", kind, 1, M::inline(|_, _| to_port(0, ())));
        self.then_op(op)
    }

    /// Runs a function that ends at once on each message, with access to these buffers.
    pub fn access_with<B: BufferSet, U: Message<M>>(
        self,
        buffers: &B,
        f: impl Fn(T, &Access<'_, M>) -> U + Send + Sync + 'static,
    ) -> Chain<'s, U, M> {
        let kind = OpKind::Access { buffers: buffers.buffers() };
        let body = accessing(buffers.buffers(), move |message: Option<T>, access: &Access<'_, M>| {
            f(message.expect("an access is given a message"), access)
        });
        let op = self.parts.borrow_mut().add_code("access", kind, 1, body);
        self.then_op(op)
    }

    /// Opens buffers for their readers.
    pub fn open_gate<B: BufferSet>(self, buffers: &B) -> Chain<'s, T, M> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Open };
        let op = self.parts.borrow_mut().add("open", kind, 1);
        self.then_op(op)
    }

    /// Closes buffers for their readers: they keep what they get, and show nothing.
    pub fn close_gate<B: BufferSet>(self, buffers: &B) -> Chain<'s, T, M> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Close };
        let op = self.parts.borrow_mut().add("close", kind, 1);
        self.then_op(op)
    }

    /// Opens buffers for messages for which the function holds, and closes them for others.
    pub fn gate<B: BufferSet>(
        self,
        buffers: &B,
        opens: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Chain<'s, T, M> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Dynamic };
        let body = M::inline(move |feed, _| {
            let packet = one(feed);
            let port = u32::from(!T::look(&packet, &opens)?);
            Ok(Emitted::One(port, packet))
        });
        let op = self.parts.borrow_mut().add_code("gate", kind, 1, body);
        self.then_op(op)
    }

    /// Cleans a part of the scope, and goes on when that is done.
    pub fn trim(self, part: TrimPart) -> Chain<'s, T, M> {
        let op = self.parts.borrow_mut().add("trim", OpKind::Trim { span: part.span() }, 1);
        self.then_op(op)
    }

    /// Leads to a slot.
    pub fn connect(self, slot: Slot<'s, T, M>) {
        if !std::ptr::eq(self.parts, slot.parts) {
            self.parts.borrow_mut().foreign.push(ScopeFault::UnknownOperation(String::from("a slot of another scope")));
            return;
        }
        self.lead_to(slot.op);
    }

    /// Ends the session with the first message that comes here.
    pub fn terminate<I>(self, _scope: &'s ScopeBuilder<I, T, M>) {
        self.lead_to(TERMINATE);
    }

    /// Disposes of messages on purpose.
    pub fn dispose(self) {
        let op = self.parts.borrow_mut().add("dispose", OpKind::Dispose, 0);
        self.lead_to(op);
    }
}

impl<'s, T: Message<M>, M: Medium> Chain<'s, (String, T), M>
where
    (String, T): Message<M>,
{
    /// Runs one of these providers, by the name that each message brings along. A message with another name is disposed of.
    pub fn inject_among<U: Message<M>>(
        self,
        name: &str,
        providers: impl IntoIterator<Item = (impl Into<String>, Provider<T, U, M>)>,
    ) -> Chain<'s, U, M> {
        let providers: Vec<(String, _)> =
            providers.into_iter().map(|(name, provider)| (name.into(), provider)).collect();
        let names: Vec<String> = providers.iter().map(|(name, _)| name.clone()).collect();
        let choose = inline(move |(chosen, message): (String, T)| {
            let port = names.iter().position(|name| *name == chosen).and_then(|port| u32::try_from(port).ok());
            to_port::<_, M>(port.ok_or_else(|| format!("there is no provider `{chosen}`"))?, message)
        });
        let mut parts = self.parts.borrow_mut();
        let kind = OpKind::Distribute(Distribution::Fork);
        let op = parts.add_code("inject", kind, providers.len(), choose);
        parts.name(op, name);
        let end = parts.add("injected", OpKind::Clone, 1);
        parts.name(end, &format!("{name}/end"));
        for (port, (chosen, provider)) in providers.into_iter().enumerate() {
            let task = parts.add_task(provider);
            parts.name(task, &format!("{name}/{chosen}"));
            parts.draft.ops[op.at()].outputs[port] = Some(task);
            parts.draft.ops[task.at()].outputs[0] = Some(end);
        }
        drop(parts);
        self.lead_to(op);
        Chain::new(self.parts, Some(end), 0)
    }
}

impl<'s, T: Send + 'static> Chain<'s, T> {
    /// Adds keys to buffers to each message.
    pub fn access<B: KeySet>(self, buffers: B) -> Chain<'s, (T, B::Keys)> {
        let kind = OpKind::Access { buffers: buffers.buffers() };
        let body = move |feed, carrier: &onceflow_engine::scope::Carrier<'_>| match feed {
            Feed::Keys(Some(packet)) => to_port(0, (T::unpack(packet)?, buffers.keys(carrier))),
            _ => unreachable!("an access was given something else than a message"),
        };
        let op = self.parts.borrow_mut().add_code("access", kind, 1, ScopeBody::Blocking(Arc::new(body)));
        self.then_op(op)
    }
}

impl<'s, T: Message<Durable>> Chain<'s, T, Durable> {
    /// Runs a future that is given a key with each message: the same for every attempt, and for no other message. Give it to
    /// other systems, so that they perform a request once.
    pub fn map_keyed<U: Message<Durable>, F: Future<Output = U> + Send + 'static>(
        self,
        f: impl Fn(String, T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U, Durable> {
        self.then(Provider::keyed(f))
    }

    /// Runs a future that may fail, with a key as [`Chain::map_keyed`].
    pub fn try_map_keyed<U: Message<Durable>, E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        self,
        f: impl Fn(String, T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U, Durable> {
        self.then(Provider::try_keyed(f))
    }

    /// Passes each message on after this time, also if processes end meanwhile.
    pub fn sleep(self, time: Duration) -> Chain<'s, T, Durable> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("sleep", OpKind::Task { mode: TaskMode::Async, streams: 0 }, 1);
        parts.code.bodies[op.at()] = DurableBody::Sleep { ms: super::builder::milliseconds(time) };
        drop(parts);
        self.then_op(op)
    }
}

impl<'s, T: Send + 'static, U: Send + 'static> Chain<'s, (T, Provider<T, U>)> {
    /// Runs the provider that each message brings along.
    pub fn inject(self) -> Chain<'s, U> {
        let kind = OpKind::Task { mode: TaskMode::Injected, streams: 0 };
        let body = ScopeBody::Injected(Arc::new(|packet| {
            let (message, provider) =
                <(T, Provider<T, U>) as Message<Light>>::unpack(packet).unwrap_or_else(|why| panic!("{why}"));
            (Box::new(message), provider.body)
        }));
        let op = self.parts.borrow_mut().add_code("inject", kind, 1, body);
        self.then_op(op)
    }
}

/// A nested scope: its result, and its streams.
#[must_use = "the result of a nested scope leads nowhere until it is connected or disposed of"]
pub struct NestedNode<'s, U, M: Medium = Light> {
    /// The result.
    pub result: Chain<'s, U, M>,
    streams: Vec<String>,
}

impl<'s, U, M: Medium> NestedNode<'s, U, M> {
    /// Names the operation.
    pub fn named(self, name: &str) -> Self {
        NestedNode { result: self.result.named(name), streams: self.streams }
    }

    /// A stream of the nested scope.
    pub fn stream<S: Message<M>>(&self, tag: StreamTag<S>) -> Chain<'s, S, M> {
        let port = self.streams.iter().position(|name| name == tag.name);
        if port.is_none() {
            let fault = ScopeFault::UnknownStream(format!("stream {}", tag.name));
            self.result.parts.borrow_mut().foreign.push(fault);
        }
        Chain::new(self.result.parts, self.result.from, port.map_or(0, |port| port + 1))
    }
}
