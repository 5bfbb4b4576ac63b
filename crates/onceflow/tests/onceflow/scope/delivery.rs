//! Delivery to services: serial, per label, preempt, ensure; for futures, continuous services and nested scopes.

use super::support::{Clock, Log};
use onceflow::scope::{Provider, Scope, Service, SessionRun};
use std::time::Duration;

/// A provider that logs its beginning and its end, and takes 100 ms: as a future, or as a nested scope.
fn slow(clock: &Clock, log: &Log, is_nested: bool) -> Provider<i64, i64> {
    let (clock, log) = (clock.clone(), log.clone());
    let future = Provider::future(move |v| {
        let (wait, log) = (clock.wait(100), log.clone());
        async move {
            log.add(format!("begin {v}"));
            wait.await;
            log.add(format!("end {v}"));
            v
        }
    });
    if is_nested {
        let nested = Scope::<i64, i64>::build(|s| s.start().then(future).terminate(s));
        Provider::scope(&nested.unwrap())
    } else {
        future
    }
}

fn through(service: &Service<i64, i64>) -> Scope<i64, i64> {
    Scope::build(|s| s.start().serve(service).named("service").terminate(s)).unwrap()
}

async fn results(clock: &Clock, runs: Vec<SessionRun<i64>>) -> Vec<Result<i64, String>> {
    let mut results = Vec::new();
    for run in runs {
        results.push(clock.until(run).await.map_err(|cancelled| cancelled.real_cause().1));
    }
    results
}

#[tokio::test]
async fn serial_service_serves_one_request_at_a_time() {
    for is_nested in [false, true] {
        let (clock, log) = (Clock::new(), Log::default());
        let scope = through(&Service::serial(slow(&clock, &log, is_nested)));
        let runs = (1..=3).map(|v| scope.open(&clock.world(), v)).collect();
        assert_eq!(results(&clock, runs).await, [Ok(1), Ok(2), Ok(3)]);
        assert_eq!(log.lines(), ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]);
    }
}

#[tokio::test]
async fn requests_with_one_label_are_served_one_at_a_time() {
    let (clock, log) = (Clock::new(), Log::default());
    let service = Service::parallel(slow(&clock, &log, false));
    let (a, b) = (through(&service.label("a")), through(&service.label("b")));
    let runs = vec![a.open(&clock.world(), 1), a.open(&clock.world(), 2), b.open(&clock.world(), 3)];
    let began = clock.now();
    assert_eq!(results(&clock, runs).await, [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(clock.now() - began, 200);
    assert_eq!(log.lines()[..2], ["begin 1", "begin 3"]);
}

#[tokio::test]
async fn preempt_ends_what_waits_and_runs_but_not_what_is_ensured() {
    let supplanted = || Err(String::from("a later request took its place"));
    for is_nested in [false, true] {
        let (clock, log) = (Clock::new(), Log::default());
        let service = Service::serial(slow(&clock, &log, is_nested));
        let (plain, ensured, preempting) = (through(&service), through(&service.ensure()), through(&service.preempt()));
        let mut runs =
            vec![plain.open(&clock.world(), 1), plain.open(&clock.world(), 2), ensured.open(&clock.world(), 3)];
        clock.settle().await;
        runs.push(preempting.open(&clock.world(), 4));
        assert_eq!(results(&clock, runs).await, [supplanted(), supplanted(), Ok(3), Ok(4)]);
        assert_eq!(log.lines(), ["begin 1", "begin 3", "end 3", "begin 4", "end 4"]);
    }
}

#[tokio::test]
async fn request_that_is_cancelled_while_it_waits_leaves_its_lane() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = through(&Service::serial(slow(&clock, &log, false)));
    let runs: Vec<_> = (1..=3).map(|v| scope.open(&clock.world(), v)).collect();
    runs[1].cancel("not needed");
    assert_eq!(results(&clock, runs).await, [Ok(1), Err("requested: not needed".into()), Ok(3)]);
    assert_eq!(log.lines(), ["begin 1", "end 1", "begin 3", "end 3"]);
}

#[tokio::test]
async fn continuous_service_sees_its_open_orders_and_answers_when_it_likes() {
    let (clock, log) = (Clock::new(), Log::default());
    let seen = log.clone();
    let service = Service::<i64, i64>::continuous(
        move |orders| {
            seen.add(format!("{:?}", orders.iter().map(|order| *order.request()).collect::<Vec<_>>()));
            // Pairs are answered together.
            if let [one, two, ..] = orders {
                let sum = one.request() + two.request();
                one.answer(sum);
                two.answer(sum);
            }
        },
        Some(Duration::from_millis(10)),
    );
    let scope = through(&service);
    let runs: Vec<_> = (1..=3).map(|v| scope.open(&clock.world(), v)).collect();
    runs[2].cancel("alone");
    assert_eq!(results(&clock, runs).await, [Ok(3), Ok(3), Err("requested: alone".into())]);
    assert_eq!(log.lines(), ["[1]", "[1, 2]", "[3]"]);
}
