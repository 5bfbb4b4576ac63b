//! Tests of whole pipelines, one file per promise. One binary, so that it is linked once.

mod backends;
mod backlog;
mod bed;
mod calls;
mod client_ids;
mod crashes;
mod files;
mod kill;
mod nexmark;
mod plans;
mod processes;
mod rules;
mod windows;
