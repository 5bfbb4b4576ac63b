//! Every mistake inside a single module is reported: in loops, eaches, choices, attempts, and calls that never end.

use super::{mistakes::check_mistakes, notation::library};
use expect_test::expect;
use onceflow_core::model::{Errors, check, graph::ModuleKind};

#[test]
fn a_loop_has_its_condition() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { l: loop (x: int) -> (y: int, more: bool) { s: task s(x: int) -> (y: int, more: bool); x -> s.x; s.y -> y; s.more -> more; } while mroe carry y > x; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0024]: loop /l goes on while `mroe`, but its body has no such output
              --> test.flow:1:33
            hint: did you mean `more`?"#]],
    );
}

#[test]
fn the_condition_of_a_loop_is_bool() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { l: loop (x: int) -> (y: int, more: int) { x -> y; x -> more; } while more carry y > x; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0025]: loop /l goes on while `more`, which is int, not bool
              --> test.flow:1:33"#]],
    );
}

#[test]
fn the_condition_of_a_loop_is_given() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { l: loop (x: int) -> (y: int, more: bool) { x -> y; } while more carry y > x; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0026]: loop /l goes on while `more`, but nothing gives it
              --> test.flow:1:33"#]],
    );
}

#[test]
fn carried_ports_of_a_loop_must_exist() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { l: loop (x: int) -> (y: int, more: bool) { s: task s(x: int) -> (y: int, more: bool); x -> s.x; s.y -> y; s.more -> more; } while more carry z > x, y > w; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0021]: loop /l carries `z`, but its body has no such output
              --> test.flow:1:33
            hint: there is `y`, `more`
            error[OF0021]: loop /l carries `w`, but its body has no such input
              --> test.flow:1:33
            hint: there is `x`"#]],
    );
}

#[test]
fn carried_ports_of_a_loop_have_equal_types() {
    check_mistakes(
        "flow main(x: int) -> (p: text) { l: loop (x: int) -> (y: text, more: bool) { s: task s(x: int) -> (y: text, more: bool); x -> s.x; s.y -> y; s.more -> more; } while more carry y > x; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0023]: loop /l carries `y`, text, to `x`, which takes int
              --> test.flow:1:34"#]],
    );
}

#[test]
fn a_loop_carries_one_output_to_an_input() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { l: loop (x: int) -> (y: int, z: int, more: bool) { s: task s(x: int) -> (y: int, more: bool); x -> s.x; s.y -> y; s.y -> z; s.more -> more; } while more carry y > x, z > x; x -> l.x; l.y -> p; }",
        expect![[r#"
            error[OF0022]: loop /l carries more than one output to input `x`
              --> test.flow:1:33"#]],
    );
}

#[test]
fn the_condition_is_no_output_of_the_loop() {
    check_mistakes(
        "flow main(x: int) -> (p: bool) { l: loop (x: int) -> (y: int, more: bool) { s: task s(x: int) -> (y: int, more: bool); x -> s.x; s.y -> y; s.more -> more; } while more carry y > x; x -> l.x; l.more -> p; }",
        expect![[r#"
            error[OF0015]: /l has no output `more`
              --> test.flow:1:192
            hint: there is `y`"#]],
    );
}

#[test]
fn an_each_needs_a_list() {
    check_mistakes(
        "flow main(x: int) -> (p: list<int>) { e: each (x: int) -> (y: int) { x -> y; }; x -> e.x; e.y -> p; }",
        expect![[r#"
            error[OF0027]: each /e goes over nothing
              --> test.flow:1:39
            hint: name the inputs that are iterated"#]],
    );
}

#[test]
fn the_list_of_an_each_must_exist() {
    check_mistakes(
        "flow main(x: list<int>) -> (p: list<int>) { e: each elem, x, x (x: int, element: int) -> (y: int) { x -> y; }; x -> e.x; x -> e.element; e.y -> p; }",
        expect![[r#"
            error[OF0012]: port `element` of /e takes int, but /:x gives list<int>
              --> test.flow:1:122
            hint: use an each over /:x, to do this for every element
            error[OF0028]: each /e goes over `elem`, but its body has no such input
              --> test.flow:1:45
            hint: there is `x`, `element`
            error[OF0029]: each /e names `x` twice
              --> test.flow:1:45"#]],
    );
}

#[test]
fn an_each_takes_a_list_and_gives_one() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { e: each x (x: int) -> (y: int) { x -> y; }; x -> e.x; e.y -> p; }",
        expect![[r#"
            error[OF0012]: port `x` of /e takes list<int>, but /:x gives int
              --> test.flow:1:77
            hint: it takes a list: gather them with an each
            error[OF0012]: port `p` of / takes int, but /e:y gives list<int>
              --> test.flow:1:87
            hint: use an each over /e:y, to do this for every element"#]],
    );
}

#[test]
fn an_each_lets_elements_run() {
    check_mistakes(
        "flow main(x: list<int>) -> (p: list<int>) { e: each x max 0 (x: int) -> (y: int) { x -> y; }; x -> e.x; e.y -> p; }",
        expect![[r#"
            error[OF0030]: each /e lets no element run
              --> test.flow:1:45
            hint: leave the concurrency out to have no limit"#]],
    );
}

#[test]
fn a_choice_has_arms() {
    check_mistakes(
        "flow main() -> () { c: choice { }; }",
        expect![[r#"
        error[OF0031]: choice /c has no arms
          --> test.flow:1:21"#]],
    );
}

#[test]
fn a_guard_is_bool() {
    check_mistakes(
        "flow main(x: int) -> (p: option<int>) { c: choice { a if x (x: int) -> (p: int) { x -> p; }; }; x -> c.x; c.p -> p; }",
        expect![[r#"
            error[OF0032]: guard `x` of choice /c is also an input of type int, not bool
              --> test.flow:1:41"#]],
    );
}

#[test]
fn a_guard_is_connected_to_a_bool() {
    check_mistakes(
        "flow main(x: int) -> (p: option<int>) { c: choice { a if ok (x: int) -> (p: int) { x -> p; }; b if other (x: int) -> (p: int) { x -> p; }; }; x -> c.x; x -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0012]: port `ok` of /c takes bool, but /:x gives int
              --> test.flow:1:153
            error[OF0017]: nothing is connected to input `other` of /c
              --> test.flow:1:41
            hint: it takes bool"#]],
    );
}

#[test]
fn the_default_arm_is_the_last() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: int) { c: choice { a (x: int) -> (p: int) { x -> p; }; b if ok (x: int) -> (p: int) { x -> p; }; }; x -> c.x; b -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0033]: arm `a` of choice /c has no guard, so those after it are never taken
              --> test.flow:1:42"#]],
    );
}

#[test]
fn arms_take_one_type_by_one_name() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: int) { c: choice { a if ok (x: int) -> (p: int) { x -> p; }; b (x: text) -> (p: int) { t: task t(x: text) -> (p: int); x -> t.x; t.p -> p; }; }; x -> c.x; b -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0034]: input `x` of choice /c is int in one arm and text in another
              --> test.flow:1:42"#]],
    );
}

#[test]
fn arms_give_one_type_by_one_name() {
    check_mistakes(
        "flow main(x: int, y: text, b: bool) -> (p: int) { c: choice { a if ok (x: int) -> (p: int) { x -> p; }; b (y: text) -> (p: text) { y -> p; }; }; x -> c.x; y -> c.y; b -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0035]: output `p` of choice /c is int in one arm and text in another
              --> test.flow:1:51"#]],
    );
}

#[test]
fn without_a_default_arm_outputs_are_options() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: int) { c: choice { a if ok (x: int) -> (p: int) { x -> p; }; }; x -> c.x; b -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0012]: port `p` of / takes int, but /c:p gives option<int>
              --> test.flow:1:120
            hint: it may be none: take an option, or put it into an arm of a choice"#]],
    );
}

#[test]
fn an_output_that_some_arm_lacks_is_optional() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: int, q: int) { c: choice { a if ok (x: int) -> (p: int, q: int) { x -> p; x -> q; }; b (x: int) -> (p: int) { x -> p; }; }; x -> c.x; b -> c.ok; c.p -> p; c.q -> q; }",
        expect![[r#"
            error[OF0012]: port `q` of / takes int, but /c:q gives option<int>
              --> test.flow:1:190
            hint: it may be none: take an option, or put it into an arm of a choice"#]],
    );
}

#[test]
fn arm_names_are_unique_and_plain() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: option<int>) { c: choice { `a b` if ok (x: int) -> (p: int) { x -> p; }; `a b` if ok (x: int) -> (p: int) { x -> p; }; }; x -> c.x; b -> c.ok; c.p -> p; }",
        expect![[r#"
            error[OF0011]: `a b` cannot be the name of an arm
              --> test.flow:1:50
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them
            error[OF0011]: `a b` cannot be the name of an arm
              --> test.flow:1:50
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them
            error[OF0013]: /c has more than one arm `a b`
              --> test.flow:1:50"#]],
    );
}

#[test]
fn a_module_that_may_fail_gives_optional_outputs() {
    check_mistakes(
        "flow main(x: int) -> (p: int, e: text) { t: attempt task t(i: int) -> (o: int); x -> t.i; t.o -> p; t.error -> e; }",
        expect![[r#"
            error[OF0012]: port `p` of / takes int, but /t:o gives option<int>
              --> test.flow:1:91
            hint: it may be none: take an option, or put it into an arm of a choice
            error[OF0012]: port `e` of / takes text, but /t:error gives option<text>
              --> test.flow:1:101
            hint: it may be none: take an option, or put it into an arm of a choice"#]],
    );
}

#[test]
fn the_output_error_of_an_attempt_is_taken() {
    check_mistakes(
        "flow main(x: int) -> (p: option<int>) { t: attempt task t(i: int) -> (error: int); x -> t.i; t.error -> p; }",
        expect![[r#"
            error[OF0036]: /t is an attempt, so its output `error` is taken, but it has one of its own
              --> test.flow:1:41"#]],
    );
}

#[test]
fn a_flow_that_calls_itself_can_end() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { m: call main; x -> m.x; m.p -> p; }",
        expect![[r#"
        error[OF0039]: flow `main` calls itself for ever
        hint: call it from an arm of a choice, so that it can end"#]],
    );
}

#[test]
fn flows_that_call_each_other_can_end() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { m: call a; x -> m.x; m.p -> p; }
         flow a(x: int) -> (p: int) { m: call b; x -> m.x; m.p -> p; }
         flow b(x: int) -> (p: int) { g: graph (x: int) -> (p: int) { m: call a; x -> m.x; m.p -> p; }; x -> g.x; g.p -> p; }",
        expect![[r#"
            error[OF0039]: flows `a`, `b` call each other for ever
            hint: call it from an arm of a choice, so that it can end"#]],
    );
}

#[test]
fn a_choice_of_nothing_but_calls_never_ends() {
    check_mistakes(
        "flow main(x: int, b: bool) -> (p: int) { c: choice { a if b (x: int, b: bool) -> (p: int) { m: call main; x -> m.x; b -> m.b; m.p -> p; }; e (x: int, b: bool) -> (p: int) { m: call main; x -> m.x; b -> m.b; m.p -> p; }; }; x -> c.x; b -> c.b; c.p -> p; }",
        expect![[r#"
            error[OF0039]: flow `main` calls itself for ever
            hint: call it from an arm of a choice, so that it can end"#]],
    );
}

#[test]
fn mistakes_inside_say_where() {
    check_mistakes(
        "flow main(x: list<int>, b: bool) -> (p: list<int>) { e: each x (x: int, b: bool) -> (p: int) { l: loop (x: int, b: bool) -> (x: int, b: bool) { c: choice { a if ok (x: int) -> (p: int) { t: task t(i: text) -> (o: int); x -> t.i; t.o -> p; }; b (x: int) -> (p: int) { x -> p; }; }; x -> c.x; b -> c.ok; c.p -> x; b -> b; } while b carry x > x; x -> l.x; b -> l.b; l.x -> p; }; x -> e.x; b -> e.b; e.p -> p; }",
        expect![[r#"
            error[OF0012]: port `i` of /e[*]/l@*/c/a/t takes text, but /e[*]/l@*/c/a:x gives int
              --> test.flow:1:220"#]],
    );
}

fn errors(library: &onceflow_core::model::Library) -> Errors {
    check(library, "main", None).expect_err("a mistake")
}

#[test]
fn a_flow_that_is_not_there_cannot_be_checked() {
    let library = library("flow align(x: int) -> (p: int) { x -> p; }");
    expect![[r#"
        error[OF0010]: there is no flow `algin`
        hint: did you mean `align`?"#]]
    .assert_eq(&check(&library, "algin", None).expect_err("a mistake").to_string());
}

#[test]
fn contradictory_settings_of_a_task_are_refused() {
    let mut library = library("flow main(x: int) -> (p: int) { t: task t(i: int) -> (o: int); x -> t.i; t.o -> p; }");
    let graph = library.flows.get_mut("main").expect("main");
    let ModuleKind::Task(spec) = &mut graph.modules[0].kind else { panic!("a task") };
    let spec = std::sync::Arc::make_mut(spec);
    spec.retry.attempts = 0;
    spec.depends = Some(vec![vec![7]]);
    expect![[r#"
        error[OF0037]: task /t says its outputs depend on ports that it does not have
          --> test.flow:1:33
        error[OF0038]: task /t may be tried 0 times, so it never runs
          --> test.flow:1:33
        hint: 1 is no retry"#]]
    .assert_eq(&errors(&library).to_string());
}

#[test]
fn limits_are_said() {
    let ports =
        |name: &str, count: usize| (0..count).map(|at| format!("{name}{at}: int")).collect::<Vec<_>>().join(", ");
    let arms: String = (0..65).map(|at| format!("a{at} if g{at} () -> () {{ }}; ")).collect();
    let guards: String = (0..65).map(|at| format!("b -> c.g{at}; ")).collect();
    let feed: String = (0..127).map(|at| format!("t.o{at} -> u.i{at}; ")).collect();
    let text = format!(
        "flow main(b: bool) -> () {{
           t: attempt task t() -> ({}); u: task u({}) -> (); v: task v({}) -> ();
           c: choice {{ {arms} }}; {guards} {feed}
         }}",
        ports("o", 127),
        ports("i", 127).replace(": int", ": option<int>"),
        ports("w", 128).replace(": int", ": option<int>"),
    );
    expect![[r#"
        error[OF0040]: /t has 128 outputs (`error` included); 127 is the most
          --> test.flow:2:12
        error[OF0040]: /v has 128 inputs; 127 is the most
          --> test.flow:2:3644
        error[OF0040]: /c has 65 arms; 64 is the most
          --> test.flow:3:12"#]]
    .assert_eq(&errors(&library(&text)).to_string());
}

#[test]
fn a_graph_nested_too_deep_is_refused_and_not_walked() {
    let nested = |depth: usize| {
        let open = "g: graph () -> () { ".repeat(depth);
        format!("flow main() -> () {{ {open} {} }}", "}; ".repeat(depth))
    };
    check(&library(&nested(63)), "main", None).expect("63 in the one");
    expect!["error[OF0040]: / has 64 graphs within graphs; 63 is the most"]
        .assert_eq(&errors(&library(&nested(64))).to_string());
    expect!["error[OF0040]: / has 1000 graphs within graphs; 63 is the most"]
        .assert_eq(&errors(&library(&nested(1000))).to_string());
}

#[test]
fn a_graph_that_expands_beyond_the_limit_is_refused() {
    let mut text = String::from("flow main() -> () { a: call f0; }");
    for at in 0..40 {
        text += &format!(" flow f{at}() -> () {{ a: call f{}; b: call f{}; }}", at + 1, at + 1);
    }
    text += " flow f40() -> () { t: task t() -> (); }";
    expect!["error[OF0040]: / has 3298534883327 modules (all calls expanded); 1000000 is the most"]
        .assert_eq(&errors(&library(&text)).to_string());
    let mut text = String::from("flow main() -> () { a: call f0; }");
    for at in 0..80 {
        text += &format!(" flow f{at}() -> () {{ a: call f{}; }}", at + 1);
    }
    text += " flow f80() -> () { t: task t() -> (); }";
    expect!["error[OF0040]: / has 82 graphs within graphs (calls included); 64 is the most"]
        .assert_eq(&errors(&library(&text)).to_string());
}
