//! Waiting without polling: a bell that wakes all who wait, and a mark that wakes those it has reached.
//! Both are hints plus a fact: whoever wakes looks again.

mod bell;
mod mark;

pub(crate) use bell::Bell;
pub(crate) use mark::Mark;
