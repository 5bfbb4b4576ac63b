//! Decides the batch of every commit, delivery, opening and ending of a run: facts in, a batch out. Written once, for
//! every store.
//!
//! **A ready row is the only permission to run.** The batch that commits a step's outputs deletes the row, delivers the
//! outputs to every consumer, and makes each consumer ready that has all its inputs. There is no moment in between, so
//! no step runs again after it took effect, and none is forgotten.
//!
//! **A consumer holds the values it waits for.** A delivery is a copy of a small value, or an edge to a large one, in
//! the consumer's own inbox; the consumer's commit consumes it. So a producer need not learn that its output was read,
//! and a run holds exactly the values that its remaining steps will read.
//!
//! | module | what it owns |
//! |---|---|
//! | [`claim`] | a claim on work of any kind: renewed, given back, taken over |
//! | [`ids`] | names of runs, frames and steps |
//! | [`keys`] | keys of their rows |
//! | [`rows`] | contents of those rows |
//! | [`memo`] | the digest of a step's code and inputs |
//! | [`premise`] | names of the facts that a draft requires |
//! | [`settings`] | settings that a changed flow brings to a run that has begun |
//! | [`timer`] | durable deadlines of suspended steps |
//! | [`draft`] | a commit while it is written: deliveries, joins, openings |
//! | [`step`] | commits, opens, parks or retries a claimed step |
//! | [`turn`] | commits a step that ends an iteration of a loop, and begins the next |
//! | [`run`] | starts, ends and removes a run |

pub mod claim;
pub mod draft;
pub mod ids;
pub mod keys;
pub mod memo;
pub mod premise;
pub mod rows;
pub mod run;
pub mod settings;
pub mod step;
pub mod timer;
pub mod turn;
