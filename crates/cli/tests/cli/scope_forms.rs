//! Scopes in flow files, form by form: each form gives what the book says; nested scopes survive kills of their process.

use crate::support::{Bed, signal};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
};

/// A flow of one scope, whose first message is `{ n: 5 }` and whose result is the output `value`.
fn flow(scope: &str) -> String {
    let scope: String = scope.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "flow: form\nsteps:\n  s:\n    in: {{ n: \"5\" }}\n    scope:\n{scope}    out: {{ value: json }}\noutputs: {{ value: s.value }}\n"
    )
}

fn result_of(bed: &Bed, scope: &str) -> Value {
    bed.write("flow.yaml", &flow(scope));
    bed.run(&["run", "flow.yaml", "--new"]).ends(0).json()["value"].clone()
}

const BUFFERS: &str = "buffers: { a: {}, b: {} }\n";

#[test]
fn operations_give_what_the_book_says() {
    let bed = Bed::new();
    let inject = "start: pick\nops:
  pick:
    inject: { choose: CHOICE, among: { twice: { run: 'echo $(( ${{ message.n }} * 2 ))' }, inner: { scope: { start: terminate } } } }
    next: terminate
    err: why
  why: { expr: message.contains('there is no task'), next: terminate }";
    let trim = "start: [slow, cut]\nops:
  slow: { sleep: 1h, next: late }
  late: { expr: '\"late\"', next: terminate }
  cut: { trim: PART, next: done }
  done: { expr: '\"cut\"', next: terminate }";
    let join = "j: { join: [a, b], next: terminate }";
    let cases: &[(&str, String, Value)] = &[
        ("a task that the message chooses", inject.replace("CHOICE", "\"'twice'\""), json!(10)),
        ("a nested scope that it chooses", inject.replace("CHOICE", "\"'inner'\""), json!({ "n": 5 })),
        ("a task that there is not", inject.replace("CHOICE", "\"'thrice'\""), json!(true)),
        (
            "a script",
            String::from(
                "start: s\nops:\n  s:\n    script: python3\n    code: |\n      import json, sys\n      given = json.load(sys.stdin)\n      print(json.dumps({'twice': given['message']['n'] * 2, 'keyed': len(given['key']) > 0}))\n    next: terminate\n",
            ),
            json!({ "twice": 10, "keyed": true }),
        ),
        (
            "a script that fails",
            String::from(
                "start: s\nops:\n  s: { script: [sh, -eu], code: 'exit 3', next: cancel, err: why }\n  why: { expr: message.contains('3'), next: terminate }",
            ),
            json!(true),
        ),
        (
            "a match",
            String::from(
                "start: m\nops:\n  m: { match: 'message.n > 3 ? \"big\" : \"small\"', cases: { big: big }, else: cancel }\n  big: { expr: '\"big\"', next: terminate }",
            ),
            json!("big"),
        ),
        (
            "an unzip",
            format!(
                "start: l\n{BUFFERS}ops:\n  l: {{ expr: '[message.n, message.n + 1]', next: u }}\n  u: {{ unzip: [a, b] }}\n  {join}"
            ),
            json!({ "a": 5, "b": 6 }),
        ),
        (
            "a split of a list, with its rest",
            format!(
                "start: l\n{BUFFERS}ops:\n  l: {{ expr: '[message.n, 6, 7]', next: s }}\n  s: {{ split: {{ '0': a }}, rest: b }}\n  {join}"
            ),
            json!({ "a": 5, "b": [6, 7] }),
        ),
        (
            "a push, and an access that takes",
            format!(
                "start: p\n{BUFFERS}ops:\n  p: {{ push: a, value: message.n * 2, next: look }}\n  look: {{ access: [a, b], take: [a], next: terminate }}"
            ),
            json!({ "a": [10], "b": [], "message": { "n": 5 } }),
        ),
        (
            "a join of copies",
            format!(
                "start: [one, two]\n{BUFFERS}ops:\n  one: {{ expr: message.n, next: a }}\n  two: {{ spread: '[1, 2]', next: b }}\n  j: {{ join: [a, b], clone: [a], next: all }}\n  all: {{ collect: {{ min: 2, max: 2 }}, next: terminate }}"
            ),
            json!([{ "a": 5, "b": 1 }, { "a": 5, "b": 2 }]),
        ),
        (
            "a gate that is closed, then opened",
            format!(
                "start: shut\n{BUFFERS}ops:\n  shut: {{ gate: {{ buffers: [a], open: message.n > 9 }}, next: p }}\n  p: {{ push: a, next: q }}\n  q: {{ push: a, next: o }}\n  o: {{ open: [a], next: dispose }}\n  l: {{ listen: [a], next: n }}\n  n: {{ expr: size(message.a), next: terminate }}"
            ),
            json!(2),
        ),
        ("a trim of a point", trim.replace("PART", "slow"), json!("cut")),
        ("a trim of all downstream", trim.replace("PART", "{ from: slow }"), json!("cut")),
        ("a trim of a span", trim.replace("PART", "{ from: slow, to: late }"), json!("cut")),
        (
            "a watch",
            String::from(
                "start: f\nops:\n  f: { when: 'false', then: terminate, else: dispose }\n  w: { watch: [f], next: n }\n  n: { expr: message.at, next: terminate }",
            ),
            json!("f"),
        ),
        (
            "a nested scope with a stream",
            format!(
                "start: inner\n{BUFFERS}ops:\n  inner:\n    scope:\n      start: twice\n      ops: {{ twice: {{ expr: message.n * 2, next: [{{ stream: seen }}, terminate] }} }}\n    streams: {{ seen: a }}\n    next: b\n  {join}"
            ),
            json!({ "a": 10, "b": 10 }),
        ),
        (
            "the reason of a nested scope that is cancelled",
            String::from(
                "start: inner\nops:\n  inner: { scope: { start: no, ops: { no: { expr: '\"too few\"', next: cancel } } }, next: terminate, err: why }\n  why: { expr: message.contains('too few'), next: terminate }",
            ),
            json!(true),
        ),
        (
            "a call to a server that is not there",
            String::from(
                "start: h\nops:\n  h: { http: { url: 'http://127.0.0.1:1/' }, next: terminate, err: why }\n  why: { expr: message.contains('OF0316'), next: terminate }",
            ),
            json!(true),
        ),
    ];
    for (what, scope, wanted) in cases {
        assert_eq!(result_of(&bed, scope), *wanted, "{what}");
    }
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn call_over_http_gives_the_body_and_carries_the_key() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("its address").port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().expect("a call");
        let mut got = Vec::new();
        let mut bytes = [0; 1024];
        while !got.ends_with(b"{\"n\":5}") {
            let count = stream.read(&mut bytes).expect("the request");
            assert!(count > 0, "{}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&bytes[..count]);
        }
        let body = "{\"ok\":7}";
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\nconnection: close\r\n\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).expect("the answer");
        String::from_utf8_lossy(&got).to_lowercase()
    });
    let bed = Bed::new();
    let scope = format!(
        "start: h\nops:\n  h:\n    http: {{ url: 'http://127.0.0.1:{port}/x', json: {{ n: '${{{{ message.n }}}}' }} }}\n    next: terminate"
    );
    assert_eq!(result_of(&bed, &scope), json!({ "ok": 7 }));
    let request = served.join().expect("the server");
    assert!(request.contains("idempotency-key: "), "{request}");
}

/// A scope with a nested one that works at a gate; both note their cleanup.
fn nested(bed: &Bed, settings: &str, gate: &str) -> String {
    let ledger = bed.path("ledger").display().to_string();
    flow(&format!(
        "start: inner
buffers: {{ held: {{}} }}
ops:
  inner:
    scope:
      start: hold
      buffers: {{ own: {{}} }}
      ops:
        hold: {{ push: own, next: work }}
        work: {{ run: \"{gate}; echo \\\"worked ${{{{ key }}}}\\\" >> {ledger}; echo 1\", next: terminate }}
      cleanup:
        back:
          with: [own]
          scope:
            start: note
            ops: {{ note: {{ run: \"echo inner >> {ledger}\", next: terminate }} }}
      {settings}
    next: terminate
cleanup:
  last: {{ with: [held], run: \"echo outer >> {ledger}\" }}"
    ))
}

fn ledger_lines(bed: &Bed) -> Vec<String> {
    let lines = bed.read("ledger");
    lines.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn killed_nested_scope_goes_on_and_cleans_before_its_parent() {
    let bed = Bed::new();
    let gate = bed.gate("work");
    bed.write("flow.yaml", &nested(&bed, "", &gate.shell()));
    for _ in 0..2 {
        let mut child = bed.start(&["run", "flow.yaml"]);
        gate.until_there();
        signal(&child, "KILL");
        child.wait().expect("it was killed");
    }
    let child = bed.start(&["run", "flow.yaml"]);
    gate.until_there();
    gate.open();
    bed.end(child).ends(0);
    assert_eq!(ledger_lines(&bed), ["worked", "inner", "outer"]);
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn cancel_of_a_killed_run_cleans_its_nested_scope_first() {
    let bed = Bed::new();
    let gate = bed.gate("work");
    bed.write("flow.yaml", &nested(&bed, "", &gate.shell()));
    let mut child = bed.start(&["run", "flow.yaml"]);
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    bed.run(&["cancel", "form"]).ends(5);
    assert_eq!(ledger_lines(&bed), ["inner", "outer"]);
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn cancel_waits_for_an_uninterruptible_nested_scope() {
    let bed = Bed::new();
    let gate = bed.gate("work");
    bed.write("flow.yaml", &nested(&bed, "settings: { uninterruptible: true }", &gate.shell()));
    let child = bed.start(&["run", "flow.yaml"]);
    gate.until_there();
    let cancel = bed.start(&["cancel", "form"]);
    // The session hears of it before its command may end.
    while bed.run(&["show", "form", "--json"]).json()["scopes"][0]["phase"] == "running" {
        std::thread::yield_now();
    }
    gate.open();
    bed.end(cancel).ends(5);
    bed.end(child).ends(5);
    assert_eq!(ledger_lines(&bed), ["worked", "inner", "outer"], "it is brought to its own end first");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn show_says_what_each_open_session_waits_for_also_after_a_kill() {
    let bed = Bed::new();
    let gate = bed.gate("work");
    bed.write("flow.yaml", &nested(&bed, "", &gate.shell()));
    let mut child = bed.start(&["run", "flow.yaml"]);
    gate.until_there();
    let look = || {
        let data = bed.run(&["show", "form", "--json"]).ends(0).json();
        let scopes = data["scopes"].as_array().expect("a list").clone();
        assert_eq!(scopes.len(), 2, "{data}");
        assert_eq!((&scopes[0]["path"], &scopes[0]["phase"]), (&json!([]), &json!("running")));
        assert_eq!(
            (&scopes[0]["waits"][0]["operation"], &scopes[0]["waits"][0]["kind"]),
            (&json!("inner"), &json!("scope"))
        );
        assert_eq!(scopes[1]["path"], json!(["inner"]));
        let waits = &scopes[1]["waits"][0];
        assert_eq!(
            (&waits["operation"], &waits["kind"], &waits["message"]),
            (&json!("work"), &json!("task"), &json!({ "n": 5 }))
        );
        assert_eq!(scopes[1]["holds"], json!([{ "name": "own", "messages": 1, "closed": false }]));
    };
    look();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    look();
    let said = bed.run(&["show", "form"]).ends(0);
    for wanted in [
        "scope    s: running",
        "waits for the nested scope inner",
        "scope    s/inner: running",
        "waits for work: {\"n\":5}",
        "own holds 1 message",
    ] {
        assert!(said.all().contains(wanted), "{wanted} is missing in\n{}", said.all());
    }
    let drawn = bed.run(&["graph", "form"]).ends(0).all();
    for wanted in [
        "inner  scope  interrupted (1 message)",
        "work  run  interrupted (1 message)",
        "own  buffer  interrupted (1 message)",
        "back  cleanup at the end: scope  ← s/inner/own",
    ] {
        assert!(drawn.contains(wanted), "{wanted} is missing in\n{drawn}");
    }
    let child = bed.start(&["run", "flow.yaml"]);
    gate.until_there();
    gate.open();
    bed.end(child).ends(0);
    assert_eq!(bed.run(&["show", "form", "--json"]).ends(0).json()["scopes"], json!([]));
}

#[test]
fn event_is_delivered_to_a_scope_once_also_while_no_process_is_there() {
    let bed = Bed::new();
    let ledger = bed.path("ledger").display().to_string();
    let scope = format!(
        "start: ask
ops:
  ask: {{ run: \"echo asked >> {ledger}; echo 1\", next: wait }}
  wait: {{ wait: approved, next: note }}
  note: {{ run: 'echo \"noted ${{{{ message.by }}}}\" >> {ledger}; echo ${{{{ message.by }}}}', next: terminate }}"
    );
    bed.write("flow.yaml", &flow(&scope));
    let waits = || bed.run(&["show", "form", "--json"]).json()["scopes"][0]["waits"][0]["event"] == "approved";
    let mut child = bed.start(&["run", "flow.yaml"]);
    while !waits() {
        std::thread::yield_now();
    }
    bed.run(&["send", "form", "denied", "1"]).ends(3);
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    assert!(waits(), "the wait outlives its process");
    let value = "{\"by\":\"ann\"}";
    let said = bed.run(&["send", "form", "approved", value, "--id", "7", "--json"]).ends(0).json();
    assert_eq!((&said["delivered"], &said["step"]), (&json!(true), &json!("s/wait")));
    let said = bed.run(&["send", "form", "approved", value, "--id", "7", "--json"]).ends(0).json();
    assert_eq!(said["delivered"], json!(false), "the same id is delivered once");
    bed.run(&["send", "form", "approved", value]).ends(3);
    assert_eq!(bed.run(&["run", "flow.yaml"]).ends(0).json()["value"], json!("ann"));
    assert_eq!(ledger_lines(&bed), ["asked", "noted"]);
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn mistakes_in_nested_scopes_are_told_all_at_once_with_their_places() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        &flow(
            "start: inner
buffers: { a: {} }
ops:
  inner: { scope: { start: b, ops: { b: { run: echo, next: outer } } }, streams: { sent: a }, next: terminate }
  endless: { scope: { start: x, ops: { x: { sleep: 1s, next: dispose } } }, next: dispose }
  j: { join: [a], clone: [b], next: dispose }
  t: { trim: { to: j }, next: dispose }
  i: { inject: { choose: message.x }, next: dispose }
  c: { call: other.yaml, next: dispose }
cleanup: { k: { run: echo, http: { url: 'http://x' } }, l: {} }
settings: { durable: false }",
        ),
    );
    let said = bed.run(&["check", "flow.yaml"]);
    let all = said.all();
    for wanted in [
        "there is no operation `outer` here",
        "there is no buffer `b` here",
        "`trim` has no `from`",
        "`inject` has no `among`",
        "there is no flow file `other.yaml`",
        "cleanup `k` has `run`, `http` at once",
        "cleanup `l` has no part that says what it does",
        "OF0143",
        "flow.yaml:9:66",
    ] {
        assert!(all.contains(wanted), "{wanted} is missing in\n{all}");
    }
    bed.write(
        "flow.yaml",
        &flow("start: inner\nops:\n  inner: { scope: { start: x, ops: { x: { sleep: 1s, next: dispose } } }, next: terminate }"),
    );
    let said = bed.run(&["check", "flow.yaml"]);
    assert!(said.all().contains("the scope of `inner` cannot run: nothing leads to terminate"), "{}", said.all());
}
