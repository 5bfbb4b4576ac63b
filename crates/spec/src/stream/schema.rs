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
        ("inputs", named("What it is given as a step of a flow: files and directories.", reference("type"))),
        ("partitions", whole("Partitions of every stage that is not a source; 4.", 1)),
        ("bundle", whole("Records that one commit takes at most; 10000.", 1)),
        (
            "secrets",
            words("Names in the environment whose values sources and sinks may use, and which are never stored."),
        ),
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
        "expression": expression("An expression (CEL) over `record`, whose fields may be named without it."),
        "duration": { "type": ["string", "integer"], "pattern": DURATION, "examples": ["30s", "10m", "1d"] },
        "source": source(),
        "step": step(),
        "window": window(),
        "field": field(),
        "fold": fold(),
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
        "Whether the stream stops at a record that cannot be read or computed, skips it, or diverts it to NAME.errors; stop.",
        &["stop", "skip", "divert"],
    )
}

fn format() -> Value {
    one_of("A line is JSON or text; json.", &["json", "text"])
}

fn headers(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": { "type": ["string", "number", "boolean"] },
    })
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
        (
            "file",
            text(
                "A file or a pattern, relative to this file, or `${{ inputs.NAME }}`; gzip files must be whole.",
                None,
            ),
        ),
        ("directory", text("A directory, relative to this file, or `${{ inputs.NAME }}`: every file in it.", None)),
        ("subdirectories", json!({ "type": "boolean", "description": "The files of its subdirectories too." })),
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
        ("headers", headers("Headers that requests must have, with `${{ secrets.NAME }}`.")),
        ("horizon", described(reference("duration"), "How long ids are remembered; 1h.")),
        ("format", format()),
        ("record", described(reference("type"), "The type of its records; fields that are not in it are left out.")),
        ("time", expression("When a record happened: milliseconds since 1970, or RFC 3339; the time it is read.")),
        ("lateness", described(reference("duration"), "How much earlier than the latest a record may be; 0.")),
        ("out_of_order", described(reference("duration"), "The earlier name of `lateness`.")),
        ("on_error", on_error()),
    ]);
    exactly_one(source, &["file", "directory", "stdin", "generate", "http"])
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
    let mut enrich = object(&[
        ("file", text("A table, relative to this file: .csv, .tsv, .json or .jsonl.", None)),
        ("from", text("A stream: the latest record of each key is the row.", None)),
        ("key", expression("The key of a row.")),
        ("record", described(reference("type"), "The type of the rows of a file.")),
    ]);
    enrich["required"] = json!(["key"]);
    let enrich = exactly_one(enrich, &["file", "from"]);
    let mut top = object(&[("n", whole("How many.", 1)), ("by", expression("What they are sorted by."))]);
    top["required"] = json!(["n", "by"]);
    let combined = |what: &str| expression(&format!("The {what} of each key and window, as field of the result."));
    let mut step = object(&[
        (
            "from",
            words("What it reads: sources, steps, and their side outputs (NAME.late, .rejects, .errors); merged."),
        ),
        ("filter", expression("Records for which this is true pass; with other work, they come to it.")),
        ("map", expressions("What a record becomes.")),
        ("flat_map", expression("A list: every element becomes a record.")),
        ("once", described(once, "Of records with the same id, the first passes.")),
        ("key", expressions("What is worked on apart: fields of the results.")),
        ("window", reference("window")),
        ("combine", named("What is combined, by the names of fields.", reference("field"))),
        ("count", described(object(&[]), "The number of records of each key and window.")),
        ("sum", combined("sum")),
        ("min", combined("smallest value")),
        ("max", combined("largest value")),
        ("mean", combined("mean")),
        ("distinct", combined("number of distinct values, within about 3 %,")),
        ("top", described(top, "The records with the largest values.")),
        ("fold", reference("fold")),
        ("enrich", described(enrich, "Gives each record the row that a table has for its key at its time.")),
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
        ("late_after", described(reference("duration"), "So long after a late record, all since then give a result.")),
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
        ("fold", reference("fold")),
    ]);
    let field = exactly_one(field, &["sum", "min", "max", "mean", "distinct", "top", "fold"]);
    json!({ "anyOf": [{ "const": "count" }, field] })
}

fn fold() -> Value {
    let mut fold = object(&[
        ("start", expression("The value of no records.")),
        ("add", expression("The value `acc` with one more `record`.")),
        ("merge", expression("The value of two parts, `acc` and `other`.")),
        (
            "laws",
            words("What holds for `merge`: `associative`, `commutative`. With both, parts are sent and not records."),
        ),
    ]);
    fold["required"] = json!(["start", "add"]);
    described(fold, "A combine of one's own.")
}

fn sink() -> Value {
    let mut sink = object(&[
        ("from", text("What it writes: a source or a step, or a side output.", None)),
        (
            "file",
            text(
                "A file, relative to this file; exactly once. One that the stream did not write is refused. With a date \
                 (%Y%m%d), a file for each of them.",
                None,
            ),
        ),
        ("stdout", only_true("Standard output.")),
        ("http", text("An address that records are sent to with POST, each with a key that stays the same.", None)),
        ("send", one_of("A request for each record, or for some lines together; record.", &["record", "lines"])),
        ("headers", headers("Headers of the requests, with `${{ secrets.NAME }}`.")),
        ("sqlite", text("A file of SQLite, relative to this file.", None)),
        ("postgres", text("A database of PostgreSQL: `host=… user=… dbname=…`.", None)),
        ("password", text("Its password: `${{ secrets.NAME }}`.", None)),
        ("table", text("The table whose rows the records are.", None)),
        ("key", words("The columns by which a record replaces an earlier row.")),
        ("format", format()),
    ]);
    sink["required"] = json!(["from"]);
    exactly_one(sink, &["file", "stdout", "http", "sqlite", "postgres"])
}
