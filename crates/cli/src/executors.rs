//! The executors of this process for steps of flow files: commands, scripts, HTTP calls, expressions, streams.

use crate::location::StoreLocation;
use onceflow_engine::task::Tasks;
use onceflow_exec::{ExecutorOptions, Home};

/// Makes all executors. The guard that ends their children with this process is this same program.
pub(crate) fn tasks(location: &StoreLocation) -> Tasks {
    with_home(home(location))
}

/// Makes the executors of a worker beside others: its work directories are its own, for another may be at work on the
/// same step.
pub(crate) fn shared_tasks(location: &StoreLocation, own: u128) -> Tasks {
    with_home(Home::of_process(&location.directory, format!("{own:032x}")))
}

fn with_home(home: Home) -> Tasks {
    let guard = std::env::current_exe().ok().map(|us| (us, vec![crate::GUARD.into()]));
    let mut tasks = onceflow_exec::executors(ExecutorOptions { home, guard });
    let (stream, body) = onceflow_spec::stream_executor();
    tasks.add_executor(stream, body);
    tasks
}

/// The directories that the executors work in.
pub(crate) fn home(location: &StoreLocation) -> Home {
    Home::new(&location.directory)
}
