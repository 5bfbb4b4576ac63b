//! Executors for steps that are not Rust: commands, scripts, HTTP calls, expressions.
//!
//! A program that a flow file lowered to carries in each leaf what is to be done ([`Action`](action::Action)); any process
//! that offers these executors can run it, without the flow file.
//!
//! | module | what it owns |
//! |---|---|
//! | [`value`] | values as flow files see them |
//! | [`action`] | what a leaf does |

#![forbid(unsafe_code)]

pub mod action;
pub mod expr;
pub mod template;
pub mod value;
