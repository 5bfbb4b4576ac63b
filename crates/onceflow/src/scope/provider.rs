//! Code behind operations: functions, futures, scopes, and services that many operations share.

use super::{
    builder::Scope,
    medium::{Durable, DurableAttempt, Light, Medium, Message, inline, to_port},
};
use onceflow_core::scope::{Instruction, TaskMode};
use onceflow_engine::scope::{LightService, OpenOrder};
use std::{fmt::Display, future::Future, marker::PhantomData, sync::Arc, time::Duration};

/// Makes a `U` of a `T`, as an operation of a scope. A message may bring one along in memory ([`Chain::inject`]), or the
/// name of one ([`Chain::inject_among`]).
///
/// [`Chain::inject`]: super::Chain::inject
/// [`Chain::inject_among`]: super::Chain::inject_among
pub struct Provider<T, U, M: Medium = Light> {
    pub(super) body: M::Body,
    pub(super) mode: TaskMode,
    pub(super) word: &'static str,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U, M: Medium> Clone for Provider<T, U, M> {
    fn clone(&self) -> Self {
        Provider { body: self.body.clone(), ..*self }
    }
}

impl<T: Message<M>, U: Message<M>, M: Medium> Provider<T, U, M> {
    fn with(body: M::Body, mode: TaskMode, word: &'static str) -> Self {
        Provider { body, mode, word, types: PhantomData }
    }

    /// A function that ends at once.
    pub fn map(f: impl Fn(T) -> U + Send + Sync + 'static) -> Self {
        Self::with(inline(move |message| to_port::<_, M>(0, f(message))), TaskMode::Blocking, "map")
    }

    /// A function that may fail.
    pub fn try_map<E: Display>(f: impl Fn(T) -> Result<U, E> + Send + Sync + 'static) -> Self {
        let body = inline(move |message| match f(message) {
            Ok(result) => to_port::<_, M>(0, result),
            Err(error) => Err(error.to_string()),
        });
        Self::with(body, TaskMode::Blocking, "map")
    }

    /// A future.
    pub fn future<F: Future<Output = U> + Send + 'static>(f: impl Fn(T) -> F + Send + Sync + 'static) -> Self {
        Self::attempted(move |message, _| {
            let future = f(message);
            async move { future.await.pack() }
        })
    }

    /// A future that may fail.
    pub fn try_future<E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        f: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::attempted(move |message, _| {
            let future = f(message);
            async move { future.await.map_err(|error| error.to_string())?.pack() }
        })
    }

    fn attempted<F: Future<Output = Result<M::Packet, String>> + Send + 'static>(
        f: impl Fn(T, M::Attempt) -> F + Send + Sync + 'static,
    ) -> Self {
        let body = M::future(move |packet, attempt| {
            let future = T::unpack(packet).map(|message| f(message, attempt));
            async move { future?.await }
        });
        Self::with(body, TaskMode::Async, "task")
    }

    /// A session of a scope for each message; its streams are not connected.
    pub fn scope(scope: &Scope<T, U, M>) -> Self {
        Self::with(M::flow(scope.compiled.clone()), TaskMode::Flow, "scope")
    }

    /// A request to a service for each message. In a durable scope the request is durable, the service is not: its lanes are
    /// those of the process that runs the operation, and a request whose process dies is made again, to the service of
    /// the next one.
    pub fn service(service: &Service<T, U>) -> Self {
        Self::with(M::ask(service), TaskMode::Async, "service")
    }
}

impl<T: Message<Durable>, U: Message<Durable>> Provider<T, U, Durable> {
    /// A future that is given a key with each message: the same for every attempt, and for no other message.
    pub fn keyed<F: Future<Output = U> + Send + 'static>(f: impl Fn(String, T) -> F + Send + Sync + 'static) -> Self {
        Self::attempted(move |message, attempt: DurableAttempt| {
            let future = f(attempt.key.to_string(), message);
            async move { Message::<Durable>::pack(future.await) }
        })
    }

    /// A future that may fail, with a key as [`Provider::keyed`].
    pub fn try_keyed<E: Display, F: Future<Output = Result<U, E>> + Send + 'static>(
        f: impl Fn(String, T) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::attempted(move |message, attempt: DurableAttempt| {
            let future = f(attempt.key.to_string(), message);
            async move { Message::<Durable>::pack(future.await.map_err(|error| error.to_string())?) }
        })
    }
}

/// A service that many operations ask, in many sessions and scopes. Clones are the same service.
pub struct Service<T, U> {
    pub(super) service: Arc<LightService>,
    pub(super) instruction: Instruction,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U> Clone for Service<T, U> {
    fn clone(&self) -> Self {
        Service { service: self.service.clone(), instruction: self.instruction.clone(), types: PhantomData }
    }
}

impl<T: Send + 'static, U: Send + 'static> Service<T, U> {
    fn of(service: Arc<LightService>) -> Self {
        Service { service, instruction: Instruction::default(), types: PhantomData }
    }

    /// Serves all requests at once, except those with one [label](Service::label).
    pub fn parallel(provider: Provider<T, U>) -> Self {
        Self::of(LightService::new(provider.body, false))
    }

    /// Serves one request at a time, over all sessions. The next one begins when the cleanup of the one before has
    /// ended.
    pub fn serial(provider: Provider<T, U>) -> Self {
        Self::of(LightService::new(provider.body, true))
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
        Self::of(LightService::continuous(tick, every_ms, false))
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
        let request = (**self.order.request()).downcast_ref();
        request.expect("a service gets requests of its type")
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
pub struct StreamSender<S, M: Medium = Light> {
    attempt: M::Attempt,
    types: PhantomData<fn(S)>,
}

impl<S: Message<M>, M: Medium> StreamSender<S, M> {
    pub(super) fn new(attempt: M::Attempt) -> Self {
        StreamSender { attempt, types: PhantomData }
    }

    /// Sends a message. Messages leave in order, and before the result.
    ///
    /// # Panics
    /// If serde cannot write a message of a durable scope; the operation fails.
    pub fn send(&self, message: S) {
        M::send(&self.attempt, message.pack().unwrap_or_else(|why| panic!("{why}")));
    }
}

impl<S, M: Medium> Clone for StreamSender<S, M> {
    fn clone(&self) -> Self {
        StreamSender { attempt: self.attempt.clone(), types: PhantomData }
    }
}
