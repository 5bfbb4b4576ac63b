//! Executors for steps that are not Rust.
