//! Waiting without polling: a bell that wakes all who wait, and a mark that wakes those it has reached.
//! Both are hints plus a fact: whoever wakes looks again.

mod signal;
mod watermark;

pub(crate) use signal::Signal;
pub(crate) use watermark::Watermark;
