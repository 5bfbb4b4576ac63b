//! The behaviour of started tasks, and the kernel's descriptions of them.

use crate::support;

use expect_test::expect;
use onceflow::{
    model::{Effect, Port as ModelPort, ResourceRequest, Retry, TaskSpec, Type},
    prelude::*,
    task::{Attempt, Data, Failure},
};
use serde::{Deserialize, Serialize};
use std::fmt;
use support::attempt;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Order {
    id: String,
    cents: u64,
}

/// An error of one's own, with a cause.
#[derive(Debug)]
struct PaymentError(std::num::ParseIntError);

impl fmt::Display for PaymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("payment refused")
    }
}

impl std::error::Error for PaymentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[task(
    name = "charge-card",
    version = "2",
    effect = at_most_once,
    retry(attempts = 3, backoff = "2m"),
    timeout = "1m30s",
    class = "payments",
    cpus = 0.5,
    memory = "2GB",
    undo = refund,
    outputs(receipt, order)
)]
async fn charge(step: &Step, order: Order, note: Option<String>) -> Result<(String, Order), PaymentError> {
    tokio::task::yield_now().await;
    let _: u64 = order.id.parse().map_err(PaymentError)?;
    Ok((format!("{} {} {} {note:?}", step.key(), step.address(), step.attempt()), order))
}

#[task]
fn refund(_order: Order, _note: Option<String>) {}

#[task(retry(attempts = 4, backoff = "1s", backoff_max = "10s"), depends(sum = [a, b], first = [a]), outputs(first, sum, all))]
fn split(step: Step, a: u64, b: u64, c: u64) -> (u64, u64, Vec<u64>) {
    assert_eq!(step.attempt(), 2);
    (a, a + b, vec![a, b, c])
}

#[task(effect = pure, inline)]
fn double(n: u64) -> u64 {
    n * 2
}

#[task]
fn parse(text: String) -> Result<u64, anyhow::Error> {
    use anyhow::Context as _;
    let number = text.parse().map_err(fatal).with_context(|| format!("cannot read {text:?}"))?;
    Ok(number)
}

#[task]
async fn nap() -> Result<(), &'static str> {
    tokio::task::yield_now().await;
    Err("not tired")
}

#[task(effect = transactional)]
async fn write_row(_tx: Tx, step: &Step, n: u64) -> u64 {
    tokio::task::yield_now().await;
    n + u64::from(step.attempt())
}

fn all() -> Flow<Port<Order>, ()> {
    Flow::new("all", ["order"], [], |f, order: Port<Order>| {
        f.add(charge(order, None));
        let (first, _, _) = f.add(split(1, 2, 3));
        f.add(double(first));
        f.add(parse("7"));
        f.add(nap());
        f.add(write_row(1));
    })
}

fn order(id: &str) -> Order {
    Order { id: id.into(), cents: 250 }
}

async fn run(task: &str, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    attempt(&all(), task, inputs).await
}

#[test]
fn everything_that_is_said_about_a_task_reaches_the_kernel() {
    let order = || Type::Record([("cents".into(), Type::Int), ("id".into(), Type::Text)].into());
    let wanted = TaskSpec {
        name: "charge-card".into(),
        version: "2".into(),
        inputs: vec![ModelPort::new("order", order()), ModelPort::new("note", Type::option(Type::Text))],
        outputs: vec![ModelPort::new("receipt", Type::Text), ModelPort::new("order", order())],
        depends: None,
        effect: Effect::AtMostOnce,
        retry: Retry { attempts: 3, backoff_ms: 120_000, backoff_ms_max: 120_000 },
        timeout_ms: Some(90_000),
        class: "payments".into(),
        resources: ResourceRequest { cpu_milli: 500, memory_bytes: 2_000_000_000 },
        compensation: Some(Box::new(refund::spec())),
        params: vec![],
    };
    assert_eq!(charge::spec(), wanted);
    assert_eq!(split::spec().retry, Retry { attempts: 4, backoff_ms: 1000, backoff_ms_max: 10_000 });
    assert_eq!(split::spec().depends, Some(vec![vec![0], vec![0, 1], vec![0, 1, 2]]));
    let plain = TaskSpec::new("nap", vec![], vec![ModelPort::new("done", Type::Unit)]);
    assert_eq!(TaskSpec { version: "1".into(), ..nap::spec() }, plain);
    assert_eq!(double::spec().effect, Effect::Pure);
    assert_eq!(refund::spec().inputs, charge::spec().inputs);
}

#[test]
fn the_tasks_of_a_flow_hold_those_that_undo_others() {
    let flow = all();
    for name in ["charge-card", "refund", "split", "double", "parse", "nap", "write_row"] {
        let (spec, _) = flow.tasks().get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(spec.name, name);
    }
    assert!(flow.tasks().get("charge").is_none());
}

#[tokio::test]
async fn a_body_gives_one_piece_of_data_for_each_output() {
    let given = run("charge-card", vec![order("12").encode().unwrap(), Data::None]).await.unwrap();
    let [receipt, same] = given.try_into().expect("two outputs");
    let key = Step::detached([1; 8], 2).key();
    assert_eq!(String::decode(receipt).unwrap(), format!("{key} / 2 None"));
    assert_eq!(Order::decode(same).unwrap(), order("12"));

    let given = run("split", [1_u64, 2, 300].map(|n| n.encode().unwrap()).to_vec()).await.unwrap();
    let [first, sum, all] = given.try_into().expect("three outputs");
    assert_eq!((u64::decode(first).unwrap(), u64::decode(sum).unwrap()), (1, 3));
    let Data::List(elements) = &all else { panic!("a list has its elements apart") };
    assert_eq!(elements.len(), 3);
    assert_eq!(Vec::<u64>::decode(all).unwrap(), [1, 2, 300]);

    assert_eq!(run("double", vec![21_u64.encode().unwrap()]).await, Ok(vec![42_u64.encode().unwrap()]));
}

#[test]
fn a_function_waits_blocks_or_is_done_as_it_says() {
    let flow = all();
    let start = |task: &str, inputs| {
        let step = Step::detached([0; 8], 2);
        match flow.tasks().get(task).expect("a task").1.start(step, inputs) {
            Attempt::Done(_) => "done",
            Attempt::Async(_) => "waits",
            Attempt::Blocking(_) => "blocks",
            Attempt::Abandonable(_) => "may be abandoned",
            Attempt::Suspended(_) | Attempt::Suspending(_) => "is suspended",
        }
    };
    assert_eq!(start("nap", vec![]), "waits");
    assert_eq!(start("parse", vec!["7".to_owned().encode().unwrap()]), "blocks");
    assert_eq!(start("double", vec![7_u64.encode().unwrap()]), "done");
}

#[tokio::test]
async fn a_failure_tells_all_causes_and_whether_it_is_final() {
    let failed = async |task: &str, inputs| {
        let Failure { causes, is_final, not_done, .. } = run(task, inputs).await.expect_err("a failure");
        format!("{} final={is_final} not_done={not_done}", causes.join(" < "))
    };
    let charge = failed("charge-card", vec![order("x").encode().unwrap(), Data::None]).await;
    expect!["payment refused < invalid digit found in string final=false not_done=false"].assert_eq(&charge);
    let parse = failed("parse", vec!["x".to_owned().encode().unwrap()]).await;
    expect![[r#"cannot read "x" < invalid digit found in string final=true not_done=false"#]].assert_eq(&parse);
    expect!["not tired final=false not_done=false"].assert_eq(&failed("nap", vec![]).await);
    let wrong = failed("double", vec!["x".to_owned().encode().unwrap()]).await;
    expect!["cannot read input `n` < the stored bytes are no value of type u64 < wrong msgpack marker FixStr(1) final=true not_done=false"].assert_eq(&wrong);
    expect!["cannot read input `n` < a value of type u64 was wanted, but a list is there final=true not_done=false"]
        .assert_eq(&failed("double", vec![Data::List(vec![].into())]).await);
    expect!["a step that is not transactional has no `Tx` final=true not_done=false"]
        .assert_eq(&failed("write_row", vec![1_u64.encode().unwrap()]).await);
}

#[tokio::test]
async fn the_function_itself_can_be_called() {
    assert_eq!(double::run(4), 8);
    assert_eq!(nap::run().await, Err("not tired"));
    assert_eq!(parse::run("12".into()).unwrap(), 12);
}

/// The same functions again, laid out in another way, and one that differs.
mod again {
    use onceflow::prelude::*;

    #[rustfmt::skip]
    #[task(timeout = "1s", retry(attempts = 9), class = "else", name = "other", effect = idempotent, cpus = 1)]
    pub(crate) fn renamed(
        n: u64,
    ) -> u64 {
        n*2 // twice
    }

    #[task]
    pub(crate) fn double(n: u64) -> u64 {
        n * 3
    }
}

#[test]
fn the_version_of_a_task_is_what_it_does() {
    assert_eq!(double::spec().version, again::renamed::spec().version);
    assert_ne!(double::spec().version, again::double::spec().version);
    assert_eq!(double::spec().version.len(), 32);
}

#[test]
#[should_panic(expected = "two tasks are called `double`")]
fn two_tasks_of_one_name_are_refused() {
    Flow::new("both", ["n"], ["n"], |f, n: Port<u64>| {
        let n = f.add(double(n));
        f.add(again::double(n))
    });
}

#[test]
#[should_panic(expected = "two flows are called `same`")]
fn two_flows_of_one_name_are_refused() {
    let one = Flow::new("same", ["n"], ["n"], |f, n: Port<u64>| f.add(double(n)));
    let two = Flow::new("same", ["n"], ["n"], |_, n: Port<u64>| n);
    Flow::new("both", ["n"], ["n"], |f, n: Port<u64>| {
        let n = f.add(one.call(n));
        f.add(two.call(n))
    });
}

#[test]
#[should_panic(expected = "a port of one flow was used in another")]
fn a_port_of_another_flow_is_refused() {
    Flow::new("outer", ["n"], ["n"], |_, outside: Port<u64>| {
        Flow::new("inner", [], ["n"], |f, (): ()| f.add(double(outside)));
        outside
    });
}

#[test]
#[should_panic(expected = "port `item` was used outside of the closure it was made in, of the each at")]
fn a_port_that_escapes_its_closure_is_refused_by_name() {
    Flow::new("escape", ["list"], ["n"], |f, list: Port<Vec<u64>>| {
        let mut escaped = None;
        f.each(list, |_, n| {
            escaped = Some(n);
            n
        });
        f.add(double(escaped.expect("the closure runs once")))
    });
}

#[test]
#[should_panic(expected = "port `double` was used outside of the closure it was made in, of the each at")]
fn a_port_of_one_body_is_refused_in_another_by_name() {
    Flow::new("other", ["list"], ["n"], |f, list: Port<Vec<u64>>| {
        let mut escaped = None;
        let doubled = f.each(list, |f, n| *escaped.insert(f.add(double(n))));
        f.each(doubled, |f, _| f.add(double(escaped.expect("the closure runs once"))))
    });
}

#[test]
#[should_panic(expected = "nothing is called `lost`: add a part with it")]
fn a_name_that_nothing_gets_is_refused() {
    Flow::new("named", ["n"], ["n"], |f, n: Port<u64>| {
        let _ = f.named("lost");
        f.add(double(n))
    });
}

#[test]
fn calls_stand_inside_each_other_and_a_name_is_for_its_own_part() {
    let flow = Flow::new("nested", ["n"], ["n"], |f, n: Port<u64>| {
        f.named("outer").add(double(f.add(double(f.named("inner").add(double(n))))))
    });
    let names: Vec<_> = flow.graph().modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["inner", "double", "outer"]);
    // The builder of the outside, used inside, describes the inside.
    let flow =
        Flow::new("outside", ["list"], ["list"], |f, list: Port<Vec<u64>>| f.each(list, |_, n| f.add(double(n))));
    assert_eq!(flow.graph().modules.len(), 1);
}

#[test]
fn many_steps_of_one_task_have_names_of_their_own_in_linear_time() {
    // With a search for every name this would take a minute.
    const STEPS: usize = 20_000;
    let flow = Flow::new("long", ["n"], ["n"], |f, n: Port<u64>| (0..STEPS).fold(n, |n, _| f.add(double(n))));
    let modules = &flow.graph().modules;
    assert_eq!((modules[1].name.as_str(), modules[STEPS - 1].name.as_str()), ("double_2", "double_20000"));
    let names: std::collections::BTreeSet<_> = modules.iter().map(|module| &module.name).collect();
    assert_eq!(names.len(), STEPS);
}

#[test]
#[should_panic(expected = "`at_most` is about elements")]
fn a_concurrency_limit_on_a_step_without_elements_is_refused() {
    Flow::new("limit", ["n"], ["n"], |f, n: Port<u64>| f.at_most(3).add(double(n)));
}

#[test]
fn every_module_and_connection_knows_where_it_was_written() {
    let line = line!();
    let flow = Flow::new("origins", ["list"], ["list"], |f, list: Port<Vec<u64>>| {
        f.each(list, |f, n| {
            f.add(double(n)) //
        })
    });
    let place = |origin: &Option<onceflow::model::SourceLocation>| {
        let origin = origin.as_ref().expect("a place");
        assert!(origin.file.ends_with("bodies.rs"), "{}", origin.file);
        (origin.line - line, origin.column)
    };
    let each = &flow.graph().modules[0];
    assert_eq!(place(&each.origin), (2, 11));
    let onceflow::model::graph::ModuleKind::Each { body, .. } = &each.kind else { panic!("an each") };
    assert_eq!(place(&body.modules[0].origin), (3, 19));
    assert_eq!(place(&body.connections[0].origin), (3, 19));
    assert_eq!(place(&flow.graph().connections[0].origin), (2, 11));
}

#[test]
fn inputs_are_encoded_and_outputs_decoded_by_name() {
    let flow = Flow::new("io", ["a", "b"], ["b", "sum"], |f, (a, b): (Port<u64>, Port<Vec<String>>)| {
        let a = f.add(double(a));
        (b, a)
    });
    let texts = vec!["x".to_owned(), "y".to_owned()];
    let inputs = flow.encode((1, texts.clone())).unwrap();
    assert_eq!(inputs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let outputs = [("sum".to_owned(), 2_u64.encode().unwrap()), ("b".to_owned(), texts.clone().encode().unwrap())];
    assert_eq!(flow.decode(outputs.clone()).unwrap(), (texts, 2));
    let (b, sum) = flow.outputs();
    assert_eq!((b.name(), sum.name()), ("b", "sum"));
    assert_eq!(sum.decode(outputs[0].1.clone()).unwrap(), 2);
    assert!(flow.decode([]).is_err());
}
