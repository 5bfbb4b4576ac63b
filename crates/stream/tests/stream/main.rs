//! Tests of whole pipelines, one file per promise. One binary, so that it is linked once.

mod backends;
mod backlog;
mod bed;
mod calls;
mod client_ids;
#[cfg(feature = "testing")]
mod contract;
mod crashes;
mod dated;
mod files;
mod kill;
mod life;
mod nexmark;
mod plans;
mod processes;
mod rules;
mod savepoints;
mod sides;
mod upgrade;
mod windows;
