//! The code behind the operations of a light scope. Messages are boxed values; the typed front end makes the bodies,
//! and so guarantees that each gets the type it expects.

use super::{
    carry::panic_words,
    cell::{Outlet, SessionCell, SessionHandle, SessionOutlet},
    keys::ErasedKey,
    service::LightService,
};
use onceflow_core::scope::{Contents, Emitted, Feed, Instruction, OpId, OrderId, Scope, ScopeEvent};
use onceflow_store::{BoxFuture, World};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A message of a light scope.
pub type Packet = Box<dyn Any + Send>;

/// Code that runs to its end at once.
pub type BlockingBody = dyn Fn(Feed<Packet>, &Carrier<'_>) -> Result<Emitted<Packet>, String> + Send + Sync;

/// Code that makes a future.
pub type AsyncBody = dyn Fn(Packet, OrderStreams) -> BoxFuture<'static, Result<Emitted<Packet>, String>> + Send + Sync;

/// The code of one operation.
#[derive(Clone)]
pub enum ScopeBody {
    /// The machine needs none.
    None,
    /// Runs on the thread that drives the session, before the next event.
    Blocking(Arc<BlockingBody>),
    /// Runs as a future.
    Async(Arc<AsyncBody>),
    /// Opens a nested session; stream `i` of the scope leaves by port `i + 1`.
    Flow(Arc<LightScope>),
    /// Asks a service, which others ask too.
    Service(Arc<LightService>, Instruction),
    /// The message brings its body along.
    Injected(Arc<dyn Fn(Packet) -> (Packet, ScopeBody) + Send + Sync>),
}

/// A cleanup flow.
pub struct CleanupBody {
    /// The scope that is opened.
    pub scope: Arc<LightScope>,
    /// Makes its first message, which holds keys.
    pub first: Arc<dyn Fn(&Carrier<'_>) -> Packet + Send + Sync>,
}

/// Copies a message.
pub type CopyBody = Arc<dyn Fn(&Packet) -> Packet + Send + Sync>;
/// Says a message in words.
pub type DescribeBody = Arc<dyn Fn(&Packet) -> Option<String> + Send + Sync>;

/// A checked scope with its code.
pub struct LightScope {
    pub(super) scope: Scope,
    pub(super) bodies: Vec<ScopeBody>,
    copies: Vec<Option<CopyBody>>,
    describes: Vec<Option<DescribeBody>>,
    pub(super) cleanups: Vec<CleanupBody>,
}

impl LightScope {
    /// A scope with a body, and a way to copy and describe messages, for every operation that needs them.
    ///
    /// # Panics
    /// When the lists are not as long as the scope has operations, or cleanup flows.
    pub fn new(
        scope: Scope,
        bodies: Vec<ScopeBody>,
        copies: Vec<Option<CopyBody>>,
        describes: Vec<Option<DescribeBody>>,
        cleanups: Vec<CleanupBody>,
    ) -> Arc<Self> {
        let count = scope.operations().len();
        let is_complete = [bodies.len(), copies.len(), describes.len()].iter().all(|length| *length == count);
        assert!(is_complete, "a scope of {count} operations has bodies for more or fewer");
        assert_eq!(scope.cleanups().len(), cleanups.len(), "every cleanup flow has a body");
        Arc::new(LightScope { scope, bodies, copies, describes, cleanups })
    }

    /// The checked scope.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Opens a session; its streams and its end go to `outlet`. The session runs as far as it can before this returns.
    pub fn open(
        self: &Arc<Self>,
        world: &Arc<dyn World>,
        first: Packet,
        outlet: Arc<dyn SessionOutlet>,
    ) -> SessionHandle {
        let cell = SessionCell::new(self.clone(), world.clone(), Outlet::Caller(outlet));
        cell.feed(ScopeEvent::Start(first));
        SessionHandle(cell)
    }
}

/// Stands for a message whose copying panicked, with the words of the panic. The operation that gets it fails.
#[derive(Debug)]
pub struct BrokenCopy(pub String);

impl Contents<Packet> for LightScope {
    fn duplicate(&self, op: OpId, message: &Packet) -> Packet {
        let copy = self.copies[op.at()].as_ref().expect("the builder gives a copy to every operation that needs one");
        catch_unwind(AssertUnwindSafe(|| copy(message)))
            .unwrap_or_else(|panic| Box::new(BrokenCopy(panic_words(&*panic))))
    }

    fn describe(&self, op: OpId, message: &Packet) -> Option<String> {
        let describe = self.describes[op.at()].as_ref()?;
        let described = catch_unwind(AssertUnwindSafe(|| describe(message)));
        described.unwrap_or_else(|panic| Some(format!("its reason panicked: {}", panic_words(&*panic))))
    }
}

/// The order that a blocking body works for.
pub struct Carrier<'a> {
    pub(super) cell: &'a Arc<SessionCell>,
    pub(super) op: Option<OpId>,
}

impl Carrier<'_> {
    /// A key to a buffer of the session.
    pub fn key(&self, buffer: OpId) -> ErasedKey {
        ErasedKey::new(self.cell.clone(), buffer, self.op)
    }
}

/// The streams of an order that is under way.
#[derive(Clone)]
pub struct OrderStreams {
    pub(super) cell: Arc<SessionCell>,
    pub(super) order: OrderId,
}

impl OrderStreams {
    /// Sends a message by a stream port; streams begin at 1. Messages leave in the order they are sent, and before the
    /// result.
    pub fn send(&self, port: u32, message: Packet) {
        self.cell.feed(ScopeEvent::Streamed { order: self.order, port, message });
    }
}
