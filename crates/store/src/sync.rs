//! The locks of this crate, and the number that is read without one. A lock is held for a few map operations, never across
//! an await or a system call; but for that of the log, which only those take that write it. `interleavings.rs` replaces this module by shuttle's, so that its scheduler decides every
//! interleaving.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

/// Takes a lock. A thread that panicked while it held the lock may have left rows half changed, so the panic spreads.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked while it held the store's lock")
}
