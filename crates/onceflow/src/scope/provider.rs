//! Code behind operations: functions, futures, scopes, and services that many operations share.

use super::builder::{Scope, one, value, value_ref};
use onceflow_core::scope::{Emitted, Instruction, TaskMode};
use onceflow_engine::scope::{LightService, OpenOrder, OrderStreams, Packet, ScopeBody};
use std::{fmt::Display, future::Future, marker::PhantomData, sync::Arc, time::Duration};

/// Makes a `U` of a `T`, as an operation of a scope. A message may bring one along; see [`Chain::inject`].
///
/// [`Chain::inject`]: super::Chain::inject
pub struct Provider<T, U> {
    pub(super) body: ScopeBody,
    pub(super) mode: TaskMode,
    pub(super) word: &'static str,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U> Clone for Provider<T, U> {
    fn clone(&self) -> Self {
        Provider { body: self.body.clone(), ..*self }
    }
}

impl<T: Send + 'static, U: Send + 'static> Provider<T, U> {
    fn with(body: ScopeBody, mode: TaskMode, word: &'static str) -> Self {
        Provider { body, mode, word, types: PhantomData }
    }

    /// A function that ends at once.
    pub fn map(f: impl Fn(T) -> U + Send + Sync + 'static) -> Self {
        let body = ScopeBody::Blocking(Arc::new(move |feed, _| Ok(Emitted::One(0, Box::new(f(value(one(feed))))))));
        Self::with(body, TaskMode::Blocking, "map")
    }

    /// A function that may fail.
    pub fn try_map<E: Display>(f: impl Fn(T) -> Result<U, E> + Send + Sync + 'static) -> Self {
        let body = ScopeBody::Blocking(Arc::new(move |feed, _| match f(value(one(feed))) {
            Ok(result) => Ok(Emitted::One(0, Box::new(result))),
            Err(error) => Err(error.to_string()),
        }));
        Self::with(body, TaskMode::Blocking, "map")
    }

    /// A future.
    pub fn future<F: Future<Output = U> + Send + 'static>(f: impl Fn(T) -> F + Send + Sync + 'static) -> Self {
        let body = ScopeBody::Async(Arc::new(move |packet, _| {
            let future = f(value(packet));
            Box::pin(async move { Ok(Emitted::One(0, Box::new(future.await) as Packet)) })
        }));
        Self::with(body, TaskMode::Async, "task")
    }

    /// A future that may fail.
    pub fn try_future<E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Self {
        let body = ScopeBody::Async(Arc::new(move |packet, _| {
            let future = f(value(packet));
            Box::pin(async move {
                match future.await {
                    Ok(result) => Ok(Emitted::One(0, Box::new(result) as Packet)),
                    Err(error) => Err(error.to_string()),
                }
            })
        }));
        Self::with(body, TaskMode::Async, "task")
    }

    /// A session of a scope for each message; its streams are not connected.
    pub fn scope(scope: &Scope<T, U>) -> Self {
        Self::with(ScopeBody::Flow(scope.light.clone()), TaskMode::Flow, "scope")
    }

    /// A request to a service for each message.
    pub fn service(service: &Service<T, U>) -> Self {
        let body = ScopeBody::Service(service.service.clone(), service.instruction.clone());
        Self::with(body, TaskMode::Async, "service")
    }
}

/// A service that many operations ask, in many sessions and scopes. Clones are the same service.
pub struct Service<T, U> {
    service: Arc<LightService>,
    instruction: Instruction,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U> Clone for Service<T, U> {
    fn clone(&self) -> Self {
        Service { service: self.service.clone(), instruction: self.instruction.clone(), types: PhantomData }
    }
}

impl<T: Send + 'static, U: Send + 'static> Service<T, U> {
    fn with(service: Arc<LightService>) -> Self {
        Service { service, instruction: Instruction::default(), types: PhantomData }
    }

    /// Serves all requests at once, except those with one [label](Service::label).
    pub fn parallel(provider: Provider<T, U>) -> Self {
        Self::with(LightService::new(provider.body, false))
    }

    /// Serves one request at a time, over all sessions. The next one begins when the cleanup of the one before has
    /// ended.
    pub fn serial(provider: Provider<T, U>) -> Self {
        Self::with(LightService::new(provider.body, true))
    }

    /// A service that sees its open orders whenever one arrives, and then as often as `every` says, and answers them
    /// when it likes.
    pub fn continuous(
        mut tick: impl FnMut(&mut [ServiceOrder<'_, T, U>]) + Send + 'static,
        every: Option<Duration>,
    ) -> Self {
        let every_ms = every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1));
        let tick = move |orders: &mut onceflow_engine::scope::OpenOrders| {
            let mut orders: Vec<_> =
                orders.iter_mut().map(|order| ServiceOrder { order, types: PhantomData }).collect();
            tick(&mut orders);
        };
        Self::with(LightService::continuous(tick, every_ms, false))
    }

    /// The same service, for requests with a label: those are served one at a time.
    pub fn label(&self, label: &str) -> Self {
        let mut labelled = self.clone();
        labelled.instruction.label = Some(label.into());
        labelled
    }

    /// The same service, for requests that discard those that wait in their lane and stop the one that runs.
    pub fn preempt(&self) -> Self {
        let mut preempting = self.clone();
        preempting.instruction.preempt = true;
        preempting
    }

    /// The same service, for requests that are not preempted.
    pub fn ensure(&self) -> Self {
        let mut ensured = self.clone();
        ensured.instruction.ensure = true;
        ensured
    }
}

/// An open order of a continuous service.
pub struct ServiceOrder<'a, T, U> {
    order: &'a mut OpenOrder,
    types: PhantomData<fn(T) -> U>,
}

impl<T: Send + 'static, U: Send + 'static> ServiceOrder<'_, T, U> {
    /// The request.
    pub fn request(&self) -> &T {
        value_ref(self.order.request())
    }

    /// Answers the order. The first answer counts.
    pub fn answer(&mut self, result: U) {
        self.order.answer(Ok(Box::new(result)));
    }

    /// Ends the order without a result.
    pub fn fail(&mut self, why: &str) {
        self.order.answer(Err(why.into()));
    }
}

/// Sends messages by the stream of a task that goes on.
pub struct StreamSender<S> {
    streams: OrderStreams,
    types: PhantomData<fn(S)>,
}

impl<S: Send + 'static> StreamSender<S> {
    pub(super) fn new(streams: OrderStreams) -> Self {
        StreamSender { streams, types: PhantomData }
    }

    /// Sends a message. Messages leave in order, and before the result.
    pub fn send(&self, message: S) {
        self.streams.send(1, Box::new(message));
    }
}

impl<S> Clone for StreamSender<S> {
    fn clone(&self) -> Self {
        StreamSender { streams: self.streams.clone(), types: PhantomData }
    }
}
