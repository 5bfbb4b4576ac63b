//! The builder makes of typed Rust exactly the graphs that one would draw.

use crate::support;

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
async fn notify(_text: String) {
    tokio::task::yield_now().await;
}

#[test]
fn an_each_feeds_a_sum() {
    let flow = Flow::new("word-count", ["texts"], ["total"], |f, texts: Port<Vec<String>>| {
        let counts = f.at_most(8).each(texts, |f, text| f.add(count(text)));
        f.named("total").add(sum(counts))
    });
    check(
        &flow,
        &expect![[r#"
        word-count(texts: list<text>) -> (total: int)
          each: each [item] at most 8 item=texts
            body(item: text) -> (value: int)
              count: task count text=item
              value <- count:value
          total: task sum numbers=each:value
          total <- total:value
    "#]],
    );
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
    check(
        &flow,
        &expect![[r#"
            constants(n: int) -> (all: int)
              add: task add a=n b=add_b:value
              add_b: constant int Inline("\x01")
              add_2: task add a=add:value b=add_2_b:value
              add_2_b: constant int Inline("\x02")
              constant: constant list<int> List([Some(Inline("\x07")), Some(Inline("\xcd\x01,"))])
              more: task sum numbers=constant:value
              count: task count text=count_text:value
              count_text: constant text Inline("\xb1three plain words")
              add_3: task add a=more:value b=count:value
              add_4: task add a=add_2:value b=add_3:value
              all <- add_4:value
        "#]],
    );
}

#[test]
fn an_optional_input_takes_a_value_an_option_or_nothing() {
    let flow =
        Flow::new("greetings", ["name", "title"], [], |f, (name, title): (Port<String>, Port<Option<String>>)| {
            f.add(greet(name, None));
            f.add(greet(name, title));
            f.add(greet(name, name));
            f.add(greet(name, "Dr. "));
            f.add(greet("you", String::from("Dr. ")));
            f.add(greet(name, Some("Dr. ".to_owned())));
        });
    check(
        &flow,
        &expect![[r#"
            greetings(name: text, title: option<text>) -> ()
              greet: task greet name=name
              greet_2: task greet name=name title=title
              greet_3: task greet name=name title=name
              greet_4: task greet name=name title=greet_4_title:value
              greet_4_title: constant text Inline("\xa4Dr. ")
              greet_5: task greet name=greet_5_name:value title=greet_5_title:value
              greet_5_name: constant text Inline("\xa3you")
              greet_5_title: constant text Inline("\xa4Dr. ")
              greet_6: task greet name=name title=greet_6_title:value
              greet_6_title: constant option<text> Inline("\xa4Dr. ")
        "#]],
    );
}

#[test]
fn several_outputs_and_none_are_tuples_and_unit() {
    let flow = Flow::new("outputs", ["text"], ["lines", "words", "told"], |f, text: Port<String>| {
        let (words, lines) = f.add(measure(text));
        let told: Port<()> = f.add(notify(text));
        (lines, words, told)
    });
    check(
        &flow,
        &expect![[r#"
            outputs(text: text) -> (lines: int, words: int, told: unit)
              measure: task measure text=text
              notify: task notify text=text
              lines <- measure:lines
              words <- measure:words
              told <- notify:done
        "#]],
    );
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
    check(
        &flow,
        &expect![[r#"
            capture(rows: list<list<int>>, offset: int, limit: int) -> (sums: list<list<int>>)
              measure: task measure text=measure_text:value
              measure_text: constant text Inline("\xa3a b")
              each: each [item] item=rows offset=offset measure_words=measure:words measure_lines=measure:lines limit=limit
                body(item: list<int>, offset: int, measure_words: int, measure_lines: int, limit: int) -> (value: list<int>)
                  sum: task sum numbers=item
                  each: each [item] item=item offset=offset measure_words=measure_words sum=sum:value measure_lines=measure_lines limit=limit
                    body(item: int, offset: int, measure_words: int, sum: int, measure_lines: int, limit: int) -> (value: int)
                      add: task add a=offset b=measure_words
                      inner: composite sum=sum add=add:value item=item measure_lines=measure_lines measure_words=measure_words offset=offset limit=limit
                        body(sum: int, add: int, item: int, measure_lines: int, measure_words: int, offset: int, limit: int) -> (value: int)
                          add: task add a=sum b=add
                          add_2: task add a=item b=measure_lines
                          add_3: task add a=measure_words b=offset
                          less: task less a=add:value than=limit
                          add_4: task add a=add_2:value b=add_3:value
                          value <- add_4:value
                      value <- inner:value
                  value <- each:value
              sums <- each:value
        "#]],
    );
}

#[test]
fn lists_are_gone_through_together_and_results_come_apart() {
    #[flow(outputs(sums, outer, words))]
    fn zip(
        f: &mut Builder,
        a: Port<Vec<u64>>,
        b: Port<Vec<u64>>,
        texts: Port<Vec<String>>,
    ) -> (Port<Vec<u64>>, Port<Vec<u64>>, Port<Vec<u64>>) {
        let total = f.add(sum(a));
        f.named("rows").each((a, b, texts), |f, (a, b, text)| {
            let (words, _) = f.add(measure(text));
            (f.add(add(a, b)), total, words)
        })
    }
    check(
        &zip::flow(),
        &expect![[r#"
        zip(a: list<int>, b: list<int>, texts: list<text>) -> (sums: list<int>, outer: list<int>, words: list<int>)
          sum: task sum numbers=a
          rows: each [item_1 item_2 item_3] item_1=a item_2=b item_3=texts sum=sum:value
            body(item_1: int, item_2: int, item_3: text, sum: int) -> (value_1: int, value_2: int, value_3: int)
              measure: task measure text=item_3
              add: task add a=item_1 b=item_2
              value_1 <- add:value
              value_2 <- sum
              value_3 <- measure:words
          sums <- rows:value_1
          outer <- rows:value_2
          words <- rows:value_3
    "#]],
    );
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
    check(
        &flow,
        &expect![[r#"
            fibonacci(limit: int) -> (number: int)
              constant: constant int Inline("\x00")
              one: constant int Inline("\x01")
              repeat: loop [state_1->state_1 state_2->state_2] while again state_1=constant:value state_2=one:value limit=limit
                body(state_1: int, state_2: int, limit: int) -> (state_1: int, state_2: int, again: bool)
                  add: task add a=state_1 b=state_2
                  less: task less a=add:value than=limit
                  state_1 <- state_2
                  state_2 <- add:value
                  again <- less:value
              number <- repeat:state_2
        "#]],
    );
}

#[test]
fn the_arms_of_a_choice_share_its_inputs() {
    let flow = Flow::new("choice", ["n", "m"], ["chosen", "maybe"], |f, (n, m): (Port<u64>, Port<u64>)| {
        let (small, medium) = (f.add(less(n, 10)), f.add(less(n, 100)));
        let other = f.add(add(m, m));
        let chosen =
            f.named("size").when(small, |f| f.add(add(n, m))).or_when(medium, |f| f.add(add(m, other))).otherwise(
                |f| {
                    let again = f.when(small, |_| n).otherwise(|_| m);
                    f.add(add(again, other))
                },
            );
        let maybe = f.when(small, |f| f.add(add(chosen, n))).or_none();
        (chosen, maybe)
    });
    check(
        &flow,
        &expect![[r#"
            choice(n: int, m: int) -> (chosen: int, maybe: option<int>)
              less: task less a=n than=less_than:value
              less_than: constant int Inline("\n")
              less_2: task less a=n than=less_2_than:value
              less_2_than: constant int Inline("d")
              add: task add a=m b=m
              size: choice less=less:value n=n m=m less_2=less_2:value add=add:value
                less if less(n: int, m: int) -> (value: int)
                  add: task add a=n b=m
                  value <- add:value
                less_2 if less_2(m: int, add: int) -> (value: int)
                  add: task add a=m b=add
                  value <- add:value
                otherwise(less: bool, n: int, m: int, add: int) -> (value: int)
                  choice: choice less=less n=n m=m
                    less if less(n: int) -> (value: int)
                      value <- n
                    otherwise(m: int) -> (value: int)
                      value <- m
                  add: task add a=choice:value b=add
                  value <- add:value
              choice: choice less=less:value size=size:value n=n
                less if less(size: int, n: int) -> (value: int)
                  add: task add a=size b=n
                  value <- add:value
              chosen <- size:value
              maybe <- choice:value
        "#]],
    );
}

#[test]
fn an_attempt_gives_options_and_what_went_wrong() {
    let flow = Flow::new("attempts", ["text"], ["words", "why", "inner"], |f, text: Port<String>| {
        let ((words, _), why) = f.attempt(measure(text));
        let (inner, _) = f.attempt_composite("risky", |f| f.add(count(text)));
        (words, why, inner)
    });
    check(
        &flow,
        &expect![[r#"
        attempts(text: text) -> (words: option<int>, why: option<text>, inner: option<int>)
          measure: attempt task measure text=text
          risky: attempt composite text=text
            body(text: text) -> (value: int)
              count: task count text=text
              value <- count:value
          words <- measure:words
          why <- measure:error
          inner <- risky:value
    "#]],
    );
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
    check(
        &countdown::flow(),
        &expect![[r#"
            countdown(n: int, step: int) -> (zero: int)
              less: task less a=n than=less_than:value
              less_than: constant int Inline("\x01")
              choice: choice less=less:value n=n step=step
                less if less(n: int) -> (value: int)
                  value <- n
                otherwise(n: int, step: int) -> (value: int)
                  add: task add a=n b=step
                  countdown: call countdown n=add:value step=step
                  value <- countdown:zero
              zero <- choice:value
        "#]],
    );
    check(
        &both::flow(),
        &expect![[r#"
            both-ways() -> (down: int, text: text)
              countdown: call countdown n=countdown_n:value step=countdown_step:value
              countdown_n: constant int Inline("\x03")
              countdown_step: constant int Inline("\x01")
              hello: task greet name=hello_name:value
              hello_name: constant text Inline("\xa3you")
              down <- countdown:zero
              text <- hello:value
        "#]],
    );
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
    check(
        &closed,
        &expect![[r#"
            closed(n: int) -> (n: int, text: text)
              nothing: attempt call nothing
              both-ways: call both-ways
              countdown: call countdown n=n step=countdown_step:value
              countdown_step: constant int Inline("\x01")
              both-ways_2: call both-ways
              n <- countdown:zero
              text <- both-ways_2:text
        "#]],
    );
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
