//! Tasks of a scope: commands and calls over HTTP, as activities. Each is a part of the step, with an address, a task and
//! a key of its own.

use super::{
    ScopeContext,
    build::{ScopePath, checked},
    message, row,
};
use crate::{
    action::{Action, FileTask},
    command, script,
    value::PortValue,
};
use onceflow_core::{
    Row,
    model::{Port, TaskSpec, Type},
    scope::{Emitted, Feed, OpId, OpKind, Operation, ScopeDraft, TaskMode},
};
use onceflow_engine::{
    scope::{Activity, DurableBody, DurableScope},
    task::{Data, Failure, Step},
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// The letters of a session's id that tell its tasks from those of other sessions of one scope.
const SESSION_LETTERS: usize = 12;

/// Runs a task for a message.
pub(super) fn activity(owner: Option<(&ScopeContext, &Step)>, path: &ScopePath, task: &FileTask) -> DurableBody {
    let (kind, action, output) = match task {
        FileTask::Run(command) => (TaskKind::Command, Action::Command(command.clone()), Type::Text),
        FileTask::Script(script) => (TaskKind::Script, Action::Script(script.clone()), Type::Text),
        FileTask::Http(http) => (TaskKind::Http, Action::Http(http.clone()), Type::Json),
        FileTask::Scope(_) | FileTask::Call(_) => unreachable!("it is no activity, but a session or a run"),
    };
    // One that is only looked at runs nothing.
    let Some((context, step)) = owner else { return DurableBody::None };
    let inputs = vec![Port::new("message", Type::Json)];
    let mut spec = TaskSpec::new(action.executor(), inputs, vec![Port::new("value", output)]);
    spec.params = action.to_params();
    let (context, step, path) = (context.clone(), step.clone(), path.clone());
    DurableBody::Activity(Arc::new(move |activity: Activity| {
        let name = part_name(&path, &activity.key);
        let part = step.part(&name, activity.key.clone(), spec.clone());
        let (context, spec) = (context.clone(), spec.clone());
        Box::pin(async move { run(kind, &context, (&part, &spec), activity.feed).await })
    }))
}

/// The name of an activity in addresses. Those of the outermost session are told apart by their number; sessions of a
/// nested scope have numbers of their own, and the beginning of their id besides.
fn part_name(path: &ScopePath, key: &str) -> String {
    let (session, turn) = key.rsplit_once('-').unwrap_or(("", key));
    let name = path.0.join("/");
    match path.0.len() {
        1 => format!("{name}-{turn}"),
        _ => format!("{name}-{}-{turn}", &session[..session.len().min(SESSION_LETTERS)]),
    }
}

/// The executor of a task.
#[derive(Clone, Copy)]
enum TaskKind {
    Command,
    Script,
    Http,
}

async fn run(
    kind: TaskKind,
    context: &ScopeContext,
    (part, spec): (&Step, &TaskSpec),
    feed: Feed<Row>,
) -> Result<Emitted<Row>, String> {
    let Feed::One(given) = feed else { return Err(String::from("a task takes one message")) };
    let words = |failure: Failure| failure.causes.join(": ");
    let given = PortValue::from_json(message(&given), &Type::Json).map_err(|wrong| wrong.to_string())?;
    let input = given.into_data(&Type::Json).map_err(|wrong| wrong.to_string())?;
    let outputs = match kind {
        TaskKind::Http => context.http.run(part, vec![input]).await,
        TaskKind::Script => script::run(&context.shared, part, vec![input]).await,
        TaskKind::Command => command::run(&context.shared, part, vec![input]).await,
    };
    let output = outputs.map_err(words)?.pop().ok_or("the task gave nothing")?;
    Ok(Emitted::One(0, row(&given_message(output, &spec.outputs[0].ty)?)))
}

fn given_message(output: Data, ty: &Type) -> Result<Value, String> {
    Ok(match PortValue::from_data(output, ty).map_err(|wrong| wrong.to_string())? {
        PortValue::Text(text) if *ty == Type::Text => printed(text),
        other => other.to_json(),
    })
}

/// Text that a command printed, as a message.
fn printed(text: String) -> Value {
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line);
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A scope of one activity.
pub(super) fn single(body: DurableBody, name: &str) -> Result<Arc<DurableScope>, Failure> {
    let kind = OpKind::Task { mode: TaskMode::Async, streams: 0 };
    let ops = vec![
        Operation { name: name.to_owned(), kind, outputs: vec![Some(OpId(1))] },
        Operation { name: String::from("<terminate>"), kind: OpKind::Terminate, outputs: vec![] },
    ];
    let draft = ScopeDraft { ops, start: Some(OpId(0)), ..ScopeDraft::default() };
    checked(draft, vec![body, DurableBody::None], vec![], BTreeMap::new())
}
