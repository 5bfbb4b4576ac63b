//! Makes the pipeline of a checked stream file.

use super::{
    LoadedStream, call,
    check::{CheckedNode, CheckedWork, has_timing, sink_step},
    combine::StreamCombine,
    declare::{LineFormat, RecordTarget},
    expression::{RecordExpression, record_of, scope},
    source,
};
use onceflow_core::model::CheckedFlow;
use onceflow_engine::Engine;
use onceflow_exec::value::PortValue;
use onceflow_stream::{
    BoxFuture, CallFailure, CallTarget, FileSink, HttpPayload, HttpSink, KeyedStream, PaneResult, Pipeline, RecordCall,
    StdoutSink, Stream, StreamOptions,
    pipeline::tail::Clock,
    step::join::JoinRange,
    window::{Timing, WindowKind, Windowing},
};
use std::{collections::BTreeMap, sync::Arc};

/// How a pipeline's steps call flows.
#[derive(Clone)]
pub struct StreamCalls {
    /// The engine that starts the runs; it, or others on the store, works on them.
    pub engine: Engine,
    /// The classes of workers that take the steps of a run, by its key.
    pub classes: Arc<dyn Fn(&str, &CheckedFlow) -> Vec<(String, String)> + Send + Sync>,
}

/// Stands for calls in a pipeline that is planned and not run.
struct NoCalls;

impl CallTarget<PortValue> for NoCalls {
    type Out = PortValue;

    fn call(&self, _: RecordCall, _: PortValue) -> BoxFuture<'static, Result<PortValue, CallFailure>> {
        Box::pin(std::future::ready(Err(CallFailure::Unwanted)))
    }

    fn forget(&self, _: RecordCall) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The pipeline of a stream file.
pub(super) fn pipeline(stream: &LoadedStream, clock: Clock, calls: Option<&StreamCalls>) -> Pipeline {
    let plain = StreamOptions::default();
    let bundle_records = stream.bundle_records.unwrap_or(plain.bundle_records);
    let options = StreamOptions { partitions: stream.partitions, bundle_records, ..plain };
    let pipeline = Pipeline::new(&stream.name).options(options);
    let mut made: Vec<Option<Stream<PortValue>>> = Vec::new();
    for node in &stream.nodes {
        if let CheckedWork::Source { .. } = node.work {
            made.push(Some(source::add(&pipeline, node, &stream.base, &clock)));
            continue;
        }
        let inputs: Vec<Stream<PortValue>> = node.inputs.iter().filter_map(|input| made[*input].clone()).collect();
        made.push(step(stream, node, &inputs, calls));
    }
    pipeline
}

/// Adds a node that reads others; a sink gives no stream.
fn step(
    stream: &LoadedStream,
    node: &CheckedNode,
    inputs: &[Stream<PortValue>],
    calls: Option<&StreamCalls>,
) -> Option<Stream<PortValue>> {
    let (name, on_error) = (node.name.as_str(), node.on_error);
    let (first, rest) = inputs.split_first().expect("a step reads something");
    let rest = if let CheckedWork::Join { .. } = node.work { &rest[..rest.len() - 1] } else { rest };
    let input = match (rest, &node.work) {
        ([], _) => first.clone(),
        (rest, CheckedWork::Merge) => return Some(first.merge(name, rest)),
        (rest, _) => first.merge(&format!("{name} merge"), rest),
    };
    Some(match &node.work {
        CheckedWork::Source { .. } => unreachable!("a source reads nothing"),
        CheckedWork::Merge => input,
        CheckedWork::Filter(filter) => {
            let filter = filter.clone();
            input.try_flat_map(name, move |record| {
                let scope = scope(record);
                match filter.eval(&scope) {
                    Ok(PortValue::Bool(keeps)) => Ok(keeps.then(|| record_of(scope))),
                    Ok(other) => {
                        let why = format!("a filter is true or false, not {}", other.describe());
                        Err(on_error.failure(why, &scope))
                    }
                    Err(why) => Err(on_error.failure(why, &scope)),
                }
            })
        }
        CheckedWork::Map(fields) => {
            let fields = fields.clone();
            input.try_flat_map(name, move |record| {
                let scope = scope(record);
                let mut made = BTreeMap::new();
                for (field, value) in &fields {
                    let value = value.eval(&scope).map_err(|why| on_error.failure(why, &scope))?;
                    match field {
                        Some(field) => drop(made.insert(field.clone(), value)),
                        None => return Ok([value]),
                    }
                }
                Ok([PortValue::Record(made)])
            })
        }
        CheckedWork::FlatMap(list) => {
            let list = list.clone();
            input.try_flat_map(name, move |record| {
                let scope = scope(record);
                match list.eval(&scope) {
                    Ok(PortValue::List(records)) => Ok(records),
                    Ok(other) => {
                        let why = format!("`flat_map` makes a list, not {}", other.describe());
                        Err(on_error.failure(why, &scope))
                    }
                    Err(why) => Err(on_error.failure(why, &scope)),
                }
            })
        }
        CheckedWork::Once { id, horizon_ms } => {
            let id = id.clone();
            let named = input.try_flat_map(&format!("{name} id"), move |record| {
                let scope = scope(record);
                let id = id.eval(&scope).map_err(|why| on_error.failure(why, &scope))?;
                Ok([(id.to_json().to_string(), record_of(scope))])
            });
            let once = named.once_per_id(name, *horizon_ms, |(id, _): &(String, PortValue)| id.clone());
            once.map(&format!("{name} record"), |(_, record)| record)
        }
        CheckedWork::Combine { key, windowing, combine } => combined(node, &input, key, *windowing, combine),
        CheckedWork::Call(called) => match calls {
            Some(calls) => call::add((&stream.name, name), called, on_error, &stream.base, &input, calls),
            None => input.call(name, 1, NoCalls),
        },
        CheckedWork::Join { keys, range } => joined(node, [&input, inputs.last()?], keys, *range),
        CheckedWork::Sink { to, format } => {
            sink(stream, node, &input, to, *format);
            return None;
        }
    })
}

/// Combines the records of each key and window, and makes a record of each result.
fn combined(
    node: &CheckedNode,
    input: &Stream<PortValue>,
    key: &[(String, RecordExpression)],
    windowing: Windowing,
    combine: &StreamCombine,
) -> Stream<PortValue> {
    let (name, on_error) = (node.name.as_str(), node.on_error);
    let (keys, taking) = (key.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(), combine.clone());
    let keyed = input.try_key_value(&format!("{name} key"), move |record| {
        let scope = scope(record.clone());
        let key: Result<Vec<_>, _> = keys.iter().map(|key| key.eval(&scope)).collect();
        let taken = key.and_then(|key| Ok((PortValue::List(key), taking.taken(&scope, &record)?)));
        taken.map_err(|why| on_error.failure(why, &scope))
    });
    let names: Vec<String> = key.iter().map(|(name, _)| name.clone()).collect();
    let fields: Vec<String> = combine.names().map(str::to_owned).collect();
    let panes = keyed.combine(name, windowing, combine.clone());
    panes.map(&format!("{name} record"), move |pane: PaneResult<PortValue, Vec<PortValue>>| {
        let mut record = BTreeMap::new();
        if let PortValue::List(key) = pane.key {
            record.extend(names.iter().cloned().zip(key));
        }
        if windowing.kind != WindowKind::Global {
            record.insert(String::from("start"), PortValue::Int(pane.window.start.0));
            record.insert(String::from("end"), PortValue::Int(pane.window.end.0));
        }
        if has_timing(&windowing) {
            let timing = match pane.timing {
                Timing::Early => "early",
                Timing::OnTime => "on_time",
                Timing::Late => "late",
            };
            record.insert(String::from("timing"), PortValue::text(timing));
        }
        record.extend(fields.iter().cloned().zip(pane.value));
        PortValue::Record(record)
    })
}

fn joined(
    node: &CheckedNode,
    inputs: [&Stream<PortValue>; 2],
    keys: &[RecordExpression; 2],
    range: JoinRange,
) -> Stream<PortValue> {
    let (name, on_error) = (node.name.as_str(), node.on_error);
    let keyed = |at: usize, side: &str| -> KeyedStream<PortValue, PortValue> {
        let key = keys[at].clone();
        inputs[at].try_key_value(&format!("{name} {side} key"), move |record| {
            let scope = scope(record);
            let key = key.eval(&scope).map_err(|why| on_error.failure(why, &scope))?;
            Ok((key, record_of(scope)))
        })
    };
    let (left, right) = (keyed(0, "left"), keyed(1, "right"));
    left.join(name, &right, range).map(&format!("{name} record"), |(_, left, right)| {
        let sides = [(String::from("left"), left), (String::from("right"), right)];
        PortValue::Record(sides.into_iter().collect())
    })
}

/// Adds a sink. Its records come together first, so that they are one file.
fn sink(stream: &LoadedStream, node: &CheckedNode, input: &Stream<PortValue>, to: &RecordTarget, format: LineFormat) {
    let name = sink_step(&node.name);
    let encode = move |record: &PortValue, line: &mut Vec<u8>| {
        match (format, record) {
            (LineFormat::Text, PortValue::Text(text)) => line.extend_from_slice(text.as_bytes()),
            _ => serde_json::to_writer(&mut *line, &record.as_json()).expect("memory takes everything"),
        }
        line.push(b'\n');
    };
    let gathered = input.gather(&format!("{name} gather"));
    match to {
        RecordTarget::File(path) => gathered.sink(&name, FileSink::new(stream.base.join(&path.text)), encode),
        RecordTarget::Stdout => gathered.sink(&name, StdoutSink, encode),
        RecordTarget::Http { url, payload } => {
            let own = format!("{}/{}", stream.name, node.name);
            let sink = HttpSink::new(&url.text, own).expect("the address was checked").payload(*payload);
            let content_type = match (format, payload) {
                (LineFormat::Text, _) => "text/plain; charset=utf-8",
                (LineFormat::Json, HttpPayload::Record) => "application/json",
                (LineFormat::Json, HttpPayload::Lines) => "application/x-ndjson",
            };
            gathered.sink(&name, sink.content_type(content_type), encode);
        }
    }
}
