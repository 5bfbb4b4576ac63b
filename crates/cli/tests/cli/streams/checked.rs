//! Stream files that are checked, explained and drawn, and not run.

use super::EXAMPLE;
use crate::support::Bed;
use expect_test::expect;

#[test]
fn all_problems_of_a_stream_file_are_reported_at_their_places() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: wrong
sources:
  lines: { file: in.jsonl, record: { at: int, user: text, sent: int }, time: record.att, follw: true }
steps:
  valid:  { from: line, filter: record.user }
  short:  { from: ok, filter: record.sent }
  ok:     { from: sure, filter: \"record.user != '' &&\" }
  sure:   { from: typed, map: { user: user.name, n: record.sent } }
  typed:  { generate: n, from: lines }
  sums:   { from: numbers, window: { tumbling: 1m, session: 1m }, combine: { n: { sum: record.n } } }
  texts:  { from: numbers, key: record.n, combine: { n: { sum: record.t } } }
  a:      { from: b, filter: \"true\" }
  b:      { from: a, filter: \"true\" }
sinks:
  out: { from: nothing, file: out.jsonl, stdout: true }
",
    );
    bed.run(&["check", "stream.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0117]: `record` has no field `att`
          --> stream.yaml:3:78
           |  lines: { file: in.jsonl, record: { at: int, user: text, sent: int }, time: record.att, follw: true }
           |                                                                             ^^^^^^^^^^
        hint: did you mean `at`?

        error[OF0104]: source `lines` has no key `follw`
          --> stream.yaml:3:90
           |  lines: { file: in.jsonl, record: { at: int, user: text, sent: int }, time: record.att, follw: true }
           |                                                                                         ^^^^^
        hint: did you mean `follow`?

        error[OF0116]: there is no source or step `line`
          --> stream.yaml:5:19
           |  valid:  { from: line, filter: record.user }
           |                  ^^^^
        hint: did you mean `lines`?

        error[OF0105]: step `typed` has no part that says what it is
          --> stream.yaml:9:3
           |  typed:  { generate: n, from: lines }
           |  ^^^^^
        hint: it is one of `filter`, `map`, `flat_map`, `once`, `combine`, `join`, `enrich`, `call`, `count`, `sum`, `min`, `max`, `mean`, `distinct`, `top`, `fold`

        error[OF0104]: step `typed` has no key `generate`
          --> stream.yaml:9:13
           |  typed:  { generate: n, from: lines }
           |            ^^^^^^^^

        error[OF0113]: a window is one of tumbling, sliding (with `every`) and session
          --> stream.yaml:10:36
           |  sums:   { from: numbers, window: { tumbling: 1m, session: 1m }, combine: { n: { sum: record.n } } }
           |                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: `{ tumbling: 1m }`, `{ sliding: 1h, every: 5m }`, `{ session: 30m }`, or no `window`: one for all time

        error[OF0116]: there is no source or step `numbers`
          --> stream.yaml:11:19
           |  texts:  { from: numbers, key: record.n, combine: { n: { sum: record.t } } }
           |                  ^^^^^^^
        hint: there is `lines`, `valid`, `short`, `ok`, `sure`, `typed`, `sums`, `texts`, `a`, `b`

        error[OF0160]: steps read one another in a circle: `b`, `a`
          --> stream.yaml:12:3
           |  a:      { from: b, filter: "true" }
           |  ^
        hint: a stream flows from its sources on

        error[OF0113]: `out` has `file` and `stdout` at once
          --> stream.yaml:15:42
           |  out: { from: nothing, file: out.jsonl, stdout: true }
           |                                         ^^^^^^
        hint: it is one of `file`, `stdout`, `http`, `sqlite`, `postgres`
        next: 9 problems; `onceflow error CODE` explains one
        -- exit 4
    "#]]);
}

#[test]
fn expressions_of_a_stream_are_checked_against_the_type_of_its_records() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: wrong
sources:
  lines: { file: in.jsonl, record: { at: int, user: text, sent: int? }, time: \"record.at > 3\" }
steps:
  valid:  { from: lines, filter: record.user }
  ok:     { from: lines, filter: \"record.user != '' &&\" }
  sure:   { from: lines, map: { name: user, n: record.usr } }
  sums:   { from: lines, key: record.user, combine: { n: { sum: record.user }, user: count } }
  two:    { from: lines, key: record.user, combine: { user: count } }
  each:   { from: lines, flat_map: record.sent }
  calls:  { from: lines, map: \"record.user.upperCase()\" }
  paired: { from: lines, join: { from: valid, key: record.user } }
  once:   { from: lines, once: { id: record.user, horizon: 0 } }
sinks:
  out: { from: lines, file: out.txt, format: text }
",
    );
    bed.run(&["check", "stream.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0130]: int or text is wanted, but `record.at > 3` is bool
          --> stream.yaml:3:79
           |  lines: { file: in.jsonl, record: { at: int, user: text, sent: int? }, time: "record.at > 3" }
           |                                                                              ^^^^^^^^^^^^^^^

        error[OF0125]: bool is wanted, but `record.user` is text
          --> stream.yaml:5:34
           |  valid:  { from: lines, filter: record.user }
           |                                 ^^^^^^^^^^^

        error[OF0115]: `record.user != '' &&` is not an expression: the expression is not complete
          --> stream.yaml:6:54
           |  ok:     { from: lines, filter: "record.user != '' &&" }
           |                                                     ^

        error[OF0117]: `record` has no field `usr`
          --> stream.yaml:7:48
           |  sure:   { from: lines, map: { name: user, n: record.usr } }
           |                                               ^^^^^^^^^^
        hint: did you mean `user`?

        error[OF0130]: float or int or option<float> or option<int> is wanted, but `record.user` is text
          --> stream.yaml:8:65
           |  sums:   { from: lines, key: record.user, combine: { n: { sum: record.user }, user: count } }
           |                                                                ^^^^^^^^^^^

        error[OF0109]: its results would have two fields `user`
          --> stream.yaml:9:3
           |  two:    { from: lines, key: record.user, combine: { user: count } }
           |  ^^^
        hint: a result has the fields of its key, `start` and `end` of its window, and what is combined

        error[OF0130]: list<json> is wanted, but `record.sent` is option<int>
          --> stream.yaml:10:36
           |  each:   { from: lines, flat_map: record.sent }
           |                                   ^^^^^^^^^^^

        error[OF0141]: there is no function `upperCase`
          --> stream.yaml:11:44
           |  calls:  { from: lines, map: "record.user.upperCase()" }
           |                                           ^^^^^^^^^
        hint: `onceflow error OF0141` lists all functions

        error[OF0105]: step `paired` has no key
          --> stream.yaml:12:3
           |  paired: { from: lines, join: { from: valid, key: record.user } }
           |  ^^^^^^
        hint: `key: record.user` is that of its own records, `join: { key: … }` that of the others

        error[OF0105]: a join says which records belong together
          --> stream.yaml:12:32
           |  paired: { from: lines, join: { from: valid, key: record.user } }
           |                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: `window: 10m`, or how much earlier and later the other record may be: `before: 0`, `after: 5m`

        error[OF0133]: `horizon` must be longer than nothing
          --> stream.yaml:13:60
           |  once:   { from: lines, once: { id: record.user, horizon: 0 } }
           |                                                           ^

        error[OF0130]: a line of text is wanted, but the records of `lines` are { at: int, sent: option<int>, user: text }
          --> stream.yaml:15:16
           |  out: { from: lines, file: out.txt, format: text }
           |               ^^^^^
        hint: `map` makes a text of a record; or `format: json`
        next: 12 problems; `onceflow error CODE` explains one
        -- exit 4
    "#]]);
}

#[test]
fn a_circle_through_the_other_side_of_a_join_is_reported() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: round
sources: { lines: { stdin: true } }
steps:
  a: { from: lines, key: record.user, join: { from: b, key: record.user, window: 1m } }
  b: { from: a, filter: \"true\" }
sinks: { out: { from: b, file: out.jsonl } }
",
    );
    let said = bed.run(&["check", "stream.yaml"]).ends(4);
    assert!(said.stderr.contains("error[OF0160]: steps read one another in a circle"), "{}", said.stderr);
}

#[test]
fn a_stream_is_explained_and_drawn_by_its_stages() {
    let bed = Bed::new();
    bed.write("stream.yaml", EXAMPLE);
    bed.run(&["check", "stream.yaml"]).ends(0).expect(expect![[r#"
        -- stderr
        stream.yaml: stream `weblog` is sound
        next: onceflow run stream.yaml
        -- exit 0
    "#]]);
    bed.run(&["explain", "stream.yaml"]).ends(0).expect(expect![[r#"
        -- stdout
        stage 0: log → found → hits key → sessions key
          log: starts a stage: it is a source
        stage 1: hits → hits record → top key
          reads stage 0 (hits key)
          hits: lifted: records are combined per bundle before the shuffle
          hits: starts a stage: it keeps state per key, so records come by their key
        stage 2: top → top record
          reads stage 1 (top key)
          top: lifted: records are combined per bundle before the shuffle
          top: starts a stage: it keeps state per key, so records come by their key
        stage 3: sessions → sessions record
          reads stage 0 (sessions key)
          sessions: not lifted: its windows merge
          sessions: starts a stage: it keeps state per key, so records come by their key
        stage 4: to top gather → to top
          reads stage 2 (top record)
          to top gather: starts a stage: all records come together in one partition
        stage 5: to sessions gather → to sessions
          reads stage 3 (sessions record)
          to sessions gather: starts a stage: all records come together in one partition
        -- stderr
        next: onceflow run stream.yaml
        -- exit 0
    "#]]);
    bed.run(&["graph", "stream.yaml"]).ends(0).expect(expect![[r#"
        -- stdout
        weblog
        ├─ stage 0
        │  ├─ log  file
        │  └─ found  filter  ← log
        ├─ stage 1
        │  └─ hits  combine  ← found
        ├─ stage 2
        │  └─ top  combine  ← hits
        ├─ stage 3
        │  └─ sessions  combine  ← found
        ├─ stage 4
        │  └─ top  file  ← top
        └─ stage 5
           └─ sessions  file  ← sessions
        -- stderr
        next: onceflow run stream.yaml
        -- exit 0
    "#]]);
    let dot = bed.run(&["graph", "stream.yaml", "--format", "dot"]).ends(0).stdout;
    assert!(dot.contains("stage 1"), "{dot}");
}
