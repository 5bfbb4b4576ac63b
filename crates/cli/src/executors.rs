//! What can run the steps of flow files here: commands, scripts, HTTP calls, expressions.

use crate::place::Place;
use onceflow_engine::task::Tasks;
use onceflow_exec::{Home, Options};

/// All executors. The guard that ends their children with us is this very program.
pub(crate) fn tasks(place: &Place) -> Tasks {
    with_home(home(place))
}

/// The same, for one of several processes that may work on the same runs.
pub(crate) fn shared_tasks(place: &Place, own: u128) -> Tasks {
    with_home(Home::of_process(&place.directory, format!("{own:032x}")))
}

fn with_home(home: Home) -> Tasks {
    let guard = std::env::current_exe().ok().map(|us| (us, vec![crate::GUARD.into()]));
    onceflow_exec::executors(Options { home, guard })
}

/// Where they work.
pub(crate) fn home(place: &Place) -> Home {
    Home::new(&place.directory)
}
