//! Makes the pipeline of a checked stream file.

mod ends;
mod route;

use super::{
    LoadedStream, call,
    check::{CheckedNode, CheckedTable, CheckedWork, NodeOutput, StreamInput, has_timing, sink_step},
    combine::StreamCombine,
    declare::OnError,
    expression::{RECORD, RecordExpression, failed_record, record_of, scope},
    source, table,
};
use onceflow_core::model::CheckedFlow;
use onceflow_engine::Engine;
use onceflow_exec::value::PortValue;
use onceflow_stream::{
    BoxFuture, CallFailure, CallTarget, PaneResult, Pipeline, RecordCall, Stream, StreamOptions,
    pipeline::tail::Clock,
    step::join::{JoinRange, Side},
    window::{Timing, WindowKind, Windowing},
};
use route::{Router, pairs};
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

/// The streams that a node gives.
#[derive(Default)]
pub(super) struct NodeStreams {
    pub(super) main: Option<Stream<PortValue>>,
    pub(super) late: Option<Stream<PortValue>>,
    pub(super) rejects: Option<Stream<PortValue>>,
    /// One for each part of the node that may fail.
    pub(super) errors: Vec<Stream<PortValue>>,
}

/// The pipeline of a stream file.
pub(super) fn pipeline(stream: &LoadedStream, clock: Clock, calls: Option<&StreamCalls>) -> Pipeline {
    let plain = StreamOptions::default();
    let bundle_records = stream.bundle_records.unwrap_or(plain.bundle_records);
    let options = StreamOptions { partitions: stream.partitions, bundle_records, ..plain };
    let pipeline = Pipeline::new(&stream.name).options(options);
    let mut build = Build { stream, pipeline: &pipeline, clock, calls, made: Vec::new() };
    for (number, node) in stream.nodes.iter().enumerate() {
        let made = match node.work {
            CheckedWork::Source { .. } => source::add(&pipeline, node, stream, &build.clock),
            _ => build.step(number, node),
        };
        build.made.push(made);
    }
    pipeline
}

struct Build<'a> {
    stream: &'a LoadedStream,
    pipeline: &'a Pipeline,
    clock: Clock,
    calls: Option<&'a StreamCalls>,
    made: Vec<NodeStreams>,
}

impl Build<'_> {
    /// Returns the stream of an output; several sources of errors become one.
    fn input(&self, input: StreamInput) -> Stream<PortValue> {
        let made = &self.made[input.node];
        let stream = match input.output {
            NodeOutput::Main => made.main.clone(),
            NodeOutput::Late => made.late.clone(),
            NodeOutput::Rejects => made.rejects.clone(),
            NodeOutput::Errors => made.errors.split_first().map(|(first, rest)| match rest {
                [] => first.clone(),
                rest => first.merge(&format!("{} errors", self.stream.nodes[input.node].name), rest),
            }),
        };
        stream.expect("every output that is read was checked, and made by its node")
    }

    fn is_read(&self, node: usize, output: NodeOutput) -> bool {
        self.stream.nodes.iter().flat_map(|node| &node.inputs).any(|input| *input == StreamInput { node, output })
    }

    /// Adds a node that reads others.
    fn step(&self, number: usize, node: &CheckedNode) -> NodeStreams {
        let name = node.name.as_str();
        let inputs: Vec<Stream<PortValue>> = node.own_inputs().iter().map(|input| self.input(*input)).collect();
        let (first, rest) = inputs.split_first().expect("a step reads something");
        let is_merge = matches!(node.work, CheckedWork::Merge) && node.filter.is_none();
        let mut input = match rest {
            [] => first.clone(),
            rest if is_merge => first.merge(name, rest),
            rest => first.merge(&format!("{name} merge"), rest),
        };
        let mut router = Router { on_error: node.on_error, streams: NodeStreams::default() };
        if let Some(filter) = &node.filter {
            let own = if let CheckedWork::Merge = node.work { name.to_owned() } else { format!("{name} filter") };
            input = router.filter(&own, &input, filter, self.is_read(number, NodeOutput::Rejects));
        }
        let main = self.work(&mut router, (number, node), input);
        NodeStreams { main, ..router.streams }
    }

    /// Adds the work of a node; a sink gives no stream.
    fn work(
        &self,
        router: &mut Router,
        (number, node): (usize, &CheckedNode),
        input: Stream<PortValue>,
    ) -> Option<Stream<PortValue>> {
        let name = node.name.as_str();
        Some(match &node.work {
            CheckedWork::Source { .. } => unreachable!("a source reads nothing"),
            CheckedWork::Merge => input,
            CheckedWork::Map(fields) => {
                let fields = fields.clone();
                router.each(name, &input, move |scope| {
                    let mut made = BTreeMap::new();
                    for (field, value) in &fields {
                        match (field, value.eval(&scope)) {
                            (_, Err(why)) => return Err((why, scope)),
                            (Some(field), Ok(value)) => drop(made.insert(field.clone(), value)),
                            (None, Ok(value)) => return Ok(Some(value)),
                        }
                    }
                    Ok(Some(PortValue::Record(made)))
                })
            }
            CheckedWork::FlatMap(list) => {
                let list = list.clone();
                router.each(name, &input, move |scope| match list.eval(&scope) {
                    Ok(PortValue::List(records)) => Ok(records),
                    Ok(other) => Err((format!("`flat_map` makes a list, not {}", other.describe()), scope)),
                    Err(why) => Err((why, scope)),
                })
            }
            CheckedWork::Once { id, horizon_ms } => {
                let (id, text) = (id.clone(), id.text().to_owned());
                let named = router.each(&format!("{name} id"), &input, move |scope| match id.eval(&scope) {
                    Ok(id) => Ok(Some((id.to_json().to_string(), record_of(scope)))),
                    Err(why) => Err((why, scope)),
                });
                let once = named.once_per_id(name, *horizon_ms, |(id, _): &(String, PortValue)| id.clone());
                let once = once.state_depends_on("id", text);
                once.map(&format!("{name} record"), |(_, record)| record)
            }
            CheckedWork::Combine { key, windowing, combine } => {
                let late = self.is_read(number, NodeOutput::Late);
                combined(router, name, &input, (key, late), *windowing, combine)
            }
            CheckedWork::Call(called) => match self.calls {
                Some(calls) => {
                    call::add((&self.stream.name, name), called, node.on_error, &self.stream.base, &input, calls)
                }
                None => input.call(name, 1, NoCalls),
            },
            CheckedWork::Join { keys, range } => {
                let other = self.input(*node.inputs.last()?);
                joined(router, name, [&input, &other], keys, *range)
            }
            CheckedWork::Enrich { keys, table } => {
                let rows = match table {
                    CheckedTable::Stream => self.input(*node.inputs.last()?),
                    CheckedTable::Given { ty } => {
                        let given = self.stream.given.get(name).and_then(|files| files.first());
                        let file = given.map_or_else(
                            || table::TableFile::new(std::path::PathBuf::new(), ty.clone()),
                            |file| table::TableFile::named(file.name.clone(), file.path.clone(), ty.clone()),
                        );
                        self.pipeline.source(&format!("{name} table"), file)
                    }
                    CheckedTable::File { path, ty } => {
                        let file = table::TableFile::new(self.stream.base.join(path), ty.clone());
                        self.pipeline.source(&format!("{name} table"), file)
                    }
                };
                enriched(router, name, [&input, &rows], keys)
            }
            CheckedWork::Sink { to, format } => {
                ends::sink(self.stream, node, &input, to, *format);
                return None;
            }
        })
    }
}

/// Combines the records of each key and window, and makes a record of each result.
fn combined(
    router: &mut Router,
    name: &str,
    input: &Stream<PortValue>,
    (key, late_is_read): (&[(String, RecordExpression)], bool),
    windowing: Windowing,
    combine: &StreamCombine,
) -> Stream<PortValue> {
    let (keys, taking) = (key.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(), combine.clone());
    let keyed = pairs(router, &format!("{name} key"), input, move |scope| {
        let key: Result<Vec<_>, _> = keys.iter().map(|key| key.eval(scope)).collect();
        let record = scope.root(RECORD).unwrap_or(&PortValue::Null);
        let mut taken = taking.taken(scope, record)?;
        taken.record = late_is_read.then(|| record.clone());
        Ok((PortValue::List(key?), taken))
    });
    let key_text = key.iter().map(|(_, key)| key.text()).collect::<Vec<_>>().join(", ");
    let keyed = keyed.state_depends_on("key", key_text);
    let names: Vec<String> = key.iter().map(|(name, _)| name.clone()).collect();
    let fields: Vec<String> = combine.names().map(str::to_owned).collect();
    let panes = match late_is_read {
        false => keyed.combine(name, windowing, combine.clone()),
        true => {
            let (panes, late) = keyed.combine_with_late(name, windowing, combine.clone());
            router.streams.late = Some(late.flat_map(&format!("{name} late records"), |late| late.value.record));
            panes
        }
    };
    let record = move |pane: PaneResult<PortValue, Result<Vec<PortValue>, String>>| {
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
        match pane.value {
            Ok(values) => {
                record.extend(fields.iter().cloned().zip(values));
                Ok(Some(PortValue::Record(record)))
            }
            Err(why) => Err((why, PortValue::Record(record))),
        }
    };
    router.results(&format!("{name} record"), &panes, record)
}

fn joined(
    router: &mut Router,
    name: &str,
    inputs: [&Stream<PortValue>; 2],
    keys: &[RecordExpression; 2],
    range: JoinRange,
) -> Stream<PortValue> {
    let left = router.keyed(&format!("{name} left key"), inputs[0], &keys[0]);
    let right = router.keyed(&format!("{name} right key"), inputs[1], &keys[1]);
    left.join(name, &right, range).map(&format!("{name} record"), |(_, left, right)| {
        let sides = [(String::from("left"), left), (String::from("right"), right)];
        PortValue::Record(sides.into_iter().collect())
    })
}

/// Gives each record the row of a table.
fn enriched(
    router: &mut Router,
    name: &str,
    inputs: [&Stream<PortValue>; 2],
    keys: &[RecordExpression; 2],
) -> Stream<PortValue> {
    let records = router.keyed(&format!("{name} key"), inputs[0], &keys[0]);
    let rows = router.keyed(&format!("{name} table key"), inputs[1], &keys[1]);
    records.lookup(name, &rows).map(&format!("{name} record"), |(_, record, row)| {
        let row = (String::from(table::ROW), row.unwrap_or(PortValue::Null));
        PortValue::Record([(String::from(RECORD), record), row].into_iter().collect())
    })
}
