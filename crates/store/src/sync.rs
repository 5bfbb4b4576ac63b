//! The locks this crate uses: the standard library's, or shuttle's when its scheduler is to decide every
//! interleaving. A lock is held for a few map operations, never across an await or a system call.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Takes a lock. A panic while it was held is a bug that may have left rows half changed, so it spreads.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked while it held the store's lock")
}
