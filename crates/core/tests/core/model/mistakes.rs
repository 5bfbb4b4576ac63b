//! Every mistake in a graph is reported: the mistake, its address, and a hint.

use super::notation::library;
use expect_test::{Expect, expect};
use onceflow_core::model::check;

pub(crate) fn check_mistakes(text: &str, expected: Expect) {
    expected.assert_eq(&check(&library(text), "main", None).expect_err("a mistake").to_string());
}

fn check_requested(text: &str, requested: &[&str], expected: Expect) {
    let requested: Vec<_> = requested.iter().map(|name| (*name).to_owned()).collect();
    expected.assert_eq(&check(&library(text), "main", Some(&requested)).expect_err("a mistake").to_string());
}

#[test]
fn a_port_takes_only_its_type() {
    check_mistakes(
        "flow main(x: text) -> (p: int) { a: task t(i: int) -> (o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
        error[OF0012]: port `i` of /a takes int, but /:x gives text
          --> test.flow:1:65"#]],
    );
}

#[test]
fn a_list_is_not_an_element() {
    check_mistakes(
        "flow main(x: list<int>) -> (p: int) { a: task t(i: int) -> (o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
            error[OF0012]: port `i` of /a takes int, but /:x gives list<int>
              --> test.flow:1:70
            hint: use an each over /:x, to do this for every element"#]],
    );
}

#[test]
fn an_element_is_not_a_list() {
    check_mistakes(
        "flow main(x: file) -> (p: int) { align: task t(reads: list<file>) -> (o: int); x -> align.reads; align.o -> p; }",
        expect![[r#"
            error[OF0012]: port `reads` of /align takes list<file>, but /:x gives file
              --> test.flow:1:80
            hint: it takes a list: gather them with an each"#]],
    );
}

#[test]
fn an_option_is_not_a_value() {
    check_mistakes(
        "flow main(x: option<int>) -> (p: int) { a: task t(i: int) -> (o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
            error[OF0012]: port `i` of /a takes int, but /:x gives option<int>
              --> test.flow:1:72
            hint: it may be none: take an option, or put it into an arm of a choice"#]],
    );
}

#[test]
fn an_output_of_the_flow_has_a_type_too() {
    check_mistakes(
        "flow main(x: text) -> (p: int) { x -> p; }",
        expect![[r#"
        error[OF0012]: port `p` of / takes int, but /:x gives text
          --> test.flow:1:34"#]],
    );
}

#[test]
fn an_input_is_connected() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: task t(i: int, k: int, m: option<int>) -> (o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
            error[OF0017]: nothing is connected to input `k` of /a
              --> test.flow:1:33
            hint: it takes int"#]],
    );
}

#[test]
fn an_output_is_given() {
    check_mistakes(
        "flow main(x: int) -> (p: int, q: int) { x -> p; }",
        expect!["error[OF0018]: nothing gives output `q` of /"],
    );
}

#[test]
fn an_output_that_was_asked_for_is_given() {
    check_requested(
        "flow main(x: int) -> (p: int, q: int, r: int) { x -> p; }",
        &["p", "q"],
        expect!["error[OF0018]: nothing gives output `q` of /"],
    );
}

#[test]
fn requested_outputs_must_exist() {
    check_requested(
        "flow main(x: int) -> (result: int) { x -> result; }",
        &["resutl"],
        expect![[r#"
        error[OF0016]: the flow has no output `resutl` to ask for
        hint: did you mean `result`?"#]],
    );
}

#[test]
fn a_port_has_one_source() {
    check_mistakes(
        "flow main(x: int, y: int) -> (p: int) { a: task t(i: int) -> (o: int); x -> a.i; y -> a.i; a.o -> p; x -> p; }",
        expect![[r#"
            error[OF0019]: more than one connection leads to port `i` of /a
              --> test.flow:1:82
            error[OF0019]: more than one connection leads to port `p` of /
              --> test.flow:1:102"#]],
    );
}

#[test]
fn modules_do_not_wait_for_each_other() {
    check_mistakes(
        "flow main(x: int) -> (p: int) {
           a: task t(i: int, k: int) -> (o: int); b: task t(i: int) -> (o: int); c: task t(i: int) -> (o: int);
           x -> a.i; a.o -> b.i; b.o -> c.i; c.o -> a.k; c.o -> p;
         }",
        expect![[r#"
            error[OF0020]: these wait for each other for ever: /a -> /b -> /c -> /a
              --> test.flow:2:12
            hint: what goes round is a loop, with carried ports"#]],
    );
}

#[test]
fn a_module_does_not_wait_for_itself() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: task t(i: int) -> (o: int); a.o -> a.i; x -> p; }",
        expect![[r#"
        error[OF0020]: these wait for each other for ever: /a -> /a
          --> test.flow:1:33
        hint: what goes round is a loop, with carried ports"#]],
    );
}

#[test]
fn two_cycles_are_two_mistakes() {
    check_mistakes(
        "flow main() -> () { a: task t(i: int) -> (o: int); b: task t(i: int) -> (o: int); c: task t(i: int) -> (o: int); a.o -> b.i; b.o -> a.i; c.o -> c.i; }",
        expect![[r#"
            error[OF0020]: these wait for each other for ever: /a -> /b -> /a
              --> test.flow:1:21
            hint: what goes round is a loop, with carried ports
            error[OF0020]: these wait for each other for ever: /c -> /c
              --> test.flow:1:83
            hint: what goes round is a loop, with carried ports"#]],
    );
}

#[test]
fn a_module_that_is_named_is_there() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { align: task t(i: int) -> (o: int); x -> algin.i; x -> align.i; align.o -> p; }",
        expect![[r#"
            error[OF0014]: there is no module `algin` in /
              --> test.flow:1:68
            hint: did you mean `align`?"#]],
    );
}

#[test]
fn a_port_that_is_named_is_there() {
    check_mistakes(
        "flow main(reads: int) -> (p: int) { a: task t(input: int) -> (output: int); reads -> a.inptu; raeds -> a.input; a.outptu -> p; }",
        expect![[r#"
            error[OF0015]: /a has no input `inptu`
              --> test.flow:1:77
            hint: did you mean `input`?
            error[OF0015]: / has no input `raeds`
              --> test.flow:1:95
            hint: did you mean `reads`?
            error[OF0015]: /a has no output `outptu`
              --> test.flow:1:113
            hint: did you mean `output`?"#]],
    );
}

#[test]
fn connections_have_a_direction() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: task t(i: int) -> (o: int); x -> a.o; a.i -> p; p -> x; }",
        expect![[r#"
            error[OF0015]: /a has no input `o`
              --> test.flow:1:64
            hint: a connection leads to an output of the flow, or an input of a module
            error[OF0015]: /a has no output `i`
              --> test.flow:1:74
            hint: a connection leads from an input of the flow, or an output of a module
            error[OF0015]: / has no input `p`
              --> test.flow:1:84
            hint: a connection leads from an input of the flow, or an output of a module
            error[OF0015]: / has no output `x`
              --> test.flow:1:84
            hint: a connection leads to an output of the flow, or an input of a module
            error[OF0017]: nothing is connected to input `i` of /a
              --> test.flow:1:33
            hint: it takes int"#]],
    );
}

#[test]
fn a_flow_that_is_called_is_there() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: call hepler; x -> a.x; a.p -> p; } flow helper(x: int) -> (p: int) { x -> p; }",
        expect![[r#"
            error[OF0010]: there is no flow `hepler`
              --> test.flow:1:33
            hint: did you mean `helper`?"#]],
    );
}

#[test]
fn module_names_are_unique() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: task t(i: int) -> (o: int); a: task t(i: int) -> (o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
            error[OF0013]: / has more than one module `a`
              --> test.flow:1:64"#]],
    );
}

#[test]
fn port_names_are_unique() {
    check_mistakes(
        "flow main(x: int, x: text) -> (p: int) { a: task t(i: int, i: int) -> (o: int, o: int); x -> a.i; a.o -> p; }",
        expect![[r#"
            error[OF0013]: / has more than one input `x`
            error[OF0013]: /a has more than one input `i`
              --> test.flow:1:42
            error[OF0013]: /a has more than one output `o`
              --> test.flow:1:42"#]],
    );
}

#[test]
fn names_are_plain() {
    check_mistakes(
        "flow main(`x y`: int) -> (p: int) { `a/b`: task t(i: int) -> (`o:1`: int); `x y` -> `a/b`.i; `a/b`.`o:1` -> p; }",
        expect![[r#"
            error[OF0011]: `x y` cannot be the name of an input
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them
            error[OF0011]: `a/b` cannot be the name of a module
              --> test.flow:1:37
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them
            error[OF0011]: `o:1` cannot be the name of an output
              --> test.flow:1:37
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them"#]],
    );
}

#[test]
fn a_name_is_not_empty() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { ``: task t(i: int) -> (o: int); x -> ``.i; ``.o -> p; }",
        expect![[r#"
            error[OF0011]: `` cannot be the name of a module
              --> test.flow:1:33
            hint: a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them"#]],
    );
}

#[test]
fn everything_wrong_is_said_at_once() {
    check_mistakes(
        "flow main(x: text, xs: list<int>) -> (p: int, q: int, r: list<int>) {
           a: task t(i: int) -> (o: int);
           b: task t(i: int) -> (o: int);
           c: graph (x: int) -> (y: text) { d: task t(i: int) -> (o: int); e: task t(i: int) -> (o: int); x -> d.i; d.o -> y; };
           f: each y (x: int) -> (z: int) { x -> z; };
           x -> a.i; a.o -> b.i; c.y -> p; b.o -> nobody.i; xs -> f.x; f.z -> r;
         }",
        expect![[r#"
            error[OF0012]: port `i` of /a takes int, but /:x gives text
              --> test.flow:6:12
            error[OF0012]: port `p` of / takes int, but /c:y gives text
              --> test.flow:6:34
            error[OF0014]: there is no module `nobody` in /
              --> test.flow:6:44
            hint: there is `a`, `b`, `c`, `f`
            error[OF0012]: port `x` of /f takes int, but /:xs gives list<int>
              --> test.flow:6:61
            hint: use an each over /:xs, to do this for every element
            error[OF0017]: nothing is connected to input `x` of /c
              --> test.flow:4:12
            hint: it takes int
            error[OF0018]: nothing gives output `q` of /
            error[OF0012]: port `y` of /c takes text, but /c/d:o gives int
              --> test.flow:4:117
            error[OF0017]: nothing is connected to input `i` of /c/e
              --> test.flow:4:76
            hint: it takes int
            error[OF0028]: each /f goes over `y`, but its body has no such input
              --> test.flow:5:12
            hint: there is `x`"#]],
    );
}

#[test]
fn a_mistake_in_a_called_flow_is_said_once() {
    check_mistakes(
        "flow main(x: int) -> (p: int) { a: call f; b: call f; x -> a.x; a.p -> b.x; b.p -> p; }
         flow f(x: int) -> (p: int) { t: task t(i: text) -> (o: int); x -> t.i; t.o -> p; }",
        expect![[r#"
            error[OF0012]: port `i` of /a/t takes text, but /a:x gives int
              --> test.flow:2:71"#]],
    );
}
