//! `onceflow diff RUN RUN`: the differences between two runs: inputs, code, steps, outputs. Exits with 1 if there are
//! any.

use super::lineage::origin;
use crate::{
    args, exit::Exit, fault::Fault, finish::data_json, location::StoreLocation, printer::Printer, run_meta,
    session::Session, verbs::ls::shell_word, words,
};
use onceflow_core::{
    Digest,
    model::Port,
    payload::{Outcome, Payload},
};
use onceflow_engine::{Engine, Origin, Record, StepRecord, task::Data};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most letters of a value that is shown itself. For a longer one its digest is shown.
const SHOWN_MAX: usize = 60;

/// A run, with its inputs and outputs as far as they are known and short.
struct Side {
    record: Record,
    inputs: BTreeMap<String, Value>,
    outputs: BTreeMap<String, Value>,
}

/// The digest of a value; and the value itself if it is short.
struct Thing {
    digest: Value,
    value: Option<Value>,
}

/// One difference.
struct Difference {
    /// The kind: `input`, `code`, `step`, `output`.
    of: &'static str,
    name: String,
    /// The change: `added`, `removed`, `changed`, `code-changed`, `source-changed`.
    how: &'static str,
    from: Value,
    to: Value,
    /// The old and the new value, where they are short.
    values: [Option<Value>; 2],
}

/// Compares two runs.
pub(crate) async fn run(args: &args::Diff, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let one = session.run(&engine, &args.one).await?;
    let other = session.run(&engine, &args.other).await?;
    let one = Side::of(&engine, &session.location, &one.key).await?;
    let other = Side::of(&engine, &session.location, &other.key).await?;
    engine.stop();
    session.close().await?;
    let found = differences(&one, &other);
    let (one, other) = (one.record, other.record);
    if printer.json {
        let line = |it: &Difference| {
            let mut line = json!({"of": it.of, "name": it.name, "how": it.how, "from": it.from, "to": it.to});
            for (name, value) in ["from_value", "to_value"].into_iter().zip(&it.values) {
                if let Some(value) = value {
                    line[name] = value.clone();
                }
            }
            line
        };
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

impl Side {
    async fn of(engine: &Engine, location: &StoreLocation, key: &str) -> Result<Self, Fault> {
        let handle = engine.find(key).await?;
        let record = handle.history().record().await?;
        let said = run_meta::inputs(location, record.id).unwrap_or_default();
        let ports = handle.request().signature().await?.map(|signature| signature.inputs).unwrap_or_default();
        let mut inputs = BTreeMap::new();
        for port in ports {
            let Some(said) = said.get(&port.name).filter(|said| is_short(said)) else { continue };
            let digest = record.inputs.iter().find(|(name, _)| *name == port.name).map(|(_, digest)| digest);
            // The metadata beside the run is not authoritative, and has only the name of a file: a value is used only
            // if its digest is that of the input.
            let data = onceflow_exec::value::PortValue::from_json(said.clone(), &port.ty).ok();
            let bytes = match data.and_then(|value| value.into_data(&port.ty).ok()) {
                Some(Data::Bytes(bytes)) => bytes,
                _ => continue,
            };
            if digest == Some(&Digest::of(&bytes)) {
                inputs.insert(port.name, said.clone());
            }
        }
        let mut outputs = BTreeMap::new();
        for (Port { name, .. }, _, outcome) in &record.outputs {
            if let Some(outcome @ Outcome::Value(Payload::Inline(_))) = outcome {
                // For a file, its name and size would not show the difference.
                if let data @ Data::Bytes(_) = handle.outputs().peek(outcome).await? {
                    outputs.insert(name.clone(), data_json(data));
                }
            }
        }
        outputs.retain(|_, value| is_short(value));
        Ok(Side { record, inputs, outputs })
    }

    fn inputs(&self) -> BTreeMap<String, Thing> {
        let thing = |(name, digest): &(String, Digest)| {
            (name.clone(), Thing { digest: hex(digest), value: self.inputs.get(name).cloned() })
        };
        self.record.inputs.iter().map(thing).collect()
    }

    fn outputs(&self) -> BTreeMap<String, Thing> {
        let digest = |outcome: &Option<Outcome>| outcome.as_ref().map_or(Value::Null, |outcome| hex(&outcome.digest()));
        let thing = |(port, _, outcome): &(Port, Origin, Option<Outcome>)| {
            let value = self.outputs.get(&port.name).cloned();
            (port.name.clone(), Thing { digest: digest(outcome), value })
        };
        self.record.outputs.iter().map(thing).collect()
    }
}

fn is_short(value: &Value) -> bool {
    value.to_string().chars().count() <= SHOWN_MAX
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
            let [from, to] = &it.values;
            let shown = |value: &Option<Value>, digest: &Value| match value {
                Some(value) => value.to_string(),
                None => short(digest),
            };
            format!("~ {} {}: {how} from {} to {}\n", it.of, it.name, shown(from, &it.from), shown(to, &it.to))
        }
    }
}

fn hex(digest: &Digest) -> Value {
    Value::String(words::hex(digest))
}

fn differences(was: &Side, is: &Side) -> Vec<Difference> {
    let mut found = Vec::new();
    let (one, other) = (&was.record, &is.record);
    let none = [None, None];
    if one.flow != other.flow {
        let (from, to) = (json!(one.flow), json!(other.flow));
        found.push(Difference { of: "flow", name: other.flow.clone(), how: "changed", from, to, values: none.clone() });
    }
    plain("input", was.inputs(), is.inputs(), &mut found);
    if !one.steps.is_empty() && !other.steps.is_empty() {
        steps(one, other, &mut found);
    } else if one.code != other.code {
        let (from, to) = (hex(&one.code), hex(&other.code));
        found.push(Difference {
            of: "code",
            name: String::from("of the flow"),
            how: "changed",
            from,
            to,
            values: none,
        });
    }
    plain("output", was.outputs(), is.outputs(), &mut found);
    found
}

/// Adds the differences between two sets of named digests.
fn plain(
    of: &'static str,
    one: BTreeMap<String, Thing>,
    mut other: BTreeMap<String, Thing>,
    found: &mut Vec<Difference>,
) {
    for (name, Thing { digest: from, value }) in one {
        let (how, to) = match other.remove(&name) {
            None => ("removed", Thing { digest: Value::Null, value: None }),
            Some(to) if to.digest != from => ("changed", to),
            Some(_) => continue,
        };
        found.push(Difference { of, name, how, from, to: to.digest, values: [value, to.value] });
    }
    for (name, to) in other {
        found.push(Difference { of, name, how: "added", from: Value::Null, to: to.digest, values: [None, to.value] });
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
        // A changed guard of a step is reported as that step.
        if !is_helper || !found.iter().any(|it| it.of == "step" && it.name == name) {
            found.push(Difference { of: "step", name, how, from, to, values: [None, None] });
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
