//! The published JSON Schema is the one this code generates, accepts every example, and refuses plain mistakes.

use onceflow_spec::{schema, stream_schema};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_published_schema_is_current() {
    for (name, schema) in [("flow", schema()), ("stream", stream_schema())] {
        let path = root().join(format!("docs/{name}.schema.json"));
        let wanted = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            fs::write(&path, &wanted).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "regenerate it: UPDATE_SCHEMA=1 cargo test -p onceflow-spec --test spec schema");
    }
}

/// Reads a flow file as JSON, with a YAML parser other than ours.
fn read(path: &Path) -> Option<Value> {
    let code = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let output = Command::new("python3").args(["-c", code]).arg(path).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

#[test]
fn every_example_is_valid() {
    let schemas = [schema(), stream_schema()].map(|schema| jsonschema::validator_for(&schema).unwrap());
    for example in fs::read_dir(root().join("examples")).unwrap() {
        let example = example.unwrap().path();
        let (path, schema) = match example.join("stream.yaml") {
            stream if stream.exists() => (stream, &schemas[1]),
            _ => (example.join("flow.yaml"), &schemas[0]),
        };
        // Without another YAML parser on the machine, only the flows below are checked.
        let Some(flow) = read(&path) else { continue };
        let errors: Vec<_> =
            schema.iter_errors(&flow).map(|error| format!("{error} at {}", error.instance_path())).collect();
        assert_eq!(errors, Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn the_schema_accepts_valid_flows_and_refuses_invalid_ones() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let flow = |step: Value| json!({ "flow": "test", "inputs": { "a": "list<file>" }, "steps": { "s": step } });
    for good in [
        json!({ "run": "echo", "out": { "x": "file", "y": { "file": "*.txt" }, "n": { "int": "stdout" } } }),
        json!({ "each": "x in inputs.a", "at_most": 3, "flow": "./other.yaml", "in": { "n": 3 } }),
        json!({ "steps": { "b": { "run": "echo" } }, "loop": { "carry": { "x": "inputs.a" }, "max": 3 }, "out": { "x": "b.x" } }),
        json!({ "choose": [{ "when": "inputs.n > 3", "run": "a" }, { "expr": { "x": 1 } }] }),
        json!({ "http": { "url": "http://x", "accept": [404, "200-299"] }, "retry": 3, "timeout": "1h30m" }),
        json!({ "script": "python3", "code": "print()", "in": ["x"], "undo": { "run": "rm" }, "resources": { "memory": "2GB" } }),
    ] {
        let errors: Vec<_> = schema.iter_errors(&flow(good.clone())).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{good}");
    }
    for bad in [
        json!({}),
        json!({ "run": "a", "http": { "url": "http://x" } }),
        json!({ "run": "a", "timeuot": "3s" }),
        json!({ "run": "a", "timeout": "soon" }),
        json!({ "run": "a", "resources": { "memory": "2gb" } }),
        json!({ "run": "a", "effect": "once" }),
        json!({ "script": "python3" }),
        json!({ "run": "a", "undo": { "steps": {} } }),
        json!({ "steps": { "a-b": { "run": "x" } } }),
        json!({ "each": "x", "run": "a" }),
        json!({ "steps": { "b": { "run": "x" } }, "loop": {} }),
    ] {
        assert!(!schema.is_valid(&flow(bad.clone())), "{bad}");
    }
    assert!(!schema.is_valid(&json!({ "steps": {} })));
}

#[test]
fn the_schema_of_streams_accepts_valid_streams_and_refuses_invalid_ones() {
    let schema = jsonschema::validator_for(&stream_schema()).unwrap();
    let stream = |step: Value| {
        let (source, sink) = (json!({ "file": "*.jsonl", "follow": true }), json!({ "from": "s", "stdout": true }));
        json!({ "stream": "test", "sources": { "a": source }, "steps": { "s": step }, "sinks": { "out": sink } })
    };
    for good in [
        json!({ "from": "a", "filter": "record.n > 3", "on_error": "skip" }),
        json!({ "from": ["a", "b"] }),
        json!({ "from": "a", "map": { "n": "record.n" } }),
        json!({ "from": "a", "key": "record.page", "window": { "sliding": "1h", "every": "5m", "lateness": "1m" }, "combine": { "n": "count", "best": { "top": 3, "by": "record.n" } } }),
        json!({ "from": "a", "key": "record.a", "join": { "from": "b", "key": "record.b", "after": "5m" } }),
        json!({ "from": "a", "once": { "id": "record.id", "horizon": "1h" } }),
        json!({ "from": "a", "call": "alarm.yaml", "in": { "page": "record.page" }, "at_most": 4 }),
    ] {
        let errors: Vec<_> = schema.iter_errors(&stream(good.clone())).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{good}");
    }
    for bad in [
        json!({ "filter": "true" }),
        json!({ "from": "a", "filer": "true" }),
        json!({ "from": "a", "window": { "tumbling": "soon" } }),
        json!({ "from": "a", "combine": { "n": "sum" } }),
        json!({ "from": "a", "combine": { "n": { "sum": "record.a", "max": "record.a" } } }),
    ] {
        assert!(!schema.is_valid(&stream(bad.clone())), "{bad}");
    }
}
