//! Lists, loops, choices, attempts, nested parts, calls: what they give.

use super::support::{add, count_to, less, measure, shout, sum};
use onceflow::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Runs a flow in memory.
async fn run<I: onceflow::Ports, O: onceflow::Ports>(flow: &Flow<I, O>, inputs: I::Values) -> O::Values {
    let engine = Engine::in_memory();
    let result = engine.run(flow, inputs).await.unwrap_or_else(|error| panic!("{error}"));
    engine.close().await.unwrap();
    result
}

#[tokio::test]
async fn an_each_captures_what_is_outside_and_gives_results_in_order() {
    let flow = Flow::new(
        "captures",
        ["numbers", "offset"],
        ["moved", "total"],
        |f, (numbers, offset): (Port<Vec<u64>>, Port<u64>)| {
            let all = f.add(sum(numbers));
            let moved = f.at_most(3).each(numbers, |f, n| {
                let n = f.add(add(n, offset));
                f.add(add(n, all))
            });
            (moved, f.add(sum(moved)))
        },
    );
    assert_eq!(run(&flow, (vec![1, 2, 3], 10)).await, (vec![17, 18, 19], 54));
    assert_eq!(run(&flow, (vec![], 10)).await, (vec![], 0));
    let many: Vec<u64> = (0..300).collect();
    let total: u64 = many.iter().sum();
    assert_eq!(run(&flow, (many.clone(), 1)).await.0, many.iter().map(|n| n + 1 + total).collect::<Vec<_>>());
}

#[tokio::test]
async fn lists_are_gone_through_together() {
    let flow = Flow::new(
        "zip",
        ["a", "b", "texts"],
        ["sums", "words"],
        |f, (a, b, texts): (Port<Vec<u64>>, Port<Vec<u64>>, Port<Vec<String>>)| {
            f.each((a, b, texts), |f, (a, b, text)| {
                let (words, _) = f.add(measure(text));
                (f.add(add(a, b)), words)
            })
        },
    );
    let texts = ["one", "two words", ""].map(String::from).to_vec();
    assert_eq!(run(&flow, (vec![1, 2, 3], vec![10, 20, 30], texts)).await, (vec![11, 22, 33], vec![1, 2, 0]));
}

#[tokio::test]
async fn lists_of_different_lengths_fail_with_both_lengths() {
    let flow = Flow::new("uneven", ["a", "b"], ["sums"], |f, (a, b): (Port<Vec<u64>>, Port<Vec<u64>>)| {
        f.each((a, b), |f, (a, b)| f.add(add(a, b)))
    });
    let error = Engine::in_memory().run(&flow, (vec![1, 2, 3], vec![1])).await.unwrap_err().to_string();
    assert!(error.contains("/each") && error.contains('3') && error.contains('1'), "{error}");
}

#[tokio::test]
async fn an_each_in_an_each_gives_lists_of_lists() {
    let flow = Flow::new("triangle", ["n"], ["rows", "total"], |f, n: Port<u64>| {
        let numbers = f.add(count_to(n));
        let rows = f.each(numbers, |f, n| {
            let row = f.add(count_to(n));
            f.each(row, |f, m| f.add(add(n, m)))
        });
        let sums = f.each(rows, |f, row| f.add(sum(row)));
        (rows, f.add(sum(sums)))
    });
    let (rows, total) = run(&flow, 3).await;
    assert_eq!(rows, [vec![2], vec![3, 4], vec![4, 5, 6]]);
    assert_eq!(total, 24);
}

#[tokio::test]
async fn a_loop_runs_at_least_once_and_gives_its_last_state() {
    let flow =
        Flow::new("powers", ["start", "limit"], ["last", "rounds"], |f, (start, limit): (Port<u64>, Port<u64>)| {
            let zero = f.constant(0_u64);
            f.repeat((start, zero), |f, (n, rounds)| {
                let n = f.add(add(n, n));
                let again = f.add(less(n, limit));
                ((n, f.add(add(rounds, 1))), again)
            })
        });
    for (start, limit, expected) in [(1, 100, (128, 7)), (7, 0, (14, 1)), (1, 1 << 20, (1 << 20, 20))] {
        assert_eq!(run(&flow, (start, limit)).await, expected);
    }
}

#[tokio::test]
async fn a_choice_takes_the_first_arm_that_holds() {
    let flow = Flow::new("choice", ["n"], ["size", "small"], |f, n: Port<u64>| {
        let (small, medium) = (f.add(less(n, 10)), f.add(less(n, 100)));
        let size = f
            .when(small, |f| f.constant(String::from("small")))
            .or_when(medium, |f| f.add(shout("medium")))
            .otherwise(|f| f.constant(String::from("large")));
        let maybe = f.when(small, |f| f.add(add(n, n))).or_none();
        (size, maybe)
    });
    for (n, size, small) in [(5, "small", Some(10)), (50, "MEDIUM", None), (500, "large", None)] {
        assert_eq!(run(&flow, n).await, (String::from(size), small));
    }
}

#[task]
fn parse(text: String) -> Result<u64, std::num::ParseIntError> {
    text.parse()
}

#[task(effect = pure)]
fn or_else(n: Option<u64>, error: Option<String>) -> String {
    match (n, error) {
        (Some(n), None) => n.to_string(),
        (None, Some(error)) => error,
        both => format!("neither or both: {both:?}"),
    }
}

#[tokio::test]
async fn an_attempt_gives_what_came_or_what_went_wrong() {
    let flow = Flow::new("attempt", ["texts"], ["told", "nested"], |f, texts: Port<Vec<String>>| {
        let told = f.each(texts, |f, text| {
            let (n, error) = f.attempt(parse(text));
            f.add(or_else(n, error))
        });
        let nested = f.each(texts, |f, text| {
            let (n, error) = f.attempt_composite("parts", |f| {
                let n = f.add(parse(text));
                f.add(add(n, 1))
            });
            f.add(or_else(n, error))
        });
        (told, nested)
    });
    let (told, nested) = run(&flow, vec!["7".into(), "x".into()]).await;
    assert_eq!((&*told[0], &*nested[0]), ("7", "8"));
    assert_eq!(told[1], "/each[1]/parse: invalid digit found in string");
    assert!(nested[1].contains("/parts/parse: invalid digit"), "{}", nested[1]);
}

#[tokio::test]
async fn composites_cost_nothing_and_give_what_is_in_them() {
    let flow = Flow::new("nested", ["n"], ["a", "b"], |f, n: Port<u64>| {
        f.composite("outer", |f| {
            let twice = f.composite("inner", |f| f.add(add(n, n)));
            (f.add(add(twice, n)), twice)
        })
    });
    assert_eq!(run(&flow, 5).await, (15, 10));
}

#[flow(outputs(result))]
fn sum_to(f: &mut Builder, n: Port<u64>, so_far: Port<u64>) -> Port<u64> {
    let done = f.add(less(n, 1));
    f.when(done, |_| so_far).otherwise(|f| {
        let so_far = f.add(add(so_far, n));
        let n = f.add(minus_one(n));
        f.add(sum_to(n, so_far))
    })
}

#[task(effect = pure)]
fn minus_one(n: u64) -> u64 {
    n - 1
}

#[tokio::test]
async fn flows_call_others_and_themselves() {
    assert_eq!(run(&sum_to::flow(), (20, 0)).await, 210);
    let closed = sum_to::flow();
    let flow = Flow::new("calls", ["numbers"], ["sums"], |f, numbers: Port<Vec<u64>>| {
        f.each(numbers, |f, n| f.add(closed.call((n, 0))))
    });
    assert_eq!(run(&flow, vec![0, 1, 2, 3]).await, [0, 1, 3, 6]);
}

#[task(effect = pure)]
fn greet(name: String, title: Option<String>) -> String {
    format!("{}{name}", title.unwrap_or_default())
}

#[tokio::test]
async fn options_travel_as_options() {
    let flow = Flow::new("greet", ["name", "title"], ["greeting", "title"], |f, (name, title): (Port<String>, _)| {
        let title: Port<Option<String>> = title;
        (f.add(greet(name, title)), title)
    });
    let dr = Some(String::from("Dr. "));
    assert_eq!(run(&flow, ("Who".into(), dr.clone())).await, ("Dr. Who".into(), dr));
    assert_eq!(run(&flow, ("Who".into(), None)).await, ("Who".into(), None));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Order {
    id: String,
    items: Vec<Item>,
    notes: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
enum Item {
    Book { pages: u32 },
    Pen,
}

#[task(effect = pure)]
fn pack(order: Order) -> Order {
    let mut order = order;
    order.notes.insert("packed".into(), format!("{} items", order.items.len()));
    order
}

#[tokio::test]
async fn structs_and_enums_travel_whole_small_or_large() {
    let flow = Flow::new("pack", ["order"], ["packed"], |f, order: Port<Order>| f.add(pack(order)));
    for pages in [1, 50_000] {
        let items = (0..pages).map(|pages| if pages % 2 == 0 { Item::Book { pages } } else { Item::Pen });
        let order = Order { id: "17".into(), items: items.collect(), notes: BTreeMap::new() };
        let packed = run(&flow, order.clone()).await;
        assert_eq!((packed.items == order.items, packed.notes["packed"].clone()), (true, format!("{pages} items")));
    }
}

#[tokio::test]
async fn a_flow_without_inputs_and_one_without_outputs_run() {
    let constant = Flow::new("constant", [], ["n"], |f, (): ()| f.add(add(1, 2)));
    assert_eq!(run(&constant, ()).await, 3);
    let silent = Flow::new("silent", ["n"], [], |f, n: Port<u64>| {
        f.add(add(n, 2));
    });
    run(&silent, 1).await;
}

#[tokio::test]
async fn a_struct_of_ports_is_what_a_flow_takes_and_gives() {
    #[derive(Clone, Copy, Ports)]
    struct Parts {
        n: Port<u64>,
        text: Port<String>,
    }
    #[derive(Clone, Copy, Ports)]
    #[ports(derive(Debug, PartialEq, Clone))]
    struct Made {
        sums: Port<Vec<u64>>,
        loud: Port<String>,
        letters: Port<Option<u64>>,
    }
    #[flow]
    fn make(f: &mut Builder, parts: Parts) -> Made {
        let numbers = f.add(count_to(parts.n));
        // A struct comes out of an each as a struct of lists, which another each goes over.
        let pairs = f.each(numbers, |f, n| Parts { n: f.add(add(n, parts.n)), text: parts.text });
        let sums = f.each(pairs, |f, pair| f.add(add(pair.n, 1)));
        let some = f.add(less(0, parts.n));
        let letters = f.when(some, |f| f.add(measure(parts.text)).1).or_none();
        Made { sums, loud: f.add(shout(parts.text)), letters }
    }
    let flow = make::flow();
    let names: Vec<_> = flow.graph().outputs.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["sums", "loud", "letters"]);
    let engine = Engine::in_memory();
    let made = MadeValues { sums: vec![4, 5], loud: "A B".into(), letters: Some(2) };
    assert_eq!(engine.run(&flow, PartsValues { n: 2, text: "a b".into() }).await.unwrap(), made);
    let run = engine.start(&flow, PartsValues { n: 2, text: "a b".into() }).await.unwrap();
    assert_eq!(run.output(&flow.outputs().loud).await.unwrap(), "A B");
    assert_eq!((flow.inputs().n.name(), flow.inputs().text.name()), ("n", "text"));
    // Called from another flow, which names what it takes and gives by the fields.
    let outer = Flow::new("outer", ["n"], onceflow::port::FieldNames, |f, n: Port<u64>| {
        f.add(make(Parts { n, text: f.constant(String::from("a b")) }))
    });
    assert_eq!(engine.run(&outer, 2).await.unwrap(), made);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_tuple_has_up_to_sixteen_ports() {
    #[task(outputs(a, b, c, d, e, f, g, h))]
    fn eight(n: u64) -> (u64, u64, u64, u64, u64, u64, u64, u64) {
        (n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7)
    }
    const NAMES: [&str; 16] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    let flow = Flow::new("many", ["n", "m"], NAMES, |f, (n, m): (Port<u64>, Port<u64>)| {
        let (a, b, c, d, e, g, h, i) = f.add(eight(n));
        let (j, k, l, m, n, o, p, q) = f.add(eight(m));
        (a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q)
    });
    let engine = Engine::in_memory();
    let all = engine.run(&flow, (0, 100)).await.unwrap();
    assert_eq!((all.0, all.7, all.8, all.15), (0, 7, 100, 107));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn how_many_modules_a_graph_may_have_is_a_setting_that_its_error_names() {
    let flow = Flow::new("wide", ["n"], ["n"], |f, n: Port<u64>| (0..20).fold(n, |n, _| f.add(add(n, 1))));
    let engine = Engine::builder().graph_modules_max(39).in_memory();
    let error = engine.run(&flow, 1).await.unwrap_err().to_string();
    assert!(error.contains("40 modules") && error.contains("graph_modules_max"), "{error}");
    engine.close().await.unwrap();
    let engine = Engine::builder().graph_modules_max(40).in_memory();
    assert_eq!(engine.run(&flow, 1).await.unwrap(), 21);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_flow_is_checked_once_however_often_it_is_started() {
    let flow = Flow::new("twice", ["n"], ["n", "m"], |f, n: Port<u64>| (f.add(add(n, 1)), f.add(add(n, 2))));
    let checked = flow.check().unwrap();
    let engine = Engine::in_memory();
    for n in 0..3 {
        assert_eq!(engine.run(&flow.clone(), n).await.unwrap(), (n + 1, n + 2));
        let (first, _) = flow.outputs();
        let run = engine.start(&flow, n).only(&first).await.unwrap();
        assert_eq!(run.output(&first).await.unwrap(), n + 1);
    }
    assert!(std::ptr::eq(&**checked.program(), &**flow.check().unwrap().program()), "it was checked again");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_flow_with_mistakes_reports_them_without_an_engine() {
    let flow = Flow::new("a b", ["n"], ["n"], |f, n: Port<u64>| f.add(add(n, 1)));
    let errors = flow.check().expect_err("`a b` is no name");
    let engine = Engine::in_memory();
    let error = engine.run(&flow, 1).await.unwrap_err().to_string();
    assert!(error.contains(&errors.to_string()), "{error}");
    engine.close().await.unwrap();
}
