//! The options of tasks hold when they run: retries, final errors, timeouts, panics, threads, keys.

use onceflow::{RunStatus, Summary, prelude::*};
use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// The report of a flow that is given nothing.
async fn report<O: onceflow::Ports>(flow: &Flow<(), O>) -> Summary {
    let engine = Engine::in_memory();
    let report = engine.start(flow, ()).await.unwrap().wait().await.unwrap();
    engine.close().await.unwrap();
    report
}

fn failure(report: &Summary) -> String {
    match report {
        Summary { status: RunStatus::Failed, .. } => report.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_task_is_tried_as_often_as_it_says_under_one_key() {
    static KEYS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    #[task(retry(attempts = 4, backoff = "1ms"))]
    fn third_time(step: &Step) -> Result<u32, String> {
        KEYS.lock().unwrap().insert(step.key());
        if step.attempt() < 3 { Err(format!("attempt {}", step.attempt())) } else { Ok(step.attempt()) }
    }
    let flow = Flow::new("third", [], ["attempt"], |f, (): ()| f.add(third_time()));
    assert_eq!(Engine::in_memory().run(&flow, ()).await.unwrap(), 3);
    assert_eq!(KEYS.lock().unwrap().len(), 1);

    #[task(retry(attempts = 2, backoff = "1ms"))]
    fn never(step: &Step) -> Result<(), String> {
        Err(format!("attempt {}", step.attempt()))
    }
    let flow = Flow::new("never", [], ["done"], |f, (): ()| f.add(never()));
    assert_eq!(failure(&report(&flow).await), "/never failed at attempt 2: attempt 2");
}

#[tokio::test]
async fn a_final_error_ends_the_attempts() {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    #[task(retry(attempts = 9, backoff = "1ms"))]
    async fn hopeless() -> Result<u64, anyhow::Error> {
        TRIED.fetch_add(1, SeqCst);
        Ok("x".parse::<u64>().map_err(fatal)?)
    }
    let flow = Flow::new("hopeless", [], ["n"], |f, (): ()| f.add(hopeless()));
    assert_eq!(failure(&report(&flow).await), "/hopeless failed at attempt 1: invalid digit found in string");
    assert_eq!(TRIED.load(SeqCst), 1);
}

#[tokio::test]
async fn an_at_most_once_task_is_retried_only_after_a_not_done_error() {
    static LAUNCHED: AtomicU32 = AtomicU32::new(0);
    static CONNECTED: AtomicU32 = AtomicU32::new(0);
    #[task(effect = at_most_once, retry(attempts = 5, backoff = "1ms"))]
    fn launch() -> Result<u32, anyhow::Error> {
        if CONNECTED.fetch_add(1, SeqCst) < 2 {
            Err(not_done("no connection"))?;
        }
        LAUNCHED.fetch_add(1, SeqCst);
        anyhow::bail!("it exploded")
    }
    let flow = Flow::new("launch", [], ["n"], |f, (): ()| f.add(launch()));
    assert_eq!(failure(&report(&flow).await), "/launch failed at attempt 3: it exploded");
    assert_eq!((CONNECTED.load(SeqCst), LAUNCHED.load(SeqCst)), (3, 1));
}

#[tokio::test]
async fn a_task_that_takes_too_long_fails() {
    #[task(timeout = "5ms")]
    async fn slow() -> u64 {
        std::future::pending().await
    }
    let flow = Flow::new("slow", [], ["n"], |f, (): ()| f.add(slow()));
    assert_eq!(
        failure(&report(&flow).await),
        "/slow failed at attempt 1: OF0321: it took longer than its timeout, 5 ms"
    );
}

#[tokio::test]
async fn a_panic_is_the_failure_of_its_step() {
    #[task]
    fn blocking(n: u64) -> u64 {
        assert!(n > 100, "{n} is not large");
        n
    }
    #[task]
    async fn waiting(n: u64) -> u64 {
        tokio::task::yield_now().await;
        panic!("{n} is wrong")
    }
    #[task(inline)]
    fn inline(n: u64) -> u64 {
        panic!("{n} is here")
    }
    let cases = [
        (Flow::new("a", [], ["n"], |f, (): ()| f.add(blocking(1))), "/blocking", "it panicked: 1 is not large"),
        (Flow::new("b", [], ["n"], |f, (): ()| f.add(waiting(2))), "/waiting", "it panicked: 2 is wrong"),
        (Flow::new("c", [], ["n"], |f, (): ()| f.add(inline(3))), "/inline", "it panicked: 3 is here"),
    ];
    for (flow, at, why) in cases {
        assert_eq!(failure(&report(&flow).await), format!("{at} failed at attempt 1: {why}"));
    }
}

#[tokio::test]
async fn blocking_tasks_do_not_hold_up_others() {
    // A rendezvous of two blocking tasks on a runtime of one thread: each waits for the other.
    static MEET: std::sync::Barrier = std::sync::Barrier::new(2);
    #[task]
    fn meet(n: u64) -> u64 {
        MEET.wait();
        n
    }
    let flow = Flow::new("meet", [], ["a", "b"], |f, (): ()| (f.add(meet(1)), f.add(meet(2))));
    assert_eq!(Engine::builder().blocking_max(2).in_memory().run(&flow, ()).await.unwrap(), (1, 2));
}

#[tokio::test]
async fn a_class_bounds_how_many_are_in_flight() {
    static NOW: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    #[task(class = "printer")]
    async fn print(_n: u64) {
        MOST.fetch_max(NOW.fetch_add(1, SeqCst) + 1, SeqCst);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        NOW.fetch_sub(1, SeqCst);
    }
    let flow =
        Flow::new("print", ["pages"], ["done"], |f, pages: Port<Vec<u64>>| f.each(pages, |f, page| f.add(print(page))));
    let engine = Engine::builder().class("printer", 2).in_memory();
    assert_eq!(engine.run(&flow, (0..30).collect()).await.unwrap().len(), 30);
    assert!((1..=2).contains(&MOST.load(SeqCst)), "{MOST:?}");
}

#[tokio::test]
async fn only_so_many_tasks_run_at_a_time_though_more_steps_are_taken() {
    static NOW: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    #[task]
    async fn work(_n: u64) {
        MOST.fetch_max(NOW.fetch_add(1, SeqCst) + 1, SeqCst);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        NOW.fetch_sub(1, SeqCst);
    }
    let flow = Flow::new("work", ["n"], ["done"], |f, n: Port<Vec<u64>>| f.each(n, |f, n| f.add(work(n))));
    let engine = Engine::builder().running_max(2).in_memory();
    assert_eq!(engine.run(&flow, (0..30).collect()).await.unwrap().len(), 30);
    assert_eq!(MOST.load(SeqCst), 2);
}

#[tokio::test]
async fn transactional_writes_happen_with_the_commit_once() {
    #[task(effect = transactional, retry(attempts = 3, backoff = "1ms"))]
    async fn visit(step: &Step, tx: Tx, who: String) -> Result<u64, anyhow::Error> {
        let known = tx.get("visits").await?.map_or(0, |row| row[0]);
        tx.put("visits", [known + 1]);
        tx.send(format!("{who} was here"));
        // Rows written by a failed attempt are discarded.
        anyhow::ensure!(step.attempt() > 1, "try again");
        Ok(u64::from(known) + 1)
    }
    let flow =
        Flow::new("visits", ["who"], ["visits"], |f, who: Port<Vec<String>>| f.each(who, |f, who| f.add(visit(who))));
    let engine = Engine::in_memory();
    let mut visits = engine.run(&flow, ["ann", "bob", "cy"].map(String::from).to_vec()).await.unwrap();
    visits.sort_unstable();
    assert_eq!(visits, [1, 2, 3]);
    let rows = engine.rows(&flow);
    assert_eq!(rows.get("visits").await.unwrap().unwrap()[..], [3]);
    let mut outbox: Vec<_> = rows.outbox(10).await.unwrap().into_iter().map(|message| message.content).collect();
    outbox.sort();
    assert_eq!(outbox, ["ann was here", "bob was here", "cy was here"]);
}

#[tokio::test]
async fn tasks_take_the_state_of_the_engine_by_its_type() {
    struct Prices {
        cents: Vec<u64>,
    }
    #[derive(Debug)]
    struct Rate(u64);
    #[task]
    async fn price(prices: State<Prices>, State(rate): State<Rate>, item: u64) -> Result<u64, anyhow::Error> {
        let price = prices.cents.get(item as usize).ok_or_else(|| anyhow::anyhow!("no price for {item}"))?;
        Ok(price * rate.0)
    }
    #[task(effect = pure, inline)]
    fn with_tax(rate: State<Rate>, cents: u64) -> u64 {
        cents + rate.0.0
    }
    let flow = Flow::new("price", ["item"], ["cents"], |f, item: Port<u64>| f.add(with_tax(f.add(price(item)))));
    let engine = Engine::builder().state(Prices { cents: vec![7, 8] }).state(Rate(10)).in_memory();
    assert_eq!(engine.run(&flow, 1).await.unwrap(), 90);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn an_engine_without_the_state_a_task_takes_refuses_the_flow_before_anything_runs() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    struct Pool;
    #[task]
    fn first(n: u64) -> u64 {
        RAN.fetch_add(1, SeqCst);
        n
    }
    #[task]
    fn ask(_pool: State<Pool>, n: u64) -> u64 {
        n
    }
    let flow = Flow::new("ask", ["n"], ["n"], |f, n: Port<u64>| f.add(ask(f.add(first(n)))));
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::open(place.path()).await.unwrap();
    let told = |error: onceflow::Error| {
        let text = error.to_string();
        assert!(text.starts_with("task `ask` takes a `State<") && text.contains("Pool>`"), "{text}");
    };
    told(engine.start(&flow, 1).key("k").await.unwrap_err());
    told(engine.run(&flow, 1).await.unwrap_err());
    told(engine.offer(&flow).unwrap_err());
    // An engine that only starts and waits needs no state; a worker without it leaves the steps to one that has it.
    let starts = Engine::builder().works(false).open(place.path()).await.unwrap();
    let run = starts.start(&flow, 1).key("k").await.unwrap();
    let works = Engine::builder().state(Pool).open(place.path()).await.unwrap();
    works.offer(&flow).unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!(RAN.load(SeqCst), 1);
    for engine in [works, starts, engine] {
        engine.close().await.unwrap();
    }
}
