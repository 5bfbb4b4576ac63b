//! Waiting without polling: a signal that wakes all waiters, and a watermark that wakes those it has reached. Both are
//! hints plus a fact: a waiter that wakes looks again.

mod signal;
mod watermark;

pub(crate) use signal::Signal;
pub(crate) use watermark::Watermark;
