//! The JSON Schema of a stream file, for editors. A file that it refuses, [`load_stream`](crate::load_stream) refuses
//! too.

use crate::schema::{
    DURATION, NAME, described, expression, named, object, one_of, reference, text, type_schema, words,
};
use serde_json::{Value, json};

/// Returns the schema, as in `docs/stream.schema.json`.
pub fn stream_schema() -> Value {
    let mut stream = object(&[
        ("stream", text("The name of the stream.", Some("^[A-Za-z0-9_-]{1,100}$"))),
        ("description", text("What it is for.", None)),
        ("partitions", whole("Partitions of every stage that is not a source; 4.", 1)),
        ("bundle", whole("Records that one commit takes at most; 10000.", 1)),
        ("sources", named("Where records come from.", reference("source"))),
        ("steps", named("What is done with them.", reference("step"))),
        ("sinks", named("Where results go.", reference("sink"))),
    ]);
    stream["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    stream["$id"] = json!("https://onceflow.dev/stream.schema.json");
    stream["title"] = json!("A onceflow stream file");
    stream["required"] = json!(["stream", "sources"]);
    stream["$defs"] = json!({
        "name": { "pattern": NAME },
        "type": type_schema(),
        "expression": expression("An expression (CEL) over `record`."),
        "duration": { "type": ["string", "integer"], "pattern": DURATION, "examples": ["30s", "10m", "1d"] },
        "source": source(),
        "step": step(),
        "window": window(),
        "field": field(),
        "sink": sink(),
    });
    stream
}

fn whole(description: &str, least: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "description": description })
}

fn only_true(description: &str) -> Value {
    json!({ "const": true, "description": description })
}

fn exactly_one(mut schema: Value, keys: &[&str]) -> Value {
    schema["oneOf"] = keys.iter().map(|key| json!({ "required": [key] })).collect();
    schema
}

fn on_error() -> Value {
    one_of(
        "Whether the stream stops at a record that cannot be read or computed, or skips it; stop.",
        &["stop", "skip"],
    )
}

fn format() -> Value {
    one_of("A line is JSON or text; json.", &["json", "text"])
}

/// An expression, or several by their names.
fn expressions(description: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [reference("expression"), named("", reference("expression"))],
    })
}

fn source() -> Value {
    let source = object(&[
        ("file", text("A file or a pattern, relative to this file; compressed files (gzip) must be whole.", None)),
        ("follow", json!({ "type": "boolean", "description": "Wait for more lines and files instead of ending." })),
        ("idle", described(reference("duration"), "A file that is silent for so long does not hold time back; 10s.")),
        ("stdin", only_true("Standard input.")),
        ("generate", text("An expression that makes a record of its number `n`.", None)),
        ("count", whole("How many records are generated.", 0)),
        ("every", described(reference("duration"), "The time between two generated records.")),
        (
            "http",
            json!({ "type": ["integer", "string"], "description": "Records that clients send with POST: a port of this machine, or an address with a port." }),
        ),
        ("id", expression("The id of a record that clients send; else the request has the header Idempotency-Key.")),
        ("horizon", described(reference("duration"), "How long ids are remembered; 1h.")),
        ("format", format()),
        ("record", described(reference("type"), "The type of its records; fields that are not in it are left out.")),
        ("time", expression("When a record happened: milliseconds since 1970, or RFC 3339; the time it is read.")),
        ("out_of_order", described(reference("duration"), "How much earlier than the latest a record may be.")),
        ("on_error", on_error()),
    ]);
    exactly_one(source, &["file", "stdin", "generate", "http"])
}

fn step() -> Value {
    let once = object(&[
        ("id", expression("The id of a record.")),
        ("horizon", described(reference("duration"), "How long ids are remembered.")),
    ]);
    let join = object(&[
        ("from", text("The other stream.", None)),
        ("key", expression("The key of its records.")),
        ("window", described(reference("duration"), "Both are in the same window of this size.")),
        ("before", described(reference("duration"), "How much earlier the other record may be.")),
        ("after", described(reference("duration"), "How much later the other record may be.")),
    ]);
    let mut step = object(&[
        ("from", words("What it reads: sources and steps; several are merged.")),
        ("filter", expression("Records for which this is true pass.")),
        ("map", expressions("What a record becomes.")),
        ("flat_map", expression("A list: every element becomes a record.")),
        ("once", described(once, "Of records with the same id, the first passes.")),
        ("key", expressions("What is worked on apart: fields of the results.")),
        ("window", reference("window")),
        ("combine", named("What is combined, by the names of fields.", reference("field"))),
        ("join", described(join, "Every pair of records that belong together.")),
        ("call", text("A flow file, relative to this file: a run for each record, exactly once.", None)),
        ("in", named("Inputs of the called flow.", reference("expression"))),
        ("at_most", whole("Runs of a partition that are open at a time; 16.", 1)),
        ("on_error", on_error()),
    ]);
    step["required"] = json!(["from"]);
    step
}

fn window() -> Value {
    let early = object(&[
        ("count", whole("After so many records.", 1)),
        ("after", described(reference("duration"), "So long after the first record.")),
    ]);
    let window = object(&[
        ("tumbling", described(reference("duration"), "Windows of this size, one after the other.")),
        ("sliding", described(reference("duration"), "Windows of this size that begin `every` so often.")),
        ("every", described(reference("duration"), "The distance of the beginnings of sliding windows.")),
        ("session", described(reference("duration"), "A window ends when a key had no record for so long.")),
        ("lateness", described(reference("duration"), "How long after its end a window takes records.")),
        ("early", described(early, "Results before the end.")),
        ("late_count", whole("Late records that together give a result; 1.", 1)),
        ("mode", one_of("What a further result covers: all, or what is new.", &["accumulating", "discarding"])),
    ]);
    described(window, "The interval of event time over which records are combined; all time.")
}

fn field() -> Value {
    let field = object(&[
        ("sum", expression("The sum.")),
        ("min", expression("The smallest value.")),
        ("max", expression("The largest value.")),
        ("mean", expression("The mean.")),
        ("distinct", expression("The number of distinct values, within about 3 %.")),
        ("top", whole("The records with the largest values.", 1)),
        ("by", expression("What `top` sorts by.")),
    ]);
    let field = exactly_one(field, &["sum", "min", "max", "mean", "distinct", "top"]);
    json!({ "anyOf": [{ "const": "count" }, field] })
}

fn sink() -> Value {
    let mut sink = object(&[
        ("from", text("What it writes: a source or a step.", None)),
        (
            "file",
            text("A file, relative to this file; exactly once. One that the stream did not write is refused.", None),
        ),
        ("stdout", only_true("Standard output.")),
        ("http", text("An address that records are sent to with POST, each with a key that stays the same.", None)),
        ("send", one_of("A request for each record, or for some lines together; record.", &["record", "lines"])),
        ("format", format()),
    ]);
    sink["required"] = json!(["from"]);
    exactly_one(sink, &["file", "stdout", "http"])
}
