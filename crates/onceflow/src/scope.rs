//! Scopes: reactive regions whose operations pass messages, with buffers, cancellation and cleanup that finishes.
//!
//! ```
//! use onceflow::scope::{BufferKeep, Scope};
//! use std::sync::{Arc, Mutex};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
//! let released = Arc::new(Mutex::new(Vec::new()));
//! let release = released.clone();
//! let cleanup = Scope::build(|s| {
//!     s.start().map(move |(rooms,): (onceflow::scope::BufferKey<u32>,)| release.lock().unwrap().extend(rooms.drain())).terminate(s);
//! })?;
//!
//! // Reserves a room, then drives there unless it is too far. The room is released either way.
//! let scope = Scope::<u32, String>::build(|s| {
//!     let reserved = s.buffer::<u32>(BufferKeep::All);
//!     let [reserve, drive] = s.start().fork_clone();
//!     reserve.store(reserved);
//!     drive
//!         .try_map(|room| if room < 100 { Ok(format!("at {room}")) } else { Err("too far") })
//!         .terminate(s);
//!     s.on_cleanup("release", (reserved,), &cleanup).unlimited();
//! })?;
//!
//! assert_eq!(scope.run(7).await?, "at 7");
//! let cancelled = scope.run(700).await.unwrap_err();
//! assert_eq!(cancelled.real_cause().1, "failed: too far");
//! assert_eq!(*released.lock().unwrap(), [7, 700]);
//! # Ok(()) }
//! ```
//!
//! A wrong connection does not compile:
//!
//! ```compile_fail
//! use onceflow::scope::Scope;
//!
//! Scope::<u32, String>::build(|s| s.start().map(|n| n + 1).terminate(s));
//! ```
//!
//! | to read about | see |
//! |---|---|
//! | describing a scope | [`ScopeBuilder`], [`Chain`] |
//! | buffers and access to them | [`BufferRef`], [`BufferKey`], [`KeySet`], [`JoinSet`] |
//! | code behind operations: functions, futures, services, scopes | [`Provider`], [`Service`] |
//! | sessions from outside | [`Scope::open`], [`SessionRun`]; durable: [`Host`], [`DurableSession`] |
//!
//! [`Scope::build`] makes a scope in memory: a crash of the process ends its sessions. Inside a flow it is one step.
//! [`Scope::durable`] makes one whose sessions are rows of a store, and go on after a crash; see [`Engine::host`](crate::Engine::host).
//! Its messages are types that serde can write and read; another one does not compile:
//!
//! ```compile_fail,E0277
//! use onceflow::scope::{DurableScope, Scope};
//!
//! struct Socket(u64);
//! let scope: DurableScope<u64, u64> = Scope::durable(|s| {
//!     s.start().map(Socket).named("open").map(|socket: Socket| socket.0).named("read").terminate(s);
//! })
//! .unwrap();
//! ```

mod buffer;
mod builder;
mod chain;
mod fork;
mod host;
mod key;
mod medium;
mod provider;
mod session;

pub use buffer::{Access, BufferRef, BufferSet, ClonedBuffer, EntrySet, Handed, JoinPart, JoinSet, KeySet};
pub use builder::{CleanupLimit, DurableScope, Point, Scope, ScopeBuilder, ScopeFaults, Slot, StreamTag, TrimPart};
pub use chain::{Chain, NestedNode};
pub use host::{DurableOutcome, DurableSession, Host};
pub use key::{BufferKey, Changed};
pub use medium::{Durable, Light, Medium, Message};
pub use onceflow_core::scope::{
    BufferKeep, CancelCause, Cancellation, Disposal, DisposalCause, Mishap, OpOverview, OrderFailure, ScopeFault,
    SessionEnd, SessionPhase,
};
pub use provider::{Provider, Service, ServiceOrder, StreamSender};
pub use session::{SessionRun, StreamItems};
