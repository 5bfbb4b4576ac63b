//! A world in which everything goes wrong, from a seed: the real planner, protocol, values, engine and worker loop on a
//! simulated clock, scheduler, store and network. Any failure replays exactly.
//!
//! | module | what it owns |
//! |---|---|
//! | `executor`, `world` | time, chance and tasks |
//! | `store`, `journal`, `connection`, `blobs`, `faults` | the store, the way there, and what goes wrong |
//! | `flows`, `behaviour`, `value`, `body` | random flows, and the user code of their tasks |
//! | `oracle` | what a flow gives, by a plain sequential interpreter |
//! | `references`, `streams` | other workloads: random graphs of values, and a pipeline with copies of everything |
//! | `scopes` | sessions of durable scopes, as a workload |
//! | `explore` | small flows, exhaustively |
//! | `hazards` | mistakes that can be switched on |
//! | `room`, `user`, `scenario` | machines, those who use them, and one seed from its beginning to its end |
//! | `workload` | the tasks that a world waits for |
//! | `watch`, `truth`, `check`, `bounded` | what happens, and what may not |

#![forbid(unsafe_code)]

pub mod behaviour;
pub mod blobs;
pub mod body;
pub mod bounded;
pub mod check;
pub mod connection;
pub mod executor;
pub mod explore;
pub mod faults;
pub mod flows;
pub mod hazards;
pub mod journal;
pub mod oracle;
pub mod references;
pub mod room;
pub mod scenario;
pub mod scopes;
pub mod store;
pub mod streams;
pub mod truth;
pub mod user;
pub mod value;
pub mod watch;
mod workload;
pub mod world;
