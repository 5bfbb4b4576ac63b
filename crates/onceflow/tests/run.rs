//! Typed flows, run to their ends: every part a builder can add gives what it should.

#[path = "run/support.rs"]
mod support;

#[path = "run/builder.rs"]
mod builder;
#[path = "run/ends.rs"]
mod ends;
#[path = "run/files.rs"]
mod files;
#[path = "run/starts.rs"]
mod starts;
#[path = "run/tasks.rs"]
mod tasks;
