//! An each that iterates another each's output is joined with it, unless something waits for the whole list.

use super::{meaning::assert_same, notation::library, print::print, random::Random, shapes::lower};
use expect_test::{Expect, expect};
use onceflow_core::model::check;

fn check_joined(text: &str, expected: Expect) {
    expected.assert_eq(&print(&lower(text)));
}

/// Returns `a: each x (x: int) -> (y: int)` around one task.
fn each(name: &str) -> String {
    format!("{name}: each x (x: int) -> (y: int) {{ t: task {name}(x: int) -> (y: int); x -> t.x; t.y -> y; }};")
}

#[test]
fn a_chain_of_eaches_is_one() {
    let text = format!(
        "flow main(xs: list<int>) -> (p: list<int>) {{ {} {} {} xs -> a.x; a.y -> b.x; b.y -> c.x; c.y -> p; }}",
        each("a"),
        each("b"),
        each("c")
    );
    check_joined(
        &text,
        expect![[r#"
        block 0(xs: list<int>)
          0 /a = each 1(in0) -> (y: list<int>)
          p: list<int> = 0.0
        block 1(~x: int)
          0 /a[*]/t = a(in0) -> (y: int)
          1 /b[*]/t = b(0.0) -> (y: int)
          2 /c[*]/t = c(1.0) -> (y: int)
          y: int = 2.0
    "#]],
    );
}

#[test]
fn a_list_that_another_step_reads_whole_stays_an_output() {
    let text = format!(
        "flow main(xs: list<int>) -> (p: list<int>, q: int) {{ {} {}
           s: task sum(l: list<int>) -> (s: int);
           xs -> a.x; a.y -> b.x; a.y -> s.l; s.s -> q; b.y -> p; }}",
        each("a"),
        each("b")
    );
    check_joined(
        &text,
        expect![[r#"
        block 0(xs: list<int>)
          0 /a = each 1(in0) -> (y: list<int>, /b:y: list<int>)
          1 /s = sum(0.0) -> (s: int)
          p: list<int> = 0.1
          q: int = 1.0
        block 1(~x: int)
          0 /a[*]/t = a(in0) -> (y: int)
          1 /b[*]/t = b(0.0) -> (y: int)
          y: int = 0.0
          y: int = 1.0
    "#]],
    );
}

#[test]
fn an_each_that_needs_all_of_the_other_does_not_join_it() {
    let text = format!(
        "flow main(xs: list<int>) -> (p: list<int>) {{ {}
           s: task sum(l: list<int>) -> (s: int);
           b: each x (x: int, s: int) -> (y: int) {{ t: task b(x: int, s: int) -> (y: int); x -> t.x; s -> t.s; t.y -> y; }};
           xs -> a.x; a.y -> b.x; a.y -> s.l; s.s -> b.s; b.y -> p; }}",
        each("a")
    );
    check_joined(
        &text,
        expect![[r#"
        block 0(xs: list<int>)
          0 /a = each 1(in0) -> (y: list<int>)
          1 /s = sum(0.0) -> (s: int)
          2 /b = each 2(0.0, 1.0) -> (y: list<int>)
          p: list<int> = 2.0
        block 1(~x: int)
          0 /a[*]/t = a(in0) -> (y: int)
          y: int = 0.0
        block 2(~x: int, s: int)
          0 /b[*]/t = b(in0, in1) -> (y: int)
          y: int = 0.0
    "#]],
    );
}

#[test]
fn eaches_inside_joined_eaches_join_too_and_captures_come_along() {
    check_joined(
        "flow main(xs: list<list<int>>, k: int) -> (p: list<list<int>>) {
           z: task z(k: int) -> (k: int);
           a: each x max 8 (x: list<int>, k: int) -> (y: list<int>) {
             e: each x (x: int, k: int) -> (y: int) { t: task a(x: int, k: int) -> (y: int); x -> t.x; k -> t.k; t.y -> y; };
             x -> e.x; k -> e.k; e.y -> y;
           };
           b: each x, o max 3 (x: list<int>, o: list<int>, k: int) -> (y: list<int>) {
             e: each x, o (x: int, o: int, k: int) -> (y: int) {
               t: task b(x: int, o: int, k: int) -> (y: int); x -> t.x; o -> t.o; k -> t.k; t.y -> y;
             };
             x -> e.x; o -> e.o; k -> e.k; e.y -> y;
           };
           k -> z.k; xs -> a.x; k -> a.k; a.y -> b.x; xs -> b.o; z.k -> b.k; b.y -> p;
         }",
        expect![[r#"
            block 0(xs: list<list<int>>, k: int)
              0 /z = z(in1) -> (k: int)
              1 /a = each 1 max 3(in0, in1, 0.0) -> (y: list<list<int>>)
              p: list<list<int>> = 1.0
            block 1(~x: list<int>, k: int, k: int)
              0 /a[*]/e = each 2(in0, in1, in2) -> (y: list<int>)
              y: list<int> = 0.0
            block 2(~x: int, k: int, k: int)
              0 /a[*]/e[*]/t = a(in0, in1) -> (y: int)
              1 /b[*]/e[*]/t = b(0.0, in0, in2) -> (y: int)
              y: int = 1.0
        "#]],
    );
}

#[test]
fn a_step_with_its_own_failure_handler_does_not_join_a_pipeline() {
    let text = format!(
        "flow main(xs: list<int>) -> (p: option<list<int>>) {{ {} {} xs -> a.x; a.y -> b.x; b.y -> p; }}",
        each("a"),
        each("b").replace("each", "attempt each")
    );
    let program = check(&library(&text), "main", None).expect("right");
    assert_eq!(program.blocks[0].nodes.len(), 2);
}

#[test]
fn other_lists_do_not_join() {
    let text = format!(
        "flow main(xs: list<int>, ys: list<int>) -> (p: list<int>) {{ {}
           b: each x, o (x: int, o: int) -> (y: int) {{ t: task b(x: int, o: int) -> (y: int); x -> t.x; o -> t.o; t.y -> y; }};
           xs -> a.x; a.y -> b.x; ys -> b.o; b.y -> p; }}",
        each("a")
    );
    assert_eq!(lower(&text).blocks[0].nodes.len(), 2);
}

#[test]
fn a_fork_joins_as_well() {
    let text = format!(
        "flow main(xs: list<int>) -> (p: list<int>) {{ {} {} {}
           d: each x, o (x: int, o: int) -> (y: int) {{ t: task d(x: int, o: int) -> (y: int); x -> t.x; o -> t.o; t.y -> y; }};
           xs -> a.x; a.y -> b.x; a.y -> c.x; b.y -> d.x; c.y -> d.o; d.y -> p; }}",
        each("a"),
        each("b"),
        each("c")
    );
    check_joined(
        &text,
        expect![[r#"
        block 0(xs: list<int>)
          0 /a = each 1(in0) -> (y: list<int>)
          p: list<int> = 0.0
        block 1(~x: int)
          0 /a[*]/t = a(in0) -> (y: int)
          1 /b[*]/t = b(0.0) -> (y: int)
          2 /c[*]/t = c(0.0) -> (y: int)
          3 /d[*]/t = d(1.0, 2.0) -> (y: int)
          y: int = 3.0
    "#]],
    );
}

/// Returns a random flow of eaches over the outputs of other eaches, which also capture sums of whole lists.
fn random(seed: u64) -> String {
    let mut random = Random(seed);
    let (mut lists, mut numbers) = (vec![String::from("xs")], vec![String::from("k")]);
    let mut text =
        String::from("flow main(xs: list<int>, ys: list<int>, k: int) -> (p: list<int>, q: list<int>, r: int) { ");
    if random.chance(20) {
        lists.push("ys".into());
    }
    for at in 0..2 + random.below(6) {
        if random.chance(25) {
            text += &format!("m{at}: task sum(l: list<int>) -> (s: int); {} -> m{at}.l; ", random.pick(&lists));
            numbers.push(format!("m{at}.s"));
            continue;
        }
        let limit = if random.chance(30) { format!("max {}", 1 + random.below(9)) } else { String::new() };
        text += &format!(
            "m{at}: each x, y {limit} (x: int, k: int, y: int) -> (a: int, b: int) {{
               t: task t{at}(x: int, k: int) -> (o: int); u: task u(x: int, y: int) -> (o: int, w: int);
               x -> t.x; k -> t.k; t.o -> u.x; y -> u.y; u.o -> a; {} -> b;
             }};
             {} -> m{at}.x; {} -> m{at}.y; {} -> m{at}.k; ",
            random.pick(&["u.w", "y", "t.o"]),
            random.pick(&lists),
            random.pick(&lists),
            random.pick(&numbers),
        );
        lists.extend([format!("m{at}.a"), format!("m{at}.b")]);
    }
    let (p, q, r) = (lists[lists.len() - 1].clone(), random.pick(&lists).clone(), random.pick(&numbers));
    text + &format!("{p} -> p; {q} -> q; {r} -> r; }}")
}

#[test]
fn joined_eaches_do_what_they_did_apart() {
    let (mut apart, mut joined) = (0, 0);
    for seed in 0..2_000 {
        let text = random(seed);
        assert!(assert_same(&library(&text), None), "{text}");
        apart += text.matches(": each").count();
        joined += lower(&text).blocks.len() - 1;
    }
    assert!(joined * 3 < apart * 2, "{apart} eaches became {joined}");
}
