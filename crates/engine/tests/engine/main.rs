//! Tests of the engine's guarantees, one file per topic. One binary, so that it is linked once.

mod cancelled;
mod carried;
mod data;
mod effects;
mod ends;
mod event_log;
mod expired;
mod fair;
mod faults;
mod fetching;
mod files;
mod forget;
mod glance;
mod killed;
mod meanwhile;
mod preview;
mod replan;
mod sent;
mod settings;
mod shapes;
mod skew;
mod stops;
mod support;
mod suspended;
mod undoing;
mod workers;
