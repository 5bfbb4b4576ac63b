//! Diagrams of crossflow as flow files.

use crate::support::Bed;
use serde_json::{Value, json};

fn diagram(start: Value, ops: Value) -> Value {
    let tasks = json!({
        "times": { "expr": "message.request * message.config" },
        "small": { "run": "test ${{ message }} -lt 100; echo ${{ message }}" },
    });
    json!({
        "$schema": "https://example.org/diagram.schema.json", "version": "0.1.0", "start": start, "ops": ops,
        "extensions": { "onceflow": { "tasks": tasks } },
        "templates": { "twice": {
            "inputs": { "in": "go" }, "outputs": ["out"], "buffers": {},
            "ops": { "go": { "type": "node", "builder": "times", "config": 2, "next": "out" } },
        } },
    })
}

fn result_of(bed: &Bed, request: i64, start: Value, ops: Value) -> Value {
    bed.write("my diagram.json", &diagram(start, ops).to_string());
    bed.run(&["run", "my diagram.json", "--new", "-i", &format!("request={request}")]).ends(0).json()
}

#[test]
fn every_type_of_operation_of_a_diagram_runs() {
    let bed = Bed::new();
    let end = json!({ "builtin": "terminate" });
    let result = |request, start: &str, ops| result_of(&bed, request, json!(start), ops)["result"].clone();
    let node = json!({
        "m": { "type": "node", "builder": "times", "config": 3, "next": "t", "display_text": "x3" },
        "t": { "type": "transform", "cel": "request + 1", "next": end },
    });
    assert_eq!(result(5, "m", node), json!(16), "a node, and a transform");
    let join = |buffers: Value| {
        json!({
            "f": { "type": "fork_clone", "next": ["a", "m"] },
            "m": { "type": "node", "builder": "times", "config": 2, "next": "b" },
            "a": { "type": "buffer" },
            "b": { "type": "buffer", "settings": { "retention": { "keep_last": 3 } } },
            "j": { "type": "join", "buffers": buffers, "next": end },
        })
    };
    assert_eq!(result(5, "f", join(json!({ "left": "a", "right": "b" }))), json!({ "left": 5, "right": 10 }));
    assert_eq!(result(5, "f", join(json!(["a", "b"]))), json!([5, 10]));
    let fork = json!({
        "s": { "type": "node", "builder": "small", "next": "r" },
        "r": { "type": "fork_result", "ok": end, "err": "t" },
        "t": { "type": "transform", "cel": "request.contains('OF0301')", "next": end },
    });
    assert_eq!(result(5, "s", fork.clone()), json!(5));
    assert_eq!(result(500, "s", fork), json!(true), "a task that fails gives Err");
    let parts = json!({
        "t": { "type": "transform", "cel": "[request, request + 1, request + 2]", "next": "u" },
        "u": { "type": "unzip", "next": ["d", "s"] },
        "d": { "type": "transform", "cel": "{'x': request, 'y': 1}", "next": { "builtin": "dispose" } },
        "s": { "type": "transform", "cel": "{'x': request, 'y': 1}", "next": "p" },
        "p": { "type": "split", "keyed": { "x": end }, "remaining": { "builtin": "dispose" } },
    });
    assert_eq!(result(5, "t", parts), json!(6), "an unzip, and a split");
    let listen = json!({
        "a": { "type": "buffer", "settings": { "retention": "keep_all" } },
        "l": { "type": "listen", "buffers": ["a"], "next": "t" },
        "t": { "type": "transform", "cel": "request.a[0]", "next": end },
    });
    assert_eq!(result(5, "a", listen), json!(5));
    let access = json!({
        "f": { "type": "buffer_access", "buffers": ["a"], "next": "t" },
        "a": { "type": "buffer" },
        "t": { "type": "transform", "cel": "request.message", "next": end },
    });
    assert_eq!(result(5, "f", access), json!(5));
    let section = json!({
        "m": { "type": "node", "builder": "times", "config": 3, "next": { "s": "in" } },
        "s": { "type": "section", "template": "twice", "connect": { "out": end } },
    });
    assert_eq!(result(5, "m", section), json!(30));
    let nested = json!({
        "n": {
            "type": "scope", "start": "o", "next": end, "stream_out": { "seen": "out" },
            "settings": { "uninterruptible": true },
            "ops": {
                "o": { "type": "fork_clone", "next": ["seen", "m"] },
                "seen": { "type": "stream_out", "name": "seen" },
                "m": { "type": "node", "builder": "times", "config": 7, "next": end },
            },
        },
        "out": { "type": "stream_out", "name": "told" },
    });
    assert_eq!(result_of(&bed, 5, json!("n"), nested), json!({ "result": 35, "told": [5] }));
    bed.run(&["graph", "my diagram.json"]).ends(0);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn mistakes_of_a_diagram_are_told_all_at_once_with_their_places() {
    let bed = Bed::new();
    let text = "{
  \"version\": \"0.2.0\", \"start\": \"a\",
  \"ops\": {
    \"a\": { \"type\": \"node\", \"builder\": \"drive\", \"next\": \"bb\" },
    \"b\": { \"type\": \"script\", \"run\": \"x\", \"next\": \"a\" },
    \"c\": { \"type\": \"section\", \"builder\": \"x\" },
    \"d\": { \"type\": \"join\", \"buffers\": [\"a\"], \"next\": { \"builtin\": \"end\" } },
    \"e\": { \"type\": \"fork\", \"nexts\": [] }
  }
}";
    bed.write("d.json", text);
    let said = bed.run(&["check", "d.json"]);
    let all = said.all();
    for wanted in [
        "a diagram of version `0.2.0` cannot be read",
        "there is no operation `bb` here",
        "there is no task for the builder `drive`",
        "is a script, which cannot be run here",
        "is built by code that is not here",
        "this is no buffer",
        "`type` cannot be `fork`",
        "d.json:4:39",
    ] {
        assert!(all.contains(wanted), "{wanted} is missing in\n{all}");
    }
}
