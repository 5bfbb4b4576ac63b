//! `#[task]`, `#[flow]` and `#[derive(Value)]`: what the compiler must see to join typed Rust to the kernel. Thin: all
//! that can be an ordinary function is one, in the crate `onceflow`. Examples stand there too, where they can be
//! compiled without building that crate a second time, for the compiler.
//!
//! | module | what it owns |
//! |---|---|
//! | `task` | a function becomes a task |
//! | `options` | the options of `#[task(..)]` |
//! | `units` | durations and sizes, as people write them |
//! | `digest` | the version of a function that names none |
//! | `flow` | a function becomes a flow |
//! | `value` | a type becomes one that travels |
//! | `ports` | a struct of ports becomes ports |

#![forbid(unsafe_code)]

mod digest;
mod flow;
mod options;
mod ports;
mod task;
mod units;
mod value;

use proc_macro::TokenStream;

/// A function `count` with `#[task]` is for flows: `count(..)` takes a port, or a plain value, for each parameter, and
/// `f.add(count(text))` gives a `Port<u64>`. The function itself is `count::run`. Parameters and results are values
/// (`onceflow::Value`); a `Result` says that the task can fail, with any error that `Box<dyn Error + Send + Sync>` can
/// be made from. A function that is not `async` may block.
///
/// Parameters before the inputs may ask for more: `step: &Step` for the step's key, address and attempt, `tx: Tx` for
/// the flow's own rows (`effect = transactional`), `pool: State<Pool>` for what the engine was given of that type,
/// `step: OpenStep` for a step that has work open in the store, such as a pipeline of `onceflow-stream`.
///
/// | option | means | without it |
/// |---|---|---|
/// | `name = "word-count"` | what workers know it by; keep it, or running flows do not find their task | the function's name |
/// | `version = "2"` | what its results depend on beside its inputs; change it, and they are computed again | a digest of signature and body, which does not see the functions it calls |
/// | `effect = pure` | it does nothing to the world: may be fused, run again, shared | `idempotent` |
/// | `effect = idempotent` | it may run more than once for one step, with the same `step.key()` each time | |
/// | `effect = at_most_once` | it never starts twice; after a crash an operator must report its outcome | |
/// | `effect = transactional` | what it does to the flow's own rows rides in the commit | |
/// | `retry(attempts = 3, backoff = "1s", backoff_max = "1m")` | how often it is tried, and the wait between, which doubles | one attempt; 100 ms up to 1 min |
/// | `timeout = "30s"` | the longest an attempt may take | no limit |
/// | `class = "gpu"` | which workers take it | all |
/// | `cpus = 0.5`, `memory = "2GB"` | what it needs of the machine | nothing |
/// | `undo = refund` | the task that undoes it, given the same inputs | nothing does |
/// | `outputs(words, lines)` | names of its outputs, one for each part of the tuple it returns | one output, `value` |
/// | `depends(words = [text])` | which inputs an output depends on | all |
/// | `inline` | it is over in microseconds: run it where it stands, on no thread of its own (not for `async`) | |
/// | `abandon` | its thread may go on when an attempt has taken too long: the next one does not wait for it, nor does closing | the thread is waited for |
#[proc_macro_attribute]
pub fn task(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(task::expand(options.into(), item.into()))
}

/// Of a function `shrink` with `#[flow]`, `shrink::flow()` is the flow; `shrink(..)` is a call of it, for other flows.
/// Inputs are named after the parameters. Options: `name = "..."` (else the function's), `outputs(a, b)`, one name for
/// each port it returns (a single one is called `value` if it is not named).
#[proc_macro_attribute]
pub fn flow(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(flow::expand(options.into(), item.into()))
}

/// Lets values of a type travel between tasks. See the trait `onceflow::Value`.
#[proc_macro_derive(Value)]
pub fn value(item: TokenStream) -> TokenStream {
    finish(value::expand(item.into()))
}

/// Makes a struct of ports one of the `onceflow::Ports` that flows take and give.
#[proc_macro_derive(Ports, attributes(ports))]
pub fn ports(item: TokenStream) -> TokenStream {
    finish(ports::expand(item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
