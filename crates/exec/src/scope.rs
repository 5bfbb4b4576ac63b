//! The executor of scopes: a durable session whose messages are JSON. Commands are its activities; expressions, forks and
//! joins run in the batch of their event.

mod build;
mod call;
mod inline;
mod task;

use crate::{
    ExecutorContext,
    action::{Action, ScopeAction},
    codes,
    http::HttpCalls,
    job,
    value::PortValue,
};
use build::build;
use onceflow_core::{
    Row,
    model::{Port, TaskSpec},
};
use onceflow_engine::{
    scope::{DurableEnd, DurableScope, end_scope, enter_scope, sessions_left_open},
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::BoxFuture;
use serde_json::{Map, Value};
use std::sync::Arc;

/// State that the tasks of scopes share.
#[derive(Clone)]
pub(crate) struct ScopeContext {
    pub(crate) shared: Arc<ExecutorContext>,
    pub(crate) http: Arc<HttpCalls>,
}

/// The scope that a task enters, to be looked at: it has no code for its tasks. `None` if the task enters none, or is of
/// another version.
pub fn scope_of(task: &TaskSpec) -> Option<Arc<DurableScope>> {
    match Action::from_spec(task).ok()? {
        Action::Scope(action) => build(&action, None).ok(),
        _ => None,
    }
}

/// The executor that enters scopes.
pub(crate) struct Scopes(pub(crate) ScopeContext);

impl Body for Scopes {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let shared = self.0.clone();
        Attempt::Async(Box::pin(async move { run(&shared, &step, inputs).await }))
    }

    fn waits_for_steps(&self, spec: &TaskSpec) -> bool {
        matches!(Action::from_spec(spec), Ok(Action::Scope(action)) if action.calls())
    }

    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        let shared = self.0.clone();
        Some(Box::pin(async move { end_session(&shared, &step).await }))
    }
}

/// Cancels the session that the step has left open, and waits for its cleanup. Answers the problems of the cleanup.
async fn end_session(shared: &ScopeContext, step: &Step) -> Result<Vec<String>, Failure> {
    let (_, action) = crate::action(step)?;
    let Action::Scope(action) = action else { return Err(crate::not_for("scope")) };
    let ended = end_scope(step, build(&action, Some((shared, step)))?).await;
    let ended = ended.map_err(|error| codes::because(Failure::new("the scope was not ended"), error.to_string()))?;
    Ok(ended.iter().flat_map(|ended| &ended.mishaps).map(ToString::to_string).collect())
}

async fn run(shared: &ScopeContext, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Scope(action) = action else { return Err(crate::not_for("scope")) };
    let mut first = Map::new();
    for (at, data) in inputs.into_iter().enumerate() {
        first.insert(spec.inputs[at].name.clone(), job::input(spec, at, data)?.to_json());
    }
    let scope = build(&action, Some((shared, step)))?;
    let failed = |error: onceflow_engine::Error| {
        codes::because(Failure::new("sessions that earlier plans left open were not found"), error.to_string())
    };
    // Inputs or operations have changed since: what those sessions hold is released before it is asked for again.
    for left in sessions_left_open(step).await.map_err(failed)? {
        for problem in end_session(shared, &left).await? {
            report(step, &problem);
        }
    }
    let ended = enter_scope(step, scope, row(&Value::Object(first))).await;
    let ended = ended.map_err(|error| codes::because(Failure::new("the scope was not entered"), error.to_string()))?;
    for mishap in &ended.mishaps {
        report(step, &mishap.to_string());
    }
    outputs(spec, &action, ended)
}

/// Reports a cleanup that failed: the result of the step stands.
fn report(step: &Step, problem: &str) {
    tracing::warn!("{}: {problem}", step.address());
    step.report_failed_cleanup(problem.to_owned());
}

/// The outputs of the step: fields of the result, or the result itself; streams by their names.
fn outputs(spec: &TaskSpec, action: &ScopeAction, ended: DurableEnd) -> Result<Vec<Data>, Failure> {
    let mishaps: Vec<_> = ended.mishaps.iter().map(ToString::to_string).collect();
    let result = ended.result.map_err(|cancelled| {
        let failed = codes::failure(codes::SCOPE, cancelled).finally();
        mishaps.into_iter().fold(failed, codes::because)
    })?;
    let (result, streams) = (message(&result), action.streams());
    let one = |port: &Port| {
        let value = match (streams.iter().position(|stream| *stream == port.name), result.get(&port.name)) {
            (Some(at), _) => {
                let sent = ended.streamed.iter().filter(|(stream, _)| *stream as usize == at);
                Value::Array(sent.map(|(_, row)| message(row)).collect())
            }
            (None, Some(field)) => field.clone(),
            (None, None) => result.clone(),
        };
        let value = PortValue::from_json(value, &port.ty).map_err(|wrong| {
            codes::failure(codes::OUTPUT_VALUE, format!("output `{}` is not a value of its type: {wrong}", port.name))
        })?;
        job::give(value, port)
    };
    spec.outputs.iter().map(one).collect()
}

fn row(message: &Value) -> Row {
    Row::new(message.to_string())
}

fn message(row: &Row) -> Value {
    serde_json::from_slice(row).unwrap_or(Value::Null)
}
