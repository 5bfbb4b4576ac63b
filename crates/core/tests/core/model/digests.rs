//! Two flows have equal digests exactly if they mean the same.

use super::{notation::library, shapes::lower};
use onceflow_core::model::{Library, check, graph::ModuleKind};

const FLOW: &str = "flow main(xs: list<int>, b: bool) -> (p: list<int>, q: option<int>) {
   a: task a(xs: list<int>) -> (y: list<int>);
   d: task a(xs: list<int>) -> (y: list<int>);
   k: const int `7`;
   e: each x max 2 (x: int, k: int) -> (y: int) { t: task t(x: int, k: int) -> (y: int); x -> t.x; k -> t.k; t.y -> y; };
   c: choice { one if b (k: int) -> (y: int) { t: task t(x: int, k: int) -> (y: int); k -> t.x; k -> t.k; t.y -> y; }; };
   xs -> a.xs; a.y -> d.xs; d.y -> e.x; k.value -> e.k; e.y -> p; b -> c.b; k.value -> c.k; c.y -> q;
 }";

fn digest(library: &Library) -> onceflow_core::Digest {
    check(library, "main", None).unwrap_or_else(|errors| panic!("{errors}")).blocks[0].digest
}

fn replaced(what: &str, with: &str) -> onceflow_core::Digest {
    assert!(FLOW.contains(what), "{what}");
    digest(&library(&FLOW.replace(what, with)))
}

#[test]
fn names_order_and_limits_mean_nothing() {
    let base = digest(&library(FLOW));
    assert_eq!(replaced("max 2", ""), base, "concurrency");
    let renamed = FLOW.replace("e: each", "every: each").replace("e.", "every.").replace("one if", "uno if");
    assert_eq!(digest(&library(&renamed)), base, "names of modules and arms");
    let mut other = library(FLOW);
    let graph = other.flows.get_mut("main").expect("main");
    graph.modules.reverse();
    graph.connections.reverse();
    assert_eq!(digest(&other), base, "order");
    for module in &mut other.flows.get_mut("main").expect("main").modules {
        if let ModuleKind::Task(spec) = &mut module.kind {
            let spec = std::sync::Arc::make_mut(spec);
            (spec.retry.attempts, spec.timeout_ms, spec.class) = (9, Some(1), "gpu".into());
            spec.resources.cpu_milli = 4000;
        }
    }
    assert_eq!(digest(&other), base, "how it is run");
}

#[test]
fn a_composite_does_not_change_the_digest_of_its_content() {
    let plain = "flow main(x: int) -> (p: int) { t: task t(x: int) -> (y: int); x -> t.x; t.y -> p; }";
    let inside = "flow main(x: int) -> (p: int) { g: graph (a: int) -> (b: int) { t: task t(x: int) -> (y: int); a -> t.x; t.y -> b; }; x -> g.a; g.b -> p; }";
    let called = "flow main(x: int) -> (p: int) { g: call f; x -> g.a; g.b -> p; } flow f(a: int) -> (b: int) { t: task t(x: int) -> (y: int); a -> t.x; t.y -> b; }";
    assert_eq!(digest(&library(plain)), digest(&library(inside)));
    assert_eq!(digest(&library(plain)), digest(&library(called)));
}

#[test]
fn versions_constants_and_wiring_change_the_digest() {
    let all = [
        digest(&library(FLOW)),
        replaced("d: task a(", "d: task a@2("),
        replaced("d: task a(", "d: task b("),
        replaced("`7`", "`8`"),
        replaced(
            "t: task t(x: int, k: int) -> (y: int); x -> t.x;",
            "t: task t@2(x: int, k: int) -> (y: int); x -> t.x;",
        ),
        replaced("d.y -> e.x", "a.y -> e.x"),
        replaced("x -> t.x; k -> t.k;", "k -> t.x; x -> t.k;"),
        replaced("one if b (", "two if b (k: int) -> () { }; one if b ("),
        replaced("c: choice", "c: attempt choice"),
        replaced("e.y -> p", "d.y -> p"),
    ];
    for (at, one) in all.iter().enumerate() {
        assert_eq!(all.iter().position(|other| other == one), Some(at), "case {at} looks like another");
    }
}

#[test]
fn flows_that_recur_are_told_apart_by_what_they_do() {
    let flow = |version: &str, name: &str| {
        format!(
            "flow main(x: int) -> (p: option<int>) {{ a: call {name}; x -> a.x; a.p -> p; }}
             flow {name}(x: int) -> (p: option<int>) {{
               t: task t@{version}(x: int) -> (x: int, more: bool);
               c: choice {{ again if more (x: int) -> (p: option<int>) {{ m: call {name}; x -> m.x; m.p -> p; }}; }};
               x -> t.x; t.x -> c.x; t.more -> c.more; c.p -> p;
             }}"
        )
    };
    assert_eq!(digest(&library(&flow("1", "f"))), digest(&library(&flow("1", "g"))));
    assert_ne!(digest(&library(&flow("1", "f"))), digest(&library(&flow("2", "f"))));
    assert_ne!(lower(&flow("1", "f")).blocks[1].digest, lower(&flow("2", "f")).blocks[1].digest);
}

#[test]
fn one_step_used_twice_differs_from_two_steps() {
    let shared =
        "flow main(x: int) -> (p: int, q: int) { a: task a(x: int) -> (y: int); x -> a.x; a.y -> p; a.y -> q; }";
    let doubled = "flow main(x: int) -> (p: int, q: int) { a: task a(x: int) -> (y: int); b: task a(x: int) -> (y: int); x -> a.x; x -> b.x; a.y -> p; b.y -> q; }";
    assert_ne!(digest(&library(shared)), digest(&library(doubled)));
}
