//! What a commit, an arrival, an opening and an ending do: facts in, a batch out. Written once, for every store.
//!
//! **A ready row is the only permission to run.** It is deleted by the batch that commits what the step gave, and that
//! batch also brings the results to everyone who waits for them and makes ready who has all it needs. There is no
//! moment in between, so nothing runs twice after it took effect, and nothing is forgotten.
//!
//! **Whoever waits for a value holds it.** A delivery is a copy of what is small, and an edge to what is large, in the
//! consumer's own inbox; committing consumes it. So nobody has to tell a producer that it was read, and what is held is
//! exactly what the steps that are not done yet will read.
//!
//! | module | what it owns |
//! |---|---|
//! | [`ids`] | what runs, frames and steps are called |
//! | [`keys`] | where their rows stand |
//! | [`rows`] | what those hold |
//! | [`memo`] | what a step is computed from, as one digest |
//! | [`draft`] | a commit while it is written: deliveries, joins, openings |
//! | [`step`] | what becomes of a step that somebody has taken |
//! | [`run`] | how a run starts and ends |

pub mod draft;
pub mod ids;
pub mod keys;
pub mod memo;
pub mod rows;
pub mod run;
pub mod step;
