//! Flow files become exactly the graphs that one would draw.

use super::support::{good, load_files, render};
use expect_test::{Expect, expect};

fn check(text: &str, expected: Expect) {
    let flow = good(text);
    expected.assert_eq(&render(&flow.checked.library().flows[flow.name()]));
}

#[test]
fn references_in_a_command_become_its_inputs() {
    check(
        "
flow: call-variants
inputs:
  reference: file
  samples: { type: list<file>, help: FASTQ per sample }
  ploidy: { type: int, default: 2 }
steps:
  index:
    run: bwa index -p ${{ out.idx }}/ref ${{ inputs.reference }}
    out: { idx: dir }
  align:
    each: sample in inputs.samples
    run: bwa mem -t ${{ cpus }} ${{ index.idx }}/ref ${{ sample }} | samtools sort -o ${{ out.bam }}
    out: { bam: { file: \"${{ sample.stem }}.bam\" } }
    at_most: 4
  variants:
    run: bcftools -f ${{ inputs.reference }} ${{ align.bam }} --ploidy ${{ inputs.ploidy }} -o ${{ out.vcf }}
    out: { vcf: { file: calls.vcf } }
outputs: { vcf: variants }
",
        expect![[r#"
            (reference: file, samples: list<file>, ploidy: int) -> (vcf: file)
              index: command -> (idx: dir) inputs-reference=reference
              align: each [sample] at most 4 index-idx=index:idx sample=samples
                (sample: file, index-idx: dir) -> (bam: file)
                  -: command -> (bam: file) index-idx=index-idx sample=sample
                  bam <- -:bam
              variants: command -> (vcf: file) align-bam=align:bam inputs-ploidy=ploidy inputs-reference=reference
              vcf <- variants:vcf
        "#]],
    );
}

#[test]
fn names_from_around_become_inputs_of_every_graph_between() {
    check(
        "
flow: nested
inputs: { a: text, xs: list<text> }
steps:
  first: { run: echo, out: { t: text } }
  outer:
    each: x in inputs.xs
    steps:
      deep:
        steps:
          leaf: { run: 'echo ${{ x }} ${{ inputs.a }} ${{ first }} ${{ first.t }}', out: { t: text } }
        out: { t: leaf }
    out: { t: deep.t }
outputs: { all: outer.t }
",
        expect![[r#"
            (a: text, xs: list<text>) -> (all: list<text>)
              first: command -> (t: text)
              outer: each [x] first-t=first:t inputs-a=a x=xs
                (x: text, inputs-a: text, first-t: text) -> (t: text)
                  deep: composite first-t=first-t inputs-a=inputs-a x=x
                    (x: text, inputs-a: text, first-t: text) -> (t: text)
                      leaf: command -> (t: text) first-t=first-t inputs-a=inputs-a x=x
                      t <- leaf:t
                  t <- deep:t
              all <- outer:t
        "#]],
    );
}

#[test]
fn guards_conditions_and_transforms_are_tasks_and_plain_references_are_connections() {
    check(
        "
flow: choices
inputs: { n: int, go: bool, name: text? }
steps:
  plain: { when: inputs.go, run: echo, out: { t: text } }
  computed: { when: inputs.n > 3 && inputs.go, run: 'echo ${{ plain.t }}', out: { t: text } }
  either:
    choose:
      - { when: inputs.n == 1, run: 'echo one', out: { t: text, extra: { int: '1' } } }
      - { when: inputs.go, expr: \"'two'\", out: { t: text } }
      - steps:
          inner: { run: 'echo ${{ inputs.n }}', out: { t: text } }
        out: { t: inner }
  tried: { attempt: true, run: 'false', out: { t: text } }
outputs:
  a: either.t
  b: either.extra
  c: tried.error
  d: { int: size(either.t) + inputs.n }
  e: computed
",
        expect![[r#"
            (n: int, go: bool, name: option<text>) -> (a: text, b: option<int>, c: option<text>, d: int, e: option<text>)
              plain: choice when=go
                -then if when
                  () -> (t: text)
                    -: command -> (t: text)
                    t <- -:t
              computed-when: expr -> (value: bool) inputs-go=go inputs-n=n
              computed: choice plain-t=plain:t when=computed-when:value
                -then if when
                  (plain-t: option<text>) -> (t: text)
                    -: command -> (t: text) plain-t=plain-t
                    t <- -:t
              either-when-1: expr -> (value: bool) inputs-n=n
              either: choice inputs-n=n when-1=either-when-1:value when-2=go
                -1 if when-1
                  () -> (t: text, extra: int)
                    -: command -> (t: text, extra: int)
                    t <- -:t
                    extra <- -:extra
                -2 if when-2
                  () -> (t: text)
                    -: expr -> (t: text)
                    t <- -:t
                -3 if nothing else
                  (inputs-n: int) -> (t: text)
                    inner: command -> (t: text) inputs-n=inputs-n
                    t <- inner:t
              tried: attempt command -> (t: text)
              outputs-d: expr -> (value: int) either-t=either:t inputs-n=n
              a <- either:t
              b <- either:extra
              c <- tried:error
              d <- outputs-d:value
              e <- computed:t
        "#]],
    );
}

#[test]
fn a_loop_carries_counts_and_ends() {
    check(
        "
flow: loops
inputs: { start: float }
steps:
  root:
    loop: { carry: { x: inputs.start, k: 0 }, while: out.x > 0.5, max: 10 }
    steps:
      half: { expr: { x: x / 2.0, k: k + iteration } }
    out: { x: half.x, k: half.k }
  twice:
    loop: { carry: { y: root.x }, while: half2.again }
    steps:
      half2: { run: 'echo ${{ y }}', out: { y: float, again: bool } }
    out: { y: half2.y }
outputs: { x: twice.y }
",
        expect![[r#"
            (start: float) -> (x: float)
              root-carry-k: constant int Inline("\x00")
              root-iteration: constant int Inline("\x00")
              root: loop [("x", "x"), ("k", "k"), ("iteration-next", "iteration")] while while iteration=root-iteration:value k=root-carry-k:value x=start
                (x: float, k: int, iteration: int) -> (x: float, k: int, iteration-next: int, while: bool)
                  half: expr -> (x: float, k: int) iteration=iteration k=k x=x
                  iteration-next: expr -> (value: int) iteration=iteration
                  while: expr -> (value: bool) iteration=iteration out-x=half:x
                  x <- half:x
                  k <- half:k
                  iteration-next <- iteration-next:value
                  while <- while:value
              twice: loop [("y", "y")] while while y=root:x
                (y: float) -> (y: float, while: bool)
                  half2: command -> (y: float, again: bool) y=y
                  y <- half2:y
                  while <- half2:again
              x <- twice:y
        "#]],
    );
}

#[test]
fn zips_aliases_afters_scripts_and_bodies_connect_what_they_take() {
    check(
        "
flow: more
inputs: { left: list<file>, right: list<file>, row: '{ id: text, r1: file }', url: text }
steps:
  prepare: { run: 'true' }
  pair:
    each: r1, r2 in zip(inputs.left, inputs.right)
    after: [prepare]
    script: python3
    in: [r1, r2, inputs.row]
    code: print(1)
    out: { n: int }
  one:
    in: { id: inputs.row.id, reads: 'inputs.left.filter(f, f.ext == \"fq\")', n: 3 }
    run: echo ${{ id }} ${{ reads }}
",
        expect![[r#"
            (left: list<file>, right: list<file>, row: { id: text, r1: file }, url: text) -> ()
              prepare: command -> ()
              pair: each [r1, r2] inputs-row=row prepare-done=prepare:done r1=left r2=right
                (r1: file, r2: file, inputs-row: { id: text, r1: file }, prepare-done: unit) -> (n: int)
                  -: script -> (n: int) after-prepare=prepare-done inputs-row=inputs-row r1=r1 r2=r2
                  n <- -:n
              one-in-id: expr -> (value: text) inputs-row=row
              one-in-reads: expr -> (value: list<file>) inputs-left=left
              one-in-n: constant int Inline("\x03")
              one: command -> () id=one-in-id:value n=one-in-n:value reads=one-in-reads:value
        "#]],
    );
}

#[test]
fn flows_in_other_files_are_called_each_loaded_once() {
    let flow = load_files(&[
        (
            "main.yaml",
            "
flow: main
inputs: { xs: list<int> }
steps:
  one: { flow: ./inc.yaml, in: { x: 1 } }
  all: { each: x in inputs.xs, flow: inc.yaml, in: { x: x, by: one.y } }
outputs: { ys: all.y }
",
        ),
        (
            "inc.yaml",
            "
flow: inc
inputs: { x: int, by: { type: int, default: 1 }, note: text? }
steps: { add: { expr: { y: inputs.x + inputs.by } } }
outputs: { y: add.y }
",
        ),
    ])
    .unwrap();
    assert_eq!(flow.checked.library().flows.keys().collect::<Vec<_>>(), ["inc", "main"]);
    assert_eq!(flow.files.len(), 2);
    expect![[r#"
        (xs: list<int>) -> (ys: list<int>)
          one-in-x: constant int Inline("\x01")
          one-in-by: constant int Inline("\x01")
          one: call inc by=one-in-by:value x=one-in-x:value
          all: each [x] one-y=one:y x=xs
            (x: int, one-y: int) -> (y: int)
              -: call inc by=one-y x=x
              y <- -:y
          ys <- all:y
    "#]]
    .assert_eq(&render(&flow.checked.library().flows["main"]));
}

#[test]
fn a_flow_may_call_itself_where_it_can_end() {
    let flow = good(
        "
flow: factorial
inputs: { n: int }
steps:
  result:
    choose:
      - when: inputs.n > 1
        steps:
          rest: { flow: flow.yaml, in: { n: inputs.n - 1 } }
          times: { expr: { value: inputs.n * rest.value } }
        out: { value: times.value }
      - { expr: { value: '1' } }
outputs: { value: { int: result.value } }
",
    );
    expect![[r#"
        (n: int) -> (value: int)
          result-when-1: expr -> (value: bool) inputs-n=n
          result: choice inputs-n=n when-1=result-when-1:value
            -1 if when-1
              (inputs-n: int) -> (value: int)
                rest-in-n: expr -> (value: int) inputs-n=inputs-n
                rest: call factorial n=rest-in-n:value
                times: expr -> (value: int) inputs-n=inputs-n rest-value=rest:value
                value <- times:value
            -2 if nothing else
              () -> (value: int)
                -: expr -> (value: int)
                value <- -:value
          value <- result:value
    "#]]
    .assert_eq(&render(&flow.checked.library().flows["factorial"]));
}

#[test]
fn a_thousand_steps_load_soon_and_in_their_order() {
    let steps: String = (0..2000)
        .map(|n| match n {
            0 => String::from("  s0: { run: 'echo', out: { x: text } }\n"),
            n => format!("  s{n}: {{ run: 'echo ${{{{ s{}.x }}}}', out: {{ x: text }} }}\n", n - 1),
        })
        .collect();
    let flow = good(&format!("flow: long\nsteps:\n{steps}outputs: {{ x: s1999.x }}\n"));
    let names: Vec<_> =
        flow.checked.library().flows["long"].modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[1999]), (2000, "s0", "s1999"));
}

#[test]
fn steps_with_unread_outputs_are_named() {
    let flow = good(
        "
flow: some
inputs: { xs: list<text> }
steps:
  used: { run: echo, out: { t: text } }
  lost: { run: 'echo ${{ used.t }}', out: { t: text } }
  done: { run: echo }
  many: { each: x in inputs.xs, run: 'echo ${{ x }}', out: { t: text } }
  told: { each: x in inputs.xs, run: 'echo ${{ x }}' }
  maybe: { when: size(inputs.xs) > 1, run: echo, out: { t: text } }
  inner:
    steps:
      kept: { run: echo, out: { t: text } }
      left: { run: echo, out: { t: text } }
    out: { t: kept.t }
outputs: { t: inner.t }
",
    );
    let unused: Vec<_> = flow.unused.iter().map(|unused| unused.step.as_str()).collect();
    assert_eq!(unused, ["lost", "many", "maybe", "inner.left"]);
    let said = flow.unused[0].to_string();
    let said = said.split_once("flow.yaml:").map_or("", |(_, said)| said);
    expect!["6: step `lost` does not run: nothing reads its outputs (name it in `outputs`, or take away its `out`)"]
        .assert_eq(said);
}
