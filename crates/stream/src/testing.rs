//! Tests that every source and sink passes, also those of other crates: one call checks the contract of
//! [`StreamSource`](crate::StreamSource) or [`StreamSink`](crate::StreamSink) as far as it can be seen from outside.
//!
//! | module | checks |
//! |---|---|
//! | [`source`] | a source that is opened at a position goes on there, with the same records |
//! | [`acknowledged`] | a source that delivers a record again until it is durable acknowledges it then, and not before |
//! | [`sink`] | a chunk that is written again after a crash takes effect once, and nothing of another is replaced |
//!
//! A check answers what is wrong as text, so that a wrong source or sink can be shown to be noticed.

pub mod acknowledged;
pub mod sink;
pub mod source;
