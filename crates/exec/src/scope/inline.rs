//! The inline code of operations: expressions, forks, joins, and access to buffers. It runs in the batch of its event.

use super::{build::inline, message, row};
use crate::{
    action::{FileDelivery, FileWork},
    expr::{self, Bindings},
    value::PortValue,
};
use onceflow_core::{
    Row,
    model::Type,
    scope::{DisposalCause, Emitted, Feed, Instruction, OpId, OrderFailure},
};
use onceflow_engine::scope::{BufferAccess, DeliveryRule, DurableBody};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The code of an operation.
pub(super) fn code_of(work: FileWork, buffers: BTreeMap<String, OpId>) -> DurableBody {
    inline(move |feed, access| run(&work, &buffers, feed, access))
}

fn run(
    work: &FileWork,
    buffers: &BTreeMap<String, OpId>,
    feed: Feed<Row>,
    access: &mut BufferAccess<'_>,
) -> Result<Emitted<Row>, String> {
    let given = match &feed {
        Feed::One(given) | Feed::Keys(Some(given)) => message(given),
        _ => Value::Null,
    };
    Ok(match work {
        FileWork::Expr(source) => Emitted::One(0, row(&compute(source, given)?)),
        FileWork::When(source) => match compute(source, given.clone())? {
            Value::Bool(holds) => Emitted::One(u32::from(!holds), row(&given)),
            other => return Err(format!("`when` is {other}, and not a bool")),
        },
        FileWork::Match { on, cases } => {
            let word = word(compute(on, given.clone())?);
            Emitted::One(place(cases.iter().map(|(name, _)| name), &word), row(&given))
        }
        FileWork::Inject { choose, among } => {
            let word = word(compute(choose, given.clone())?);
            let place = place(among.iter().map(|(name, _)| name), &word);
            if place as usize == among.len() {
                return Err(format!("there is no task `{word}` here"));
            }
            Emitted::One(place, row(&given))
        }
        FileWork::Spread(source) => match compute(source, given)? {
            Value::Array(items) => Emitted::Many(items.iter().map(|item| (0, row(item))).collect()),
            other => return Err(format!("`spread` goes over a list, not over {other}")),
        },
        FileWork::Split(parts) => split(parts.iter().map(|(name, _)| name.as_str()), given),
        FileWork::Unzip(parts) => match given {
            Value::Array(items) => Emitted::Many((0..).zip(items.iter().take(parts.len()).map(row)).collect()),
            other => return Err(format!("`unzip` takes a list apart, not {other}")),
        },
        FileWork::Collect { .. } => Emitted::One(0, row(&Value::Array(many(&feed)))),
        FileWork::Join { buffers, .. } => {
            let parts = buffers.iter().cloned().zip(many(&feed)).collect();
            Emitted::One(0, row(&Value::Object(parts)))
        }
        FileWork::Listen { buffers: names, take } => {
            Emitted::One(0, row(&Value::Object(entries(names, take, buffers, access))))
        }
        FileWork::Access { buffers: names, take } => {
            let mut all = entries(names, take, buffers, access);
            all.insert(String::from("message"), given);
            Emitted::One(0, row(&Value::Object(all)))
        }
        FileWork::Push { buffer, value } => {
            let pushed = match value {
                Some(source) => compute(source, given.clone())?,
                None => given.clone(),
            };
            access.push(buffers[buffer], row(&pushed));
            Emitted::One(0, row(&given))
        }
        FileWork::Gate { open, .. } => match compute(open, given.clone())? {
            Value::Bool(opens) => Emitted::One(u32::from(!opens), row(&given)),
            other => return Err(format!("`open` is {other}, and not a bool")),
        },
        FileWork::Watch(_) => match feed {
            Feed::Disposal(disposal) => {
                Emitted::One(0, row(&json!({ "at": disposal.at, "why": disposal.cause.to_string() })))
            }
            _ => Emitted::Nothing,
        },
        FileWork::Task(_)
        | FileWork::Sleep(_)
        | FileWork::Wait(_)
        | FileWork::Open(_)
        | FileWork::Close(_)
        | FileWork::Trim(_) => {
            return Err(String::from("the operation has no inline code"));
        }
    })
}

/// The delivery of messages one at a time.
pub(super) fn deliver(delivery: FileDelivery) -> DeliveryRule {
    Arc::new(move |given| {
        let given = message(given);
        let truth = |source: &Option<String>, what: &str| match source {
            None => Ok(false),
            Some(source) => match compute(source, given.clone())? {
                Value::Bool(truth) => Ok(truth),
                other => Err(format!("`{what}` is {other}, and not a bool")),
            },
        };
        let label = delivery.serial_by.as_ref().map(|source| compute(source, given.clone()).map(word)).transpose()?;
        let (preempt, ensure) = (truth(&delivery.preempt, "preempt")?, truth(&delivery.ensure, "ensure")?);
        Ok(Instruction { label, preempt, ensure })
    })
}

/// Gives the failure of an operation, as text, and nothing for other disposals.
pub(super) fn failure(feed: &Feed<Row>) -> Emitted<Row> {
    let Feed::Disposal(disposal) = feed else { return Emitted::Nothing };
    match &disposal.cause {
        DisposalCause::Failed(OrderFailure::Error(why)) => Emitted::One(0, row(&Value::String(why.clone()))),
        DisposalCause::Failed(why) => Emitted::One(0, row(&Value::String(why.to_string()))),
        _ => Emitted::Nothing,
    }
}

/// The place of a word in a list; the length of the list if it is not there.
fn place<'a>(mut names: impl ExactSizeIterator<Item = &'a String>, word: &str) -> u32 {
    let count = names.len();
    let at = names.position(|name| name == word).unwrap_or(count);
    u32::try_from(at).expect("a file has fewer operations")
}

/// A value as the word that a case is named by.
fn word(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// All entries of these buffers; those of some of them are taken.
fn entries(
    names: &[String],
    take: &[String],
    buffers: &BTreeMap<String, OpId>,
    access: &mut BufferAccess<'_>,
) -> Map<String, Value> {
    let mut all = Map::new();
    for name in names {
        let rows = match take.contains(name) {
            true => access.pull_all(buffers[name]),
            false => access.entries(buffers[name]),
        };
        all.insert(name.clone(), Value::Array(rows.iter().map(message).collect()));
    }
    all
}

fn many(feed: &Feed<Row>) -> Vec<Value> {
    match feed {
        Feed::Many(messages) => messages.iter().map(message).collect(),
        _ => vec![],
    }
}

/// Emits the parts of a record by name, or of a list by index, each by its own port; the rest leaves by the last port.
fn split<'a>(parts: impl Iterator<Item = &'a str>, given: Value) -> Emitted<Row> {
    let mut sent = Vec::new();
    let mut port = 0;
    let rest = match given {
        Value::Object(mut fields) => {
            for part in parts {
                sent.extend(fields.remove(part).map(|value| (port, row(&value))));
                port += 1;
            }
            (!fields.is_empty()).then(|| Value::Object(fields))
        }
        Value::Array(items) => {
            let mut items: BTreeMap<usize, Value> = items.into_iter().enumerate().collect();
            for part in parts {
                let item = part.parse().ok().and_then(|at: usize| items.remove(&at));
                sent.extend(item.map(|value| (port, row(&value))));
                port += 1;
            }
            (!items.is_empty()).then(|| Value::Array(items.into_values().collect()))
        }
        _ => return Emitted::Nothing,
    };
    sent.extend(rest.map(|rest| (port, row(&rest))));
    Emitted::Many(sent)
}

fn compute(source: &str, given: Value) -> Result<Value, String> {
    let mut scope = Bindings::new();
    scope.set("message", PortValue::from_json(given, &Type::Json).map_err(|wrong| wrong.to_string())?);
    expr::eval(source, &scope).map(|value| value.to_json()).map_err(|error| error.to_string())
}
