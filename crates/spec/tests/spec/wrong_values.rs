//! Files that are no flow files at all, and flows that are called wrongly: the exact problems reported.

use super::support::{load_in, wrong, wrong_files};
use expect_test::{Expect, expect};
use std::fs;

/// Checks the problem reported for bytes that are no flow.
fn garbage(bytes: &[u8], expected: Expect) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("flow.yaml"), bytes).unwrap();
    expected.assert_eq(&load_in(dir.path(), "flow.yaml").unwrap_err());
}

#[test]
fn no_file_and_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    expect![[r#"
        error[OF0102]: there is no file flow.yaml
        hint: `onceflow init` makes a first flow
    "#]]
    .assert_eq(&load_in(dir.path(), "flow.yaml").unwrap_err());
    fs::create_dir(dir.path().join("sub")).unwrap();
    expect![[r#"
        error[OF0102]: sub is a directory
        hint: name the flow file in it
    "#]]
    .assert_eq(&load_in(dir.path(), "sub").unwrap_err());
    fs::write(dir.path().join("sub/flow.yaml"), "").unwrap();
    expect![[r#"
        error[OF0102]: sub is a directory
        hint: did you mean sub/flow.yaml?
    "#]]
    .assert_eq(&load_in(dir.path(), "sub").unwrap_err());
}

#[test]
fn an_empty_file() {
    garbage(
        b"",
        expect![[r#"
        error[OF0102]: flow.yaml is empty
          --> flow.yaml:1:1
        hint: a flow file starts with `flow: NAME`
    "#]],
    );
    garbage(
        b"# only a comment\n",
        expect![[r#"
            error[OF0102]: flow.yaml is empty
              --> flow.yaml:1:1
               |  # only a comment
               |  ^
            hint: a flow file starts with `flow: NAME`
        "#]],
    );
    garbage(
        b"~\n",
        expect![[r#"
            error[OF0106]: a flow file must be a map, but nothing stands here
              --> flow.yaml:1:1
               |  ~
               |  ^
        "#]],
    );
}

#[test]
fn bytes_that_are_not_text() {
    garbage(
        b"flow: test\nsteps: \xff\xfe\n",
        expect![[r#"
        error[OF0102]: flow.yaml is not UTF-8: line 2 has other bytes
        hint: save it as UTF-8
    "#]],
    );
    garbage(
        b"\x7fELF\0\0\0",
        expect![[r#"
        error[OF0102]: flow.yaml is not text: it has a zero byte
        hint: is it the flow file?
    "#]],
    );
}

#[test]
fn ten_megabytes_of_garbage() {
    let bytes: Vec<u8> = (0..10_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    garbage(
        &bytes,
        expect![[r#"
        error[OF0102]: flow.yaml has 10000000 bytes; a flow file has at most 8388608
        hint: data belongs into inputs, not into the flow
    "#]],
    );
    let letters: Vec<u8> =
        bytes[..7_000_000].iter().map(|byte| b" \n:-[]{}\"'#&*!|>%@abc"[*byte as usize % 21]).collect();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("flow.yaml"), letters).unwrap();
    assert!(load_in(dir.path(), "flow.yaml").is_err());
}

#[test]
fn deep_nesting() {
    wrong(
        &format!("flow: test\nsteps: {}", "[".repeat(100_000)),
        expect![[r#"
            error[OF0107]: values are nested more than 100 deep
              --> flow.yaml:2:108
               |  steps: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
               |                                                                                                             ^
        "#]],
    );
    let mut block = String::from("flow: test\nsteps:\n");
    for depth in 1..200 {
        block += &format!("{}a:\n", " ".repeat(depth));
    }
    wrong(
        &block,
        expect![[r#"
            error[OF0107]: values are nested more than 100 deep
              --> flow.yaml:102:101
               |  a:
               |  ^
        "#]],
    );
    let types = format!(
        "flow: test\ninputs: {{ a: '{}int{}' }}\nsteps: {{ s: {{ run: echo }} }}",
        "list<".repeat(40),
        ">".repeat(40)
    );
    wrong(
        &types,
        expect![[r#"
            error[OF0110]: types are nested more than 16 deep
              --> flow.yaml:2:100
               |  inputs: { a: 'list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<list<l
               |                                                                                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
    let brackets =
        format!("flow: test\nsteps: {{ s: {{ when: '{}true{}', run: echo }} }}", "(".repeat(5000), ")".repeat(5000));
    wrong(
        &brackets,
        expect![[r#"
            error[OF0115]: `((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((…` is not an expression: too many operators and brackets inside one another
              --> flow.yaml:2:54
               |  steps: { s: { when: '(((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
               |                                                       ^
        "#]],
    );
}

#[test]
fn anchor_bombs() {
    let mut bomb = String::from("flow: test\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let all = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{all}]\n");
    }
    wrong(
        &bomb,
        expect![[r#"
            error[OF0107]: there are too many values in this file
              --> flow.yaml:7:20
               |  a5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]
               |                     ^^^
            hint: aliases (`*name`) count as what they stand for
        "#]],
    );
    wrong(
        "flow: test\nsteps: &s { a: *s }\n",
        expect![[r#"
            error[OF0107]: this alias stands for something that contains it
              --> flow.yaml:2:16
               |  steps: &s { a: *s }
               |                 ^^
        "#]],
    );
}

#[test]
fn calls_to_flows_that_are_not_there_or_wrong() {
    wrong_files(
        &[
            (
                "flow.yaml",
                "flow: test\nsteps:\n  a: { flow: ./missing.yaml }\n  b: { flow: broken.yaml, in: { x: 1 } }\n  c: { run: 'echo ${{ b.y }} ${{ nothing }}' }\n",
            ),
            ("broken.yaml", "flow: broken\ninputs: { x: itn }\nsteps: { a: { run: 'echo ${{ inputs.z }}' } }\n"),
        ],
        expect![[r#"
            error[OF0127]: there is no flow file `./missing.yaml`
              --> flow.yaml:3:14
               |  a: { flow: ./missing.yaml }
               |             ^^^^^^^^^^^^^^
            hint: it is looked for beside the file that calls it: missing.yaml

            error[OF0116]: nothing is called `nothing` here
              --> flow.yaml:5:34
               |  c: { run: 'echo ${{ b.y }} ${{ nothing }}' }
               |                                 ^^^^^^^
            hint: a text in an expression has quotes of its own: `"'nothing'"`

            error[OF0110]: `itn` is not a type
              --> broken.yaml:2:14
               |  inputs: { x: itn }
               |               ^^^
            hint: did you mean `int`?

            error[OF0116]: the flow has no input `z`
              --> broken.yaml:3:30
               |  steps: { a: { run: 'echo ${{ inputs.z }}' } }
               |                               ^^^^^^^^
            hint: did you mean `x`?
        "#]],
    );
}

#[test]
fn calls_with_inputs_that_do_not_fit() {
    wrong_files(
        &[
            (
                "flow.yaml",
                "
flow: test
inputs: { xs: list<text>, f: file }
steps:
  a: { flow: other.yaml, in: { nmae: inputs.f, n: \"'three'\" } }
  b: { flow: other.yaml, in: { name: inputs.xs, n: inputs.f } }
  c: { flow: other.yaml, in: [inputs.xs] }
  d: { flow: other.yaml, in: { name: \"'x'\" }, retry: 3, out: { x: file } }
outputs: { y: d.z }
",
            ),
            (
                "other.yaml",
                "flow: other\ninputs: { name: text, n: { type: int, default: 3 } }\nsteps: { s: { run: 'echo ${{ inputs.name }}', out: { y: text } } }\noutputs: { y: s.y }\n",
            ),
        ],
        expect![[r#"
            error[OF0129]: the flow that step `a` calls needs the input `name`
              --> flow.yaml:5:3
               |  a: { flow: other.yaml, in: { nmae: inputs.f, n: "'three'" } }
               |  ^
            hint: `in: { name: … }`; it is text

            error[OF0128]: the flow `other.yaml` has no input `nmae`
              --> flow.yaml:5:32
               |  a: { flow: other.yaml, in: { nmae: inputs.f, n: "'three'" } }
               |                               ^^^^
            hint: did you mean `name`?

            error[OF0130]: int is wanted, but `'three'` is text
              --> flow.yaml:5:51
               |  a: { flow: other.yaml, in: { nmae: inputs.f, n: "'three'" } }
               |                                                  ^^^^^^^^^

            error[OF0130]: input `name` of `other.yaml` is text, but list<text> is given
              --> flow.yaml:6:38
               |  b: { flow: other.yaml, in: { name: inputs.xs, n: inputs.f } }
               |                                     ^^^^^^^^^
            hint: `each: x in inputs.xs`, and then `x`

            error[OF0130]: input `n` of `other.yaml` is int, but file is given
              --> flow.yaml:6:52
               |  b: { flow: other.yaml, in: { name: inputs.xs, n: inputs.f } }
               |                                                   ^^^^^^^^

            error[OF0129]: the flow that step `c` calls needs the input `name`
              --> flow.yaml:7:3
               |  c: { flow: other.yaml, in: [inputs.xs] }
               |  ^
            hint: `in: { name: … }`; it is text

            error[OF0106]: `in` of a call must be a map, but a list stands here
              --> flow.yaml:7:31
               |  c: { flow: other.yaml, in: [inputs.xs] }
               |                              ^^^^^^^^^
            hint: `in: { NAME: … }` names the inputs of the file

            error[OF0113]: step `d` does nothing itself, so it has no `retry`
              --> flow.yaml:8:3
               |  d: { flow: other.yaml, in: { name: "'x'" }, retry: 3, out: { x: file } }
               |  ^
            hint: say it of the steps inside

            error[OF0113]: step `d` has no `out` of its own: the flow says what it gives
              --> flow.yaml:8:57
               |  d: { flow: other.yaml, in: { name: "'x'" }, retry: 3, out: { x: file } }
               |                                                        ^^^
            hint: leave it out

            error[OF0117]: step `d` has no output `z`
              --> flow.yaml:9:15
               |  outputs: { y: d.z }
               |                ^^^
            hint: did you mean `y`?
        "#]],
    );
}

#[test]
fn flows_that_call_each_other_for_ever() {
    wrong_files(
        &[
            ("flow.yaml", "flow: ping\nsteps: { a: { flow: pong.yaml } }\n"),
            ("pong.yaml", "flow: pong\nsteps: { a: { flow: flow.yaml } }\n"),
        ],
        expect![[r#"
            error[OF0039]: flows `ping`, `pong` call each other for ever
              --> flow.yaml:1:1
               |  flow: ping
               |  ^
            hint: call it from an arm of a choice, so that it can end
        "#]],
    );
}

#[test]
fn more_than_the_kernel_can_hold() {
    let outs: Vec<_> = (0..200).map(|n| format!("      o{n}: {{ file: o{n} }}\n")).collect();
    wrong(
        &format!("flow: test\nsteps:\n  a:\n    run: echo\n    out:\n{}", outs.concat()),
        expect![[r#"
            error[OF0040]: /a has 200 outputs; 127 is the most
              --> flow.yaml:3:3
               |  a:
               |  ^
        "#]],
    );
    let mut nested = String::from("flow: test\nsteps:\n");
    for depth in 0..40 {
        nested += &format!("  {0}s{depth}:\n  {0}  steps:\n", "    ".repeat(depth));
    }
    nested += &format!("  {}leaf: {{ run: echo }}\n", "    ".repeat(40));
    let loaded = super::support::load_files(&[("flow.yaml", &nested)]);
    assert!(loaded.is_ok(), "{loaded:?}");
}

#[test]
fn arms_that_do_not_agree() {
    wrong(
        "
flow: test
inputs: { n: int }
steps:
  a:
    choose:
      - { when: inputs.n > 1, run: echo, out: { x: text } }
      - { run: echo, out: { x: int } }
outputs: { x: a.x }
",
        expect![[r#"
            error[OF0035]: output `x` of choice /a is text in one arm and int in another
              --> flow.yaml:5:3
               |  a:
               |  ^
        "#]],
    );
    wrong(
        "flow: test\nsteps:\n  a: { attempt: true, run: echo, out: { error: text } }\n",
        expect![[r#"
            error[OF0036]: /a is an attempt, so its output `error` is taken, but it has one of its own
              --> flow.yaml:3:3
               |  a: { attempt: true, run: echo, out: { error: text } }
               |  ^
        "#]],
    );
}
