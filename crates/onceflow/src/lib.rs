//! Exactly-once, self-cleaning workflows, for people who write Rust.
//!
//! Functions become **tasks**, tasks become **flows**, and a wrong connection does not compile:
//!
//! ```
//! use onceflow::prelude::*;
//!
//! #[task(retry(attempts = 3, backoff = "1s"), timeout = "30s")]
//! async fn fetch(url: String) -> Result<String, anyhow::Error> {
//!     // .. ask the network ..
//! #   Ok(url)
//! }
//!
//! #[task(effect = pure)]
//! fn count(text: String) -> u64 {
//!     text.split_whitespace().count() as u64
//! }
//!
//! #[task(effect = pure)]
//! fn sum(numbers: Vec<u64>) -> u64 {
//!     numbers.iter().sum()
//! }
//!
//! #[flow(outputs(total))]
//! fn word_count(f: &mut Builder, urls: Port<Vec<String>>) -> Port<u64> {
//!     let counts = f.at_most(8).each(urls, |f, url| {
//!         let text = f.add(fetch(url));
//!         f.add(count(text))
//!     });
//!     f.add(sum(counts))
//! }
//!
//! let flow = word_count::flow();
//! assert_eq!(flow.name(), "word_count");
//! assert!(flow.tasks().get("fetch").is_some());
//! ```
//!
//! | to read about | see |
//! |---|---|
//! | what a task can say about itself | [`macro@task`] |
//! | what can travel between tasks | [`Value`] |
//! | lists, loops, choices, nested parts | [`Builder`] |
//! | flows as functions, flows as values, flows that call themselves | [`macro@flow`], [`Flow`], [`FlowRef`] |
//! | errors that are final | [`fatal`], [`not_done`] |

#![forbid(unsafe_code)]

// The macros write `::onceflow`, also in our own tests.
extern crate self as onceflow;

pub mod arg;
pub mod builder;
pub mod flow;
pub mod port;
pub mod task;
pub mod value;

pub use arg::{Arg, Args};
pub use builder::{Builder, Choice};
pub use bytes::Bytes;
pub use flow::{Flow, FlowRef};
pub use onceflow_core::model;
pub use onceflow_macros::{Value, flow, task};
pub use port::{Output, Port, Ports};
pub use task::{Call, Step, Task, Tx, fatal, not_done};
pub use value::{Directory, File, Value};

/// What nearly every user of this crate needs.
///
/// ```
/// use onceflow::prelude::*;
/// ```
pub mod prelude {
    pub use crate::{Builder, Bytes, Directory, File, Flow, FlowRef, Port, Step, Task, Tx, Value, fatal, not_done};
    pub use onceflow_macros::{flow, task};
}
