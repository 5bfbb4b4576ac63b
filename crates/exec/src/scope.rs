//! The executor of scopes: a durable session whose messages are JSON. Commands are its activities; expressions, forks and
//! joins run in the batch of their event.

use crate::{
    ExecutorContext,
    action::{Action, Command, FileWork, OpCode, ScopeAction},
    codes, command,
    expr::{self, Bindings},
    job,
    value::PortValue,
};
use onceflow_core::{
    Row,
    model::{Port, TaskSpec, Type},
    scope::{Emitted, Feed, OpId, OpKind, Operation, Scope, ScopeDraft, TaskMode},
};
use onceflow_engine::{
    scope::{
        Activity, BufferAccess, DescribeRow, DurableBody, DurableCleanup, DurableEnd, DurableScope, end_scope,
        enter_scope, sessions_left_open,
    },
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::BoxFuture;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The executor that enters scopes.
pub(crate) struct Scopes(pub(crate) Arc<ExecutorContext>);

impl Body for Scopes {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let shared = self.0.clone();
        Attempt::Async(Box::pin(async move { run(&shared, &step, inputs).await }))
    }

    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        let shared = self.0.clone();
        Some(Box::pin(async move { end_session(&shared, &step).await }))
    }
}

/// Cancels the session that the step has left open, and waits for its cleanup. Answers the problems of the cleanup.
async fn end_session(shared: &Arc<ExecutorContext>, step: &Step) -> Result<Vec<String>, Failure> {
    let (_, action) = crate::action(step)?;
    let Action::Scope(action) = action else { return Err(crate::not_for("scope")) };
    let ended = end_scope(step, build(&action, shared, step)?).await;
    let ended = ended.map_err(|error| codes::because(Failure::new("the scope was not ended"), error.to_string()))?;
    Ok(ended.iter().flat_map(|ended| &ended.mishaps).map(ToString::to_string).collect())
}

async fn run(shared: &Arc<ExecutorContext>, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Scope(action) = action else { return Err(crate::not_for("scope")) };
    let mut first = Map::new();
    for (at, data) in inputs.into_iter().enumerate() {
        first.insert(spec.inputs[at].name.clone(), job::input(spec, at, data)?.to_json());
    }
    let scope = build(&action, shared, step)?;
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

/// Text that a command printed, as a message.
fn printed(text: String) -> Value {
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line);
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn build(action: &ScopeAction, shared: &Arc<ExecutorContext>, step: &Step) -> Result<Arc<DurableScope>, Failure> {
    let plan = action.plan();
    let bodies = plan.codes.iter().map(|code| match code {
        OpCode::Nothing => DurableBody::None,
        OpCode::ByResult => inline(|feed, _| Ok(by_result(&feed))),
        OpCode::Of(at) => {
            let op = &action.ops[*at];
            match &op.work {
                FileWork::Run(command) => activity(shared, step, &op.name, command, op.other.is_some()),
                FileWork::Sleep(ms) => DurableBody::Sleep { ms: *ms },
                work => code_of(work.clone(), plan.buffers.clone()),
            }
        }
    });
    let bodies = bodies.collect();
    let mut cleanups = Vec::new();
    for cleanup in &action.cleanups {
        let buffers: Vec<_> = cleanup.with.iter().map(|name| (name.clone(), plan.buffers[name])).collect();
        let first = move |access: &mut BufferAccess<'_>| {
            let taken = buffers.iter().map(|(name, buffer)| {
                (name.clone(), Value::Array(access.pull_all(*buffer).iter().map(message).collect()))
            });
            row(&Value::Object(taken.collect()))
        };
        let scope = single(activity(shared, step, &cleanup.name, &cleanup.run, false), &cleanup.name)?;
        cleanups.push(DurableCleanup { scope, first: Arc::new(first) });
    }
    checked(plan.draft, bodies, cleanups)
}

fn checked(
    draft: ScopeDraft,
    bodies: Vec<DurableBody>,
    cleanups: Vec<DurableCleanup>,
) -> Result<Arc<DurableScope>, Failure> {
    let describe: DescribeRow = Arc::new(|row| match message(row) {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    });
    let scope = Scope::check(draft).map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        codes::failure(codes::OTHER_VERSION, format!("the scope cannot run: {}", faults.join("; "))).finally()
    })?;
    Ok(DurableScope::new(scope, bodies, cleanups, describe))
}

/// A scope of one activity.
fn single(body: DurableBody, name: &str) -> Result<Arc<DurableScope>, Failure> {
    let kind = OpKind::Task { mode: TaskMode::Async, streams: 0 };
    let ops = vec![
        Operation { name: name.to_owned(), kind, outputs: vec![Some(OpId(1))] },
        Operation { name: String::from("<terminate>"), kind: OpKind::Terminate, outputs: vec![] },
    ];
    let draft = ScopeDraft { ops, start: Some(OpId(0)), ..ScopeDraft::default() };
    checked(draft, vec![body, DurableBody::None], vec![])
}

fn inline(
    body: impl Fn(Feed<Row>, &mut BufferAccess<'_>) -> Result<Emitted<Row>, String> + Send + Sync + 'static,
) -> DurableBody {
    DurableBody::Inline(Arc::new(body))
}

/// Runs a command for a message. If its failure goes somewhere, both are given as a record with one field.
fn activity(shared: &Arc<ExecutorContext>, step: &Step, name: &str, command: &Command, has_err: bool) -> DurableBody {
    let action = Action::Command(command.clone());
    let inputs = vec![Port::new("message", Type::Json)];
    let mut spec = TaskSpec::new(action.executor(), inputs, vec![Port::new("value", Type::Text)]);
    spec.params = action.to_params();
    let (shared, step, name) = (shared.clone(), step.clone(), name.to_owned());
    DurableBody::Activity(Arc::new(move |activity: Activity| {
        let turn = activity.key.rsplit('-').next().unwrap_or_default().to_owned();
        let part = step.part(&format!("{name}-{turn}"), activity.key.clone(), spec.clone());
        let (shared, spec) = (shared.clone(), spec.clone());
        Box::pin(async move {
            let ran = run_command(&shared, &part, &spec, activity.feed).await;
            match ran {
                Ok(value) if has_err => Ok(Emitted::One(0, row(&json!({ "ok": value })))),
                Ok(value) => Ok(Emitted::One(0, row(&value))),
                Err(why) if has_err => Ok(Emitted::One(0, row(&json!({ "err": why })))),
                Err(why) => Err(why),
            }
        })
    }))
}

async fn run_command(
    shared: &Arc<ExecutorContext>,
    part: &Step,
    spec: &TaskSpec,
    feed: Feed<Row>,
) -> Result<Value, String> {
    let Feed::One(given) = feed else { return Err(String::from("a command takes one message")) };
    let words = |failure: Failure| failure.causes.join(": ");
    let given = PortValue::from_json(message(&given), &Type::Json).map_err(|wrong| wrong.to_string())?;
    let input = given.into_data(&Type::Json).map_err(|wrong| wrong.to_string())?;
    let mut outputs = command::run(shared, part, vec![input]).await.map_err(words)?;
    let output = outputs.pop().ok_or("the command gave nothing")?;
    match PortValue::from_data(output, &spec.outputs[0].ty).map_err(|wrong| wrong.to_string())? {
        PortValue::Text(text) => Ok(printed(text)),
        other => Ok(other.to_json()),
    }
}

fn by_result(feed: &Feed<Row>) -> Emitted<Row> {
    let Feed::One(given) = feed else { return Emitted::Nothing };
    match message(given) {
        Value::Object(mut fields) => match (fields.remove("ok"), fields.remove("err")) {
            (Some(ok), _) => Emitted::One(0, row(&ok)),
            (None, Some(err)) => Emitted::One(1, row(&err)),
            (None, None) => Emitted::Nothing,
        },
        _ => Emitted::Nothing,
    }
}

/// The inline code of an operation.
fn code_of(work: FileWork, buffers: BTreeMap<String, OpId>) -> DurableBody {
    inline(move |feed, access| {
        let one = |feed: &Feed<Row>| match feed {
            Feed::One(given) => message(given),
            _ => Value::Null,
        };
        Ok(match &work {
            FileWork::Expr(source) => Emitted::One(0, row(&compute(source, one(&feed))?)),
            FileWork::When(source) => match compute(source, one(&feed))? {
                Value::Bool(holds) => Emitted::One(u32::from(!holds), row(&one(&feed))),
                other => return Err(format!("`when` is {other}, and not a bool")),
            },
            FileWork::Spread(source) => match compute(source, one(&feed))? {
                Value::Array(items) => Emitted::Many(items.iter().map(|item| (0, row(item))).collect()),
                other => return Err(format!("`spread` goes over a list, not over {other}")),
            },
            FileWork::Split(parts) => split(parts.iter().map(|(name, _)| name.as_str()), one(&feed)),
            FileWork::Collect { .. } => Emitted::One(0, row(&Value::Array(many(&feed)))),
            FileWork::Join(names) => {
                let parts = names.iter().cloned().zip(many(&feed)).collect();
                Emitted::One(0, row(&Value::Object(parts)))
            }
            FileWork::Listen(names) => {
                let entries = |name: &String| access.entries(buffers[name]).iter().map(message).collect();
                let all = names.iter().map(|name| (name.clone(), Value::Array(entries(name)))).collect();
                Emitted::One(0, row(&Value::Object(all)))
            }
            FileWork::Run(_) | FileWork::Sleep(_) | FileWork::Open(_) | FileWork::Close(_) => {
                return Err(String::from("the operation has no inline code"));
            }
        })
    })
}

fn many(feed: &Feed<Row>) -> Vec<Value> {
    match feed {
        Feed::Many(messages) => messages.iter().map(message).collect(),
        _ => vec![],
    }
}

fn split<'a>(parts: impl Iterator<Item = &'a str>, given: Value) -> Emitted<Row> {
    let Value::Object(mut fields) = given else { return Emitted::Nothing };
    let (mut sent, mut port) = (Vec::new(), 0);
    for part in parts {
        sent.extend(fields.remove(part).map(|value| (port, row(&value))));
        port += 1;
    }
    if !fields.is_empty() {
        sent.push((port, row(&Value::Object(fields))));
    }
    Emitted::Many(sent)
}

fn compute(source: &str, given: Value) -> Result<Value, String> {
    let mut scope = Bindings::new();
    scope.set("message", PortValue::from_json(given, &Type::Json).map_err(|wrong| wrong.to_string())?);
    expr::eval(source, &scope).map(|value| value.to_json()).map_err(|error| error.to_string())
}
