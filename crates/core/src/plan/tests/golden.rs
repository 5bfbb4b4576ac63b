//! The worked examples of `ComputeResumeState`, in every order, with answers immediate, late, and out of order.

use super::{
    late::run_late,
    notation::{Named, graph, graph_with},
    rng::Rng,
};
use crate::plan::{Frontier, MissingValues, Order, Policy, Resume, Vertex, VertexState};
use std::collections::BTreeSet;

const WORKED: &str = "a->P.i; a->N.d; b->N.e; c->Q.o; N.f->P.j; N.g->P.k; N.h->Q.n; P.l->q; P.m->r; Q.p->s";
const WORKED_DEPENDS: &str = "d->f h; e->g h; i->l; j->l; k->m; n->p; o->p";
const DIAMOND: &str = "x->a.ax; y->a.ay; x->b.bx; a.ap->b.by; a.aq->c.cx; y->c.cy; b.bp->p; y->q; d.bp->r";

fn set(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(String::from).collect()
}

struct Case<'c> {
    has: &'c str,
    changed: &'c str,
    requested: &'c str,
}

/// Checks one row, with many orders and many delays.
fn check(named: &Named, case: &Case<'_>, ready: &str, recompute: &str, delivering: &str) {
    let all = case.has == "everything";
    let has_names = set(case.has);
    let has = |vertex: Vertex| all || has_names.contains(&named.name(vertex));
    let (changed, requested) = (named.inputs(case.changed), named.outputs(case.requested));
    let start = |order| Resume::new(&named.graph, Policy::Consistent, order, &changed, &requested);
    let verify = |frontier: &Frontier<'_>, how: &str| {
        assert_eq!(named.in_state(frontier, VertexState::Ready), set(ready), "ready, {how}");
        assert_eq!(named.in_state(frontier, VertexState::Recompute), set(recompute), "recompute, {how}");
        assert_eq!(named.delivering(frontier), set(delivering), "W, {how}");
    };
    for order in [Order::Fifo, Order::Lifo].into_iter().chain((0..50).map(Order::Seeded)) {
        verify(&start(order).run(has).expect("nothing missing"), &format!("{order:?}"));
        for seed in 0..20 {
            let frontier = run_late(start(order), &mut Rng::new(seed), has).expect("nothing missing");
            verify(&frontier, &format!("{order:?}, answers late by seed {seed}"));
        }
    }
}

/// Returns the number of edges: of all, and of those from which a requested out-port can be reached.
fn edges(named: &Named, requested: &str) -> (usize, usize) {
    let graph = &named.graph;
    let mut relevant: BTreeSet<Vertex> = named.outputs(requested).iter().map(|at| graph.inputs() + at).collect();
    let mut todo: Vec<_> = relevant.iter().copied().collect();
    while let Some(vertex) = todo.pop() {
        graph.each_predecessor(vertex, |before| todo.extend(relevant.insert(before).then_some(before)));
    }
    let (mut all, mut pruned) = (0, 0);
    for vertex in 0..graph.vertices() {
        graph.each_successor(vertex, |after| {
            all += 1;
            pruned += usize::from(relevant.contains(&after));
        });
    }
    (all, pruned)
}

#[test]
fn the_worked_example_comes_out_as_in_the_paper() {
    let named = graph_with(WORKED, WORKED_DEPENDS);
    assert_eq!(edges(&named, "r s"), (19, 13));
    let case = Case { has: "a b c d e i j n o r", changed: "a", requested: "r s" };
    check(&named, &case, "/N /P /Q e o", "a d k n r s", "N.g N.h P.m Q.p");
    check(&graph(WORKED), &case, "/N /P /Q e o", "a d i j k n r s", "N.f N.g N.h P.m Q.p");
}

#[test]
fn edges_are_the_same_seen_from_both_ends() {
    for named in [graph(WORKED), graph_with(WORKED, WORKED_DEPENDS), graph(DIAMOND)] {
        let (mut forward, mut backward) = (BTreeSet::new(), BTreeSet::new());
        for vertex in 0..named.graph.vertices() {
            named.graph.each_successor(vertex, |after| assert!(forward.insert((vertex, after))));
            named.graph.each_predecessor(vertex, |before| assert!(backward.insert((before, vertex))));
        }
        assert_eq!(forward, backward);
    }
}

#[test]
fn every_row_of_the_diamond_comes_out_as_in_the_table() {
    let rows = [
        // has; changed; requested; ready; recompute; W
        ["x y", "", "p q", "x y /a /b", "p q ax ay bx by", "a.ap b.bp"],
        ["x y", "x", "p q", "y /a /b", "x p q ax ay bx by", "a.ap b.bp"],
        ["bx by q", "", "p q", "q /b bx by", "p", "b.bp"],
        ["x y ax ay bx q", "", "p q", "q /a /b ax ay bx", "p by", "a.ap b.bp"],
        ["x y bx by p q", "", "p q", "p q", "", ""],
        ["everything", "x", "p q", "q /a /b ay", "x p ax bx by", "a.ap b.bp"],
        ["x", "", "r", "/d", "r", "d.bp"],
    ];
    let named = graph(DIAMOND);
    for [has, changed, requested, ready, recompute, delivering] in rows {
        check(&named, &Case { has, changed, requested }, ready, recompute, delivering);
    }
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    let named = graph(DIAMOND);
    let missing = |has: &str, changed: &str, requested: &str, policy| {
        let (changed, requested, has) = (named.inputs(changed), named.outputs(requested), set(has));
        let resume = Resume::new(&named.graph, policy, Order::Fifo, &changed, &requested);
        resume.run(|vertex| has.contains(&named.name(vertex))).err()
    };
    for policy in [Policy::Consistent, Policy::Provenance] {
        let these = |inputs: &str| Some(MissingValues { inputs: named.inputs(inputs), outputs: vec![] });
        assert_eq!(missing("", "", "p q", policy), these("x y"));
        assert_eq!(missing("x", "", "p q", policy), these("y"));
        assert_eq!(missing("", "x", "p q", policy), these("y"));
        assert_eq!(missing("", "x y", "p q", policy), None);
        assert_eq!(missing("", "", "r", policy), None);
    }
    let mut unfed = crate::plan::DependencyGraphBuilder::new(0, 2);
    unfed.module(0, 0);
    let unfed = unfed.build();
    let resume = Resume::new(&unfed, Policy::Consistent, Order::Fifo, &[], &[1]);
    assert_eq!(resume.run(|_| false).err(), Some(MissingValues { inputs: vec![], outputs: vec![1] }));
}

#[test]
fn an_answer_that_no_longer_matters_is_not_waited_for() {
    // p is asked about, but x overtakes it before the answer comes.
    let named = graph("x->a.i; a.o->p");
    let mut resume = Resume::new(&named.graph, Policy::Provenance, Order::Fifo, &[0], &[0]);
    assert_eq!(resume.questions(), None);
    assert!(resume.finish().expect("nothing missing").runs(0));
}

#[test]
fn reading_a_value_overtakes_no_step_except_under_consistent() {
    // The run has finished for p. x was not delivered to B, and the copy that was delivered to A is gone.
    let named = graph("x->A.i; x->B.j; A.o->p; B.o->q");
    let (requested, has) = (named.outputs("p q"), set("x p"));
    let runs = |policy| {
        let resume = Resume::new(&named.graph, policy, Order::Fifo, &[], &requested);
        let frontier = resume.run(|port| has.contains(&named.name(port))).expect("nothing missing");
        [0, 1].map(|module| frontier.runs(module))
    };
    assert_eq!(runs(Policy::Consistent), [true, true]);
    assert_eq!(runs(Policy::Provenance), [false, true]);
}

#[test]
fn provenance_answers_what_the_engine_must_answer() {
    // The sub-modules that run, from the out-ports and in-ports that have valid values.
    let runs = |text: &str, valid: &str, changed: &str, requested: &str| {
        let (named, valid) = (graph(text), set(valid));
        let (changed, requested) = (named.inputs(changed), named.outputs(requested));
        let resume = Resume::new(&named.graph, Policy::Provenance, Order::Fifo, &changed, &requested);
        let has = |vertex| named.graph.value_at(vertex).is_some_and(|place| valid.contains(&named.place(place)));
        let frontier = resume.run(has).expect("nothing missing");
        let ready = named.in_state(&frontier, VertexState::Ready).into_iter().filter(|name| name.starts_with('/'));
        ready.collect::<Vec<_>>().join(" ")
    };
    let fork = "x->A.i; x->B.i; A.o->p; B.o->q";
    assert_eq!(runs(fork, "x A.o", "", "p q"), "/B", "only what is asked for in addition");
    assert_eq!(runs(fork, "x", "", "p q"), "/A /B");
    let chain = "x->A.i; A.o->B.i; A.o->C.i; B.o->p; C.o->q";
    assert_eq!(runs(chain, "x A.o B.o", "", "p q"), "/C", "finished, but not yet delivered to C");
    assert_eq!(runs(chain, "A.o", "", "p q"), "/B /C", "x is not needed any more");
    assert_eq!(runs(chain, "x A.o B.o C.o", "x", "p q"), "/A /B /C", "x was rewritten");
    assert_eq!(runs(chain, "x A.o B.o C.o", "", "p q"), "", "a finished run started again");
    assert_eq!(runs(chain, "x B.o", "", "p q"), "/A /B /C", "A runs again, and overtakes B");
}
