//! The task of a leaf: its version, effect and settings.

use super::digest;
use crate::syntax::step::StepSettings;
use onceflow_core::model::{Effect, Port, ResourceRequest, TaskSpec};
use onceflow_exec::action::Action;

/// Makes the task of an executor; `class` is that of steps that name no labels.
pub(super) fn spec(
    action: &Action,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    how: &StepSettings,
    class: &str,
) -> TaskSpec {
    let version = digest::version(action, &inputs, &outputs, &how.version);
    let mut spec = TaskSpec::new(action.executor(), inputs, outputs);
    let is_process = matches!(action, Action::Command(_) | Action::Script(_) | Action::Stream(_));
    spec.version = version;
    spec.effect = how.effect.unwrap_or(match action {
        Action::Expr(_) => Effect::Pure,
        // An event is consumed once.
        Action::Wait(_) => Effect::AtMostOnce,
        // The end of the session is taken from the store with the step's commit.
        Action::Scope(_) => Effect::Transactional,
        Action::Command(_) | Action::Script(_) | Action::Http(_) | Action::Stream(_) => Effect::default(),
    });
    spec.retry = how.retry.clone();
    spec.timeout_ms = how.timeout_ms;
    spec.class = if how.labels.is_empty() { class.to_owned() } else { how.labels.join("+") };
    spec.resources = ResourceRequest {
        cpu_milli: how.cpu_milli.unwrap_or(if is_process { 1000 } else { 0 }),
        memory_bytes: how.memory_bytes.unwrap_or(0),
    };
    spec.params = action.to_params();
    spec
}
