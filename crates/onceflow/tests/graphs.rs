//! What the builder makes of typed Rust: exactly the graphs that one would draw.

mod support;

use expect_test::{Expect, expect};
use onceflow::prelude::*;
use support::render;

fn check<I: onceflow::Ports, O: onceflow::Ports>(flow: &Flow<I, O>, wanted: &Expect) {
    wanted.assert_eq(&render(flow));
}

#[task(effect = pure)]
fn count(text: String) -> u64 {
    text.split_whitespace().count() as u64
}

#[task(effect = pure)]
fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

#[task(effect = pure)]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[task(effect = pure)]
fn less(a: u64, than: u64) -> bool {
    a < than
}

#[task(outputs(words, lines))]
fn measure(text: String) -> (u64, u64) {
    (text.split_whitespace().count() as u64, text.lines().count() as u64)
}

#[task]
fn greet(name: String, title: Option<String>) -> String {
    format!("{}{name}", title.unwrap_or_default())
}

#[task]
async fn notify(_text: String) {}

#[test]
fn an_each_feeds_a_sum() {
    let flow = Flow::new("word-count", ["texts"], ["total"], |f, texts: Port<Vec<String>>| {
        let counts = f.at_most(8).each(texts, |f, text| f.add(count(text)));
        f.named("total").add(sum(counts))
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn plain_values_become_constants_and_names_are_unique() {
    let flow = Flow::new("constants", ["n"], ["all"], |f, n: Port<u64>| {
        let one = f.add(add(n, 1));
        let two = f.add(add(one, 2));
        let shared = f.constant(vec![7_u64, 300]);
        let more = f.named("more").add(sum(shared));
        let text = f.add(count("three plain words"));
        let three = f.add(add(more, text));
        f.add(add(two, three))
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn an_optional_input_takes_a_value_an_option_or_nothing() {
    let flow = Flow::new("greetings", ["name", "title"], [], |f, (name, title): (Port<String>, Port<Option<String>>)| {
        f.add(greet(name, None));
        f.add(greet(name, title));
        f.add(greet(name, name));
        f.add(greet(name, "Dr. "));
        f.add(greet("you", String::from("Dr. ")));
        f.add(greet(name, Some("Dr. ".to_owned())));
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn several_outputs_and_none_are_tuples_and_unit() {
    let flow = Flow::new("outputs", ["text"], ["lines", "words", "told"], |f, text: Port<String>| {
        let (words, lines) = f.add(measure(text));
        let told: Port<()> = f.add(notify(text));
        (lines, words, told)
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn a_port_from_further_out_becomes_an_input_of_every_graph_between() {
    let flow = Flow::new(
        "capture",
        ["rows", "offset", "limit"],
        ["sums"],
        |f, (rows, offset, limit): (Port<Vec<Vec<u64>>>, Port<u64>, Port<u64>)| {
            let (words, lines) = f.add(measure("a b"));
            f.each(rows, |f, row| {
                let total = f.add(sum(row));
                f.each(row, |f, item| {
                    let both = f.add(add(offset, words));
                    f.composite("inner", |f| {
                        let (x, y) = (f.add(add(total, both)), f.add(add(item, lines)));
                        let z = f.add(add(words, offset));
                        f.add(less(x, limit));
                        f.add(add(y, z))
                    })
                })
            })
        },
    );
    check(&flow, &expect![[""]]);
}

#[test]
fn lists_are_gone_through_together_and_results_come_apart() {
    let flow = Flow::new(
        "zip",
        ["a", "b", "texts"],
        ["sums", "outer", "words"],
        |f, (a, b, texts): (Port<Vec<u64>>, Port<Vec<u64>>, Port<Vec<String>>)| {
            let total = f.add(sum(a));
            f.named("rows").each((a, b, texts), |f, (a, b, text)| {
                let (words, _) = f.add(measure(text));
                (f.add(add(a, b)), total, words)
            })
        },
    );
    check(&flow, &expect![[""]]);
}

#[test]
fn a_loop_carries_its_state() {
    let flow = Flow::new("fibonacci", ["limit"], ["number"], |f, limit: Port<u64>| {
        let (zero, one) = (f.constant(0), f.named("one").constant(1));
        let (_, last) = f.repeat((zero, one), |f, (a, b)| {
            let next = f.add(add(a, b));
            ((b, next), f.add(less(next, limit)))
        });
        last
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn the_arms_of_a_choice_share_its_inputs() {
    let flow = Flow::new("choice", ["n", "m"], ["chosen", "maybe"], |f, (n, m): (Port<u64>, Port<u64>)| {
        let (small, medium) = (f.add(less(n, 10)), f.add(less(n, 100)));
        let other = f.add(add(m, m));
        let chosen = f
            .named("size")
            .when(small, |f| f.add(add(n, m)))
            .or_when(medium, |f| f.add(add(m, other)))
            .otherwise(|f| {
                let again = f.when(small, |_| n).otherwise(|_| m);
                f.add(add(again, other))
            });
        let maybe = f.when(small, |f| f.add(add(chosen, n))).or_none();
        (chosen, maybe)
    });
    check(&flow, &expect![[""]]);
}

#[test]
fn an_attempt_gives_options_and_what_went_wrong() {
    let flow = Flow::new("attempts", ["text"], ["words", "why", "inner"], |f, text: Port<String>| {
        let ((words, _), why) = f.attempt(measure(text));
        let (inner, _) = f.attempt_composite("risky", |f| f.add(count(text)));
        (words, why, inner)
    });
    check(&flow, &expect![[""]]);
}

#[flow(outputs(zero))]
fn countdown(f: &mut Builder, n: Port<u64>, step: Port<u64>) -> Port<u64> {
    let done = f.add(less(n, 1));
    f.when(done, |_| n).otherwise(|f| {
        let next = f.add(add(n, step));
        f.add(countdown(next, step))
    })
}

#[flow(name = "both-ways", outputs(down, text))]
fn both(f: &mut Builder) -> (Port<u64>, Port<String>) {
    let down = f.add(countdown(3, 1));
    let text = f.named("hello").add(greet("you", None));
    (down, text)
}

#[flow]
fn nothing(_f: &mut Builder) {}

#[test]
fn flows_call_others_and_themselves() {
    check(&countdown::flow(), &expect![[""]]);
    check(&both::flow(), &expect![[""]]);
    let library = both::flow().library();
    assert_eq!(library.flows.keys().collect::<Vec<_>>(), ["both-ways", "countdown"]);
    let closed = Flow::new("closed", ["n"], ["n", "text"], |f, n: Port<u64>| {
        let both = both::flow();
        f.attempt(nothing());
        f.add(both.call(()));
        let down = f.add(countdown::flow().call((n, 1)));
        let (_, text) = f.add(both.call(()));
        (down, text)
    });
    check(&closed, &expect![[""]]);
    assert_eq!(closed.library().flows.keys().collect::<Vec<_>>(), ["both-ways", "closed", "countdown", "nothing"]);
    for task in ["less", "add", "greet"] {
        assert!(closed.tasks().get(task).is_some(), "{task}");
    }
    assert!(closed.tasks().get("sum").is_none());
}

#[test]
fn flows_that_call_each_other_by_name_are_put_together() {
    let odd = FlowRef::<Port<u64>, Port<bool>>::new("odd", ["n"], ["is"]);
    let even = Flow::new("even", ["n"], ["is"], |f, n: Port<u64>| f.add(odd.call(n)));
    let even_ref = FlowRef::<Port<u64>, Port<bool>>::new("even", ["n"], ["is"]);
    let odd = Flow::new("odd", ["n"], ["is"], |f, n: Port<u64>| f.add(even_ref.call(n)));
    let both = even.with(&odd);
    assert_eq!(both.library().flows.keys().collect::<Vec<_>>(), ["even", "odd"]);
    assert_eq!(both.name(), "even");
}
