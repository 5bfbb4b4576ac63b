//! Flow files whose parts do not go together: the exact problems reported.

use super::support::{wrong, wrong_steps};
use expect_test::expect;

#[test]
fn a_flow_without_a_name_or_steps() {
    wrong(
        r#"
inputs: { a: file }
"#,
        expect![[r#"
            error[OF0105]: a flow file has no name
              --> flow.yaml:2:1
               |  inputs: { a: file }
               |  ^
            hint: `flow: NAME` comes first
        "#]],
    );
}

#[test]
fn a_flow_without_steps() {
    wrong(
        r#"
flow: test
"#,
        expect![[r#"
            error[OF0105]: a flow file has no steps
              --> flow.yaml:2:1
               |  flow: test
               |  ^
            hint: `steps:` says what is done
        "#]],
    );
}

#[test]
fn a_step_that_does_nothing_or_two_things() {
    wrong_steps(
        r#"
a: { out: { x: file } }
b: { run: echo, http: { url: "http://x" } }
c: { run: echo, code: print(1) }
d: { script: python3 }
e: { script: "import sys\nprint(1)", code: x }
"#,
        expect![[r#"
            error[OF0105]: step `a` has no part that says what it does
              --> flow.yaml:4:3
               |  a: { out: { x: file } }
               |  ^
            hint: it is one of `run`, `script`, `http`, `expr`, `wait`, `scope`, `stream`, `flow`, `steps`, `choose`

            error[OF0113]: step `b` has `run`, `http` at once
              --> flow.yaml:5:19
               |  b: { run: echo, http: { url: "http://x" } }
               |                  ^^^^
            hint: a step does one thing; make it two steps

            error[OF0113]: step `c` has `code`, but no `script`
              --> flow.yaml:6:19
               |  c: { run: echo, code: print(1) }
               |                  ^^^^
            hint: `script: python3` says what reads it

            error[OF0105]: step `d` has no `code`
              --> flow.yaml:7:3
               |  d: { script: python3 }
               |  ^
            hint: `script` names the interpreter, `code` is what it runs

            error[OF0106]: `script` names the interpreter
              --> flow.yaml:8:16
               |  e: { script: "import sys\nprint(1)", code: x }
               |               ^^^^^^^^^^^^^^^^^^^^^^
            hint: `script: python3`, and the code under `code:`
        "#]],
    );
}

#[test]
fn keys_that_do_not_go_together() {
    wrong_steps(
        r#"
a: { steps: { x: { run: echo } }, retry: 3, timeout: 3s, in: { n: inputs.n } }
b: { run: echo, at_most: 3 }
c: { run: echo, loop: { max: 3 } }
d: { choose: [{ run: echo }, { run: echo }], when: inputs.n > 1, out: { x: file } }
e: { choose: [] }
f: { steps: { x: { run: echo } }, loop: {} }
"#,
        expect![[r#"
            error[OF0113]: step `a` does nothing itself, so it has no `retry`, `timeout`
              --> flow.yaml:4:3
               |  a: { steps: { x: { run: echo } }, retry: 3, timeout: 3s, in: { n: inputs.n } }
               |  ^
            hint: say it of the steps inside

            error[OF0113]: step `a` has steps inside, so it has no `in`
              --> flow.yaml:4:3
               |  a: { steps: { x: { run: echo } }, retry: 3, timeout: 3s, in: { n: inputs.n } }
               |  ^
            hint: steps inside see the names around them

            error[OF0113]: step `b` has `at_most`, but no `each`
              --> flow.yaml:5:3
               |  b: { run: echo, at_most: 3 }
               |  ^

            error[OF0113]: step `c` has a `loop`, but no `steps`
              --> flow.yaml:6:25
               |  c: { run: echo, loop: { max: 3 } }
               |                        ^^^^^^^^^^
            hint: put it into `steps:` of its own, with an `out:` that gives what is carried

            error[OF0105]: arm 1 of step `d` has no `when`, so those after it are never taken
              --> flow.yaml:7:17
               |  d: { choose: [{ run: echo }, { run: echo }], when: inputs.n > 1, out: { x: file } }
               |                ^^^^^^^^^^^^^
            hint: only the last arm may do without

            error[OF0113]: step `d` has both `choose` and `when`
              --> flow.yaml:7:54
               |  d: { choose: [{ run: echo }, { run: echo }], when: inputs.n > 1, out: { x: file } }
               |                                                     ^^^^^^^^^^^^
            hint: put it into the `when` of the arms

            error[OF0113]: step `d` has no `out` of its own: the arms say what it gives
              --> flow.yaml:7:68
               |  d: { choose: [{ run: echo }, { run: echo }], when: inputs.n > 1, out: { x: file } }
               |                                                                   ^^^
            hint: leave it out

            error[OF0105]: step `e` has no arms
              --> flow.yaml:8:16
               |  e: { choose: [] }
               |               ^^
            hint: `choose: [{ when: …, run: … }, { run: … }]`

            error[OF0105]: `loop` has no end
              --> flow.yaml:9:43
               |  f: { steps: { x: { run: echo } }, loop: {} }
               |                                          ^^
            hint: give it `while`, `max`, or both
        "#]],
    );
}

#[test]
fn types_that_are_none() {
    wrong(
        r#"
flow: test
inputs:
  a: string
  b: list<flie>
  c: { type: list<int }
  d: { default: 3 }
  e: { type: int, enum: [a, b] }
  f:
  g: { list: { id: txt } }
  h: enum<>
steps:
  s: { run: echo, out: { x: path, y: { fil: a.txt }, z: { file: a, int: b } } }
"#,
        expect![[r#"
            error[OF0110]: `string` is not a type
              --> flow.yaml:4:6
               |  a: string
               |     ^^^^^^
            hint: here it is called `text`

            error[OF0110]: `flie` is not a type
              --> flow.yaml:5:11
               |  b: list<flie>
               |          ^^^^^
            hint: did you mean `file`?

            error[OF0110]: `list<int` is not a type: `>` is missing
              --> flow.yaml:6:14
               |  c: { type: list<int }
               |             ^^^^^^^^
            hint: types are `file dir text int float bool bytes json unit`, `list<T>`, `T?`, `{ a: T, b: T }`, `enum<a, b>`

            error[OF0105]: input `d` has no `type`
              --> flow.yaml:7:6
               |  d: { default: 3 }
               |     ^^^^^^^^^^^^^^

            error[OF0113]: input `e` has choices, so it is text
              --> flow.yaml:8:25
               |  e: { type: int, enum: [a, b] }
               |                        ^^^^^^

            error[OF0105]: input `f` has no type
              --> flow.yaml:9:3
               |  f:
               |  ^
            hint: `f: file`, for example

            error[OF0110]: `txt` is not a type
              --> flow.yaml:10:20
               |  g: { list: { id: txt } }
               |                   ^^^
            hint: did you mean `text`?

            error[OF0110]: an enum is a list of different words: `enum<a, b>`
              --> flow.yaml:11:11
               |  h: enum<>
               |          ^

            error[OF0110]: `path` is not a type
              --> flow.yaml:13:29
               |  s: { run: echo, out: { x: path, y: { fil: a.txt }, z: { file: a, int: b } } }
               |                            ^^^^
            hint: here it is called `file`

            error[OF0110]: `fil` is not a type
              --> flow.yaml:13:40
               |  s: { run: echo, out: { x: path, y: { fil: a.txt }, z: { file: a, int: b } } }
               |                                       ^^^
            hint: did you mean `file`?

            error[OF0106]: output `z` cannot be understood
              --> flow.yaml:13:57
               |  s: { run: echo, out: { x: path, y: { fil: a.txt }, z: { file: a, int: b } } }
               |                                                        ^^^^^^^^^^^^^^^^^^^
            hint: `{ file: name.txt }`, `{ int: stdout }`, or `{ type: T, path: … }`
        "#]],
    );
}

#[test]
fn units_that_are_none() {
    wrong_steps(
        r#"
a: { run: echo, timeout: 10 minutes, resources: { cpus: two, memory: 2gb } }
b: { run: echo, retry: { attempts: 0, backoff: 5, max: 1y } }
c: { run: echo, resources: { cpus: -1 }, retry: many, attempt: yes }
d: { each: x in inputs.reads, at_most: 0, run: echo }
"#,
        expect![[r#"
            error[OF0111]: `timeout` cannot be `10 minutes`
              --> flow.yaml:4:28
               |  a: { run: echo, timeout: 10 minutes, resources: { cpus: two, memory: 2gb } }
               |                           ^^^^^^^^^^
            hint: a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`

            error[OF0111]: `cpus` must be a number, but `two` stands here
              --> flow.yaml:4:59
               |  a: { run: echo, timeout: 10 minutes, resources: { cpus: two, memory: 2gb } }
               |                                                          ^^^

            error[OF0111]: `memory` cannot be `2gb`
              --> flow.yaml:4:72
               |  a: { run: echo, timeout: 10 minutes, resources: { cpus: two, memory: 2gb } }
               |                                                                       ^^^
            hint: a size is a number and a unit: `512MiB`, `2GB`

            error[OF0133]: `attempts` must be between 1 and 1000000, not 0
              --> flow.yaml:5:38
               |  b: { run: echo, retry: { attempts: 0, backoff: 5, max: 1y } }
               |                                     ^

            error[OF0111]: `backoff` cannot be `5`
              --> flow.yaml:5:50
               |  b: { run: echo, retry: { attempts: 0, backoff: 5, max: 1y } }
               |                                                 ^
            hint: a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`

            error[OF0111]: `max` cannot be `1y`
              --> flow.yaml:5:58
               |  b: { run: echo, retry: { attempts: 0, backoff: 5, max: 1y } }
               |                                                         ^^
            hint: a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`

            error[OF0133]: `cpus` must be between 0 and 100000, not -1
              --> flow.yaml:6:38
               |  c: { run: echo, resources: { cpus: -1 }, retry: many, attempt: yes }
               |                                     ^^

            error[OF0111]: `retry` must be a whole number, but `many` stands here
              --> flow.yaml:6:51
               |  c: { run: echo, resources: { cpus: -1 }, retry: many, attempt: yes }
               |                                                  ^^^^

            error[OF0111]: `attempt` must be true or false, but `yes` stands here
              --> flow.yaml:6:66
               |  c: { run: echo, resources: { cpus: -1 }, retry: many, attempt: yes }
               |                                                                 ^^^

            error[OF0133]: `at_most` must be between 1 and 1000000, not 0
              --> flow.yaml:7:42
               |  d: { each: x in inputs.reads, at_most: 0, run: echo }
               |                                         ^
        "#]],
    );
}

#[test]
fn words_that_are_not_allowed() {
    wrong(
        r#"
flow: test
keep: forever
history: 7
on_failure: continue
shell: zsh
env: { 1A: x }
steps:
  a: { run: echo, effect: once, shell: [] }
"#,
        expect![[r#"
            error[OF0111]: `keep` cannot be `forever`
              --> flow.yaml:3:7
               |  keep: forever
               |        ^^^^^^^
            hint: a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`

            error[OF0111]: `history` cannot be `7`
              --> flow.yaml:4:10
               |  history: 7
               |           ^
            hint: a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`

            error[OF0112]: `on_failure` cannot be `continue`
              --> flow.yaml:5:13
               |  on_failure: continue
               |              ^^^^^^^^
            hint: it is one of `stop`, `finish_independent`

            error[OF0112]: `shell` cannot be `zsh`
              --> flow.yaml:6:8
               |  shell: zsh
               |         ^^^
            hint: it is one of `bash`, `sh`

            error[OF0135]: `1A` cannot be the name of a variable of the environment
              --> flow.yaml:7:8
               |  env: { 1A: x }
               |         ^^
            hint: letters, digits and `_`, and no digit first

            error[OF0112]: `effect` cannot be `once`
              --> flow.yaml:9:27
               |  a: { run: echo, effect: once, shell: [] }
               |                          ^^^^
            hint: it is one of `pure`, `idempotent`, `at_most_once`

            error[OF0105]: `shell` has no program
              --> flow.yaml:9:40
               |  a: { run: echo, effect: once, shell: [] }
               |                                       ^^
            hint: `shell: [bash, -e]`
        "#]],
    );
}

#[test]
fn an_each_that_cannot_be_understood() {
    wrong_steps(
        r#"
a: { each: inputs.reads, run: echo }
b: { each: x of inputs.reads, run: echo }
c: { each: "x, y in zip(inputs.reads)", run: echo }
d: { each: x in inputs.ref, run: echo }
e: { each: "x, x in zip(inputs.reads, inputs.reads)", run: echo }
f: { run: echo, out: { all: json } }
g: { each: x in f.all, run: echo }
"#,
        expect![[r#"
            error[OF0123]: `each: inputs.reads` cannot be understood
              --> flow.yaml:4:14
               |  a: { each: inputs.reads, run: echo }
               |             ^^^^^^^^^^^^
            hint: `each: sample in inputs.samples`, or `each: r1, r2 in zip(inputs.left, inputs.right)`

            error[OF0123]: `each: x of inputs.reads` cannot be understood
              --> flow.yaml:5:14
               |  b: { each: x of inputs.reads, run: echo }
               |             ^^^^^^^^^^^^^^^^^
            hint: `each: sample in inputs.samples`, or `each: r1, r2 in zip(inputs.left, inputs.right)`

            error[OF0123]: `each: x, y in zip(inputs.reads)` cannot be understood
              --> flow.yaml:6:14
               |  c: { each: "x, y in zip(inputs.reads)", run: echo }
               |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: `each: sample in inputs.samples`, or `each: r1, r2 in zip(inputs.left, inputs.right)`

            error[OF0124]: `each` goes over a list, but `inputs.ref` is file
              --> flow.yaml:7:19
               |  d: { each: x in inputs.ref, run: echo }
               |                  ^^^^^^^^^^

            error[OF0123]: `x` is here twice
              --> flow.yaml:8:14
               |  e: { each: "x, x in zip(inputs.reads, inputs.reads)", run: echo }
               |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            error[OF0124]: `each` goes over a list, but `f.all` is json
              --> flow.yaml:10:19
               |  g: { each: x in f.all, run: echo }
               |                  ^^^^^
            hint: say of what it is a list: an `expr` of its own, with `out: { name: list<json> }`
        "#]],
    );
}

#[test]
fn conditions_that_are_no_truths() {
    wrong_steps(
        r#"
a: { when: inputs.n, run: echo }
b: { when: inputs.reads, run: echo, out: { x: file } }
c: { when: b.x, run: echo }
d: { choose: [{ when: inputs.n + 1, run: echo }] }
e: { loop: { while: inputs.name, max: 3 }, steps: { f: { run: echo } } }
"#,
        expect![[r#"
            error[OF0125]: `when` is true or false, but this is int
              --> flow.yaml:4:14
               |  a: { when: inputs.n, run: echo }
               |             ^^^^^^^^
            hint: `inputs.n > 0`, for example

            error[OF0125]: `when` is true or false, but this is list<file>
              --> flow.yaml:5:14
               |  b: { when: inputs.reads, run: echo, out: { x: file } }
               |             ^^^^^^^^^^^^
            hint: `size(inputs.reads) > 0` asks whether there are any

            error[OF0125]: `when` is true or false, but this is option<file>
              --> flow.yaml:6:14
               |  c: { when: b.x, run: echo }
               |             ^^^
            hint: `b.x != null` asks whether it is there

            error[OF0125]: `when` is true or false, but this is int
              --> flow.yaml:7:25
               |  d: { choose: [{ when: inputs.n + 1, run: echo }] }
               |                        ^^^^^^^^^^^^
            hint: `inputs.n + 1 > 0`, for example

            error[OF0125]: `while` is true or false, but this is text
              --> flow.yaml:8:23
               |  e: { loop: { while: inputs.name, max: 3 }, steps: { f: { run: echo } } }
               |                      ^^^^^^^^^^^
        "#]],
    );
}
