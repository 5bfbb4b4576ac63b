//! Steps that no requested output needs do not run.

use super::{notation::library, print::print};
use expect_test::{Expect, expect};
use onceflow_core::model::check;

fn check_pruned(text: &str, requested: &[&str], expected: Expect) {
    let requested: Vec<_> = requested.iter().map(|name| (*name).to_owned()).collect();
    let program = check(&library(text), "main", Some(&requested)).unwrap_or_else(|errors| panic!("{errors}"));
    expected.assert_eq(&print(&program));
}

#[test]
fn only_what_is_asked_for_runs() {
    check_pruned(
        "flow main(x: int) -> (p: int, q: int, r: int) {
           a: task a(x: int) -> (y: int); b: task b(x: int) -> (y: int); c: task c(x: int) -> (y: int);
           n: task notify(x: int) -> ();
           x -> a.x; a.y -> b.x; a.y -> c.x; a.y -> n.x; b.y -> p; c.y -> q;
         }",
        &["p"],
        expect![[r#"
            block 0(x: int)
              0 /a = a(in0) -> (y: int)
              1 /b = b(0.0) -> (y: int)
              p: int = 1.0
        "#]],
    );
}

#[test]
fn composites_are_looked_through() {
    check_pruned(
        "flow main(x: int) -> (p: int, q: int) {
           a: task a(x: int) -> (y: int); b: task b(x: int) -> (y: int);
           g: graph (l: int, r: int) -> (l: int, r: int) {
             c: task c(x: int) -> (y: int); d: task d(x: int) -> (y: int);
             l -> c.x; r -> d.x; c.y -> l; d.y -> r;
           };
           x -> a.x; x -> b.x; a.y -> g.l; b.y -> g.r; g.l -> p; g.r -> q;
         }",
        &["q"],
        expect![[r#"
            block 0(x: int)
              0 /b = b(in0) -> (y: int)
              1 /g/d = d(0.0) -> (y: int)
              q: int = 1.0
        "#]],
    );
}

#[test]
fn containers_are_looked_into() {
    check_pruned(
        "flow main(xs: list<int>, n: int) -> (p: list<int>, q: list<int>) {
           a: task a(n: int) -> (n: int);
           e: each x, unused (x: int, n: int, unused: int) -> (l: int, r: int) {
             c: task c(x: int, n: int) -> (y: int); d: task d(x: int) -> (y: int);
             x -> c.x; n -> c.n; c.y -> l; x -> d.x; d.y -> r;
           };
           n -> a.n; a.n -> e.n; xs -> e.x; xs -> e.unused; e.l -> p; e.r -> q;
         }",
        &["q"],
        expect![[r#"
            block 0(xs: list<int>, n: int)
              0 /e = each 1(in0, in0) -> (r: list<int>)
              q: list<int> = 0.0
            block 1(~x: int, ~unused: int)
              0 /e[*]/d = d(in0) -> (y: int)
              r: int = 0.0
        "#]],
    );
}

#[test]
fn a_loop_keeps_what_its_condition_and_its_next_iteration_need() {
    check_pruned(
        "flow main(i: int, s: int, w: int) -> (p: int, q: int) {
           l: loop (i: int, s: int, w: int) -> (i: int, s: int, w: int, more: bool) {
             n: task next(i: int) -> (i: int, more: bool);
             a: task add(i: int, s: int) -> (s: int);
             u: task waste(w: int) -> (w: int);
             i -> n.i; i -> a.i; s -> a.s; w -> u.w; n.i -> i; n.more -> more; a.s -> s; u.w -> w;
           } while more carry i > i, s > s, w > w;
           i -> l.i; s -> l.s; w -> l.w; l.s -> p; l.w -> q;
         }",
        &["p"],
        expect![[r#"
            block 0(i: int, s: int, w: int)
              0 /l = loop 1 [0>0 1>1](in0, in1) -> (i: int, s: int)
              p: int = 0.1
            block 1(~i: int, ~s: int)
              0 /l@*/n = next(in0) -> (i: int, more: bool)
              1 /l@*/a = add(in0, in1) -> (s: int)
              i: int = 0.0
              s: int = 1.0
              more: bool = 0.1
        "#]],
    );
}

#[test]
fn an_input_that_nothing_needed_depends_on_is_none_only_where_that_is_allowed() {
    check_pruned(
        "flow main(x: int) -> (p: int, q: int) {
           a: task a(x: int) -> (y: int); b: task b(x: int) -> (y: int); c: task c(x: int) -> (y: int);
           t: task t(l: int, m: option<int>, r: int) -> (l: int, r: int) needs l of l, r of m, r of r;
           x -> a.x; x -> b.x; x -> c.x; a.y -> t.l; b.y -> t.m; c.y -> t.r; t.l -> p; t.r -> q;
         }",
        &["p"],
        expect![[r#"
            block 0(x: int)
              0 /a = a(in0) -> (y: int)
              1 /c = c(in0) -> (y: int)
              2 /t = t(0.0, none, 1.0) -> (l: int, r: int)
              p: int = 2.0
        "#]],
    );
}

#[test]
fn an_error_that_is_asked_for_needs_everything() {
    check_pruned(
        "flow main(x: int) -> (p: option<int>, e: option<text>) {
           g: attempt graph (x: int) -> (y: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> y; };
           x -> g.x; g.y -> p; g.error -> e;
         }",
        &["e"],
        expect![[r#"
            block 0(x: int)
              0 /g = attempt call 1(in0) -> (y: option<int>, error: option<text>)
              e: option<text> = 0.1
            block 1(x: int)
              0 /t = t(in0) -> (y: int)
              y: int = 0.0
        "#]],
    );
}

#[test]
fn recursion_is_pruned_too() {
    check_pruned(
        "flow main(x: int, b: bool) -> (p: option<int>, q: option<int>) {
           t: task l(x: int) -> (x: int); u: task r(x: int) -> (x: int);
           c: choice { again if b (x: int, y: int, b: bool) -> (p: option<int>, q: option<int>) {
             m: call f; x -> m.x; y -> m.y; b -> m.b; m.p -> p; m.q -> q; }; };
           x -> t.x; x -> u.x; t.x -> c.x; u.x -> c.y; b -> c.b; c.p -> p; c.q -> q;
         }
         flow f(x: int, y: int, b: bool) -> (p: option<int>, q: option<int>) {
           t: task l(x: int) -> (x: int); u: task r(x: int) -> (x: int);
           c: choice { again if b (x: int, y: int, b: bool) -> (p: option<int>, q: option<int>) {
             m: call f; x -> m.x; y -> m.y; b -> m.b; m.p -> p; m.q -> q; }; };
           x -> t.x; y -> u.x; t.x -> c.x; u.x -> c.y; b -> c.b; c.p -> p; c.q -> q;
         }",
        &["q"],
        expect![[r#"
            block 0(x: int, b: bool)
              0 /c = choice [0?1](in1) -> (q: option<int>)
              q: option<int> = 0.0
            block 1(b: bool)
              0 /c/again/m = call 2(in0) -> (q: option<int>)
              q: option<int> = 0.0
            block 2(b: bool)
              0 /c = choice [0?3](in0) -> (q: option<int>)
              q: option<int> = 0.0
            block 3(b: bool)
              0 /c/again/m = call 2(in0) -> (q: option<int>)
              q: option<int> = 0.0
        "#]],
    );
}

#[test]
fn nothing_asked_for_is_nothing_to_do() {
    check_pruned(
        "flow main(x: int) -> (p: int) { n: task n(x: int) -> (); x -> n.x; x -> p; }",
        &[],
        expect![[r#"
        block 0(x: int)
    "#]],
    );
}
