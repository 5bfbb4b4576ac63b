//! The two media of a scope: its messages are values in memory, or rows of a store. One builder describes both; a medium
//! says how a value becomes a message, and how code becomes the body of an operation.

use super::{buffer::Access, builder::Scope, provider::Service};
use onceflow_core::scope::{self as core, Emitted, Feed, OpId};
use onceflow_engine::scope as engine;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::Display,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

pub(super) mod sealed {
    pub trait Sealed {}
}

/// In memory: a crash of the process ends the session. Any `Send` type is a message.
#[derive(Clone, Copy, Debug)]
pub struct Light;

/// In a store: every message, buffer entry and order is a row, and a crash resumes the session. Types that serde can write
/// and read are messages.
#[derive(Clone, Copy, Debug)]
pub struct Durable;

impl sealed::Sealed for Light {}
impl sealed::Sealed for Durable {}

/// Where the messages and sessions of a scope are: [`Light`] or [`Durable`].
#[doc(hidden)]
pub trait Medium: sealed::Sealed + Sized + 'static {
    /// A message of any type.
    type Packet: Send + 'static;
    /// The code of one operation.
    type Body: Clone + Send + Sync + 'static;
    /// A way to copy a message.
    type Copy;
    /// The code of a cleanup flow.
    type Cleanup;
    /// A checked scope with its code.
    type Compiled: Clone + Send + Sync + 'static;
    /// One execution of a future: its streams.
    type Attempt: Clone + Send + Sync + 'static;
    /// Operations that hold something, or run code, need a name given by the program.
    const NEEDS_NAMES: bool;

    /// No code.
    fn nothing() -> Self::Body;

    /// Code that ends at once.
    fn inline(
        body: impl Fn(Feed<Self::Packet>, &dyn Buffers<Self>) -> Result<Emitted<Self::Packet>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self::Body;

    /// Code that makes a future.
    fn future<F: Future<Output = Result<Self::Packet, String>> + Send + 'static>(
        start: impl Fn(Self::Packet, Self::Attempt) -> F + Send + Sync + 'static,
    ) -> Self::Body;

    /// A request to a service.
    fn ask<T: Message<Self>, U: Message<Self>>(service: &Service<T, U>) -> Self::Body;

    /// A session of another scope.
    fn flow(scope: Self::Compiled) -> Self::Body;

    /// Sends a message by the stream of a future.
    fn send(attempt: &Self::Attempt, message: Self::Packet);

    /// Copies messages of this type.
    fn copy<T: Message<Self> + Clone>() -> Option<Self::Copy>;

    /// A checked scope with its code.
    fn compile(scope: core::Scope, code: Code<Self>) -> Self::Compiled;

    /// The checked scope.
    fn scope(compiled: &Self::Compiled) -> &core::Scope;
}

/// Says a message in words.
pub(super) type Describe<M> = Arc<dyn Fn(&<M as Medium>::Packet) -> Option<String> + Send + Sync>;

/// The code of a scope, by operation and by cleanup flow.
#[doc(hidden)]
pub struct Code<M: Medium> {
    pub(super) bodies: Vec<M::Body>,
    pub(super) copies: Vec<Option<M::Copy>>,
    pub(super) describes: Vec<Option<Describe<M>>>,
    pub(super) cleanups: Vec<M::Cleanup>,
}

impl<M: Medium> Default for Code<M> {
    fn default() -> Self {
        Code { bodies: Vec::new(), copies: Vec::new(), describes: Vec::new(), cleanups: Vec::new() }
    }
}

/// The buffers of a session, for code that ends at once.
#[doc(hidden)]
pub trait Buffers<M: Medium> {
    /// Holds keys to these buffers while code runs: the session notices when they are gone.
    fn hold(&self, buffers: &[OpId]) -> Vec<engine::ErasedKey>;
    fn read(&self, buffer: OpId, read: &mut dyn FnMut(&M::Packet));
    fn pull(&self, buffer: OpId, is_newest: bool) -> Option<M::Packet>;
    fn push(&self, buffer: OpId, message: M::Packet);
}

/// A type whose values are messages of a scope of this medium: all that are `Send` for [`Light`], all that serde can write
/// and read for [`Durable`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a message of a scope of medium `{M}`",
    label = "not a message here",
    note = "messages of a durable scope are stored: give the type `#[derive(serde::Serialize, serde::Deserialize)]`"
)]
pub trait Message<M: Medium>: Send + Sized + 'static {
    /// The value as a message.
    #[doc(hidden)]
    fn pack(self) -> Result<M::Packet, String>;

    /// The value of a message.
    #[doc(hidden)]
    fn unpack(packet: M::Packet) -> Result<Self, String>;

    /// Looks at the value of a message.
    #[doc(hidden)]
    fn look<R>(packet: &M::Packet, look: impl FnOnce(&Self) -> R) -> Result<R, String>;
}

/// What a message says in words.
pub(super) fn describing<T: Message<M> + Display, M: Medium>() -> Describe<M> {
    Arc::new(|packet| Some(T::look(packet, T::to_string).unwrap_or_else(|error| error)))
}

impl<T: Send + 'static> Message<Light> for T {
    fn pack(self) -> Result<engine::Packet, String> {
        Ok(Box::new(self))
    }

    fn unpack(packet: engine::Packet) -> Result<Self, String> {
        Ok(value(packet))
    }

    fn look<R>(packet: &engine::Packet, look: impl FnOnce(&Self) -> R) -> Result<R, String> {
        let value = (**packet).downcast_ref::<T>();
        Ok(look(value.unwrap_or_else(|| panic!("{}", mismatch::<T>(packet)))))
    }
}

/// The value of a packet.
///
/// # Panics
/// When its copying panicked. Another type is ruled out by the builder.
fn value<T: 'static>(packet: engine::Packet) -> T {
    *packet.downcast::<T>().unwrap_or_else(|packet| panic!("{}", mismatch::<T>(&packet)))
}

/// Says why a packet has no value of the type it should have.
pub(super) fn mismatch<T>(packet: &engine::Packet) -> String {
    match (**packet).downcast_ref::<engine::BrokenCopy>() {
        Some(engine::BrokenCopy(why)) => format!("copying the message panicked: {why}"),
        None => format!("a message is not a {}", std::any::type_name::<T>()),
    }
}

impl Buffers<Light> for engine::Carrier<'_> {
    fn hold(&self, buffers: &[OpId]) -> Vec<engine::ErasedKey> {
        buffers.iter().map(|buffer| self.key(*buffer)).collect()
    }

    fn read(&self, buffer: OpId, read: &mut dyn FnMut(&engine::Packet)) {
        self.key(buffer).read(read);
    }

    fn pull(&self, buffer: OpId, is_newest: bool) -> Option<engine::Packet> {
        self.key(buffer).pull(is_newest)
    }

    fn push(&self, buffer: OpId, message: engine::Packet) {
        // It is refused only when the session is done, and none of its code runs then.
        let _refused = self.key(buffer).push(message);
    }
}

impl Medium for Light {
    type Packet = engine::Packet;
    type Body = engine::ScopeBody;
    type Copy = engine::CopyBody;
    type Cleanup = engine::CleanupBody;
    type Compiled = Arc<engine::LightScope>;
    type Attempt = engine::OrderStreams;
    const NEEDS_NAMES: bool = false;

    fn nothing() -> Self::Body {
        engine::ScopeBody::None
    }

    fn inline(
        body: impl Fn(Feed<Self::Packet>, &dyn Buffers<Self>) -> Result<Emitted<Self::Packet>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self::Body {
        engine::ScopeBody::Blocking(Arc::new(move |feed, carrier| body(feed, carrier)))
    }

    fn future<F: Future<Output = Result<Self::Packet, String>> + Send + 'static>(
        start: impl Fn(Self::Packet, Self::Attempt) -> F + Send + Sync + 'static,
    ) -> Self::Body {
        engine::ScopeBody::Async(Arc::new(move |packet, streams| {
            let future = start(packet, streams);
            Box::pin(async move { future.await.map(|result| Emitted::One(0, result)) })
        }))
    }

    fn ask<T: Message<Self>, U: Message<Self>>(service: &Service<T, U>) -> Self::Body {
        engine::ScopeBody::Service(service.service.clone(), service.instruction.clone())
    }

    fn flow(scope: Self::Compiled) -> Self::Body {
        engine::ScopeBody::Flow(scope)
    }

    fn send(attempt: &Self::Attempt, message: Self::Packet) {
        attempt.send(1, message);
    }

    fn copy<T: Message<Self> + Clone>() -> Option<Self::Copy> {
        Some(Arc::new(|packet| {
            let copied = T::look(packet, |value| value.clone().pack());
            copied.and_then(|copy| copy).unwrap_or_else(|why| Box::new(engine::BrokenCopy(why)))
        }))
    }

    fn compile(scope: core::Scope, code: Code<Self>) -> Self::Compiled {
        engine::LightScope::new(scope, code.bodies, code.copies, code.describes, code.cleanups)
    }

    fn scope(compiled: &Self::Compiled) -> &core::Scope {
        compiled.scope()
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Message<Durable> for T {
    fn pack(self) -> Result<onceflow_core::Row, String> {
        let written = rmp_serde::to_vec_named(&self);
        let error = |error| format!("a message of type {} cannot be written: {error}", std::any::type_name::<T>());
        written.map(onceflow_core::Row::new).map_err(error)
    }

    fn unpack(packet: onceflow_core::Row) -> Result<Self, String> {
        read(&packet)
    }

    fn look<R>(packet: &onceflow_core::Row, look: impl FnOnce(&Self) -> R) -> Result<R, String> {
        read(packet).map(|value| look(&value))
    }
}

fn read<T: DeserializeOwned>(row: &onceflow_core::Row) -> Result<T, String> {
    let error = |error| format!("a stored message is no {}: {error}", std::any::type_name::<T>());
    rmp_serde::from_slice(row).map_err(error)
}

/// One execution of a durable future. Its streams are sent when it has ended, with its result: once, or not at all.
#[doc(hidden)]
#[derive(Clone)]
pub struct DurableAttempt {
    pub(super) key: Arc<str>,
    sent: Arc<Mutex<Vec<onceflow_core::Row>>>,
}

/// The turn of a session in which inline code runs.
struct InTurn<'a, 'b>(Mutex<&'a mut engine::BufferAccess<'b>>);

impl<'a, 'b> InTurn<'a, 'b> {
    fn with<R>(&self, act: impl FnOnce(&mut engine::BufferAccess<'b>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Buffers<Durable> for InTurn<'_, '_> {
    /// The driver says itself that the keys of a turn are gone.
    fn hold(&self, _: &[OpId]) -> Vec<engine::ErasedKey> {
        Vec::new()
    }

    fn read(&self, buffer: OpId, read: &mut dyn FnMut(&onceflow_core::Row)) {
        self.with(|access| access.entries(buffer)).iter().for_each(read);
    }

    fn pull(&self, buffer: OpId, is_newest: bool) -> Option<onceflow_core::Row> {
        self.with(|access| access.pull(buffer, is_newest))
    }

    fn push(&self, buffer: OpId, message: onceflow_core::Row) {
        self.with(|access| access.push(buffer, message));
    }
}

impl Medium for Durable {
    type Packet = onceflow_core::Row;
    type Body = engine::DurableBody;
    type Copy = ();
    type Cleanup = engine::DurableCleanup;
    type Compiled = Arc<engine::DurableScope>;
    type Attempt = DurableAttempt;
    const NEEDS_NAMES: bool = true;

    fn nothing() -> Self::Body {
        engine::DurableBody::None
    }

    fn inline(
        body: impl Fn(Feed<Self::Packet>, &dyn Buffers<Self>) -> Result<Emitted<Self::Packet>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self::Body {
        engine::DurableBody::Inline(Arc::new(move |feed, access| body(feed, &InTurn(Mutex::new(access)))))
    }

    fn future<F: Future<Output = Result<Self::Packet, String>> + Send + 'static>(
        start: impl Fn(Self::Packet, Self::Attempt) -> F + Send + Sync + 'static,
    ) -> Self::Body {
        engine::DurableBody::Activity(Arc::new(move |activity| {
            let Feed::One(message) = activity.feed else {
                unreachable!("an operation that takes messages was given something else")
            };
            let attempt = DurableAttempt { key: activity.key.into(), sent: Arc::default() };
            let (sent, future) = (attempt.sent.clone(), start(message, attempt));
            Box::pin(async move {
                let result = future.await?;
                let sent = std::mem::take(&mut *sent.lock().unwrap_or_else(PoisonError::into_inner));
                if sent.is_empty() {
                    return Ok(Emitted::One(0, result));
                }
                let streamed = sent.into_iter().map(|message| (1, message));
                Ok(Emitted::Many(streamed.chain([(0, result)]).collect()))
            })
        }))
    }

    /// The session in memory that asks the service withdraws the request when it is dropped.
    fn ask<T: Message<Self>, U: Message<Self>>(service: &Service<T, U>) -> Self::Body {
        let asks = Scope::<T, U>::build(|s| s.start().serve(service).named("service").terminate(s));
        let asks = asks.expect("a scope of one operation has no faults");
        Self::future(move |packet, _| {
            let asked = T::unpack(packet).map(|message| asks.start(message));
            async move { asked?.await.map_err(|cancelled| cancelled.real_cause().1)?.pack() }
        })
    }

    fn flow(scope: Self::Compiled) -> Self::Body {
        engine::DurableBody::Flow(scope)
    }

    fn send(attempt: &Self::Attempt, message: Self::Packet) {
        attempt.sent.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }

    /// A row is copied as it is.
    fn copy<T: Message<Self> + Clone>() -> Option<Self::Copy> {
        None
    }

    fn compile(scope: core::Scope, code: Code<Self>) -> Self::Compiled {
        let describes = code.describes;
        let describe = move |op: OpId, row: &onceflow_core::Row| describes[op.at()].as_ref()?(row);
        engine::DurableScope::new(scope, code.bodies, code.cleanups, Arc::new(describe))
    }

    fn scope(compiled: &Self::Compiled) -> &core::Scope {
        compiled.scope()
    }
}

/// Makes inline code of a function of one message.
pub(super) fn inline<T: Message<M>, M: Medium>(
    body: impl Fn(T) -> Result<Emitted<M::Packet>, String> + Send + Sync + 'static,
) -> M::Body {
    M::inline(move |feed, _| body(T::unpack(one(feed))?))
}

/// Makes inline code of a function of one message that uses buffers.
pub(super) fn accessing<T: Message<M>, U: Message<M>, M: Medium>(
    buffers: Vec<OpId>,
    body: impl Fn(Option<T>, &Access<'_, M>) -> U + Send + Sync + 'static,
) -> M::Body {
    M::inline(move |feed, session| {
        let _until_the_code_has_run = session.hold(&buffers);
        let message = match feed {
            Feed::Keys(message) => message.map(T::unpack).transpose()?,
            _ => unreachable!("an operation that reads buffers was given something else"),
        };
        to_port(0, body(message, &Access::new(session, &buffers)))
    })
}

/// A message by a port.
pub(super) fn to_port<T: Message<M>, M: Medium>(port: u32, message: T) -> Result<Emitted<M::Packet>, String> {
    Ok(Emitted::One(port, message.pack()?))
}

/// The message of an order that takes one.
pub(super) fn one<P>(feed: Feed<P>) -> P {
    match feed {
        Feed::One(packet) => packet,
        _ => unreachable!("an operation that takes messages was given something else"),
    }
}
