//! What can run the steps of flow files here.

use crate::{fault::Fault, place::Place};
use onceflow_engine::task::Tasks;

/// All executors.
///
/// # Errors
/// If one of them cannot be made ready.
pub(crate) fn tasks(_place: &Place) -> Result<Tasks, Fault> {
    Ok(Tasks::new())
}
