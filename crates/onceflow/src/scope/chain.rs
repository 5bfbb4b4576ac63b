//! A chain of operations: each method adds one and gives the chain that leaves it. A chain must be brought to an end:
//! terminate, a slot, a buffer, or `dispose`.

use super::{
    buffer::{BufferRef, KeySet},
    builder::{Parts, Point, Scope, ScopeBuilder, Slot, StreamTag, TERMINATE, TrimPart, one, value, value_ref},
    provider::{Provider, Service, StreamSender},
};
use onceflow_core::scope::{Distribution, Emitted, Feed, GateAction, OpId, OpKind, ScopeFault, TaskMode};
use onceflow_engine::scope::{Packet, ScopeBody};
use std::{cell::RefCell, fmt::Display, future::Future, marker::PhantomData, sync::Arc};

/// An output of an operation that leads nowhere yet.
#[must_use = "a chain leads nowhere until it is connected, stored, terminated or disposed of"]
pub struct Chain<'s, T> {
    pub(super) parts: &'s RefCell<Parts>,
    /// `None`: the start of the scope.
    from: Option<OpId>,
    port: usize,
    types: PhantomData<fn() -> T>,
}

impl<'s, T> Chain<'s, T> {
    pub(super) fn new(parts: &'s RefCell<Parts>, from: Option<OpId>, port: usize) -> Self {
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
    pub(super) fn then_op<U>(self, op: OpId) -> Chain<'s, U> {
        self.lead_to(op);
        Chain::new(self.parts, Some(op), 0)
    }

    pub(super) fn then_ops<U, const N: usize>(self, op: OpId) -> [Chain<'s, U>; N] {
        self.lead_to(op);
        std::array::from_fn(|port| Chain::new(self.parts, Some(op), port))
    }

    /// Names the operation that this chain leaves, for addresses and reasons.
    pub fn named(self, name: &str) -> Self {
        if let Some(op) = self.from {
            self.parts.borrow_mut().draft.ops[op.at()].name = name.into();
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

impl<'s, T: Send + 'static> Chain<'s, T> {
    /// Runs a provider on each message: a function, a future, a service, a scope.
    pub fn then<U: Send + 'static>(self, provider: impl Into<Provider<T, U>>) -> Chain<'s, U> {
        let provider = provider.into();
        let mut parts = self.parts.borrow_mut();
        let op = parts.add(provider.word, OpKind::Task { mode: provider.mode, streams: 0 }, 1);
        parts.bodies[op.at()] = provider.body;
        drop(parts);
        self.then_op(op)
    }

    /// Runs a function that ends at once.
    pub fn map<U: Send + 'static>(self, f: impl Fn(T) -> U + Send + Sync + 'static) -> Chain<'s, U> {
        self.then(Provider::map(f))
    }

    /// Runs a function that may fail. A failure is a disposal: the session goes on while something else can end it.
    pub fn try_map<U: Send + 'static, E: Display>(
        self,
        f: impl Fn(T) -> Result<U, E> + Send + Sync + 'static,
    ) -> Chain<'s, U> {
        self.then(Provider::try_map(f))
    }

    /// Runs a future.
    pub fn map_async<U: Send + 'static, F: Future<Output = U> + Send + 'static>(
        self,
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U> {
        self.then(Provider::future(f))
    }

    /// Runs a future that may fail.
    pub fn try_map_async<U: Send + 'static, E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        self,
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Chain<'s, U> {
        self.then(Provider::try_future(f))
    }

    /// Runs a future that also sends messages by a stream while it goes on.
    pub fn stream_async<U: Send + 'static, S: Send + 'static, F: Future<Output = U> + Send + 'static>(
        self,
        f: impl Fn(T, StreamSender<S>) -> F + Send + Sync + 'static,
    ) -> (Chain<'s, U>, Chain<'s, S>) {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("stream-task", OpKind::Task { mode: TaskMode::Async, streams: 1 }, 2);
        parts.bodies[op.at()] = ScopeBody::Async(Arc::new(move |packet, streams| {
            let future = f(value(packet), StreamSender::new(streams));
            Box::pin(async move { Ok(Emitted::One(0, Box::new(future.await) as Packet)) })
        }));
        drop(parts);
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }

    /// Opens a session of another scope for each message.
    pub fn call<U: Send + 'static>(self, scope: &Scope<T, U>) -> NestedNode<'s, U> {
        let streams = scope.light.scope().streams().to_vec();
        let mut parts = self.parts.borrow_mut();
        let count = u32::try_from(streams.len()).expect("fewer than four billion streams");
        let kind = OpKind::Task { mode: TaskMode::Flow, streams: count };
        let op = parts.add("scope", kind, 1 + streams.len());
        parts.bodies[op.at()] = ScopeBody::Flow(scope.light.clone());
        drop(parts);
        NestedNode { result: self.then_op(op), streams }
    }

    /// Asks a service, as it is instructed.
    pub fn serve<U: Send + 'static>(self, service: &Service<T, U>) -> Chain<'s, U> {
        self.then(Provider::service(service))
    }

    /// Lets messages pass for which the function gives something; others are disposed of.
    pub fn filter_map<U: Send + 'static>(self, f: impl Fn(T) -> Option<U> + Send + Sync + 'static) -> Chain<'s, U> {
        let kind = OpKind::Distribute(Distribution::Filter);
        let op = self.parts.borrow_mut().add_blocking("filter", kind, 1, move |feed, _| {
            Ok(f(value(one(feed))).map_or(Emitted::Nothing, |passed| Emitted::One(0, Box::new(passed))))
        });
        self.then_op(op)
    }

    /// Gathers messages until there are `max`, or until none can arrive any more; fewer than `min` are disposed of.
    pub fn collect(self, min: u32, max: Option<u32>) -> Chain<'s, Vec<T>> {
        let kind = OpKind::Collect { min, max };
        let op = self.parts.borrow_mut().add_blocking("collect", kind, 1, |feed, _| match feed {
            Feed::Many(held) => Ok(Emitted::One(0, Box::new(held.into_iter().map(value::<T>).collect::<Vec<T>>()))),
            _ => unreachable!("a collect was given something else than a collection"),
        });
        self.then_op(op)
    }

    /// Passes on a message without content for each message.
    pub fn trigger(self) -> Chain<'s, ()> {
        self.map(drop)
    }

    /// Stores messages in a buffer.
    pub fn store(self, buffer: BufferRef<T>) {
        self.lead_to(buffer.op);
    }

    /// Stores each message in a buffer, then goes on with a trigger.
    pub fn push(self, buffer: BufferRef<T>) -> Chain<'s, ()> {
        let kind = OpKind::Push { buffer: buffer.op };
        let op = self.parts.borrow_mut().add_blocking("push", kind, 1, |_, _| Ok(Emitted::One(0, Box::new(()))));
        self.then_op(op)
    }

    /// Adds keys to buffers to each message.
    pub fn access<B: KeySet>(self, buffers: B) -> Chain<'s, (T, B::Keys)> {
        let kind = OpKind::Access { buffers: buffers.buffers() };
        let op = self.parts.borrow_mut().add_blocking("access", kind, 1, move |feed, carrier| match feed {
            Feed::Keys(Some(packet)) => Ok(Emitted::One(0, Box::new((value::<T>(packet), buffers.keys(carrier))))),
            _ => unreachable!("an access was given something else than a message"),
        });
        self.then_op(op)
    }

    /// Opens buffers for their readers.
    pub fn open_gate<B: KeySet>(self, buffers: &B) -> Chain<'s, T> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Open };
        let op = self.parts.borrow_mut().add("open", kind, 1);
        self.then_op(op)
    }

    /// Closes buffers for their readers: they keep what they get, and show nothing.
    pub fn close_gate<B: KeySet>(self, buffers: &B) -> Chain<'s, T> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Close };
        let op = self.parts.borrow_mut().add("close", kind, 1);
        self.then_op(op)
    }

    /// Opens buffers for messages for which the function holds, and closes them for others.
    pub fn gate<B: KeySet>(self, buffers: &B, opens: impl Fn(&T) -> bool + Send + Sync + 'static) -> Chain<'s, T> {
        let kind = OpKind::Gate { buffers: buffers.buffers(), action: GateAction::Dynamic };
        let op = self.parts.borrow_mut().add_blocking("gate", kind, 1, move |feed, _| {
            let packet = one(feed);
            Ok(Emitted::One(u32::from(!opens(value_ref(&packet))), packet))
        });
        self.then_op(op)
    }

    /// Cleans a part of the scope, and goes on when that is done.
    pub fn trim(self, part: TrimPart) -> Chain<'s, T> {
        let op = self.parts.borrow_mut().add("trim", OpKind::Trim { span: part.span() }, 1);
        self.then_op(op)
    }

    /// Leads to a slot.
    pub fn connect(self, slot: Slot<'s, T>) {
        if !std::ptr::eq(self.parts, slot.parts) {
            self.parts.borrow_mut().foreign.push(ScopeFault::UnknownOperation(String::from("a slot of another scope")));
            return;
        }
        self.lead_to(slot.op);
    }

    /// Ends the session with the first message that comes here.
    pub fn terminate<I>(self, _scope: &'s ScopeBuilder<I, T>) {
        self.lead_to(TERMINATE);
    }

    /// Disposes of messages on purpose.
    pub fn dispose(self) {
        let op = self.parts.borrow_mut().add("dispose", OpKind::Dispose, 0);
        self.lead_to(op);
    }
}

impl<'s, T: Send + 'static, U: Send + 'static> Chain<'s, (T, Provider<T, U>)> {
    /// Runs the provider that each message brings along.
    pub fn inject(self) -> Chain<'s, U> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("inject", OpKind::Task { mode: TaskMode::Injected, streams: 0 }, 1);
        parts.bodies[op.at()] = ScopeBody::Injected(Arc::new(|packet| {
            let (message, provider) = value::<(T, Provider<T, U>)>(packet);
            (Box::new(message), provider.body)
        }));
        drop(parts);
        self.then_op(op)
    }
}

/// A nested scope: its result, and its streams.
#[must_use = "the result of a nested scope leads nowhere until it is connected or disposed of"]
pub struct NestedNode<'s, U> {
    /// The result.
    pub result: Chain<'s, U>,
    streams: Vec<String>,
}

impl<'s, U> NestedNode<'s, U> {
    /// A stream of the nested scope.
    pub fn stream<S: Send + 'static>(&self, tag: StreamTag<S>) -> Chain<'s, S> {
        let port = self.streams.iter().position(|name| name == tag.name);
        if port.is_none() {
            let fault = ScopeFault::UnknownStream(format!("stream {}", tag.name));
            self.result.parts.borrow_mut().foreign.push(fault);
        }
        Chain::new(self.result.parts, self.result.from, port.map_or(0, |port| port + 1))
    }
}
