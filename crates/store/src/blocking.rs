//! The one door to threads that may block in the file system.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Set when the caller of long work has stopped waiting for it.
pub(crate) type GivenUp = Arc<AtomicBool>;

/// Runs `work` as [`blocking`] does. The flag it gets is set when the caller stops waiting, so that long work can end
/// early.
pub(crate) async fn blocking_unless_given_up<T: Send + 'static>(work: impl FnOnce(GivenUp) -> T + Send + 'static) -> T {
    struct SetOnDrop(GivenUp);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let given_up = SetOnDrop(GivenUp::default());
    let flag = given_up.0.clone();
    blocking(move || work(flag)).await
}

/// Runs `work` where it may block, and answers what it did. When the caller stops waiting the work still runs to its
/// end, and what it answers is dropped there; so an answer that cleans up in its `Drop` does.
///
/// # Panics
/// When the work does.
#[expect(
    clippy::disallowed_methods,
    reason = "file work must not hold up an async thread; it takes no part in a simulation"
)]
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if tokio::runtime::Handle::try_current().is_err() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await, // The runtime is going down, and this task with it.
        },
    }
}
