//! Time, chance and tasks, passed in. Nothing in this crate asks the operating system for any of them, so a
//! simulator can run the same code from a seed.

use onceflow_core::Timestamp;
use std::{future::Future, pin::Pin, sync::Arc};

/// A future behind a pointer, as ports return them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The environment of a store: clock, randomness, waiting, and somewhere to run.
pub trait World: Send + Sync + 'static {
    /// The wall clock. It may jump either way; a store's clock does not (see [`Records::now`](crate::Records::now)).
    fn clock(&self) -> Timestamp;

    /// How long this machine has been up, by a clock that only runs forward and does not stand still while it sleeps; `None` if
    /// that is not known. A world of tests that does not say otherwise has a wall clock that is never wrong.
    fn uptime(&self) -> Option<Uptime> {
        Some(Uptime { boot: 0, ms: self.clock().as_ms() })
    }

    /// 128 random bits.
    fn random(&self) -> u128;

    /// Ends after `ms` milliseconds. Dropping the future ends the wait.
    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()>;

    /// Runs a task beside everything else.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);

    /// Runs a task that may block its thread in the file system: it gets a thread of its own.
    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>);

    /// The same world on a thread that user code never runs on: for heartbeats, and for the connections they go over. `None`
    /// where all tasks take turns anyway, as in a simulator.
    fn service(&self) -> Option<Arc<dyn World>> {
        None
    }
}

/// How long a machine has been up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uptime {
    /// Different after every start of a machine.
    pub boot: u128,
    /// For so long.
    pub ms: u64,
}

/// The boot id, as Linux reports it in `/proc`: read once, because a process does not outlive it.
fn boot() -> Option<u128> {
    static BOOT: std::sync::OnceLock<Option<u128>> = std::sync::OnceLock::new();
    *BOOT.get_or_init(|| {
        let said = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let id: String = said.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&id, 16).ok()
    })
}

/// Boot id and uptime, as Linux reports them in `/proc`.
fn uptime() -> Option<Uptime> {
    let boot = boot()?;
    let said = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = said.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = hundredths.get(..2)?.parse().ok()?;
    Some(Uptime { boot, ms: seconds.parse::<u64>().ok()? * 1000 + hundredths * 10 })
}

/// The world for tasks that must go on while user code blocks the threads it runs on.
pub fn service(world: &Arc<dyn World>) -> Arc<dyn World> {
    world.service().unwrap_or_else(|| world.clone())
}

/// Runs `future` on the service thread of a world, and returns its result: sockets and connections that it opens are
/// served by that thread from then on. When the caller stops waiting it still runs to its end, and its result is
/// dropped there.
///
/// # Panics
/// When the future does.
pub async fn in_service<T: Send + 'static>(
    world: &dyn World,
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let Some(service) = world.service() else { return future.await };
    let (tell, told) = tokio::sync::oneshot::channel();
    service.spawn(name, Box::pin(async move { drop(tell.send(future.await)) }));
    told.await.unwrap_or_else(|_| panic!("the task `{name}` panicked"))
}

/// The real world: tasks run on the tokio runtime it is made in; timers, and the tasks of its [service](World::service), on
/// one thread of the process that outlives every runtime.
#[derive(Clone, Debug)]
pub struct RealWorld {
    runtime: tokio::runtime::Handle,
}

/// The runtime of the service thread, started when it is first needed.
fn service_runtime() -> &'static tokio::runtime::Handle {
    static SERVICE: std::sync::OnceLock<tokio::runtime::Handle> = std::sync::OnceLock::new();
    SERVICE.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("cannot create the store's async runtime: {error}"));
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        let thread = std::thread::Builder::new().name(String::from("onceflow-service")).spawn(run);
        thread.unwrap_or_else(|error| panic!("cannot start the store's service thread: {error}"));
        handle
    })
}

impl RealWorld {
    /// The world of the tokio runtime this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn here() -> Arc<Self> {
        Arc::new(RealWorld { runtime: tokio::runtime::Handle::current() })
    }
}

impl World for RealWorld {
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    fn clock(&self) -> Timestamp {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
    }

    fn uptime(&self) -> Option<Uptime> {
        uptime()
    }

    fn random(&self) -> u128 {
        // The hasher's keys are the standard library's only source of the system's randomness: 64 bits a piece.
        use std::hash::{BuildHasher, RandomState};
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        (half() << 64) | half()
    }

    // On the service thread's timer: it goes on when user code blocks this world's runtime, and when that has ended.
    #[expect(clippy::disallowed_methods, reason = "this is the real wait")]
    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        let _inside = service_runtime().enter();
        Box::pin(tokio::time::sleep(std::time::Duration::from_millis(ms)))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        tracing::trace!(name, "spawn");
        self.runtime.spawn(task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let runtime = self.runtime.clone();
        let run = move || {
            let _inside = runtime.enter();
            block_on(task);
        };
        std::thread::Builder::new().name(name.into()).spawn(run).expect("the system refuses another thread");
    }

    fn service(&self) -> Option<Arc<dyn World>> {
        Some(Arc::new(RealWorld { runtime: service_runtime().clone() }))
    }
}

/// Yields once. A store in memory never makes a caller wait, so a caller that asks it in a loop would keep its thread.
pub async fn yield_now() {
    let mut gave_way = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Runs a task to its end on this thread, which sleeps whenever the task waits.
pub(crate) fn block_on(mut task: BoxFuture<'static, ()>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    while task.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_that_says_so_is_up_for_longer_each_time() {
        let world = RealWorld::here();
        let (Some(one), Some(two)) = (world.uptime(), world.uptime()) else { return };
        assert!(one.boot == two.boot && one.boot != 0 && 0 < one.ms && one.ms <= two.ms, "{one:?} {two:?}");
    }
}
