//! Streams whose records call flows.

use super::lines;
use crate::support::{Bed, until_line};
use expect_test::expect;
use serde_json::{Value, json};

const SQUARE: &str = "flow: square
inputs: { n: int, offset: { type: int, default: 0 } }
steps:
  count: { run: \"echo run >> $DIR/effects/${{ inputs.n }}\", env: { DIR: '[dir]' } }
  value: { expr: inputs.n * inputs.n + inputs.offset, after: count }
outputs: { value: value.value }
";

fn flow(bed: &Bed) {
    std::fs::create_dir(bed.path("effects")).expect("a directory");
    bed.write("square.yaml", &SQUARE.replace("[dir]", &bed.path("").display().to_string()));
}

const SQUARES: &str = "stream: squares
sources: { numbers: { generate: \"{'n': n}\", count: 120, time: record.n } }
steps:
  squared: { from: numbers, call: square.yaml, in: { n: record.n }, at_most: 2 }
sinks:
  out:  { from: squared, file: squares.jsonl }
  seen: { from: squared, stdout: true }
";

fn squares() -> Vec<Value> {
    let square = |n: i64| json!({"outputs": {"value": n * n}, "record": {"n": n}});
    super::sorted((0..120).map(square))
}

#[test]
fn every_record_calls_its_flow_once_though_the_command_is_killed_while_it_runs() {
    let bed = Bed::new();
    flow(&bed);
    bed.write("stream.yaml", SQUARES);
    for after in [1, 4, 9] {
        let mut child = bed.start(&["run", "stream.yaml", "--jobs", "2"]);
        let mut stdout = child.stdout.take().expect("a pipe");
        (0..after).for_each(|_| drop(until_line(&mut stdout, "outputs")));
        child.kill().expect("it is still at work");
        child.wait().expect("it was killed");
    }
    bed.run(&["run", "stream.yaml", "--jobs", "2"]).ends(0);
    assert_eq!(lines(&bed, "squares.jsonl"), squares());
    for n in 0..40 {
        // A command that was killed runs again; one that ended does not, and no second run begins.
        let times = bed.read(&format!("effects/{n}")).lines().count();
        assert!((1..=4).contains(&times), "{n} ran {times} times");
    }
    let once = (0..120).filter(|n| bed.read(&format!("effects/{n}")).lines().count() == 1).count();
    assert!(once >= 120 - 3 * 8, "only {once} commands ran once: at most eight are open when the process is killed");
    let listed = bed.run(&["ls"]).ends(0).stdout;
    assert_eq!(listed, "stream squares has ended\n", "no run of a call is left");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn runs_that_a_stream_has_called_leave_no_directories() {
    let bed = Bed::new();
    flow(&bed);
    bed.write("stream.yaml", SQUARES);
    for again in [&[][..], &["--new"]] {
        bed.run(&[&["run", "stream.yaml"], again].concat()).ends(0);
        let left = std::fs::read_dir(bed.path(".onceflow/runs")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "directories of runs that are gone");
    }
}

#[test]
fn failed_call_stops_the_stream_until_its_cause_is_corrected_or_is_skipped_and_counted() {
    let bed = Bed::new();
    bed.write(
        "odd.yaml",
        &"flow: odd
inputs: { n: int }
steps:
  test: { run: \"test ${{ inputs.n }} != 3 || test -e $DIR/ok && echo fine\", env: { DIR: '[dir]' }, out: { said: text } }
outputs: { said: test.said }
"
        .replace("[dir]", &bed.path("").display().to_string()),
    );
    let stream = |name: &str, more: &str| {
        format!(
            "stream: {name}
sources: {{ numbers: {{ generate: \"{{'n': n}}\", count: 6, time: record.n }} }}
steps:
  tested: {{ from: numbers, call: odd.yaml, in: {{ n: record.n }}{more} }}
  said:   {{ from: tested, map: {{ n: record.record.n, said: record.outputs.said }} }}
sinks: {{ out: {{ from: said, file: {name}.jsonl }} }}
"
        )
    };
    bed.write("stops.yaml", &stream("stops", ""));
    bed.write("skips.yaml", &stream("skips", ", on_error: skip"));
    let said = bed.run(&["run", "stops.yaml"]).ends(1);
    assert!(said.stderr.contains("error[OF0462]: step `tested`: run `stops/tested/"), "{}", said.stderr);
    let run = said.stderr.split('`').find(|word| word.starts_with("stops/")).expect("it names the run");
    bed.run(&["show", run]).ends(0);
    let all = |but: &[i64]| super::sorted((0..6).filter(|n| !but.contains(n)).map(|n| json!({"n": n, "said": "fine"})));
    bed.run(&["run", "skips.yaml"]).ends(0);
    assert_eq!(lines(&bed, "skips.jsonl"), all(&[3]));
    let shown = bed.run(&["show", "skips", "--json"]).ends(0).json();
    let skipped = shown["stages"].as_array().expect("stages").iter().filter_map(|stage| stage["skipped"].as_u64());
    assert_eq!(skipped.sum::<u64>(), 1);
    bed.write("ok", "");
    bed.run(&["run", "stops.yaml"]).ends(0);
    assert_eq!(lines(&bed, "stops.jsonl"), all(&[]));
    let left = bed.run(&["ls"]).ends(0).stdout;
    assert_eq!(left.matches("stops/tested/").count(), 0, "{left}");
    assert_eq!(left.matches("skips/tested/").count(), 1, "the failed run stays to be looked at: {left}");
}

#[test]
fn removing_a_stream_cancels_the_runs_it_has_called() {
    let bed = Bed::new();
    bed.write(
        "waits.yaml",
        "flow: waits
inputs: { n: int }
steps: { event: { wait: go, timeout: 1h, out: { said: text } } }
outputs: { said: event.said }
",
    );
    bed.write(
        "stream.yaml",
        "stream: waiting
sources: { numbers: { generate: \"{'n': n}\", count: 3 } }
steps: { called: { from: numbers, call: waits.yaml, in: { n: record.n } } }
sinks: { seen: { from: numbers, stdout: true }, out: { from: called, file: out.jsonl } }
",
    );
    let mut child = bed.start(&["run", "stream.yaml"]);
    loop {
        let listed = bed.run(&["ls"]).stdout;
        if listed.matches("waiting/called/").count() == 3 {
            break;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
    }
    let refused = bed.run(&["rm", "waiting", "--yes"]).ends(75);
    assert!(refused.stderr.contains("is at work"), "{}", refused.stderr);
    child.kill().expect("it is still at work");
    child.wait().expect("it was killed");
    bed.run(&["rm", "waiting", "--yes"]).ends(0);
    let listed = bed.run(&["ls"]).stdout;
    assert!(!listed.contains("waiting"), "{listed}");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn wrong_calls_are_errors_of_the_stream_file_at_their_places() {
    let bed = Bed::new();
    bed.write("square.yaml", SQUARE);
    bed.write(
        "file.yaml",
        "flow: file\nsteps: { a: { run: \"echo > ${{ out.f }}\", out: { f: { file: f.txt } } } }\noutputs: { f: a.f }\n",
    );
    bed.write(
        "stream.yaml",
        "stream: wrong
sources: { numbers: { generate: \"{'n': n, 'name': 'x'}\", record: { n: int, name: text }, count: 1 } }
steps:
  none:  { from: numbers, call: nowhere.yaml }
  lacks: { from: numbers, call: square.yaml, in: {} }
  other: { from: numbers, call: square.yaml, in: { n: record.name, m: record.n } }
  file:  { from: numbers, call: file.yaml }
  much:  { from: numbers, filter: \"true\", at_most: 3 }
",
    );
    bed.run(&["check", "stream.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0127]: there is no flow file `nowhere.yaml`
          --> stream.yaml:4:33
           |  none:  { from: numbers, call: nowhere.yaml }
           |                                ^^^^^^^^^^^^
        hint: it is looked for beside the stream file: nowhere.yaml

        error[OF0129]: the flow `square.yaml` needs the input `n`
          --> stream.yaml:5:33
           |  lacks: { from: numbers, call: square.yaml, in: {} }
           |                                ^^^^^^^^^^^
        hint: `in: { n: … }`; it is int

        error[OF0130]: int is wanted, but `record.name` is text
          --> stream.yaml:6:55
           |  other: { from: numbers, call: square.yaml, in: { n: record.name, m: record.n } }
           |                                                      ^^^^^^^^^^^

        error[OF0128]: the flow `square.yaml` has no input `m`
          --> stream.yaml:6:68
           |  other: { from: numbers, call: square.yaml, in: { n: record.name, m: record.n } }
           |                                                                   ^
        hint: did you mean `n`?

        error[OF0161]: output `f` of `file.yaml` is file, which no record can hold
          --> stream.yaml:7:33
           |  file:  { from: numbers, call: file.yaml }
           |                                ^^^^^^^^^
        hint: let the flow store the file where it belongs, and give its name as a text

        error[OF0113]: step `much` has `at_most`, which goes with `call`
          --> stream.yaml:8:43
           |  much:  { from: numbers, filter: "true", at_most: 3 }
           |                                          ^^^^^^^
        next: 6 problems; `onceflow error CODE` explains one
        -- exit 4
    "#]]);
}
