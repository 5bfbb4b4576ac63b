//! Flow files with wrong names: the exact problems reported.

use super::support::{wrong, wrong_steps};
use expect_test::expect;

#[test]
fn names_that_expressions_cannot_say() {
    wrong(
        r#"
flow: my flow
inputs: { 1st: file, my-file: file, out: text }
steps:
  call-variants: { run: echo }
  while: { run: echo, out: { a.b: file } }
"#,
        expect![[r#"
            error[OF0108]: `my flow` cannot be the name of a flow
              --> flow.yaml:2:7
               |  flow: my flow
               |        ^^^^^^^
            hint: letters, digits, `_` and `-`, at most 100 of them

            error[OF0108]: `1st` cannot be the name of an input
              --> flow.yaml:3:11
               |  inputs: { 1st: file, my-file: file, out: text }
               |            ^^^
            hint: a name is made of letters, digits and `_`, and does not start with a digit; `_1st` would do

            error[OF0108]: `my-file` cannot be the name of an input
              --> flow.yaml:3:22
               |  inputs: { 1st: file, my-file: file, out: text }
               |                       ^^^^^^^
            hint: a name is made of letters, digits and `_`, and does not start with a digit; `my_file` would do

            error[OF0108]: `call-variants` cannot be the name of a step
              --> flow.yaml:5:3
               |  call-variants: { run: echo }
               |  ^^^^^^^^^^^^^
            hint: a name is made of letters, digits and `_`, and does not start with a digit; `call_variants` would do

            error[OF0108]: `while` cannot be the name of a step
              --> flow.yaml:6:3
               |  while: { run: echo, out: { a.b: file } }
               |  ^^^^^
            hint: `while` already means something in expressions

            error[OF0108]: `a.b` cannot be the name of an output
              --> flow.yaml:6:30
               |  while: { run: echo, out: { a.b: file } }
               |                             ^^^
            hint: a name is made of letters, digits and `_`, and does not start with a digit; `a_b` would do
        "#]],
    );
}

#[test]
fn a_name_is_taken() {
    wrong_steps(
        r#"
align:
  each: align in inputs.reads
  run: echo ${{ align }}
outer:
  steps:
    align: { run: echo }
    b: { run: echo, in: { outer: inputs.n } }
"#,
        expect![[r#"
            error[OF0109]: the name `align` is taken
              --> flow.yaml:5:11
               |  each: align in inputs.reads
               |        ^^^^^^^^^^^^^^^^^^^^^
            hint: a name means one thing wherever it is seen; steps in other `steps:` may have the same names

            error[OF0109]: the name `align` is taken
              --> flow.yaml:9:7
               |  align: { run: echo }
               |  ^^^^^
            hint: a name means one thing wherever it is seen; steps in other `steps:` may have the same names

            error[OF0109]: the name `outer` is taken
              --> flow.yaml:10:29
               |  b: { run: echo, in: { outer: inputs.n } }
               |                        ^^^^^
            hint: a name means one thing wherever it is seen; steps in other `steps:` may have the same names
        "#]],
    );
}

#[test]
fn an_input_that_is_not_there() {
    wrong_steps(
        r#"
a: { run: "echo ${{ inputs.raeds }} ${{ inputs.nothing }} ${{ inputs }}" }
"#,
        expect![[r#"
            error[OF0116]: the flow has no input `raeds`
              --> flow.yaml:4:23
               |  a: { run: "echo ${{ inputs.raeds }} ${{ inputs.nothing }} ${{ inputs }}" }
               |                      ^^^^^^^^^^^^
            hint: did you mean `reads`?

            error[OF0116]: the flow has no input `nothing`
              --> flow.yaml:4:43
               |  a: { run: "echo ${{ inputs.raeds }} ${{ inputs.nothing }} ${{ inputs }}" }
               |                                          ^^^^^^^^^^^^^^
            hint: there is `reads`, `ref`, `n`, `name`, `row`

            error[OF0118]: `inputs` is not one value
              --> flow.yaml:4:65
               |  a: { run: "echo ${{ inputs.raeds }} ${{ inputs.nothing }} ${{ inputs }}" }
               |                                                                ^^^^^^
            hint: `inputs.reads`, for example
        "#]],
    );
}

#[test]
fn a_step_that_is_not_there() {
    wrong_steps(
        r#"
align: { run: echo, out: { bam: file } }
b: { run: "cat ${{ aling.bam }} ${{ align.bma }} ${{ align.bam.size }} ${{ align.bam.stme }}" }
c: { run: "echo ${{ reads }} ${{ n }}", after: [alihn] }
"#,
        expect![[r#"
            error[OF0116]: nothing is called `aling` here
              --> flow.yaml:5:22
               |  b: { run: "cat ${{ aling.bam }} ${{ align.bma }} ${{ align.bam.size }} ${{ align.bam.stme }}" }
               |                     ^^^^^^^^^
            hint: did you mean `align`?

            error[OF0117]: step `align` has no output `bma`
              --> flow.yaml:5:39
               |  b: { run: "cat ${{ aling.bam }} ${{ align.bma }} ${{ align.bam.size }} ${{ align.bam.stme }}" }
               |                                      ^^^^^^^^^
            hint: did you mean `bam`?

            error[OF0117]: `align.bam` is file, which has no field `size`
              --> flow.yaml:5:56
               |  b: { run: "cat ${{ aling.bam }} ${{ align.bma }} ${{ align.bam.size }} ${{ align.bam.stme }}" }
               |                                                       ^^^^^^^^^^^^^^
            hint: there is `path`, `name`, `stem`, `ext`

            error[OF0117]: `align.bam` is file, which has no field `stme`
              --> flow.yaml:5:78
               |  b: { run: "cat ${{ aling.bam }} ${{ align.bma }} ${{ align.bam.size }} ${{ align.bam.stme }}" }
               |                                                                             ^^^^^^^^^^^^^^
            hint: did you mean `stem`?

            error[OF0116]: nothing is called `reads` here
              --> flow.yaml:6:23
               |  c: { run: "echo ${{ reads }} ${{ n }}", after: [alihn] }
               |                      ^^^^^
            hint: did you mean `inputs.reads`?

            error[OF0116]: nothing is called `n` here
              --> flow.yaml:6:36
               |  c: { run: "echo ${{ reads }} ${{ n }}", after: [alihn] }
               |                                   ^
            hint: did you mean `inputs.n`?

            error[OF0116]: there is no step `alihn` here
              --> flow.yaml:6:51
               |  c: { run: "echo ${{ reads }} ${{ n }}", after: [alihn] }
               |                                                  ^^^^^
            hint: it names steps: `after: [prepare]`
        "#]],
    );
}

#[test]
fn a_step_with_several_outputs_is_not_one_value() {
    wrong_steps(
        r#"
a: { run: echo, out: { x: file, y: file } }
b: { run: "cat ${{ a }}" }
c: { steps: { d: { run: echo } } }
e: { run: "cat ${{ c }}" }
"#,
        expect![[r#"
            error[OF0118]: `a` is not one value
              --> flow.yaml:5:22
               |  b: { run: "cat ${{ a }}" }
               |                     ^
            hint: `a.x`, for example

            error[OF0118]: `c` is not one value
              --> flow.yaml:7:22
               |  e: { run: "cat ${{ c }}" }
               |                     ^
            hint: it gives nothing
        "#]],
    );
}

#[test]
fn fields_that_are_not_there() {
    wrong_steps(
        r#"
a: { run: "echo ${{ inputs.row.r2 }} ${{ inputs.n.x }} ${{ inputs.reads.stem }} ${{ inputs.row.r1.stem }}" }
"#,
        expect![[r#"
            error[OF0117]: `inputs.row` is { id: text, r1: file }, which has no field `r2`
              --> flow.yaml:4:23
               |  a: { run: "echo ${{ inputs.row.r2 }} ${{ inputs.n.x }} ${{ inputs.reads.stem }} ${{ inputs.row.r1.stem }}" }
               |                      ^^^^^^^^^^^^^
            hint: did you mean `r1`?

            error[OF0117]: `inputs.n` is int, which has no field `x`
              --> flow.yaml:4:44
               |  a: { run: "echo ${{ inputs.row.r2 }} ${{ inputs.n.x }} ${{ inputs.reads.stem }} ${{ inputs.row.r1.stem }}" }
               |                                           ^^^^^^^^^^

            error[OF0117]: `inputs.reads` is list<file>, which has no field `stem`
              --> flow.yaml:4:62
               |  a: { run: "echo ${{ inputs.row.r2 }} ${{ inputs.n.x }} ${{ inputs.reads.stem }} ${{ inputs.row.r1.stem }}" }
               |                                                             ^^^^^^^^^^^^^^^^^
            hint: `inputs.reads[0].stem` is that of the first; `inputs.reads.map(x, x.stem)` are those of all
        "#]],
    );
}

#[test]
fn own_outputs_that_are_not_there() {
    wrong_steps(
        r#"
a: { run: "echo ${{ out.bma }} ${{ out }} ${{ out.bam.name }}", out: { bam: file } }
b: { expr: { x: cpus + 1 }, when: attempt > 1 }
"#,
        expect![[r#"
            error[OF0117]: this step has no output `bma`
              --> flow.yaml:4:23
               |  a: { run: "echo ${{ out.bma }} ${{ out }} ${{ out.bam.name }}", out: { bam: file } }
               |                      ^^^^^^^
            hint: did you mean `bam`?

            error[OF0118]: `out` is not one value
              --> flow.yaml:4:38
               |  a: { run: "echo ${{ out.bma }} ${{ out }} ${{ out.bam.name }}", out: { bam: file } }
               |                                     ^^^
            hint: there is `bam`

            error[OF0117]: `out.bam` is where the output will be; it has no `name` yet
              --> flow.yaml:4:49
               |  a: { run: "echo ${{ out.bma }} ${{ out }} ${{ out.bam.name }}", out: { bam: file } }
               |                                                ^^^^^^^^^^^^
            hint: `${{ out.bam }}` is its path

            error[OF0116]: nothing is called `cpus` here
              --> flow.yaml:5:19
               |  b: { expr: { x: cpus + 1 }, when: attempt > 1 }
               |                  ^^^^
            hint: `cpus` is known in `run`, `env` and `http` only

            error[OF0116]: nothing is called `attempt` here
              --> flow.yaml:5:37
               |  b: { expr: { x: cpus + 1 }, when: attempt > 1 }
               |                                    ^^^^^^^
            hint: `attempt` is known in `run`, `env` and `http` only
        "#]],
    );
}

#[test]
fn steps_that_wait_for_each_other() {
    wrong_steps(
        r#"
a: { run: "echo ${{ b.x }}", out: { x: text } }
b: { run: "echo ${{ c.x }}", out: { x: text } }
c: { steps: { d: { run: "echo ${{ a.x }}", out: { x: text } } }, out: { x: d.x } }
"#,
        expect![[r#"
            error[OF0020]: these wait for each other for ever: /a -> /c -> /b -> /a
              --> flow.yaml:4:3
               |  a: { run: "echo ${{ b.x }}", out: { x: text } }
               |  ^
            hint: what goes round is a loop, with carried ports
        "#]],
    );
}

#[test]
fn a_step_that_waits_for_itself() {
    wrong_steps(
        r#"
a: { run: "echo ${{ a.x }}", out: { x: text } }
"#,
        expect![[r#"
            error[OF0020]: these wait for each other for ever: /a -> /a
              --> flow.yaml:4:3
               |  a: { run: "echo ${{ a.x }}", out: { x: text } }
               |  ^
            hint: what goes round is a loop, with carried ports
        "#]],
    );
}

#[test]
fn secrets_that_are_not_declared_or_would_be_stored() {
    wrong(
        r#"
flow: test
secrets: [TOKEN, my-token]
steps:
  a: { run: "curl ${{ secrets.TOKN }}", secrets: [OTHER] }
  b: { expr: { x: secrets.TOKEN } }
  c: { http: { url: "https://x/${{ secrets.TOKEN }}", headers: { A: "${{ secrets.TOKEN }}" } } }
  d: { run: echo, out: { x: { file: "${{ secrets.TOKEN }}" } } }
"#,
        expect![[r#"
            error[OF0108]: `my-token` cannot be the name of a secret
              --> flow.yaml:3:18
               |  secrets: [TOKEN, my-token]
               |                   ^^^^^^^^
            hint: it names a variable of the environment, never the secret itself

            error[OF0126]: the secret `TOKN` is not declared
              --> flow.yaml:5:23
               |  a: { run: "curl ${{ secrets.TOKN }}", secrets: [OTHER] }
               |                      ^^^^^^^^^^^^
            hint: did you mean `TOKEN`?

            error[OF0126]: the secret `OTHER` is not declared
              --> flow.yaml:5:51
               |  a: { run: "curl ${{ secrets.TOKN }}", secrets: [OTHER] }
               |                                                  ^^^^^
            hint: add `secrets: [OTHER]` to the flow

            error[OF0126]: the secret `TOKEN` cannot be used here
              --> flow.yaml:6:19
               |  b: { expr: { x: secrets.TOKEN } }
               |                  ^^^^^^^^^^^^^
            hint: secrets are for `run`, `env` and `headers`: what is computed from them would be stored

            error[OF0126]: the secret `TOKEN` cannot be used here
              --> flow.yaml:7:36
               |  c: { http: { url: "https://x/${{ secrets.TOKEN }}", headers: { A: "${{ secrets.TOKEN }}" } } }
               |                                   ^^^^^^^^^^^^^
            hint: secrets are for `run`, `env` and `headers`: what is computed from them would be stored

            error[OF0126]: the secret `TOKEN` cannot be used here
              --> flow.yaml:8:42
               |  d: { run: echo, out: { x: { file: "${{ secrets.TOKEN }}" } } }
               |                                         ^^^^^^^^^^^^^
            hint: secrets are for `run`, `env` and `headers`: what is computed from them would be stored
        "#]],
    );
}

#[test]
fn text_without_quotes_of_its_own() {
    wrong_steps(
        r#"
a: { in: { mode: fast }, run: "echo ${{ mode }}" }
b: { expr: { x: hello } }
"#,
        expect![[r#"
            error[OF0116]: nothing is called `fast` here
              --> flow.yaml:4:20
               |  a: { in: { mode: fast }, run: "echo ${{ mode }}" }
               |                   ^^^^
            hint: a text in an expression has quotes of its own: `"'fast'"`

            error[OF0116]: nothing is called `hello` here
              --> flow.yaml:5:19
               |  b: { expr: { x: hello } }
               |                  ^^^^^
            hint: a text in an expression has quotes of its own: `"'hello'"`
        "#]],
    );
}

#[test]
fn outputs_of_what_is_not_there() {
    wrong(
        r#"
flow: test
steps:
  a: { run: echo, out: { x: file } }
outputs:
  x: a.y
  y: b.x
  z: { int: a.x }
"#,
        expect![[r#"
            error[OF0117]: step `a` has no output `y`
              --> flow.yaml:6:6
               |  x: a.y
               |     ^^^
            hint: did you mean `x`?

            error[OF0116]: nothing is called `b` here
              --> flow.yaml:7:6
               |  y: b.x
               |     ^^^
            hint: did you mean `a`?

            error[OF0130]: output `z` is int, but file is given
              --> flow.yaml:8:13
               |  z: { int: a.x }
               |            ^^^
        "#]],
    );
}

#[test]
fn a_loop_that_does_not_give_what_it_carries() {
    wrong_steps(
        r#"
a:
  loop: { carry: { x: inputs.n, y: inputs.name }, while: out.x > out.z }
  steps: { b: { expr: { x: "'text'" } } }
  out: { x: b.x }
"#,
        expect![[r#"
            error[OF0131]: the loop carries `x`, which begins as int, but `out` gives text
              --> flow.yaml:5:22
               |  loop: { carry: { x: inputs.n, y: inputs.name }, while: out.x > out.z }
               |                   ^

            error[OF0131]: the loop carries `y`, but `out` does not give it
              --> flow.yaml:5:35
               |  loop: { carry: { x: inputs.n, y: inputs.name }, while: out.x > out.z }
               |                                ^
            hint: `out: { y: … }` is what the next iteration begins with

            error[OF0117]: the loop gives no `z`
              --> flow.yaml:5:68
               |  loop: { carry: { x: inputs.n, y: inputs.name }, while: out.x > out.z }
               |                                                                 ^^^^^
            hint: did you mean `x`?
        "#]],
    );
}

#[test]
fn afters_that_cannot_wait() {
    wrong_steps(
        r#"
a: { steps: { b: { run: echo } } }
c: { run: echo, after: [a, inputs, d] }
"#,
        expect![[r#"
            error[OF0134]: step `a` gives nothing that could be waited for
              --> flow.yaml:5:27
               |  c: { run: echo, after: [a, inputs, d] }
               |                          ^
            hint: give it an `out`

            error[OF0116]: there is no step `inputs` here
              --> flow.yaml:5:30
               |  c: { run: echo, after: [a, inputs, d] }
               |                             ^^^^^^
            hint: it names steps: `after: [prepare]`

            error[OF0116]: there is no step `d` here
              --> flow.yaml:5:38
               |  c: { run: echo, after: [a, inputs, d] }
               |                                     ^
            hint: it names steps: `after: [prepare]`
        "#]],
    );
}
