//! A scope of a flow file as a durable scope: the operations of the machine, each with its body.

use super::{
    ScopeContext, call,
    inline::{self, code_of, deliver},
    message, row,
    task::{activity, single},
};
use crate::{
    action::{FileTask, FileWork, OpCode, ScopeAction},
    codes,
};
use onceflow_core::{
    Row,
    scope::{Emitted, Feed, OpId, Scope, ScopeDraft},
};
use onceflow_engine::{
    scope::{BufferAccess, DeliveryRule, DescribeRow, DurableBody, DurableCleanup, DurableScope},
    task::{Failure, Step},
};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};

/// The way from the step to a scope in it, which names its tasks in addresses.
#[derive(Clone, Default)]
pub(super) struct ScopePath(pub(super) Vec<String>);

impl ScopePath {
    fn below(&self, name: &str) -> Self {
        ScopePath(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }
}

/// Builds a scope. Without a step that its tasks belong to, it can be looked at, and not run.
pub(super) fn build(action: &ScopeAction, owner: Option<(&ScopeContext, &Step)>) -> Result<Arc<DurableScope>, Failure> {
    build_at(action, owner, &ScopePath::default())
}

fn build_at(
    action: &ScopeAction,
    owner: Option<(&ScopeContext, &Step)>,
    path: &ScopePath,
) -> Result<Arc<DurableScope>, Failure> {
    let plan = action.plan();
    let mut bodies = Vec::with_capacity(plan.codes.len());
    for (code, op) in plan.codes.iter().zip(&plan.draft.ops) {
        bodies.push(match code {
            OpCode::Nothing => DurableBody::None,
            OpCode::Failure => inline(|feed, _| Ok(inline::failure(&feed))),
            OpCode::Of(at) => match &action.ops[*at].work {
                FileWork::Sleep(ms) => DurableBody::Sleep { ms: *ms },
                FileWork::Wait(event) => DurableBody::Wait { event: event.clone() },
                work => code_of(work.clone(), plan.buffers.clone()),
            },
            OpCode::Task(at, branch) => {
                let tasks = action.ops[*at].work.tasks();
                let (_, task) = tasks.get(*branch).expect("the plan was made of this scope");
                match task {
                    FileTask::Scope(nested) => DurableBody::Flow(build_at(nested, owner, &path.below(&op.name))?),
                    FileTask::Call(call) => DurableBody::Call(call::called(owner, call)?),
                    task => activity(owner, &path.below(&op.name), task),
                }
            }
        });
    }
    let of_ops = (0..).map(OpId).zip(&plan.codes).filter_map(|(id, code)| match code {
        OpCode::Task(at, _) => Some((id, deliver(action.ops[*at].delivery.clone()?))),
        _ => None,
    });
    let deliveries = of_ops.collect();
    let mut cleanups = Vec::new();
    for cleanup in &action.cleanups {
        let buffers: Vec<_> = cleanup.with.iter().map(|name| (name.clone(), plan.buffers[name])).collect();
        let first = move |access: &mut BufferAccess<'_>| {
            let taken = buffers.iter().map(|(name, buffer)| {
                (name.clone(), Value::Array(access.pull_all(*buffer).iter().map(message).collect()))
            });
            row(&Value::Object(taken.collect::<Map<_, _>>()))
        };
        let path = path.below(&cleanup.name);
        let scope = match &cleanup.task {
            FileTask::Scope(nested) => build_at(nested, owner, &path)?,
            FileTask::Call(call) => single(DurableBody::Call(call::called(owner, call)?), &cleanup.name)?,
            task => single(activity(owner, &path, task), &cleanup.name)?,
        };
        cleanups.push(DurableCleanup { scope, first: Arc::new(first) });
    }
    checked(plan.draft, bodies, cleanups, deliveries)
}

pub(super) fn checked(
    draft: ScopeDraft,
    bodies: Vec<DurableBody>,
    cleanups: Vec<DurableCleanup>,
    deliveries: BTreeMap<OpId, DeliveryRule>,
) -> Result<Arc<DurableScope>, Failure> {
    let describe: DescribeRow = Arc::new(|_, row| match message(row) {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    });
    let scope = Scope::check(draft).map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        codes::failure(codes::OTHER_VERSION, format!("the scope cannot run: {}", faults.join("; "))).finally()
    })?;
    Ok(DurableScope::with_deliveries(scope, bodies, cleanups, deliveries, describe))
}

pub(super) fn inline(
    body: impl Fn(Feed<Row>, &mut BufferAccess<'_>) -> Result<Emitted<Row>, String> + Send + Sync + 'static,
) -> DurableBody {
    DurableBody::Inline(Arc::new(body))
}
