//! All shapes of flows lower, each to the program that is written here.

use super::{meaning::assert_same, notation::library, print::print};
use expect_test::{Expect, expect};
use onceflow_core::model::{Program, check};

pub(crate) fn lower(text: &str) -> Program {
    let program = check(&library(text), "main", None);
    if text.len() < 10_000 && program.is_ok() {
        assert_same(&library(text), None);
    }
    program.unwrap_or_else(|errors| panic!("{errors}"))
}

fn check_shape(text: &str, expected: Expect) {
    expected.assert_eq(&print(&lower(text)));
}

#[test]
fn a_diamond_is_four_nodes() {
    check_shape(
        "flow main(x: int) -> (p: int) {
           d: task add(l: int, r: int) -> (o: int);
           a: task inc(i: int) -> (o: int);
           b: task inc(i: int) -> (o: int);
           c: task inc(i: int) -> (o: int);
           x -> a.i; a.o -> b.i; a.o -> c.i; b.o -> d.l; c.o -> d.r; d.o -> p;
         }",
        expect![[r#"
            block 0(x: int)
              0 /a = inc(in0) -> (o: int)
              1 /b = inc(0.0) -> (o: int)
              2 /c = inc(0.0) -> (o: int)
              3 /d = add(1.0, 2.0) -> (o: int)
              p: int = 3.0
        "#]],
    );
}

#[test]
fn containers_become_blocks_and_composites_do_not() {
    check_shape(
        "flow main(xs: list<int>, k: int) -> (p: list<int>) {
           c: graph (xs: list<int>, k: int) -> (ys: list<int>) {
             e: each x max 4 (x: int, k: int) -> (y: int) {
               l: loop (x: int, k: int) -> (x: int, more: bool) {
                 t: task step(x: int, k: int) -> (x: int, more: bool);
                 x -> t.x; k -> t.k; t.x -> x; t.more -> more;
               } while more carry x > x;
               x -> l.x; k -> l.k; l.x -> y;
             };
             xs -> e.x; k -> e.k; e.y -> ys;
           };
           xs -> c.xs; k -> c.k; c.ys -> p;
         }",
        expect![[r#"
            block 0(xs: list<int>, k: int)
              0 /c/e = each 1 max 4(in0, in1) -> (y: list<int>)
              p: list<int> = 0.0
            block 1(~x: int, k: int)
              0 /c/e[*]/l = loop 2 [0>0](in0, in1) -> (x: int)
              y: int = 0.0
            block 2(~x: int, k: int)
              0 /c/e[*]/l@*/t = step(in0, in1) -> (x: int, more: bool)
              x: int = 0.0
              more: bool = 0.1
        "#]],
    );
}

#[test]
fn arms_take_and_give_what_the_choice_does() {
    check_shape(
        "flow main(x: int) -> (p: int, q: option<int>) {
           t: task small(x: int) -> (yes: bool);
           s: choice {
             small if ok (x: int) -> (p: int) { a: task inc(i: int) -> (o: int); x -> a.i; a.o -> p; };
             large (y: int) -> (p: int, q: int) { y -> p; y -> q; };
           };
           x -> t.x; t.yes -> s.ok; x -> s.x; x -> s.y; s.p -> p; s.q -> q;
         }",
        expect![[r#"
            block 0(x: int)
              0 /t = small(in0) -> (yes: bool)
              1 /s = choice [2?1 2](in0, in0, 0.0) -> (p: int, q: option<int>)
              p: int = 1.0
              q: option<int> = 1.1
            block 1(x: int, y: int, ok: bool)
              0 /s/small/a = inc(in0) -> (o: int)
              p: int = 0.0
              q: option<int> = none
            block 2(x: int, y: int, ok: bool)
              p: int = in1
              q: option<int> = in1
        "#]],
    );
}

#[test]
fn a_flow_that_recurs_is_one_block_and_others_are_expanded() {
    check_shape(
        "flow main(x: int) -> (p: option<int>, q: option<int>) {
           a: call down; b: call down; c: call twice;
           x -> a.x; a.p -> b.x; b.p -> p; x -> c.x; c.p -> q;
         }
         flow twice(x: option<int>) -> (p: option<int>) { a: call same; b: call same; x -> a.x; a.x -> b.x; b.x -> p; }
         flow same(x: option<int>) -> (x: option<int>) { t: task t(x: option<int>) -> (x: option<int>); x -> t.x; t.x -> x; }
         flow down(x: option<int>) -> (p: option<int>) {
           t: task test(x: option<int>) -> (more: bool, x: option<int>);
           s: choice { again if more (x: option<int>) -> (p: option<int>) { d: call down; x -> d.x; d.p -> p; }; };
           x -> t.x; t.more -> s.more; t.x -> s.x; s.p -> p;
         }",
        expect![[r#"
            block 0(x: int)
              0 /a = call 1(in0) -> (p: option<int>)
              1 /b = call 1(0.0) -> (p: option<int>)
              2 /c/a/t = t(in0) -> (x: option<int>)
              3 /c/b/t = t(2.0) -> (x: option<int>)
              p: option<int> = 1.0
              q: option<int> = 3.0
            block 1(x: option<int>)
              0 /t = test(in0) -> (more: bool, x: option<int>)
              1 /s = choice [1?2](0.1, 0.0) -> (p: option<int>)
              p: option<int> = 1.0
            block 2(x: option<int>, more: bool)
              0 /s/again/d = call 1(in0) -> (p: option<int>)
              p: option<int> = 0.0
        "#]],
    );
}

#[test]
fn an_attempt_is_a_call_that_gives_optional_outputs() {
    check_shape(
        "flow main(x: int) -> (p: option<int>, e: option<text>, f: option<text>) {
           c: attempt graph (x: int) -> (y: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> y; };
           k: attempt const int `1`;
           t: attempt task t(x: int, e: option<text>) -> (y: int);
           u: task u(e: option<text>, x: option<int>) -> (e: option<text>);
           x -> c.x; c.y -> p; c.error -> e; x -> t.x; k.error -> u.e; k.value -> u.x; u.e -> t.e;
           t.error -> f;
         }",
        expect![[r#"
            block 0(x: int)
              0 /c = attempt call 1(in0) -> (y: option<int>, error: option<text>)
              1 /u = u(none, #0) -> (e: option<text>)
              2 /t = attempt t(in0, 1.0) -> (y: option<int>, error: option<text>)
              p: option<int> = 0.0
              e: option<text> = 0.1
              f: option<text> = 2.1
            block 1(x: int)
              0 /t = t(in0) -> (y: int)
              y: int = 0.0
        "#]],
    );
}

#[test]
fn steps_without_outputs_run_wherever_they_are() {
    check_shape(
        "flow main(xs: list<int>, x: int) -> (p: int) {
           n: task notify(x: int) -> ();
           dead: task t(x: int) -> (y: int);
           e: each x (x: int) -> (y: int) { m: task notify(x: int) -> (); x -> m.x; x -> y; };
           s: choice { only if ok (x: int) -> () { m: task notify(x: int) -> (); x -> m.x; }; };
           b: const bool `true`;
           x -> n.x; x -> dead.x; xs -> e.x; x -> s.x; b.value -> s.ok; x -> p;
         }",
        expect![[r#"
            block 0(xs: list<int>, x: int)
              0 /n = notify(in1) -> (done: unit)
              1 /e = each 1(in0) -> (done: list<unit>)
              2 /s = choice [1?2](in1, #0) -> (done: option<unit>)
              p: int = in1
              hidden done:/n: unit = 0.0
              hidden done:/e: list<unit> = 1.0
              hidden done:/s: option<unit> = 2.0
            block 1(~x: int)
              0 /e[*]/m = notify(in0) -> (done: unit)
              done: unit = #1
              hidden done:/e[*]/m: unit = 0.0
            block 2(x: int, ok: bool)
              0 /s/only/m = notify(in0) -> (done: unit)
              done: unit = #1
              hidden done:/s/only/m: unit = 0.0
        "#]],
    );
}

/// The shapes that the kernel must run correctly, with the number of nodes each lowers to.
#[test]
fn the_shapes_of_the_kernel_lower_and_mean_what_they_say() {
    let chain = |length: usize| {
        let step = |at: usize| format!("s{at}: task s(x: int) -> (x: int); s{at}.x -> s{}.x; ", at + 1);
        let steps: String = (0..length - 1).map(step).collect();
        let last = length - 1;
        format!(
            "flow main(x: int) -> (p: int) {{ {steps} s{last}: task s(x: int) -> (x: int); x -> s0.x; s{last}.x -> p; }}"
        )
    };
    let fold = |length: usize| {
        let step =
            |at: usize| format!("f{at}: task f(x: int, s: int) -> (s: int); x -> f{at}.x; f{at}.s -> f{}.s; ", at + 1);
        let steps: String = (0..length - 1).map(step).collect();
        let last = length - 1;
        format!(
            "flow main(x: int) -> (p: int) {{ {steps} f{last}: task f(x: int, s: int) -> (s: int);
               x -> f{last}.x; x -> f0.s; f{last}.s -> p; }}"
        )
    };
    let shapes = [
        ("chain of 4", chain(4), 4),
        ("chain of 8", chain(8), 8),
        ("pipelined fold", fold(6), 6),
        (
            "each and gather",
            "flow main(xs: list<int>) -> (p: int) {
               e: each x (x: int) -> (y: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> y; };
               s: task sum(l: list<int>) -> (s: int); xs -> e.x; e.y -> s.l; s.s -> p; }"
                .into(),
            3,
        ),
        (
            "each inside loop inside each",
            "flow main(xs: list<list<int>>) -> (p: list<list<int>>) {
               o: each x (x: list<int>) -> (y: list<int>) {
                 l: loop (x: list<int>) -> (x: list<int>, more: bool) {
                   i: each x (x: int) -> (y: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> y; };
                   c: task more(l: list<int>) -> (more: bool);
                   x -> i.x; i.y -> c.l; i.y -> x; c.more -> more;
                 } while more carry x > x;
                 x -> l.x; l.x -> y;
               };
               xs -> o.x; o.y -> p; }"
                .into(),
            5,
        ),
        (
            "names of which one is a prefix of another, and one task used by two modules",
            "flow main(x: int) -> (p: int, q: int) { F1: task f(x: int) -> (y: int); F10: task f(x: int) -> (y: int);
               x -> F1.x; F1.y -> F10.x; F1.y -> p; F10.y -> q; }"
                .into(),
            2,
        ),
        (
            "choice whose arms rejoin",
            "flow main(x: int, b: bool) -> (p: int) {
               c: choice {
                 l if b (x: int) -> (y: int) { t: task l(x: int) -> (y: int); x -> t.x; t.y -> y; };
                 r (x: int) -> (y: int) { t: task r(x: int) -> (y: int); x -> t.x; t.y -> y; };
               };
               j: task j(x: int) -> (y: int); x -> c.x; b -> c.b; c.y -> j.x; j.y -> p; }"
                .into(),
            4,
        ),
        (
            "an arm that fails, with a handler",
            "flow main(x: int, b: bool) -> (p: int) {
               c: attempt choice { l if b (x: int) -> (y: int) { t: task l(x: int) -> (y: int); x -> t.x; t.y -> y; }; };
               h: task handle(y: option<int>, e: option<text>) -> (y: int);
               x -> c.x; b -> c.b; c.y -> h.y; c.error -> h.e; h.y -> p; }"
                .into(),
            3,
        ),
        (
            "sub-flow called twice, and a value forwarded untouched",
            "flow main(x: int) -> (p: int, q: int) { a: call f; b: call f; x -> a.x; a.y -> b.x; b.y -> p; b.same -> q; }
             flow f(x: int) -> (y: int, same: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> y; x -> same; }"
                .into(),
            2,
        ),
    ];
    for (name, text, nodes) in shapes {
        let program = lower(&text);
        let found = program.blocks.iter().map(|block| block.nodes.len()).sum::<usize>();
        assert_eq!(found, nodes, "{name}:\n{}", print(&program));
    }
}
