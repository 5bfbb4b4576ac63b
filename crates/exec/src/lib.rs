//! Executors for steps that are not Rust: commands, scripts, HTTP calls, expressions.
//!
//! A program lowered from a flow file carries the [`Action`] of each leaf; any process that offers these executors can
//! run it, without the flow file.
//!
//! | module | what it owns |
//! |---|---|
//! | [`action`] | the action of a leaf |
//! | [`value`] | values as flow files see them |
//! | [`template`], [`expr`] | text with holes, and the expressions in them |
//! | [`shell`] | commands with holes: quoting, variables, commands that need no shell |
//! | [`home`] | the paths of work directories and logs |
//! | `command`, `script`, `http`, `pure`, `wait`, `scope` | the executors |
//! | `job` | the common part of commands and scripts: `work` (inputs), `process`, `log`, `output` |
//! | [`guard`] | ends commands when the worker ends |
//! | [`codes`] | error codes |

#![forbid(unsafe_code)]

pub mod action;
pub mod codes;
mod command;
mod context;
pub mod expr;
pub mod guard;
pub mod home;
mod http;
mod job;
mod log;
mod mask;
pub mod output;
mod process;
mod program;
mod pure;
mod render;
mod scope;
mod script;
pub mod shell;
pub mod template;
pub mod value;
mod wait;
mod work;

pub use context::{CalledClass, ExecutorOptions};
pub use home::Home;
pub use log::FULL as LOGS_FULL;
pub use scope::scope_of;

use action::{Action, EXECUTORS, STREAM};
use context::ExecutorContext;
use onceflow_core::model::TaskSpec;
use onceflow_engine::task::{Body, Failure, Step, Tasks};
use std::sync::Arc;

/// Returns the executors, for a worker to offer: all but that of streams, which is in `onceflow-spec`.
pub fn executors(options: ExecutorOptions) -> Tasks {
    let shared = Arc::new(ExecutorContext::new(options));
    let http = Arc::new(http::HttpCalls::new(shared.clone()));
    let bodies: [Arc<dyn Body>; EXECUTORS.len() - 1] = [
        Arc::new(command::Commands(shared.clone())),
        Arc::new(script::Scripts(shared.clone())),
        http.clone(),
        Arc::new(pure::Expressions(shared.clone())),
        Arc::new(wait::EventWait),
        Arc::new(scope::Scopes(scope::ScopeContext { shared, http })),
    ];
    let mut tasks = Tasks::new();
    let own = EXECUTORS.into_iter().filter(|name| *name != STREAM);
    for (name, body) in own.zip(bodies) {
        tasks.add_executor(name, body);
    }
    tasks
}

/// Decodes the action of a step.
pub(crate) fn action(step: &Step) -> Result<(&TaskSpec, Action), Failure> {
    let other = |why: String| codes::failure(codes::OTHER_VERSION, why).finally();
    let spec = step.spec().ok_or_else(|| other(String::from("the step belongs to no run")))?;
    let action = Action::from_spec(spec).map_err(other)?;
    Ok((spec, action))
}

/// Makes the failure of a step that came to the wrong executor.
pub(crate) fn not_for(executor: &str) -> Failure {
    codes::failure(codes::OTHER_VERSION, format!("the step is not one for `{executor}`")).finally()
}
