//! Typed flows, run to their ends: every part a builder can add gives what it should.

mod support;

mod builder;
mod ends;
mod files;
mod starts;
mod tasks;
