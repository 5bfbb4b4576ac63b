//! The JSON Schema of a flow file, for editors: the allowed keys and their meaning. The schema does not find every
//! problem that [`load`](crate::load) does; a file that it refuses, `load` refuses too.

use crate::syntax::scope::{OP_KINDS, TASK_KINDS};
use serde_json::{Map, Value, json};

/// Returns the schema, as in `docs/flow.schema.json`.
pub fn schema() -> Value {
    let mut flow = object(&[
        (
            "flow",
            text("The name of the flow, and the key of its run if none is given.", Some("^[A-Za-z0-9_-]{1,100}$")),
        ),
        ("description", text("What it is for.", None)),
        ("inputs", named("What it takes.", reference("input"))),
        ("secrets", words("Names in the environment whose values steps may use, and which are never stored.")),
        ("env", env()),
        ("shell", reference("shell")),
        ("keep", described(reference("duration"), "How long inner values outlive the run.")),
        ("history", described(reference("duration"), "How long a finished run can be asked about.")),
        ("on_failure", one_of("Whether the other steps go on when one has failed.", &["stop", "finish_independent"])),
        (
            "store_inputs",
            json!({ "type": "boolean", "description": "Copy input files into the store, instead of reading them where they are." }),
        ),
        (
            "results_mode",
            one_of(
                "How results get to their place: copied, linked to the store's files, or moved.",
                &crate::ResultsMode::WORDS,
            ),
        ),
        ("steps", described(reference("steps"), "What is done.")),
        ("outputs", described(reference("gives"), "What it gives.")),
    ]);
    flow["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    flow["$id"] = json!("https://onceflow.dev/flow.schema.json");
    flow["title"] = json!("A onceflow flow file");
    flow["required"] = json!(["flow"]);
    flow["$defs"] = defs();
    flow
}

fn defs() -> Value {
    json!({
        "name": { "pattern": NAME },
        "type": type_schema(),
        "input": input(),
        "expression": expression("An expression (CEL), or a reference such as `inputs.reads` or `align.bam`."),
        "duration": { "type": ["string", "integer"], "pattern": DURATION, "examples": ["30s", "10m", "1d"] },
        "size": { "type": "string", "pattern": SIZE, "examples": ["512MiB", "2GB"] },
        "shell": shell(),
        "steps": named("Steps by their names.", reference("step")),
        "step": step(),
        "arm": arm(),
        "undo": undo(),
        "out": out(),
        "gives": named("Outputs by their names: references or expressions.", gives()),
        "http": http(),
        "scope": scope(),
        "target": target(),
        "loop": repeat(),
        "retry": retry(),
        "resources": object(&[
            ("cpus", json!({ "type": "number", "minimum": 0, "description": "Processors." })),
            ("memory", described(reference("size"), "Memory.")),
        ]),
    })
}

pub(crate) const NAME: &str = "^[A-Za-z_][A-Za-z0-9_]{0,59}$";
pub(crate) const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)? ?(ms|s|m|h|d|w))+)$";
const SIZE: &str = r"^[0-9]+(\.[0-9]+)? ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$";

pub(crate) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

pub(crate) fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

pub(crate) fn text(description: &str, pattern: Option<&str>) -> Value {
    let mut schema = json!({ "type": "string", "description": description });
    if let Some(pattern) = pattern {
        schema["pattern"] = json!(pattern);
    }
    schema
}

pub(crate) fn one_of(description: &str, words: &[&str]) -> Value {
    json!({ "enum": words, "description": description })
}

pub(crate) fn words(description: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
    })
}

fn scalar() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

pub(crate) fn expression(description: &str) -> Value {
    described(scalar(), description)
}

pub(crate) fn object(properties: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// A map under the user's own names.
pub(crate) fn named(description: &str, value: Value) -> Value {
    json!({
        "type": ["object", "null"],
        "description": description,
        "propertyNames": reference("name"),
        "additionalProperties": value,
    })
}

fn env() -> Value {
    json!({
        "type": "object",
        "description": "Variables of the environment; they may have holes.",
        "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
        "additionalProperties": { "type": ["string", "number", "boolean", "null"] },
    })
}

pub(crate) fn type_schema() -> Value {
    json!({
        "description": "file dir text int float bool bytes json unit, list<T>, T?, { a: T, b: T }, enum<a, b>",
        "anyOf": [
            { "type": "string", "examples": ["file", "dir", "text", "int", "float", "bool", "json", "list<file>", "text?"] },
            { "type": "object", "additionalProperties": reference("type") },
        ],
    })
}

fn input() -> Value {
    let long = object(&[
        ("type", reference("type")),
        ("default", json!({ "description": "What it is if it is not given." })),
        ("help", text("What it is for.", None)),
        ("enum", words("The words it may be.")),
        ("optional", json!({ "type": "boolean", "description": "It may be left out." })),
    ]);
    json!({ "anyOf": [long, reference("type")] })
}

fn shell() -> Value {
    json!({
        "description": "Who reads commands: bash (-euo pipefail), sh, or a program and its arguments.",
        "anyOf": [{ "enum": ["bash", "sh"] }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }],
    })
}

/// Returns the keys that steps, arms and undos have in common: the action, and its settings.
fn doing() -> Vec<(&'static str, Value)> {
    vec![
        ("run", text("A command. What it mentions in `${{ … }}` is its input.", None)),
        ("script", words("The interpreter of `code`, which reads its inputs as JSON and writes its outputs as JSON.")),
        ("code", text("What the interpreter runs.", None)),
        ("http", reference("http")),
        ("env", env()),
        ("secrets", words("Secrets that it gets as variables of its environment.")),
        ("shell", reference("shell")),
        ("retry", reference("retry")),
        ("timeout", described(reference("duration"), "The longest an attempt may take.")),
        ("resources", reference("resources")),
        ("labels", words("What a worker must be good for to take the step, on a store that several machines share.")),
        ("version", json!({ "type": ["string", "number"], "description": "Another version, another result." })),
        ("effect", one_of("What it does to the world.", &["pure", "idempotent", "at_most_once"])),
    ]
}

fn composing() -> Vec<(&'static str, Value)> {
    let mut all = doing();
    let expressions = named("An expression for each output.", reference("expression"));
    all.extend([
        ("expr", json!({ "anyOf": [reference("expression"), expressions] })),
        ("wait", text("The name of an event, which `onceflow send` brings; `timeout` is the longest wait.", None)),
        ("scope", reference("scope")),
        ("stream", step_stream()),
        ("flow", text("The file of another flow, relative to this one.", None)),
        ("steps", reference("steps")),
        (
            "choose",
            json!({
                "type": "array", "minItems": 1, "items": reference("arm"),
                "description": "The first arm whose `when` holds is taken.",
            }),
        ),
        (
            "in",
            json!({
                "description": "Inputs under names of their own, or a list of references.",
                "anyOf": [
                    named("", reference("expression")),
                    { "type": "array", "items": { "type": "string" } },
                ],
            }),
        ),
        (
            "out",
            json!({
                "type": "object",
                "description": "What it gives: types and where they are found; for `steps`, references.",
                "propertyNames": reference("name"),
                "additionalProperties": reference("out"),
            }),
        ),
        ("when", expression("A truth: it is done only if this holds, and its outputs are options.")),
        ("loop", reference("loop")),
        ("after", words("Steps that must be done before.")),
        ("undo", reference("undo")),
    ]);
    all
}

/// Requires exactly one of the keys of these kinds.
fn one_kind(mut schema: Value, kinds: &[&str]) -> Value {
    schema["oneOf"] = kinds.iter().map(|kind| json!({ "required": [kind] })).collect();
    schema["dependentRequired"] = json!({ "script": ["code"], "code": ["script"] });
    schema
}

const KINDS: &[&str] = &["run", "script", "http", "expr", "wait", "scope", "stream", "flow", "steps", "choose"];

/// A stream that is a step: its file, or what a stream file has.
fn step_stream() -> Value {
    let part = |name: &str| json!({ "type": "object", "description": format!("As the `{name}` of a stream file.") });
    let number = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let mut here = object(&[
        ("partitions", number("Partitions of every stage that is not a source; 4.")),
        ("bundle", number("Records that one commit takes at most; 10000.")),
        ("sources", part("sources")),
        ("steps", part("steps")),
        ("sinks", part("sinks")),
    ]);
    here["required"] = json!(["sources", "sinks"]);
    json!({
        "description": "A stream over given files, which ends with them; its sinks are the outputs.",
        "anyOf": [text("A stream file, relative to this one.", None), here],
    })
}

fn step() -> Value {
    let mut all = composing();
    all.extend([
        ("each", text("`x in LIST`, or `x, y in zip(LIST, LIST)`: once for every element.", Some(" in "))),
        ("at_most", json!({ "type": "integer", "minimum": 1, "description": "Elements at work at a time." })),
        ("attempt", json!({ "type": "boolean", "description": "A failure becomes the output `error`." })),
    ]);
    one_kind(object(&all), KINDS)
}

fn arm() -> Value {
    one_kind(object(&composing()), KINDS)
}

fn undo() -> Value {
    described(
        one_kind(object(&doing()), &["run", "script", "http"]),
        "What takes it back if the run fails or is cancelled.",
    )
}

fn out() -> Value {
    let long = object(&[
        ("type", reference("type")),
        ("path", text("A name or a pattern in the work directory.", None)),
        ("json", text("An expression over what was answered.", None)),
    ]);
    let short = json!({
        "type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": scalar(),
        "description": "{ TYPE: name or pattern }, { TYPE: stdout }, { TYPE: expression over the answer }",
    });
    json!({ "anyOf": [long, short, reference("type"), reference("expression")] })
}

fn gives() -> Value {
    let typed = json!({ "type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": scalar() });
    json!({ "anyOf": [reference("expression"), typed] })
}

fn http() -> Value {
    let statuses = json!({ "type": ["integer", "string"], "pattern": "^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$" });
    let mut schema = object(&[
        (
            "method",
            one_of("GET, or POST if something is sent.", &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
        ),
        ("url", text("Where to.", None)),
        ("headers", json!({ "type": "object", "additionalProperties": scalar() })),
        ("json", json!({ "description": "JSON to send; texts in it may have holes." })),
        ("text", text("Text to send.", None)),
        ("file", text("A file to send.", None)),
        ("key_header", text("The header that carries the key of the step; Idempotency-Key.", None)),
        (
            "accept",
            json!({ "anyOf": [statuses, { "type": "array", "items": statuses }], "description": "Good answers; 200-299." }),
        ),
    ]);
    schema["required"] = json!(["url"]);
    described(schema, "A call over HTTP.")
}

/// A target is an operation, `terminate`, `cancel`, `dispose`, a buffer, a stream, or several of them.
fn target() -> Value {
    let push = object(&[("push", text("The buffer that the message goes into.", None))]);
    let stream = object(&[("stream", text("The stream that the message leaves the scope by.", None))]);
    json!({
        "description": "An operation, `terminate`, `cancel`, `dispose`, { push: BUFFER }, { stream: NAME }, or a list: a copy to each.",
        "anyOf": [{ "type": "string" }, push, stream, { "type": "array", "minItems": 1, "items": reference("target") }],
    })
}

fn scope() -> Value {
    let keep = text("`all`, `last N` or `first N`.", Some("^(all|(last|first) [1-9][0-9]*)$"));
    let mut buffer = object(&[("keep", keep)]);
    buffer["type"] = json!(["object", "null"]);
    let mut cleanup = object(&task(&[
        ("on", one_of("The ends it runs at; either.", &["cancel", "terminate", "either"])),
        ("with", words("Buffers whose entries it takes: `message.BUFFER` is their list.")),
        ("timeout", described(reference("duration"), "It is cancelled after that.")),
    ]));
    cleanup["oneOf"] = required(TASK_KINDS);
    let flag = |text: &str| described(json!({ "type": "boolean" }), text);
    let settings = object(&[
        ("uninterruptible", flag("The end of the parent waits until the session has ended by itself.")),
        ("durable", described(json!({ "const": true }), "Scopes of flow files always are.")),
    ]);
    let mut schema = object(&[
        ("start", described(reference("target"), "Where the first message goes: the record of the step's inputs.")),
        ("buffers", named("Buffers, which live and die with the session.", buffer)),
        ("ops", named("Operations, which see `message`.", operation())),
        ("cleanup", named("Flows that run when the session ends, before its result is given.", cleanup)),
        ("deadline", described(reference("duration"), "The session is cancelled after that.")),
        (
            "rounds_max",
            json!({ "type": "integer", "minimum": 1, "description": "Messages that an operation on a cycle takes at most." }),
        ),
        ("settings", settings),
    ]);
    schema["required"] = json!(["start"]);
    described(schema, "A reactive region: operations pass messages, the first at `terminate` is the result.")
}

fn required(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({ "required": [kind] })).collect()
}

/// The keys of a task, and these.
fn task(others: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let tasks = [
        ("run", text("A command; what it prints is the message, as JSON if it is JSON.", None)),
        (
            "script",
            words(
                "The interpreter of `code`, which reads the message as JSON, under its name; what it prints is the message.",
            ),
        ),
        ("code", text("The code of the script.", None)),
        ("http", described(reference("http"), "A call; the body of the answer is the message.")),
        (
            "call",
            text(
                "A flow file, relative to this file: a run for each message; a record of its outputs is the message.",
                None,
            ),
        ),
        (
            "in",
            named(
                "Inputs of the called flow; without them, the fields of the message with their names.",
                reference("expression"),
            ),
        ),
        ("scope", described(reference("scope"), "A nested scope; its result is the message.")),
    ];
    tasks.into_iter().chain(others.iter().cloned()).collect()
}

fn delivery() -> Value {
    let in_turn = object(&[
        ("serial_by", expression("A label over `message`: one message of each at a time.")),
        ("preempt", expression("A truth: the message takes the place of those of its label before it.")),
        ("ensure", expression("A truth: no message takes the place of this one.")),
    ]);
    let words = ["parallel", "serial", "preempt", "ensure"];
    json!({
        "description": "Whether messages are worked on at once, one at a time, or the last one only; at once.",
        "anyOf": [{ "enum": words }, in_turn],
    })
}

fn operation() -> Value {
    let count = || json!({ "type": "integer", "minimum": 0 });
    let mut one_task = object(&task(&[]));
    one_task["oneOf"] = required(TASK_KINDS);
    let mut inject = object(&[
        ("choose", expression("The name of the task.")),
        ("among", named("The tasks to choose from.", one_task)),
    ]);
    inject["required"] = json!(["choose", "among"]);
    let mut gate = object(&[
        ("buffers", words("Buffers.")),
        ("open", expression("A truth over `message`: readers see the buffers, or do not.")),
    ]);
    gate["required"] = json!(["buffers", "open"]);
    let mut span = object(&[
        ("from", text("The first operation.", None)),
        ("to", text("The last one; without it, all that the first leads to.", None)),
    ]);
    span["required"] = json!(["from"]);
    let targets = json!({ "type": "array", "minItems": 1, "items": reference("target") });
    let mut schema = object(&task(&[
        ("inject", described(inject, "One of several tasks; the message says which.")),
        ("expr", expression("An expression over `message`.")),
        ("when", expression("A truth over `message`: `then`, or `else`.")),
        ("match", expression("A word over `message`: the target of that name in `cases`, or `else`.")),
        ("cases", named("Targets by the word.", reference("target"))),
        ("spread", expression("A list: a message for each element.")),
        ("collect", object(&[("min", count()), ("max", count())])),
        ("join", words("Buffers: a record of one entry of each.")),
        ("clone", words("Those of `join` whose entry is copied and stays.")),
        ("listen", words("Buffers: a record of all their entries, whenever one changes.")),
        ("access", words("Buffers: a record of all their entries, and the message.")),
        ("take", words("Those of `listen` or `access` whose entries are taken.")),
        ("push", text("The buffer that the message is stored in; then it is passed on.", None)),
        ("value", expression("The value to be stored, in place of the message.")),
        ("split", named("Fields of the message, or numbers of elements, and where each goes.", reference("target"))),
        ("unzip", described(targets, "Where each element of a list goes.")),
        ("open", words("Buffers that readers see again.")),
        ("close", words("Buffers that readers do not see.")),
        ("gate", described(gate, "Opens or closes buffers for their readers.")),
        (
            "trim",
            json!({
                "description": "An operation to be cleaned, or a span of them: { from: OPERATION, to: OPERATION }.",
                "anyOf": [{ "type": "string" }, span],
            }),
        ),
        ("watch", words("Operations: a record { at, why } whenever one gives nothing.")),
        ("sleep", reference("duration")),
        ("wait", text("An event that `onceflow send` brings; its value is the message.", None)),
        ("delivery", delivery()),
        ("next", reference("target")),
        ("err", described(reference("target"), "Where the failure of a task goes, as text.")),
        ("streams", named("Where the streams of a nested scope go.", reference("target"))),
        ("then", reference("target")),
        ("else", reference("target")),
        ("rest", described(reference("target"), "Where the other fields go, as a record.")),
    ]));
    schema["oneOf"] = required(OP_KINDS);
    schema["dependentRequired"] = json!({ "script": ["code"], "code": ["script"] });
    schema
}

fn repeat() -> Value {
    let mut schema = object(&[
        (
            "carry",
            named("What an iteration begins with: at first this, then what `out` gave.", reference("expression")),
        ),
        ("while", expression("Another iteration follows while this holds; `out.NAME` is what this one gave.")),
        ("max", json!({ "type": "integer", "minimum": 1, "description": "Iterations at most." })),
    ]);
    schema["anyOf"] = json!([{ "required": ["while"] }, { "required": ["max"] }]);
    schema
}

fn retry() -> Value {
    let long = object(&[
        ("attempts", json!({ "type": "integer", "minimum": 1, "description": "Attempts in all." })),
        ("backoff", described(reference("duration"), "The wait before the second; it doubles with each.")),
        ("max", described(reference("duration"), "The longest wait.")),
    ]);
    json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, long] })
}
