//! Delivery of messages to tasks of scopes: one at a time, one of each label at a time, and those that take the place of
//! others; also after a process was killed.

use crate::support::{Bed, signal};
use serde_json::json;

/// A flow of a scope whose first message goes to `work`, for each of these numbers, by a task with this delivery.
fn flow(delivery: &str, work: &str) -> String {
    format!(
        "flow: turns
steps:
  s:
    in: {{ ledger: inputs.ledger }}
    scope:
      start: all
      ops:
        all: {{ spread: '[1, 2, 3, 4].map(n, {{\"n\": n, \"ledger\": message.ledger}})', next: work }}
        work:
          {work}
          delivery: {delivery}
          next: gather
        gather: {{ collect: {{ min: 4, max: 4 }}, next: terminate }}
    out: {{ value: json }}
inputs: {{ ledger: text }}
outputs: {{ value: s.value }}
"
    )
}

const NOTES: &str = "run: |
            echo \"begin ${{ message.n }}\" >> ${{ message.ledger }}
            sleep 0.1
            echo \"end ${{ message.n }}\" >> ${{ message.ledger }}
            echo ${{ message.n }}";

fn args(bed: &Bed) -> Vec<String> {
    let ledger = format!("ledger={}", bed.path("ledger").display());
    ["run", "flow.yaml", "--jobs", "4", "-i", &ledger].map(String::from).into()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn serial_task_takes_its_messages_one_after_the_other_in_their_order() {
    let bed = Bed::new();
    bed.write("flow.yaml", &flow("serial", NOTES));
    let said = bed.run(&words(&args(&bed))).ends(0);
    assert_eq!(said.json(), json!({ "value": [1, 2, 3, 4] }));
    let ledger = bed.read("ledger");
    let lines: Vec<_> = ledger.lines().collect();
    assert_eq!(lines, ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3", "begin 4", "end 4"]);
    bed.run(&["fsck", "--at-rest"]).ends(0);
    let drawn = bed.run(&["graph", "flow.yaml"]).ends(0).all();
    assert!(drawn.contains("run, in turn"), "{drawn}");
}

#[test]
fn messages_of_one_label_are_taken_one_after_the_other() {
    let bed = Bed::new();
    bed.write("flow.yaml", &flow("{ serial_by: message.n % 2 }", NOTES));
    bed.run(&words(&args(&bed))).ends(0);
    let ledger = bed.read("ledger");
    for label in [0, 1] {
        let of_label =
            |line: &&str| line.rsplit(' ').next().and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n % 2 == label);
        let lines: Vec<_> = ledger.lines().filter(of_label).collect();
        let (first, second) = (2 - label, 4 - label);
        assert_eq!(
            lines,
            [format!("begin {first}"), format!("end {first}"), format!("begin {second}"), format!("end {second}")]
        );
    }
}

#[test]
fn killed_process_goes_on_with_the_messages_that_wait_for_their_turn() {
    let bed = Bed::new();
    let gate = bed.gate("work");
    let work = format!(
        "run: |\n            if [ ${{{{ message.n }}}} = 2 ]; then {}; fi\n            echo \"${{{{ message.n }}}} ${{{{ key }}}}\" >> ${{{{ message.ledger }}}}\n            echo ${{{{ message.n }}}}",
        gate.shell()
    );
    bed.write("flow.yaml", &flow("serial", &work));
    for _ in 0..2 {
        let mut child = bed.start(&words(&args(&bed)));
        gate.until_there();
        signal(&child, "KILL");
        child.wait().expect("it was killed");
        bed.run(&["fsck"]).ends(0);
    }
    let shown = bed.run(&["show", "turns"]).ends(0).all();
    assert!(shown.contains("waits for work, which waits for its turn"), "{shown}");
    let child = bed.start(&words(&args(&bed)));
    gate.until_there();
    gate.open();
    let said = bed.end(child).ends(0);
    assert_eq!(said.json(), json!({ "value": [1, 2, 3, 4] }));
    let ledger = bed.read("ledger");
    let numbers: Vec<_> = ledger.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4"], "each is done once, in its turn");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

/// Three messages to one task, the last one after the first has begun; what the task gave, and the failures.
fn supplanted(delivery: &str, work: &str) -> serde_json::Value {
    let bed = Bed::new();
    bed.write("nested.yaml", "flow: nested\ninputs: { n: int }\nsteps:\n  s: { run: 'sleep ${{ inputs.n == 3 ? 0 : 3600 }}; echo ${{ inputs.n }}', out: { n: { int: stdout } } }\noutputs: { n: s.n }\n");
    let flow = format!(
        "flow: last
steps:
  s:
    scope:
      start: two
      buffers: {{ gave: {{}}, why: {{}} }}
      ops:
        two: {{ spread: '[1, 2].map(n, {{\"n\": n}})', next: [work, wait] }}
        wait: {{ collect: {{ min: 2, max: 2 }}, next: pause }}
        pause: {{ sleep: 300ms, next: third }}
        third: {{ expr: '{{\"n\": 3}}', next: work }}
        work:
          {work}
          delivery: {delivery}
          next: {{ push: gave }}
          err: whys
        whys: {{ collect: {{ min: 2, max: 2 }}, next: {{ push: why }} }}
        done: {{ join: [gave, why], next: terminate }}
    out: {{ value: json }}
outputs: {{ value: s.value }}
"
    );
    bed.write("flow.yaml", &flow);
    let said = bed.run(&["run", "flow.yaml"]).ends(0).json();
    bed.run(&["fsck", "--at-rest"]).ends(0);
    said["value"].clone()
}

#[test]
fn message_that_preempts_ends_what_runs_and_what_waits_and_their_failures_say_so() {
    let why = "a later request took its place";
    let sleeps = "sleep ${{ message.n == 3 ? 0 : 3600 }}; echo ${{ message.n }}";
    let only_the_last = "{ serial_by: \"'a'\", preempt: message.n == 3 }";
    let works = [
        (format!("run: '{sleeps}'"), json!(3)),
        (format!("scope: {{ start: w, ops: {{ w: {{ run: '{sleeps}', next: terminate, err: cancel }} }} }}"), json!(3)),
        (String::from("call: nested.yaml"), json!({ "n": 3 })),
    ];
    for (work, gave) in works {
        assert_eq!(supplanted(only_the_last, &work), json!({ "gave": gave, "why": [why, why] }), "{work}");
    }
    assert_eq!(supplanted("preempt", &format!("run: '{sleeps}'"))["why"], json!([why, why]));
}

#[test]
fn message_that_is_ensured_is_worked_on_to_its_end() {
    let bed = Bed::new();
    let delivery = "{ preempt: \"true\", ensure: message.n == 1 }";
    let work = "run: sleep 0.2; echo ${{ message.n }}";
    bed.write("flow.yaml", &flow(delivery, work).replace("min: 4, max: 4", "min: 2, max: 2"));
    let said = bed.run(&words(&args(&bed))).ends(0);
    assert_eq!(said.json(), json!({ "value": [1, 4] }), "the first is ensured, the last has the place of the others");
}

#[test]
fn mistakes_in_deliveries_are_told_with_their_places() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        &flow("{ serial_by: inputs.x, premt: a }", NOTES).replace("collect:", "delivery: serial, collect:"),
    );
    let all = bed.run(&["check", "flow.yaml"]).ends(4).all();
    for wanted in ["premt", "the flow has no input `x`", "`delivery`"] {
        assert!(all.contains(wanted), "{wanted} is missing in\n{all}");
    }
    bed.write("flow.yaml", &flow("sometimes", NOTES));
    let all = bed.run(&["check", "flow.yaml"]).ends(4).all();
    assert!(all.contains("`delivery` cannot be `sometimes`"), "{all}");
}
