//! Flow files whose text is wrong: the exact problems reported.

use super::support::{wrong, wrong_steps};
use expect_test::expect;

#[test]
fn a_mapping_inside_a_plain_text() {
    wrong_steps(
        r#"
a:
  run: echo note: this is fine
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: mapping values are not allowed in this context
              --> flow.yaml:5:19
               |  run: echo note: this is fine
               |                ^
            hint: a text with `: ` in it must be quoted, or stand in a block: `run: |` and then indented lines
        "#]],
    );
}

#[test]
fn tabs() {
    wrong(
        r#"
flow: test
steps:
	a:
		run: echo
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: tabs disallowed within this context (block indentation)
              --> flow.yaml:4:2
               |  a:
               |  ^
            hint: YAML is indented with spaces, not with tabs
        "#]],
    );
}

#[test]
fn an_open_quote() {
    wrong(
        r#"
flow: test
steps:
  a: { run: "echo }
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: unclosed quote
              --> flow.yaml:4:13
               |  a: { run: "echo }
               |            ^
            hint: a text with quotes in it is best written as a block: `run: |` and then indented lines
        "#]],
    );
}

#[test]
fn holes_without_quotes_in_a_flow_map() {
    wrong_steps(
        r#"
a: { run: echo, out: { x: { file: ${{ inputs.name }}.txt } } }
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'
              --> flow.yaml:4:38
               |  a: { run: echo, out: { x: { file: ${{ inputs.name }}.txt } } }
               |                                     ^
            hint: inside `{ }` and `[ ]` a text with `${{ … }}` must be quoted
        "#]],
    );
}

#[test]
fn a_key_twice() {
    wrong(
        r#"
flow: test
steps:
  a: { run: echo, run: true }
  a: { run: echo }
flow: again
"#,
        expect![[r#"
            error[OF0103]: `run` is here twice
              --> flow.yaml:4:19
               |  a: { run: echo, run: true }
               |                  ^^^
            hint: the first is in line 4

            error[OF0103]: `a` is here twice
              --> flow.yaml:5:3
               |  a: { run: echo }
               |  ^
            hint: the first is in line 4

            error[OF0103]: `flow` is here twice
              --> flow.yaml:6:1
               |  flow: again
               |  ^^^^
            hint: the first is in line 2
        "#]],
    );
}

#[test]
fn an_unknown_key_says_what_was_meant() {
    wrong(
        r#"
flow: test
input: { a: file }
steps:
  a: { runs: echo, retries: 3, timeuot: 3s, run: echo }
  b: { run: echo, resources: { cpu: 2, gpus: 1 } }
output: {}
"#,
        expect![[r#"
            error[OF0104]: a flow file has no key `input`
              --> flow.yaml:3:1
               |  input: { a: file }
               |  ^^^^^
            hint: did you mean `inputs`?

            error[OF0104]: step `a` has no key `runs`
              --> flow.yaml:5:8
               |  a: { runs: echo, retries: 3, timeuot: 3s, run: echo }
               |       ^^^^
            hint: did you mean `run`?

            error[OF0104]: step `a` has no key `retries`
              --> flow.yaml:5:20
               |  a: { runs: echo, retries: 3, timeuot: 3s, run: echo }
               |                   ^^^^^^^
            hint: did you mean `retry`?

            error[OF0104]: step `a` has no key `timeuot`
              --> flow.yaml:5:32
               |  a: { runs: echo, retries: 3, timeuot: 3s, run: echo }
               |                               ^^^^^^^
            hint: did you mean `timeout`?

            error[OF0104]: `resources` has no key `cpu`
              --> flow.yaml:6:32
               |  b: { run: echo, resources: { cpu: 2, gpus: 1 } }
               |                               ^^^
            hint: did you mean `cpus`?

            error[OF0104]: `resources` has no key `gpus`
              --> flow.yaml:6:40
               |  b: { run: echo, resources: { cpu: 2, gpus: 1 } }
               |                                       ^^^^
            hint: did you mean `cpus`?

            error[OF0104]: a flow file has no key `output`
              --> flow.yaml:7:1
               |  output: {}
               |  ^^^^^^
            hint: did you mean `outputs`?
        "#]],
    );
}

#[test]
fn a_tag() {
    wrong(
        r#"
flow: test
steps:
  a: { run: !secret echo }
"#,
        expect![[r#"
            error[OF0101]: the tag `!secret` means nothing here
              --> flow.yaml:4:21
               |  a: { run: !secret echo }
               |                    ^^^^
            hint: leave it out
        "#]],
    );
}

#[test]
fn a_second_document() {
    wrong(
        r#"
flow: test
steps: { a: { run: echo } }
---
flow: other
"#,
        expect![[r#"
            error[OF0101]: a second document (`---`) starts here
              --> flow.yaml:4:1
               |  ---
               |  ^^^
            hint: a file holds one flow
        "#]],
    );
}

#[test]
fn an_alias_without_an_anchor() {
    wrong(
        r#"
flow: test
steps:
  a: *nothing
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: while parsing node, found unknown anchor
              --> flow.yaml:4:6
               |  a: *nothing
               |     ^
            hint: a text that starts with `*`, `&`, `@` or a backtick must be quoted
        "#]],
    );
}

#[test]
fn a_merge_key() {
    wrong(
        r#"
flow: test
steps:
  a: &a { run: echo }
  b: { <<: *a, timeout: 3s }
"#,
        expect![[r#"
            error[OF0105]: step `b` has no part that says what it does
              --> flow.yaml:5:3
               |  b: { <<: *a, timeout: 3s }
               |  ^
            hint: it is one of `run`, `script`, `http`, `expr`, `wait`, `scope`, `stream`, `flow`, `steps`, `choose`

            error[OF0104]: merge keys (`<<`) are not known here
              --> flow.yaml:5:8
               |  b: { <<: *a, timeout: 3s }
               |       ^^
            hint: write out what is the same, or put it into a flow of its own and call it
        "#]],
    );
}

#[test]
fn a_text_that_starts_like_yaml() {
    wrong_steps(
        r#"
a:
  run: *.txt
b: { run: `date` }
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: while parsing node, found unknown anchor
              --> flow.yaml:5:10
               |  run: *.txt
               |       ^
            hint: a text that starts with `*`, `&`, `@` or a backtick must be quoted
        "#]],
    );
}

#[test]
fn a_list_instead_of_a_map() {
    wrong(
        r#"
- flow: test
- steps: []
"#,
        expect![[r#"
            error[OF0106]: a flow file must be a map, but a list stands here
              --> flow.yaml:2:1
               |  - flow: test
               |  ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn only_a_word() {
    wrong(
        r#"
hello
"#,
        expect![[r#"
            error[OF0106]: a flow file must be a map, but a single value stands here
              --> flow.yaml:2:1
               |  hello
               |  ^^^^^
        "#]],
    );
}

#[test]
fn a_map_where_text_is_wanted() {
    wrong_steps(
        r#"
a: { run: { command: echo } }
b: { run: [echo, hello] }
c: echo
d: { run: echo, env: { A: [1] }, after: { x: y } }
e:
"#,
        expect![[r#"
            error[OF0106]: `run` must be a text, but a map stands here
              --> flow.yaml:4:13
               |  a: { run: { command: echo } }
               |            ^^^^^^^^^^^^^^^^^

            error[OF0106]: `run` must be a text, but a list stands here
              --> flow.yaml:5:13
               |  b: { run: [echo, hello] }
               |            ^^^^^^^^^^^^^

            error[OF0106]: step `c` must be a map, but a single value stands here
              --> flow.yaml:6:6
               |  c: echo
               |     ^^^^

            error[OF0106]: `A` must be a text, but a list stands here
              --> flow.yaml:7:29
               |  d: { run: echo, env: { A: [1] }, after: { x: y } }
               |                            ^^^

            error[OF0106]: `after` must be a list, but a map stands here
              --> flow.yaml:7:43
               |  d: { run: echo, env: { A: [1] }, after: { x: y } }
               |                                          ^^^^^^^^

            error[OF0106]: step `e` must be a map, but nothing stands here
              --> flow.yaml:8:4
               |  e:
               |   ^
        "#]],
    );
}

#[test]
fn a_hole_that_does_not_end() {
    wrong_steps(
        r#"
a:
  run: |
    echo one
    echo ${{ inputs.n
    echo ${{ }}
"#,
        expect![[r#"
            error[OF0114]: `${{` has no `}}`
              --> flow.yaml:7:12
               |  echo ${{ inputs.n
               |       ^^^^^^^^^^^^
            hint: close the hole with `}}`, or write `$${{` for the text `${{`
        "#]],
    );
}

#[test]
fn an_expression_that_is_none() {
    wrong_steps(
        r#"
a: { run: "echo ${{ inputs.n + }}" }
b: { when: inputs.n = 3, run: echo }
c: { when: inputs.n > 3 and inputs.n < 5, run: echo }
d: { when: "${{ inputs.n > 3 }}", run: echo }
"#,
        expect![[r#"
            error[OF0115]: `inputs.n +` is not an expression: the expression is not complete
              --> flow.yaml:4:32
               |  a: { run: "echo ${{ inputs.n + }}" }
               |                               ^

            error[OF0115]: `inputs.n = 3` is not an expression: `= ` cannot be read
              --> flow.yaml:5:23
               |  b: { when: inputs.n = 3, run: echo }
               |                      ^
            hint: to compare is `==`

            error[OF0115]: `inputs.n > 3 and inputs.n < 5` is not an expression: `and` is not expected here
              --> flow.yaml:6:27
               |  c: { when: inputs.n > 3 and inputs.n < 5, run: echo }
               |                          ^^^
            hint: `and`, `or`, `not` are `&&`, `||`, `!`

            error[OF0115]: `${{ inputs.n > 3 }}` is not an expression: `$` cannot be read
              --> flow.yaml:7:15
               |  d: { when: "${{ inputs.n > 3 }}", run: echo }
               |              ^
            hint: this is an expression already: leave out `${{` and `}}`
        "#]],
    );
}

#[test]
fn json_is_read_too() {
    wrong(
        r#"
{"flow": "test", "inputs": {"a": "fil"}, "steps": {"x": {"run": "echo ${{ inputs.b }}"}}}
"#,
        expect![[r#"
            error[OF0110]: `fil` is not a type
              --> flow.yaml:2:35
               |  {"flow": "test", "inputs": {"a": "fil"}, "steps": {"x": {"run": "echo ${{ inputs.b }}"}}}
               |                                    ^^^
            hint: did you mean `file`?

            error[OF0116]: the flow has no input `b`
              --> flow.yaml:2:75
               |  {"flow": "test", "inputs": {"a": "fil"}, "steps": {"x": {"run": "echo ${{ inputs.b }}"}}}
               |                                                                            ^^^^^^^^
            hint: did you mean `a`?
        "#]],
    );
}

#[test]
fn json_that_is_cut_off() {
    wrong(
        r#"
{"flow": "test", "steps": {"a": {"run": "echo"
"#,
        expect![[r#"
            error[OF0101]: this is not YAML: unclosed bracket '{'
              --> flow.yaml:2:33
               |  {"flow": "test", "steps": {"a": {"run": "echo"
               |                                  ^
            hint: every `{` and `[` needs its end
        "#]],
    );
}

#[test]
fn functions_that_do_not_exist_or_do_not_take_this() {
    wrong(
        r#"
flow: test
inputs: { name: text, n: int, files: list<file> }
steps:
  a:
    run: echo ${{ inputs.name.toUpper() }} ${{ size(inputs.n) }}
  b:
    each: f in inputs.files
    when: f.name.endswith('.gz')
    http: { url: "http://x/${{ f.stem + inputs.n }}" }
    out: { ids: { json: "body.map(x)" } }
  c:
    expr: { half: inputs.n * 0.5 }
"#,
        expect![[r#"
            error[OF0141]: there is no function `toUpper`
              --> flow.yaml:6:31
               |  run: echo ${{ inputs.name.toUpper() }} ${{ size(inputs.n) }}
               |                            ^^^^^^^
            hint: did you mean `text.upperAscii()`?

            error[OF0141]: `size` does not take (int)
              --> flow.yaml:6:48
               |  run: echo ${{ inputs.name.toUpper() }} ${{ size(inputs.n) }}
               |                                             ^^^^
            hint: `size(text|bytes|list|map)`, `text|bytes|list|map.size()`

            error[OF0141]: there is no function `endswith`
              --> flow.yaml:9:18
               |  when: f.name.endswith('.gz')
               |               ^^^^^^^^
            hint: did you mean `text.endsWith(text)`?

            error[OF0141]: `+` does not take text and int
              --> flow.yaml:10:39
               |  http: { url: "http://x/${{ f.stem + inputs.n }}" }
               |                                    ^
            hint: `string(x)` is a number as text

            error[OF0141]: `map` does not take 1 argument
              --> flow.yaml:11:31
               |  out: { ids: { json: "body.map(x)" } }
               |                            ^^^
            hint: `list|map.map(x, any)`, `list|map.map(x, bool, any)`

            error[OF0116]: an answer has no `x`
              --> flow.yaml:11:35
               |  out: { ids: { json: "body.map(x)" } }
               |                                ^
            hint: it has `status`, `headers`, `body`: `body.x`?

            error[OF0141]: `*` does not take int and float
              --> flow.yaml:13:28
               |  expr: { half: inputs.n * 0.5 }
               |                         ^
            hint: `double(x)` is an int as float
        "#]],
    );
}
