//! Exactly-once, self-cleaning workflows, for people who write Rust.

#![forbid(unsafe_code)]
