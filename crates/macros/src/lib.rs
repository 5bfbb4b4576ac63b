//! `#[task]`: a function becomes a task that flows can use.

#![forbid(unsafe_code)]
