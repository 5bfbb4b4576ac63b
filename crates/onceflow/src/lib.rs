//! Exactly-once, self-cleaning workflows, for people who write Rust.
//!
//! Functions become **tasks**, tasks become **flows**, and a wrong connection does not compile:
//!
//! ```
//! use onceflow::prelude::*;
//!
//! // Tried again if it fails. What it gives is stored, once.
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
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let store = directory.path().join("store");
//! # let urls = vec![String::from("one"), String::from("two words")];
//! let engine = Engine::open(store).await?; // a directory; no server
//! let flow = word_count::flow();
//!
//! // Kill it anywhere and start it again under the same key: it goes on where it was.
//! let run = engine.start(&flow, urls).key("words of today").await?;
//! let total: u64 = run.output(&flow.outputs()).await?; // as soon as it exists
//! # assert_eq!(total, 3);
//! # assert_eq!(run.result().await?, 3);
//!
//! // Done is done: this answers what the run gave, and runs nothing.
//! # let urls = vec![String::from("one"), String::from("two words")];
//! let again = engine.start(&flow, urls).key("words of today").await?;
//! assert_eq!(again.result().await?, total);
//! engine.close().await?;
//! # Ok(()) }
//! ```
//!
//! | to read about | see |
//! |---|---|
//! | the options of a task | [`macro@task`] |
//! | types of values between tasks | [`Value`] |
//! | lists, loops, choices, nested parts | [`Builder`] |
//! | flows as functions, flows as values, flows that call themselves | [`macro@flow`], [`Flow`], [`FlowRef`] |
//! | errors that are final | [`fatal`], [`not_done`] |
//! | starting, resuming, waiting, stopping | [`Engine`], [`Start`], [`Run`] |
//! | reactive regions: messages, buffers, cleanup | [`scope`] |
//! | failures, and the events of runs | [`Error`], [`Summary`], [`RunStatus`], [`Event`] |

#![forbid(unsafe_code)]

// The macros write `::onceflow`, also in our own tests.
extern crate self as onceflow;

pub mod arg;
pub mod builder;
pub mod engine;
mod error;
pub mod flow;
pub mod port;
mod run;
pub mod scope;
pub mod task;
pub mod value;

pub use arg::{Arg, Args};
pub use builder::{Builder, Choice, NextPart};
pub use bytes::Bytes;
pub use engine::{Engine, EngineBuilder, Events};
pub use error::{Error, StepError};
pub use flow::{Flow, FlowRef};
pub use onceflow_core::{Timestamp, model, plan::Explanation, protocol::rows::Failed};
pub use onceflow_engine::{Event, EventKind, Resolution, RunStatus, Summary};
/// Makes a struct of ports one of the [`Ports`] that flows, and closures that describe parts of them, take and give: as
/// many as it has fields, each called what it is called.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn half(n: u64) -> u64 {
///     n / 2
/// }
///
/// #[derive(Clone, Copy, Ports)]
/// #[ports(derive(Debug, PartialEq))] // for `HalvesValues`, what a run gives
/// struct Halves {
///     half: Port<u64>,
///     quarter: Port<u64>,
/// }
///
/// #[flow]
/// fn halves(f: &mut Builder, n: Port<u64>) -> Halves {
///     let half_of_it = f.add(half(n));
///     Halves { half: half_of_it, quarter: f.add(half(half_of_it)) }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
/// let result: HalvesValues = Engine::in_memory().run(&halves::flow(), 12).await?;
/// assert_eq!(result, HalvesValues { half: 6, quarter: 3 });
/// # Ok(()) }
/// ```
///
/// For a struct `Halves` there are then `HalvesValues`, and, with the same fields, `HalvesLists` (what an each gives),
/// `HalvesOptions`, `HalvesInputs` and `HalvesOutputs`. Where names of ports are asked for ([`Flow::new`]), say
/// [`FieldNames`](port::FieldNames).
pub use onceflow_macros::Ports;
pub use onceflow_macros::Value;
/// Makes a flow of a function that describes it.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn half(n: u64) -> u64 {
///     n / 2
/// }
///
/// #[task(effect = pure)]
/// fn is_small(n: u64) -> bool {
///     n < 10
/// }
///
/// /// Halves a number until it is small. A flow may call itself.
/// #[flow(outputs(small))]
/// fn shrink(f: &mut Builder, n: Port<u64>) -> Port<u64> {
///     let small = f.add(is_small(n));
///     f.when(small, |_| n).otherwise(|f| {
///         let n = f.add(half(n));
///         f.add(shrink(n))
///     })
/// }
///
/// let flow: Flow<Port<u64>, Port<u64>> = shrink::flow();
/// assert_eq!(flow.library().flows.len(), 1);
/// ```
pub use onceflow_macros::flow;
/// Makes a task of a function, for use in flows.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(version = "2", effect = pure, timeout = "30s")]
/// fn count(text: String) -> u64 {
///     text.split_whitespace().count() as u64
/// }
///
/// #[task(outputs(words, lines))]
/// async fn measure(text: String) -> Result<(u64, u64), anyhow::Error> {
///     Ok((text.split_whitespace().count() as u64, text.lines().count() as u64))
/// }
/// ```
pub use onceflow_macros::task;
pub use port::{Input, Output, Port, Ports};
pub use run::{Run, Start};
pub use task::{Call, OpenStep, State, Step, Task, Tx, fatal, not_done};
pub use value::{Directory, File, Value};

/// The names that nearly every user of this crate needs.
///
/// ```
/// use onceflow::prelude::*;
/// ```
pub mod prelude {
    pub use crate::{
        Builder, Bytes, Directory, Engine, File, Flow, FlowRef, OpenStep, Port, Ports, State, Step, Task, Tx, Value,
        fatal, not_done,
    };
    pub use onceflow_macros::{flow, task};
}

/// The examples of the pages, run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/book/src/rust.md")]
    struct Rust;
    #[doc = include_str!("../../../docs/book/src/scopes.md")]
    struct Scopes;
    #[doc = include_str!("../../../docs/book/src/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/book/src/coming-from.md")]
    struct ComingFrom;
}
