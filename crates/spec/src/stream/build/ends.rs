//! Adds the sinks of a stream file.

use super::{CheckedNode, LoadedStream, PortValue, Stream, sink_step};
use crate::stream::{
    declare::{LineFormat, RecordTarget},
    sql,
};
use onceflow_stream::{DatedFileSink, FileSink, HttpPayload, HttpSink, StdoutSink};

/// Adds a sink. Its records come together first, so that they are one file.
pub(super) fn sink(
    stream: &LoadedStream,
    node: &CheckedNode,
    input: &Stream<PortValue>,
    to: &RecordTarget,
    format: LineFormat,
) {
    let name = sink_step(&node.name);
    let encode = move |record: &PortValue, line: &mut Vec<u8>| {
        match (format, record) {
            (LineFormat::Text, PortValue::Text(text)) => line.extend_from_slice(text.as_bytes()),
            _ => serde_json::to_writer(&mut *line, &record.as_json()).expect("memory takes everything"),
        }
        line.push(b'\n');
    };
    let gathered = input.gather(&format!("{name} gather"));
    // The files of a step are told apart by their sinks.
    let base = if stream.is_step { stream.base.join(&node.name) } else { stream.base.clone() };
    match to {
        RecordTarget::File(path) => gathered.sink(&name, FileSink::new(base.join(path)), encode),
        RecordTarget::Dated(path) => gathered.sink(&name, DatedFileSink::new(&base, path.clone()), encode),
        RecordTarget::Stdout => gathered.sink(&name, StdoutSink::new(), encode),
        RecordTarget::Http { url, payload, headers } => {
            let own = format!("{}/{}", stream.name, node.name);
            let mut sink = HttpSink::new(&url.text, own).expect("the address was checked").payload(*payload);
            sink = sink.content_type(match (format, payload) {
                (LineFormat::Text, _) => "text/plain; charset=utf-8",
                (LineFormat::Json, HttpPayload::Record) => "application/json",
                (LineFormat::Json, HttpPayload::Lines) => "application/x-ndjson",
            });
            for (header, value) in headers {
                sink = sink.header(header, value.text()).expect("the header was checked");
            }
            gathered.sink(&name, sink, encode);
        }
        RecordTarget::Sql(table) => sql::add(stream, node, &gathered, table, encode),
    }
}
