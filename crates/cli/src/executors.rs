//! What can run the steps of flow files here: commands, scripts, HTTP calls, expressions.

use crate::place::Place;
use onceflow_engine::task::Tasks;
use onceflow_exec::{Home, Options};

/// All executors. The guard that ends their children with us is this very program.
pub(crate) fn tasks(place: &Place) -> Tasks {
    let guard = std::env::current_exe().ok().map(|us| (us, vec![crate::GUARD.into()]));
    onceflow_exec::executors(Options { home: home(place), guard })
}

/// Where they work.
pub(crate) fn home(place: &Place) -> Home {
    Home::new(&place.directory)
}
