//! The executors of this process for steps of flow files: commands, scripts, HTTP calls, expressions, streams.

use crate::{
    location::StoreLocation,
    session::{OWN, Who},
};
use onceflow_engine::task::Tasks;
use onceflow_exec::{CalledClass, ExecutorOptions, Home};
use std::sync::Arc;

/// Makes all executors. The guard that ends their children with this process is this same program.
pub(crate) fn tasks(location: &StoreLocation) -> Tasks {
    with_home(home(location), None)
}

/// Makes the executors of a worker beside others: its work directories are its own, for another may be at work on the
/// same step. `calls` is the class of flows that scopes call here, if this worker takes the steps of no other.
pub(crate) fn shared_tasks(location: &StoreLocation, own: u128, calls: Option<String>) -> Tasks {
    with_home(Home::of_process(&location.directory, format!("{own:032x}")), calls)
}

fn with_home(home: Home, calls: Option<String>) -> Tasks {
    let guard = std::env::current_exe().ok().map(|us| (us, vec![crate::GUARD.into()]));
    // The steps of a flow that a scope calls are taken by the workers that take the scope's own.
    let called_class = CalledClass(Arc::new(move |of, asked| match &calls {
        Some(class) => class.clone(),
        None if of.starts_with(OWN) => of.to_owned(),
        None => Who::Any.class("", asked),
    }));
    let mut tasks = onceflow_exec::executors(ExecutorOptions { home, guard, called_class });
    let (stream, body) = onceflow_spec::stream_executor();
    tasks.add_executor(stream, body);
    tasks
}

/// The directories that the executors work in.
pub(crate) fn home(location: &StoreLocation) -> Home {
    Home::new(&location.directory)
}
