//! Wrong streams in steps: the exact problems reported.

use super::support::{wrong, wrong_files, wrong_steps};
use expect_test::expect;

#[test]
fn streams_that_do_not_end_or_read_what_is_not_given_are_no_steps() {
    wrong_steps(
        r#"
a:
  stream:
    sources:
      tail:  { file: "*.log", follow: true }
      plain: { file: access.log }
      some:  { directory: logs }
      input: { stdin: true }
      ever:  { generate: n }
      sent:  { http: 8080, id: record.id }
    steps:
      called: { from: ever, call: other.yaml }
      rich:   { from: plain, key: record.id, enrich: { file: users.csv, key: record.id } }
    sinks:
      one:     { from: [tail], stdout: true }
      two:     { from: some, http: "http://localhost:1/" }
      three:   { from: input, file: out/lines.jsonl }
      figures: { from: sent, file: a.jsonl }
"#,
        expect![[r#"
            error[OF0168]: source `tail` follows files, so the step would never end
              --> flow.yaml:7:9
               |  tail:  { file: "*.log", follow: true }
               |  ^^^^
            hint: `file: ${{ inputs.log }}`: what a step reads is given to it, so that it runs again when that changes

            error[OF0168]: source `plain` of a step reads files that are not given to it
              --> flow.yaml:8:24
               |  plain: { file: access.log }
               |                 ^^^^^^^^^^
            hint: `file: ${{ inputs.log }}`: what a step reads is given to it, so that it runs again when that changes

            error[OF0168]: source `some` of a step reads files that are not given to it
              --> flow.yaml:9:29
               |  some:  { directory: logs }
               |                      ^^^^
            hint: `directory: ${{ inputs.logs }}`: what a step reads is given to it

            error[OF0168]: source `input` reads standard input, which a step does not have
              --> flow.yaml:10:9
               |  input: { stdin: true }
               |  ^^^^^
            hint: `file: ${{ inputs.log }}`: what a step reads is given to it, so that it runs again when that changes

            error[OF0168]: source `ever` has no `count`, so the step would never end
              --> flow.yaml:11:9
               |  ever:  { generate: n }
               |  ^^^^
            hint: `count: 1000` ends it

            error[OF0168]: source `sent` waits for clients, so the step would never end
              --> flow.yaml:12:9
               |  sent:  { http: 8080, id: record.id }
               |  ^^^^
            hint: run the stream by itself, `onceflow run FILE`; it may call a flow for each record

            error[OF0168]: step `called` calls a flow, and its stream is a step itself
              --> flow.yaml:14:9
               |  called: { from: ever, call: other.yaml }
               |  ^^^^^^
            hint: run the stream by itself; or write the records to a file, and call the flow in an `each`

            error[OF0127]: there is no flow file `other.yaml`
              --> flow.yaml:14:37
               |  called: { from: ever, call: other.yaml }
               |                              ^^^^^^^^^^
            hint: it is looked for beside the stream file: other.yaml

            error[OF0168]: step `rich` reads a table that is not given to it
              --> flow.yaml:15:64
               |  rich:   { from: plain, key: record.id, enrich: { file: users.csv, key: record.id } }
               |                                                         ^^^^^^^^^
            hint: `file: ${{ inputs.users }}`

            error[OF0105]: sink `one` has no `from`
              --> flow.yaml:17:9
               |  one:     { from: [tail], stdout: true }
               |  ^^^
            hint: `from: NAME` says what it writes: a source or a step

            error[OF0106]: `from` must be a text, but a list stands here
              --> flow.yaml:17:26
               |  one:     { from: [tail], stdout: true }
               |                   ^^^^^^

            error[OF0168]: sink `two` of a step writes no file
              --> flow.yaml:18:9
               |  two:     { from: some, http: "http://localhost:1/" }
               |  ^^^
            hint: write a file, `file: out.jsonl`, and let another step send it

            error[OF0168]: sink `three` of a step names a directory
              --> flow.yaml:19:9
               |  three:   { from: input, file: out/lines.jsonl }
               |  ^^^^^
            hint: its file is an output of the step

            error[OF0168]: `figures` are the counts of the step
              --> flow.yaml:20:9
               |  figures: { from: sent, file: a.jsonl }
               |  ^^^^^^^
            hint: give the sink another name
        "#]],
    );
}

#[test]
fn holes_of_streams_are_whole_files_of_the_right_type() {
    wrong(
        r#"
flow: f
inputs: { log: file, logs: list<file>, all: dir, name: text }
steps:
  a:
    stream:
      sources:
        part: { file: "${{ inputs.log }}.gz" }
        two:  { file: "${{ inputs.log }}${{ inputs.log }}" }
        open: { file: "${{ inputs.log" }
        none: { file: "${{ inputs.lug }}" }
        text: { file: "${{ inputs.name }}" }
        file: { directory: "${{ inputs.log }}" }
        dir:  { file: "${{ inputs.all }}" }
        tail: { file: "${{ inputs.log }}", follow: true }
        good: { file: "${{ inputs.logs }}" }
      sinks: { all: { from: good, file: all.jsonl } }
    out: { all: file }
    env: { A: b }
"#,
        expect![[r#"
            error[OF0113]: a step that is a stream starts no command
              --> flow.yaml:5:3
               |  a:
               |  ^
            hint: leave `effect`, `shell`, `env`, `secrets` and `undo` out

            error[OF0106]: a hole is the whole file here, not a part of its name
              --> flow.yaml:8:23
               |  part: { file: "${{ inputs.log }}.gz" }
               |                ^^^^^^^^^^^^^^^^^^^^^^
            hint: `${{ inputs.log }}`, and nothing beside it

            error[OF0106]: a hole is the whole file here, not a part of its name
              --> flow.yaml:9:23
               |  two:  { file: "${{ inputs.log }}${{ inputs.log }}" }
               |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: `${{ inputs.log }}`, and nothing beside it

            error[OF0114]: `${{` has no `}}`
              --> flow.yaml:10:24
               |  open: { file: "${{ inputs.log" }
               |                 ^^^^^^^^^^^^^^
            hint: close the hole with `}}`, or write `$${{` for the text `${{`

            error[OF0116]: the flow has no input `lug`
              --> flow.yaml:11:28
               |  none: { file: "${{ inputs.lug }}" }
               |                     ^^^^^^^^^^
            hint: did you mean `log`?

            error[OF0130]: a file or list<file> is wanted, but `inputs.name` is text
              --> flow.yaml:12:28
               |  text: { file: "${{ inputs.name }}" }
               |                     ^^^^^^^^^^^

            error[OF0130]: a directory is wanted, but `inputs.log` is file
              --> flow.yaml:13:33
               |  file: { directory: "${{ inputs.log }}" }
               |                          ^^^^^^^^^^

            error[OF0130]: a file or list<file> is wanted, but `inputs.all` is dir
              --> flow.yaml:14:28
               |  dir:  { file: "${{ inputs.all }}" }
               |                     ^^^^^^^^^^

            error[OF0113]: source `tail` reads what it is given to its end
              --> flow.yaml:15:9
               |  tail: { file: "${{ inputs.log }}", follow: true }
               |  ^^^^
            hint: leave `follow` out

            error[OF0113]: step `a` has no `out` of its own: the sinks say what it gives
              --> flow.yaml:18:5
               |  out: { all: file }
               |  ^^^
            hint: leave it out
        "#]],
    );
}

#[test]
fn a_stream_file_is_given_its_inputs_and_nothing_else() {
    wrong_files(
        &[
            (
                "flow.yaml",
                "flow: f
inputs: { log: file, name: text }
steps:
  a: { stream: nowhere.yaml }
  b: { stream: pages.yaml, in: { lag: inputs.log } }
  c: { stream: pages.yaml, in: { log: inputs.name } }
  d: { stream: pages.yaml, in: [inputs.log] }
  e: { stream: wrong.yaml, in: { log: inputs.log } }
  f: { run: \"wc ${{ g.top }}\" }
  g: { stream: pages.yaml, in: { log: inputs.log } }
",
            ),
            (
                "pages.yaml",
                "stream: pages
inputs: { log: file }
sources: { lines: { file: \"${{ inputs.log }}\", format: text } }
sinks: { all: { from: lines, file: all.txt, format: text } }
",
            ),
            (
                "wrong.yaml",
                "stream: wrong
inputs: { log: file }
sources:
  lines: { file: \"${{ inputs.lag }}\", format: text }
  other: { file: \"${{ lines.log }}\", format: text }
sinks: { all: { from: linse, file: all.txt, format: text } }
",
            ),
        ],
        expect![[r#"
            error[OF0127]: there is no stream file `nowhere.yaml`
              --> flow.yaml:4:16
               |  a: { stream: nowhere.yaml }
               |               ^^^^^^^^^^^^
            hint: it is looked for beside the flow file: nowhere.yaml

            error[OF0129]: the stream of step `b` needs the input `log`
              --> flow.yaml:5:3
               |  b: { stream: pages.yaml, in: { lag: inputs.log } }
               |  ^
            hint: `in: { log: … }`; it is file

            error[OF0128]: the stream `pages.yaml` has no input `lag`
              --> flow.yaml:5:34
               |  b: { stream: pages.yaml, in: { lag: inputs.log } }
               |                                 ^^^
            hint: did you mean `log`?

            error[OF0130]: input `log` of `pages.yaml` is file, but text is given
              --> flow.yaml:6:39
               |  c: { stream: pages.yaml, in: { log: inputs.name } }
               |                                      ^^^^^^^^^^^

            error[OF0129]: the stream of step `d` needs the input `log`
              --> flow.yaml:7:3
               |  d: { stream: pages.yaml, in: [inputs.log] }
               |  ^
            hint: `in: { log: … }`; it is file

            error[OF0106]: `in` of a call must be a map, but a list stands here
              --> flow.yaml:7:33
               |  d: { stream: pages.yaml, in: [inputs.log] }
               |                                ^^^^^^^^^^
            hint: `in: { NAME: … }` names the inputs of the file

            error[OF0117]: step `g` has no output `top`
              --> flow.yaml:9:21
               |  f: { run: "wc ${{ g.top }}" }
               |                    ^^^^^
            hint: there is `all`, `figures`

            error[OF0116]: the stream has no input `lag`
              --> wrong.yaml:4:23
               |  lines: { file: "${{ inputs.lag }}", format: text }
               |                      ^^^^^^^^^^
            hint: did you mean `log`?

            error[OF0116]: `lines.log` is no input of the stream
              --> wrong.yaml:5:23
               |  other: { file: "${{ lines.log }}", format: text }
               |                      ^^^^^^^^^
            hint: `${{ inputs.log }}`, with `inputs: { log: file }` in the stream

            error[OF0116]: there is no source or step `linse`
              --> wrong.yaml:6:23
               |  sinks: { all: { from: linse, file: all.txt, format: text } }
               |                        ^^^^^
            hint: did you mean `lines`?
        "#]],
    );
}
