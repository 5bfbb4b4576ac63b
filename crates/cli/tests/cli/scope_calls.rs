//! Scopes that call flows: what a call gives, its failure, its cancellation, and processes that are killed in the middle.

use crate::support::{Bed, Gate, signal};
use serde_json::json;

/// A flow that reserves a robot, does some work, and frees the robot if it is undone.
const RESERVE: &str = r#"
flow: reserve
inputs: { order: text, ledger: text, work: { type: text, default: "true" } }
steps:
  note:
    run: |
      echo "reserved ${{ key }}" >> ${{ inputs.ledger }}
      bash -c ${{ inputs.work }}
      printf 'robot of %s' ${{ inputs.order }}
    out: { robot: { text: stdout } }
    undo: { run: 'echo "freed ${{ key }}" >> ${{ inputs.ledger }}' }
  more: { run: 'echo done with ${{ robot }}', in: { robot: note.robot }, out: { done: { text: stdout } } }
outputs: { robot: note.robot, done: more.done }
"#;

const DELIVER: &str = r#"
flow: deliver
inputs: { order: text, ledger: text, work: { type: text, default: "true" } }
steps:
  deliver:
    in: { order: inputs.order, ledger: inputs.ledger, work: inputs.work }
    scope:
      start: [{ push: held }, reserve]
      buffers: { held: {} }
      ops:
        reserve: { call: reserve.yaml, next: say, err: why }
        say: { expr: message.robot, next: terminate }
        why: { expr: '"failed: " + message', next: terminate }
      cleanup:
        release: { with: [held], call: release.yaml, in: { ledger: "message.held[0].ledger" } }
    out: { said: text }
outputs: { said: deliver.said }
"#;

const RELEASE: &str = r#"
flow: release
inputs: { ledger: text, many: { type: int, default: 1 } }
steps:
  note: { run: 'echo "released-${{ inputs.many }} ${{ key }}" >> ${{ inputs.ledger }}' }
"#;

fn bed() -> Bed {
    let bed = Bed::new();
    for (name, flow) in [("deliver.yaml", DELIVER), ("reserve.yaml", RESERVE), ("release.yaml", RELEASE)] {
        bed.write(name, flow);
    }
    bed
}

/// The arguments that deliver with this work.
fn args(bed: &Bed, work: &str) -> Vec<String> {
    let ledger = format!("ledger={}", bed.path("ledger").display());
    let all = ["run", "deliver.yaml", "--jobs", "1", "-i", "order=soup", "-i", &ledger, "-i", &format!("work={work}")];
    all.map(String::from).into()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The kinds of notes in the ledger, in order; each key once.
fn noted(bed: &Bed) -> Vec<String> {
    let (ledger, mut seen) = (bed.read("ledger"), Vec::new());
    for note in ledger.lines().filter(|note| !note.is_empty()) {
        if !seen.contains(&note) {
            seen.push(note);
        }
    }
    seen.iter().map(|note| note.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// No run but the first is left, and no row that nothing needs.
fn nothing_is_left(bed: &Bed) {
    let runs = bed.run(&["ls", "--json"]).ends(0).json();
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

fn killed(bed: &Bed, args: &[String], gate: &Gate) {
    let mut child = bed.start(&words(args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
}

#[test]
fn scope_calls_a_flow_for_a_message_and_another_at_its_end() {
    let bed = bed();
    bed.run(&["check", "deliver.yaml"]).ends(0);
    let drawn = bed.run(&["graph", "deliver.yaml"]).ends(0).all();
    assert!(drawn.contains("call reserve") && drawn.contains("call release"), "{drawn}");
    let said = bed.run(&words(&args(&bed, "true"))).ends(0);
    assert_eq!(said.json(), json!({ "said": "robot of soup" }));
    assert_eq!(noted(&bed), ["reserved", "released-1"]);
    nothing_is_left(&bed);
}

#[test]
fn flow_that_fails_is_undone_and_its_failure_is_a_message() {
    let bed = bed();
    let said = bed.run(&words(&args(&bed, "exit 7"))).ends(0);
    let why = said.json()["said"].to_string();
    assert!(why.contains("failed: run `deliver/reserve/") && why.contains('7'), "{why}");
    assert_eq!(noted(&bed), ["reserved", "freed", "released-1"]);
    nothing_is_left(&bed);
}

#[test]
fn killed_process_meets_the_same_run_of_a_call_again() {
    let bed = bed();
    let gate = bed.gate("work");
    let args = args(&bed, &gate.shell());
    for _ in 0..2 {
        killed(&bed, &args, &gate);
    }
    let shown = bed.run(&["show", "deliver"]).ends(0).all();
    assert!(shown.contains("waits for reserve, run `deliver/reserve/"), "{shown}");
    let data = bed.run(&["show", "deliver", "--json"]).ends(0).json();
    assert_eq!(data["scopes"][0]["waits"][0]["kind"], "call", "{data}");
    bed.run(&["fsck"]).ends(0);
    let child = bed.start(&words(&args));
    gate.until_there();
    gate.open();
    bed.end(child).ends(0);
    assert_eq!(noted(&bed), ["reserved", "released-1"], "the step has one key in all attempts");
    nothing_is_left(&bed);
}

#[test]
fn cancelled_scope_undoes_the_flow_that_it_called_before_its_cleanup() {
    for is_killed in [false, true] {
        let bed = bed();
        let gate = bed.gate("work");
        let args = args(&bed, &gate.shell());
        if is_killed {
            killed(&bed, &args, &gate);
            bed.run(&["cancel", "deliver"]).ends(5);
        } else {
            let child = bed.start(&words(&args));
            gate.until_there();
            bed.run(&["cancel", "deliver"]).ends(5);
            bed.end(child).ends(5);
        }
        assert_eq!(noted(&bed), ["reserved", "freed", "released-1"], "killed: {is_killed}");
        nothing_is_left(&bed);
    }
}

#[test]
fn called_flows_may_have_scopes_that_call_others_also_with_one_job() {
    let bed = Bed::new();
    let outer = |inner: &str| {
        format!(
            "flow: f\ninputs: {{ n: int }}\nsteps:\n  s:\n    in: {{ n: inputs.n }}\n    scope:\n      start: go\n      ops:\n        go: {{ {inner} }}\n    out: {{ n: int }}\noutputs: {{ n: s.n }}\n"
        )
    };
    bed.write("a.yaml", &outer("call: b.yaml, next: terminate"));
    bed.write("b.yaml", &outer("call: c.yaml, in: { n: message.n * 10 }, next: terminate"));
    bed.write(
        "c.yaml",
        &outer("run: 'echo \"{ \\\"n\\\": ${{ message.n }} }\"', next: terminate").replace("flow: f", "flow: c"),
    );
    let each = "flow: all\nsteps:\n  each:\n    each: n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n    flow: a.yaml\n    in: { n: n }\noutputs: { all: each.n }\n";
    bed.write("flow.yaml", each);
    let said = bed.run(&["run", "flow.yaml", "--jobs", "1"]).ends(0);
    assert_eq!(said.json(), json!({ "all": [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120] }));
    nothing_is_left(&bed);
}

#[test]
fn mistakes_in_calls_are_told_with_their_places() {
    let bed = bed();
    bed.write("around.yaml", "flow: around\nsteps:\n  s: { flow: wrong.yaml }\n");
    bed.write(
        "files.yaml",
        "flow: files\ninputs: { reads: file }\nsteps:\n  s: { run: 'cp ${{ inputs.reads }} ${{ out.copy }}', out: { copy: { file: copy } } }\noutputs: { copy: s.copy }\n",
    );
    bed.write(
        "wrong.yaml",
        "flow: wrong
steps:
  s:
    scope:
      start: a
      ops:
        a: { call: gone.yaml, next: terminate }
        b: { call: release.yaml, in: { many: 2 }, next: terminate }
        c: { call: release.yaml, in: { ledger: \"'x'\", mani: 2 }, next: terminate }
        d: { call: release.yaml, in: { ledger: \"'x'\", many: \"'two'\" }, next: terminate }
        e: { call: around.yaml, next: terminate }
        f: { call: files.yaml, next: terminate }
        g: { call: release.yaml, in: { ledger: inputs.x }, next: terminate }
",
    );
    let all = bed.run(&["check", "wrong.yaml"]).ends(4).all();
    for wanted in [
        "there is no flow file `gone.yaml`",
        "wrong.yaml:7:20",
        "needs the input `ledger`",
        "has no input `mani`",
        "int is wanted",
        "`around.yaml` leads back to this scope: the flow `wrong` is around it",
        "output `copy` of `files.yaml` is file, which no message can hold",
        "input `reads` of `files.yaml` is file, which no message holds",
        "wrong.yaml:12:20",
    ] {
        assert!(all.contains(wanted), "{wanted} is missing in\n{all}");
    }
}
