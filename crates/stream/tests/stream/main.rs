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
#[cfg(feature = "testing")]
mod given;
mod kill;
mod life;
mod nexmark;
mod plans;
mod processes;
mod rules;
mod savepoints;
mod sides;
mod slow_sinks;
mod upgrade;
mod windows;
