//! Wrong leaves and defaults: the exact problems reported.

use super::support::{wrong, wrong_steps};
use expect_test::expect;

#[test]
fn outputs_that_lead_out_of_the_work_directory() {
    wrong_steps(
        r#"
a: { run: echo, out: { x: { file: /etc/passwd } } }
b: { run: echo, out: { x: { file: ../x }, y: { dir: a/../../b } } }
c: { run: echo, out: { x: { "list<file>": "[a" }, y: { file: "in/x" }, z: { file: "" } } }
d: { run: echo, out: { x: { "list<file>": one.txt }, y: list<file>, z: unit } }
"#,
        expect![[r#"
            error[OF0121]: `/etc/passwd` cannot be the name of an output: it begins with `/`
              --> flow.yaml:4:37
               |  a: { run: echo, out: { x: { file: /etc/passwd } } }
               |                                    ^^^^^^^^^^^
            hint: outputs lie in the work directory of the step, where commands start

            error[OF0121]: `../x` cannot be the name of an output: it leads out of the work directory
              --> flow.yaml:5:37
               |  b: { run: echo, out: { x: { file: ../x }, y: { dir: a/../../b } } }
               |                                    ^^^^
            hint: outputs lie in the work directory of the step, where commands start

            error[OF0121]: `a/../../b` cannot be the name of an output: it leads out of the work directory
              --> flow.yaml:5:55
               |  b: { run: echo, out: { x: { file: ../x }, y: { dir: a/../../b } } }
               |                                                      ^^^^^^^^^
            hint: outputs lie in the work directory of the step, where commands start

            error[OF0121]: `[a` cannot be the name of an output: unclosed character class; missing ']'
              --> flow.yaml:6:45
               |  c: { run: echo, out: { x: { "list<file>": "[a" }, y: { file: "in/x" }, z: { file: "" } } }
               |                                            ^^^^

            error[OF0121]: `in/x` cannot be the name of an output: `in/` holds the inputs
              --> flow.yaml:6:64
               |  c: { run: echo, out: { x: { "list<file>": "[a" }, y: { file: "in/x" }, z: { file: "" } } }
               |                                                               ^^^^^^
            hint: outputs lie in the work directory of the step, where commands start

            error[OF0121]: `` cannot be the name of an output: it names nothing
              --> flow.yaml:6:85
               |  c: { run: echo, out: { x: { "list<file>": "[a" }, y: { file: "in/x" }, z: { file: "" } } }
               |                                                                                    ^^
            hint: outputs lie in the work directory of the step, where commands start

            error[OF0121]: `one.txt` cannot be the name of an output: it names one file, but the output is a list
              --> flow.yaml:7:45
               |  d: { run: echo, out: { x: { "list<file>": one.txt }, y: list<file>, z: unit } }
               |                                            ^^^^^^^
            hint: a pattern names several: `*.txt`

            error[OF0122]: where are the files of output `y`?
              --> flow.yaml:7:56
               |  d: { run: echo, out: { x: { "list<file>": one.txt }, y: list<file>, z: unit } }
               |                                                       ^
            hint: `y: { "list<file>": "*.txt" }`

            error[OF0122]: output `z` of type unit says nothing
              --> flow.yaml:7:71
               |  d: { run: echo, out: { x: { "list<file>": one.txt }, y: list<file>, z: unit } }
               |                                                                      ^
            hint: leave it out: every step without outputs gives `done`
        "#]],
    );
}

#[test]
fn a_call_over_http_that_is_not_complete() {
    wrong_steps(
        r#"
a: { http: { method: FETCH, uri: "https://x" } }
b: { http: { url: example.com, json: { a: 1 }, text: x, accept: [2xx, 404] } }
c: { http: { url: "https://x", headers: { "bad name": x }, file: inputs.n }, out: { id: { text: id } } }
d: { http: { url: "https://x" }, shell: sh, env: { A: b } }
"#,
        expect![[r#"
            error[OF0105]: `http` has no `url`
              --> flow.yaml:4:14
               |  a: { http: { method: FETCH, uri: "https://x" } }
               |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            error[OF0112]: `method` cannot be `FETCH`
              --> flow.yaml:4:24
               |  a: { http: { method: FETCH, uri: "https://x" } }
               |                       ^^^^^
            hint: it is one of `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`, `OPTIONS`

            error[OF0104]: `http` has no key `uri`
              --> flow.yaml:4:31
               |  a: { http: { method: FETCH, uri: "https://x" } }
               |                              ^^^
            hint: did you mean `url`?

            error[OF0136]: `example.com` is not a URL
              --> flow.yaml:5:21
               |  b: { http: { url: example.com, json: { a: 1 }, text: x, accept: [2xx, 404] } }
               |                    ^^^^^^^^^^^
            hint: it begins with `http://` or `https://`

            error[OF0136]: a call sends one of `json`, `text` and `file`
              --> flow.yaml:5:50
               |  b: { http: { url: example.com, json: { a: 1 }, text: x, accept: [2xx, 404] } }
               |                                                 ^^^^

            error[OF0111]: `2xx` is not a status
              --> flow.yaml:5:68
               |  b: { http: { url: example.com, json: { a: 1 }, text: x, accept: [2xx, 404] } }
               |                                                                   ^^^
            hint: `404`, or a range: `200-299`

            error[OF0136]: `bad name` cannot be the name of a header
              --> flow.yaml:6:45
               |  c: { http: { url: "https://x", headers: { "bad name": x }, file: inputs.n }, out: { id: { text: id } } }
               |                                            ^^^^^^^^^^

            error[OF0136]: `file` sends a file, but this is int
              --> flow.yaml:6:68
               |  c: { http: { url: "https://x", headers: { "bad name": x }, file: inputs.n }, out: { id: { text: id } } }
               |                                                                   ^^^^^^^^

            error[OF0116]: an answer has no `id`
              --> flow.yaml:6:99
               |  c: { http: { url: "https://x", headers: { "bad name": x }, file: inputs.n }, out: { id: { text: id } } }
               |                                                                                                  ^^
            hint: it has `status`, `headers`, `body`: `body.id`?

            error[OF0113]: a call over HTTP is read by no shell
              --> flow.yaml:7:3
               |  d: { http: { url: "https://x" }, shell: sh, env: { A: b } }
               |  ^
            hint: leave `shell` out

            error[OF0113]: a call over HTTP has no environment
              --> flow.yaml:7:54
               |  d: { http: { url: "https://x" }, shell: sh, env: { A: b } }
               |                                                     ^
            hint: leave `env` out
        "#]],
    );
}

#[test]
fn an_undo_that_cannot_be() {
    wrong_steps(
        r#"
a: { run: echo, undo: { steps: { b: { run: echo } } } }
b: { run: echo, undo: { run: echo, out: { x: file } } }
c: { expr: { x: "1" }, undo: { run: "echo ${{ inputs.m }}" } }
"#,
        expect![[r#"
            error[OF0137]: an `undo` is a `run`, `script` or `http`, and gives nothing
              --> flow.yaml:4:19
               |  a: { run: echo, undo: { steps: { b: { run: echo } } } }
               |                  ^^^^
            hint: it sees what its step sees

            error[OF0137]: an `undo` is a `run`, `script` or `http`, and gives nothing
              --> flow.yaml:5:19
               |  b: { run: echo, undo: { run: echo, out: { x: file } } }
               |                  ^^^^
            hint: it sees what its step sees

            error[OF0116]: the flow has no input `m`
              --> flow.yaml:6:49
               |  c: { expr: { x: "1" }, undo: { run: "echo ${{ inputs.m }}" } }
               |                                                ^^^^^^^^
            hint: did you mean `n`?
        "#]],
    );
}

#[test]
fn expressions_whose_types_do_not_fit() {
    wrong_steps(
        r#"
a: { expr: { x: inputs.n + 1 }, out: { x: text } }
b: { expr: inputs.n, out: { x: int, y: int } }
c: { expr: { x: "inputs.reads.map(f, [f, 1])" } }
d: { expr: { x: "1" }, out: { y: int } }
"#,
        expect![[r#"
            error[OF0130]: text is wanted, but `inputs.n + 1` is int
              --> flow.yaml:4:19
               |  a: { expr: { x: inputs.n + 1 }, out: { x: text } }
               |                  ^^^^^^^^^^^^

            error[OF0113]: one expression cannot be several outputs
              --> flow.yaml:5:14
               |  b: { expr: inputs.n, out: { x: int, y: int } }
               |             ^^^^^^^^
            hint: `expr: { a: …, b: … }` says which expression is which output

            error[OF0138]: the type of `inputs.reads.map(f, [f, 1])` cannot be seen
              --> flow.yaml:6:19
               |  c: { expr: { x: "inputs.reads.map(f, [f, 1])" } }
               |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: say it: `expr: …` in a step of its own, with `out: { name: TYPE }`

            error[OF0105]: nothing computes output `y`
              --> flow.yaml:7:33
               |  d: { expr: { x: "1" }, out: { y: int } }
               |                                ^
            hint: `expr: { y: … }`
        "#]],
    );
}

#[test]
fn defaults_that_do_not_fit() {
    wrong(
        r#"
flow: test
inputs:
  a: { type: int, default: many }
  b: { enum: [fast, slow], default: medium }
  c: { type: list<int>, default: [1, two] }
  d: { type: "{ x: int }", default: { y: 1 } }
  e: { type: bool, default: yes }
steps: { s: { run: echo } }
"#,
        expect![[r#"
            error[OF0132]: the default of input `a` must be int, but `many` is given
              --> flow.yaml:4:28
               |  a: { type: int, default: many }
               |                           ^^^^

            error[OF0132]: the default of input `b` cannot be `medium`
              --> flow.yaml:5:37
               |  b: { enum: [fast, slow], default: medium }
               |                                    ^^^^^^
            hint: it is one of `fast`, `slow`

            error[OF0132]: element 1 of the default of input `c` must be int, but `two` is given
              --> flow.yaml:6:38
               |  c: { type: list<int>, default: [1, two] }
               |                                     ^^^

            error[OF0132]: the default of input `d` has no `x`, which is int
              --> flow.yaml:7:37
               |  d: { type: "{ x: int }", default: { y: 1 } }
               |                                    ^^^^^^^^

            error[OF0132]: the default of input `d` has no field `y`
              --> flow.yaml:7:39
               |  d: { type: "{ x: int }", default: { y: 1 } }
               |                                      ^
            hint: did you mean `x`?

            error[OF0132]: the default of input `e` must be bool, but `yes` is given
              --> flow.yaml:8:29
               |  e: { type: bool, default: yes }
               |                            ^^^
            hint: `true` or `false`
        "#]],
    );
}

#[test]
fn holes_where_the_shell_would_not_see_them() {
    wrong_steps(
        r#"
a: { run: "echo 'the file ${{ inputs.ref }} is here'" }
b:
  run: |
    cat <<'END'
    ${{ inputs.name }}
    END
c: { run: 'X${{ inputs.n }}=3 make', shell: sh }
d: { run: 'echo "${{ inputs.ref }}" $(( ${{ inputs.n }} + 1 )) ${{ inputs.reads }} > x', out: { x: file } }
e: { run: "awk '{ print $1 > \"${{ out.x }}\" }'", out: { x: file } }
"#,
        expect![[r#"
            error[OF0119]: a value cannot go inside single quotes
              --> flow.yaml:4:33
               |  a: { run: "echo 'the file ${{ inputs.ref }} is here'" }
               |                                ^^^^^^^^^^
            hint: use double quotes, "… ${{ … }} …", or end the quotes before it: '…'${{ … }}'…'

            error[OF0119]: a value cannot go into a here-document whose delimiter is quoted
              --> flow.yaml:8:11
               |  ${{ inputs.name }}
               |      ^^^^^^^^^^^
            hint: write the delimiter without quotes: `<<EOF`

            error[OF0119]: a value cannot go inside single quotes
              --> flow.yaml:12:38
               |  e: { run: "awk '{ print $1 > \"${{ out.x }}\" }'", out: { x: file } }
               |                                     ^^^^^
            hint: use double quotes, "… ${{ … }} …", or end the quotes before it: '…'${{ … }}'…'
        "#]],
    );
}

#[test]
fn a_timeout_of_nothing_and_a_nul_are_found_before_anything_runs() {
    wrong_steps(
        r#"
a: { run: echo, timeout: 0 }
b: { run: "tr '\0' x" }
"#,
        expect![[r#"
            error[OF0133]: a `timeout` must be longer than 0
              --> flow.yaml:4:28
               |  a: { run: echo, timeout: 0 }
               |                           ^
            hint: leave it out for none at all

            error[OF0140]: `run` has a NUL character in it
              --> flow.yaml:5:13
               |  b: { run: "tr '\0' x" }
               |            ^^^^^^^^^^^
            hint: no program, file or variable can have one; write the two characters `\` and `0` in single quotes
        "#]],
    );
}

#[test]
fn suspicious_flows_get_warnings_with_their_place() {
    let flow = super::support::good(
        "flow: test\nsteps:\n  pay: { run: echo, effect: at_most_once, retry: 3 }\n  \
         cut:\n    run: touch x\n    out: { a: { file: x }, b: { file: ./x }, c: { file: y } }\n\
         outputs: { a: cut.a, b: cut.b, c: cut.c }\n",
    );
    let told: Vec<_> = flow.warnings.iter().map(|warning| (warning.place.1, warning.message.as_str())).collect();
    assert_eq!(
        told,
        [
            (
                3,
                "step `pay` is `at_most_once`, so a `retry` is made only of an attempt that never began: one that began is \
                 never started again"
            ),
            (6, "outputs `a` and `b` of step `cut` are one file, `x`"),
        ]
    );
}
