//! Light scopes: cleanup, cancellation, reachability, buffers, gates, streams, delivery.

mod cancel;
mod cleanup;
mod delivery;
mod durable;
mod messages;
mod soak;
mod support;
