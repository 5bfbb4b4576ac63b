//! However wide or long a flow is, nothing in its program is wider than a batch.

use super::{notation::library, shapes::lower};
use onceflow_core::{
    limits::FAN_OUT_MAX,
    model::{Program, Wiring, check, program::NodeOp},
};
use std::fmt::Write;

/// Asserts that the program is sound, and counts tasks and relays.
fn counts(program: &Program) -> (usize, usize) {
    program.assert_sound();
    let nodes = || program.blocks.iter().flat_map(|block| &block.nodes);
    let relays = nodes().filter(|node| node.op == NodeOp::Relay).count();
    (nodes().filter(|node| matches!(node.op, NodeOp::Task(_))).count(), relays)
}

#[test]
fn ten_thousand_independent_steps_lower() {
    let tasks: String = (0..10_000).map(|at| format!("n{at}: task n(x: int) -> (); x -> n{at}.x; ")).collect();
    let program = lower(&format!("flow main(x: int) -> () {{ {tasks} }}"));
    // 79 relays enable the 10 000 steps, and 79 join them, each in one batch, and one more joins those.
    assert_eq!(counts(&program), (10_000, 159));
    let wiring = Wiring::of(&program);
    assert_eq!((wiring.blocks[0].opening.enabled.len(), wiring.blocks[0].end.of), (79, 1));
}

#[test]
fn an_output_with_a_hundred_thousand_consumers_goes_through_a_tree() {
    let mut text = String::from("flow main(x: int) -> () { s: task s(x: int) -> (y: int, z: int); x -> s.x; ");
    for at in 0..99_000 {
        write!(text, "n{at}: task n(x: int) -> (); s.{} -> n{at}.x; ", if at % 3 == 0 { "y" } else { "z" })
            .expect("a string");
    }
    let program = lower(&(text + "}"));
    let (tasks, relays) = counts(&program);
    assert_eq!(tasks, 99_001);
    assert!(relays < 2 * 99_000 / FAN_OUT_MAX + 20, "{relays}");
}

#[test]
fn elements_and_carried_ports_are_fanned_out_too() {
    let uses: String =
        (0..600).map(|at| format!("n{at}: task n(x: int, k: int) -> (); x -> n{at}.x; k -> n{at}.k; ")).collect();
    let idle: String =
        (0..600).map(|at| format!("m{at}: task n(x: int, k: int) -> (); k -> m{at}.x; k -> m{at}.k; ")).collect();
    let program = lower(&format!(
        "flow main(xs: list<int>, k: int) -> () {{ e: each x (x: int, k: int) -> () {{ {uses} {idle} }}; xs -> e.x; k -> e.k; }}"
    ));
    assert_eq!(counts(&program).0, 1200);
    let wiring = Wiring::of(&program);
    assert!(wiring.blocks[1].opening_deliveries() <= FAN_OUT_MAX);
}

#[test]
fn pascals_triangle_lowers_to_itself() {
    let n: usize = 100;
    let outputs: Vec<_> = (0..n).map(|at| format!("p{at}: int")).collect();
    let mut text = format!("flow main(one: int) -> ({}) {{ ", outputs.join(", "));
    for row in 0..n {
        for at in 0..=row {
            let source = |other: usize| match row.checked_sub(1) {
                Some(above) if other <= above => format!("t{above}_{other}.s"),
                _ => String::from("one"),
            };
            let (left, right) = (at.checked_sub(1).map_or("one".into(), source), source(at));
            write!(text, "t{row}_{at}: task add(l: int, r: int) -> (s: int); ").expect("a string");
            write!(text, "{left} -> t{row}_{at}.l; {right} -> t{row}_{at}.r; ").expect("a string");
        }
    }
    for at in 0..n {
        write!(text, "t{}_{at}.s -> p{at}; ", n - 1).expect("a string");
    }
    assert_eq!(counts(&lower(&(text + "}"))), (n * (n + 1) / 2, 0));
}

#[test]
fn a_chain_of_fifty_thousand_needs_no_long_stack() {
    let mut text = String::from("flow main(x: int) -> (p: int) { ");
    for at in 0..50_000_usize {
        let from = at.checked_sub(1).map_or("x".into(), |before| format!("n{before}.y"));
        write!(text, "n{at}: task n(x: int) -> (y: int); {from} -> n{at}.x; ").expect("a string");
    }
    assert_eq!(counts(&lower(&(text + "n49999.y -> p; }"))), (50_000, 0));
}

#[test]
fn the_most_ports_still_fit() {
    let ports = |name: &str| (0..127).map(|at| format!("{name}{at}: int")).collect::<Vec<_>>().join(", ");
    let wires: String =
        (0..127).map(|at| format!("i{at} -> t.i{at}; t.o{at} -> p{at}; t.o{at} -> u.i{at}; ")).collect();
    let over = (0..127).map(|at| format!("i{at}")).collect::<Vec<_>>().join(", ");
    let outside: String = (0..127).map(|at| format!("xs -> e.i{at}; ")).collect();
    let text = format!(
        "flow main(xs: list<int>) -> (p: list<int>) {{
           e: each {over} ({}) -> ({}) {{ n: task n() -> (); t: task t({}) -> ({}); u: task u({}) -> (); {wires} }};
           {outside} e.p7 -> p;
         }}",
        ports("i"),
        ports("p"),
        ports("i"),
        ports("o"),
        ports("i"),
    );
    counts(&check(&library(&text), "main", None).unwrap_or_else(|errors| panic!("{errors}")));
}
