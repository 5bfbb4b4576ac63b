//! `onceflow diff RUN RUN`: what two runs differ in: inputs, code, steps, outputs. Ends with 1 if they do.

use super::lineage::origin;
use crate::{
    args, exit::Exit, fault::Fault, place::Place, printer::Printer, session::Session, verbs::ls::shell_word, words,
};
use onceflow_core::payload::{Digest, Outcome};
use onceflow_engine::{Record, StepRecord};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Something that differs.
struct Difference {
    /// `input`, `code`, `step`, `output`.
    of: &'static str,
    name: String,
    /// `added`, `removed`, `changed`, `code-changed`, `source-changed`.
    how: &'static str,
    from: Value,
    to: Value,
}

/// Compares two runs.
pub(crate) async fn run(args: &args::Diff, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let one = session.run(&engine, &args.one).await?;
    let other = session.run(&engine, &args.other).await?;
    let (one, other) = (engine.record(&one.key).await?, engine.record(&other.key).await?);
    engine.stop();
    session.close().await?;
    let found = differences(&one, &other);
    if printer.json {
        let line = |it: &Difference| json!({"of": it.of, "name": it.name, "how": it.how, "from": it.from, "to": it.to});
        printer.pretty(&json!({
            "one": {"key": one.key, "id": one.id.to_string()}, "other": {"key": other.key, "id": other.id.to_string()},
            "same": found.is_empty(), "differences": found.iter().map(line).collect::<Vec<_>>(),
        }));
    } else {
        printer.text(found.iter().map(told).collect::<String>());
    }
    for record in [&one, &other].into_iter().filter(|record| record.steps.is_empty()) {
        printer.say(format!("run `{}` does not keep its program any more: its steps are not compared", record.key));
    }
    match found.is_empty() {
        true => printer.next(format!("nothing differs; onceflow show {}", shell_word(&one.key))),
        false => printer.next(format!("onceflow why {} STEP", shell_word(&other.key))),
    }
    Ok(if found.is_empty() { Exit::Done } else { Exit::No })
}

fn told(it: &Difference) -> String {
    let short = |value: &Value| match value {
        Value::String(text) => text.chars().take(16).collect(),
        Value::Null => String::from("nothing"),
        other => other.to_string(),
    };
    match it.how {
        "added" => format!("+ {} {}\n", it.of, it.name),
        "removed" => format!("- {} {}\n", it.of, it.name),
        how => {
            let how = how.replace('-', " ");
            format!("~ {} {}: {how} from {} to {}\n", it.of, it.name, short(&it.from), short(&it.to))
        }
    }
}

fn hex(digest: &Digest) -> Value {
    Value::String(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn differences(one: &Record, other: &Record) -> Vec<Difference> {
    let mut found = Vec::new();
    if one.flow != other.flow {
        let (from, to) = (json!(one.flow), json!(other.flow));
        found.push(Difference { of: "flow", name: other.flow.clone(), how: "changed", from, to });
    }
    let inputs = |record: &Record| record.inputs.iter().map(|(name, digest)| (name.clone(), hex(digest))).collect();
    plain("input", inputs(one), inputs(other), &mut found);
    if !one.steps.is_empty() && !other.steps.is_empty() {
        steps(one, other, &mut found);
    } else if one.code != other.code {
        let (from, to) = (hex(&one.code), hex(&other.code));
        found.push(Difference { of: "code", name: String::from("of the flow"), how: "changed", from, to });
    }
    let outputs = |record: &Record| {
        let digest = |outcome: &Option<Outcome>| outcome.as_ref().map_or(Value::Null, |outcome| hex(&outcome.digest()));
        record.outputs.iter().map(|(name, _, outcome)| (name.clone(), digest(outcome))).collect()
    };
    plain("output", outputs(one), outputs(other), &mut found);
    found
}

/// What differs among things that are known by a digest.
fn plain(of: &'static str, one: BTreeMap<String, Value>, other: BTreeMap<String, Value>, found: &mut Vec<Difference>) {
    for (name, from) in &one {
        let (how, to) = match other.get(name) {
            None => ("removed", Value::Null),
            Some(to) if to != from => ("changed", to.clone()),
            Some(_) => continue,
        };
        found.push(Difference { of, name: name.clone(), how, from: from.clone(), to });
    }
    for (name, to) in other.into_iter().filter(|(name, _)| !one.contains_key(name)) {
        found.push(Difference { of, name, how: "added", from: Value::Null, to });
    }
}

fn steps(one: &Record, other: &Record, found: &mut Vec<Difference>) {
    fn by_address(record: &Record) -> BTreeMap<&str, &StepRecord> {
        record.steps.iter().map(|step| (step.address.as_str(), step)).collect()
    }
    let (was, is) = (by_address(one), by_address(other));
    let mut push = |address: &str, how: &'static str, from: Value, to: Value| {
        let is_helper = words::is_helper(address);
        let name = words::step(address);
        // A guard of a step is told as that step.
        if !is_helper || !found.iter().any(|it| it.of == "step" && it.name == name) {
            found.push(Difference { of: "step", name, how, from, to });
        }
    };
    for (address, step) in &was {
        match is.get(address) {
            None => push(address, "removed", json!(step.kind), Value::Null),
            Some(now) if (&now.kind, &now.code) != (&step.kind, &step.code) => {
                push(address, "code-changed", json!(step.code), json!(now.code));
            }
            Some(now) if now.inputs != step.inputs => {
                let (mut from, mut to) = (Value::Null, Value::Null);
                for ((_, before), (_, after)) in step.inputs.iter().zip(&now.inputs) {
                    if before != after {
                        (from, to) = (origin(before), origin(after));
                        break;
                    }
                }
                push(address, "source-changed", from, to);
            }
            Some(_) => {}
        }
    }
    for (address, step) in is.iter().filter(|(address, _)| !was.contains_key(*address)) {
        push(address, "added", Value::Null, json!(step.kind));
    }
}
