//! How runs end: done, failed, undone, cancelled; what is told about it, and in which order.

use super::support::{add, less, shout, told, until_end};
use onceflow::{Error, EventKind, RunStatus, Summary, prelude::*};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

#[task(effect = pure)]
fn refuse(text: String) -> Result<String, anyhow::Error> {
    Err(anyhow::anyhow!("no room").context("the shelf is full").context(format!("cannot store {text}")))
}

#[tokio::test]
async fn a_failure_tells_where_at_which_attempt_and_the_whole_chain() {
    let flow = Flow::new("failing", ["text"], ["kept"], |f, text: Port<String>| {
        f.composite("shelf", |f| f.named("keep").add(refuse(text)))
    });
    let engine = Engine::in_memory();
    let run = engine.start(&flow, "a book".into()).key("k").await.unwrap();
    let error = run.result().await.unwrap_err();
    let expected = "run `k` gave no result: /shelf/keep failed at attempt 1: cannot store a book; \
                    caused by: the shelf is full; caused by: no room";
    assert_eq!(error.to_string(), expected);
    assert_eq!(run.output(&flow.outputs()).await.unwrap_err().to_string(), expected);
    let sources = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    let sources: Vec<_> = sources.map(ToString::to_string).collect();
    assert_eq!(sources, ["cannot store a book", "the shelf is full", "no room"]);
    let Error::Run { summary, .. } = error else { panic!("{error:?}") };
    assert_eq!(summary.status, RunStatus::Failed);
    assert_eq!(summary.failures[0].causes, ["cannot store a book", "the shelf is full", "no room"]);
    assert!(run.summary().await.unwrap().status == RunStatus::Failed);
}

#[tokio::test]
async fn outputs_that_did_not_fail_stand_and_a_restart_retries_only_failures() {
    static READY: AtomicBool = AtomicBool::new(false);
    static STEADY: AtomicU32 = AtomicU32::new(0);
    #[task]
    fn steady(n: u64) -> u64 {
        STEADY.fetch_add(1, SeqCst);
        n
    }
    #[task]
    fn moody(n: u64) -> Result<u64, &'static str> {
        if READY.load(SeqCst) { Ok(n) } else { Err("not today") }
    }
    let flow = Flow::new("moods", ["n"], ["steady", "moody"], |f, n: Port<u64>| {
        let first = f.add(steady(n));
        (first, f.add(moody(first)))
    });
    let engine = Engine::in_memory();
    let run = engine.start(&flow, 7).key("moods").await.unwrap();
    assert!(run.wait().await.unwrap().status == RunStatus::Failed);
    assert_eq!(run.output(&flow.outputs().0).await.unwrap(), 7);
    READY.store(true, SeqCst);
    assert_eq!(engine.start(&flow, 7).key("moods").await.unwrap().result().await.unwrap(), (7, 7));
    assert_eq!(STEADY.load(SeqCst), 1);
}

#[tokio::test]
async fn a_run_without_history_answers_its_waiting_caller() {
    let flow = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    let engine = Engine::in_memory();
    for n in 0..20 {
        let start = engine.start(&flow, "a".into()).key(format!("run-{n}")).history(std::time::Duration::ZERO);
        assert_eq!(start.await.unwrap().result().await.unwrap(), "A");
    }
}

#[test]
fn an_engine_whose_runtime_was_dropped_is_closed_and_its_directory_opens_again() {
    let place = tempfile::tempdir().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let flow = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    let first = runtime();
    let engine = first.block_on(async {
        let engine = Engine::open(place.path()).await.unwrap();
        engine.start(&flow, "a".into()).key("a").await.unwrap().result().await.unwrap();
        engine
    });
    drop(first);
    runtime().block_on(async {
        let refused = engine.start(&flow, "b".into()).key("b").await.unwrap_err();
        assert_eq!(refused.to_string(), "the engine is closed");
        let again = Engine::open(place.path()).await.unwrap();
        assert_eq!(again.start(&flow, "c".into()).key("c").await.unwrap().result().await.unwrap(), "C");
        engine.close().await.unwrap();
        assert_eq!(again.start(&flow, "d".into()).key("d").await.unwrap().result().await.unwrap(), "D");
        again.close().await.unwrap();
    });
}

#[tokio::test]
async fn a_run_that_could_not_be_undone_does_not_start_again_until_it_was_or_is_given_up() {
    static STUCK: AtomicBool = AtomicBool::new(true);
    static CHARGES: AtomicU32 = AtomicU32::new(0);
    #[task(retry(attempts = 2, backoff = "1ms"))]
    fn refund(cents: u64) -> Result<(), String> {
        if STUCK.load(SeqCst) { Err(format!("cannot refund {cents}")) } else { Ok(()) }
    }
    #[task(undo = refund)]
    fn charge(cents: u64) -> u64 {
        CHARGES.fetch_add(1, SeqCst);
        cents
    }
    #[task]
    fn ship(cents: u64) -> Result<u64, String> {
        Err(format!("nothing to ship for {cents}"))
    }
    let flow = Flow::new("order", ["cents"], ["sent"], |f, cents: Port<u64>| {
        let paid = f.add(charge(cents));
        f.add(ship(paid))
    });
    let engine = Engine::in_memory();
    let run = engine.start(&flow, 5).key("k").await.unwrap();
    assert!(
        matches!(run.wait().await.unwrap(), Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.len() == 1)
    );
    for _ in 0..3 {
        let refused = engine.start(&flow, 5).key("k").await.unwrap_err().to_string();
        assert!(refused.contains("run `k` could not be undone: /charge failed at attempt 2"), "{refused}");
    }
    assert_eq!(CHARGES.load(SeqCst), 1, "it is charged once");
    STUCK.store(false, SeqCst);
    assert_eq!(run.retry().await.unwrap(), 1);
    assert!(
        matches!(run.wait().await.unwrap(), Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.is_empty())
    );
    STUCK.store(true, SeqCst);
    let run = engine.start(&flow, 5).key("k").await.unwrap();
    run.wait().await.unwrap();
    assert_eq!(run.abandon().await.unwrap(), 1);
    assert!(
        matches!(run.wait().await.unwrap(), Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.len() == 1)
    );
    STUCK.store(false, SeqCst);
    engine.start(&flow, 5).key("k").await.unwrap().wait().await.unwrap();
    assert_eq!(CHARGES.load(SeqCst), 3);
}

#[tokio::test]
async fn independent_parts_finish_if_they_were_asked_to() {
    let flow = Flow::new("parts", ["text"], ["bad", "good"], |f, text: Port<String>| {
        let loud = f.add(shout(text));
        let loud = f.add(shout(loud));
        (f.add(refuse(text)), loud)
    });
    let engine = Engine::in_memory();
    let run = engine.start(&flow, "a".into()).finish_independent().await.unwrap();
    assert!(run.wait().await.unwrap().status == RunStatus::Failed);
    assert_eq!(run.output(&flow.outputs().1).await.unwrap(), "A");
}

#[tokio::test]
async fn effects_are_undone_once_each_the_last_first() {
    static DID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn did(what: String) {
        DID.lock().unwrap().push(what);
    }
    #[task(undo = give_back)]
    fn take(what: String) -> String {
        did(format!("take {what}"));
        what
    }
    #[task(retry(attempts = 3, backoff = "1ms"))]
    fn give_back(what: String) -> Result<(), &'static str> {
        static TRIED: AtomicU32 = AtomicU32::new(0);
        if TRIED.fetch_add(1, SeqCst) == 0 {
            return Err("nobody was in");
        }
        did(format!("give back {what}"));
        Ok(())
    }
    let flow = Flow::new("saga", ["what"], ["kept"], |f, what: Port<String>| {
        let one = f.add(take(what));
        let two = f.add(shout(one));
        let two = f.add(take(two));
        f.add(refuse(two))
    });
    let engine = Engine::in_memory();
    let mut events = engine.events();
    let run = engine.start(&flow, "a cup".into()).key("saga").await.unwrap();
    let Summary { status: RunStatus::Undone | RunStatus::NotUndone, failures, not_undone, .. } =
        run.wait().await.unwrap()
    else {
        panic!("not undone")
    };
    assert_eq!((failures.len(), not_undone.len()), (1, 0));
    assert_eq!(*DID.lock().unwrap(), ["take a cup", "take A CUP", "give back A CUP", "give back a cup"]);
    let told = told(&until_end(&mut events, "saga").await);
    let undone: Vec<_> = told.iter().filter(|event| event.starts_with("did undo")).collect();
    assert_eq!(undone, ["did undo /take_2", "did undo /take"]);
    assert_eq!(told.last().unwrap(), "did end: undone");
    assert!(run.result().await.unwrap_err().to_string().contains("failed and undone"));
}

#[tokio::test]
async fn a_cancelled_run_ends_and_says_so() {
    #[task]
    async fn forever(n: u64) -> u64 {
        std::future::pending::<()>().await;
        n
    }
    let flow = Flow::new("endless", ["n"], ["never"], |f, n: Port<u64>| {
        let one = f.constant(1_u64);
        f.repeat(one, |f, m| (f.add(add(m, n)), f.add(less(0, 1))))
    });
    let engine = Engine::in_memory();
    let run = engine.start(&flow, 1).key("loop").await.unwrap();
    run.cancel().await.unwrap();
    let ended = run.wait().await.unwrap();
    assert!(ended.status == RunStatus::Cancelled && ended.not_undone.is_empty(), "{ended}");
    assert_eq!(run.result().await.unwrap_err().to_string(), "run `loop` gave no result: cancelled");
    let error = run.output(&flow.outputs()).await.unwrap_err();
    assert!(matches!(&error, Error::Run { summary, .. } if summary.status == RunStatus::Cancelled), "{error}");
    assert!(run.cancel().await.is_err());
    engine.close().await.unwrap();

    let stuck = Flow::new("stuck", ["n"], ["never"], |f, n: Port<u64>| f.add(forever(n)));
    let engine = Engine::in_memory();
    let mut events = engine.events();
    let run = engine.start(&stuck, 1).await.unwrap();
    while !matches!(events.next().await.unwrap().kind, EventKind::WillRun { .. }) {}
    run.cancel().await.unwrap();
    // The step in flight may take as long as it likes; the decision stands.
    assert!(run.summary().await.unwrap().status != RunStatus::Done);
}

#[tokio::test]
async fn events_come_in_the_order_of_the_commits() {
    let flow = Flow::new("events", ["texts"], ["loud"], |f, texts: Port<Vec<String>>| {
        f.each(texts, |f, text| f.add(shout(text)))
    });
    let engine = Engine::builder().fuse(false).in_memory();
    let mut events = engine.events();
    let texts: Vec<_> = (0..20).map(|n| format!("text {n}")).collect();
    engine.start(&flow, texts).key("e").await.unwrap();
    let events = until_end(&mut events, "e").await;
    assert_eq!(events[0].kind, EventKind::DidStart { generation: 0 });
    assert_eq!(events.last().unwrap().kind, EventKind::DidEnd { how: RunStatus::Done });
    let at = |wanted: &EventKind| events.iter().position(|event| event.kind == *wanted).unwrap();
    for n in 0..20 {
        let address = format!("/each[{n}]/shout");
        let (will, did) =
            (EventKind::WillRun { address: address.clone(), attempt: 1 }, EventKind::DidCommit { address });
        assert!(at(&will) < at(&did), "{n}");
    }
    engine.close().await.unwrap();
}

#[tokio::test]
async fn listeners_see_the_end_when_the_engine_closes() {
    let engine = Engine::in_memory();
    let mut events = engine.events();
    engine.close().await.unwrap();
    assert_eq!(events.next().await, None);
}

#[test]
fn a_compensation_waits_for_a_worker_that_has_its_task() {
    static STUCK: AtomicBool = AtomicBool::new(true);
    static UNDONE: AtomicU32 = AtomicU32::new(0);
    #[task(undo = give_back)]
    fn take(what: String) -> String {
        what
    }
    #[task]
    async fn give_back(_what: String) {
        if STUCK.swap(false, SeqCst) {
            std::future::pending::<()>().await;
        }
        UNDONE.fetch_add(1, SeqCst);
    }
    let flow = Flow::new("saga", ["what"], ["kept"], |f, what: Port<String>| {
        let taken = f.add(take(what));
        f.add(refuse(taken))
    });
    let place = tempfile::tempdir().unwrap();
    let open = || Engine::builder().lease(std::time::Duration::from_millis(100)).open(place.path());
    // The first process dies while it undoes.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = open().await.unwrap();
        engine.start(&flow, "a cup".into()).key("saga").await.unwrap();
        while STUCK.load(SeqCst) {
            tokio::task::yield_now().await;
        }
    });
    drop(runtime);
    // The second is told of the flow only after it has found what is to be undone.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let engine = open().await.unwrap();
        let other = Flow::new("other", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
        for n in 0..20 {
            engine.start(&other, "a".into()).key(format!("{n}")).await.unwrap().result().await.unwrap();
        }
        let run = engine.start(&flow, "a cup".into()).key("saga").await.unwrap();
        let report = run.wait().await.unwrap();
        assert!(matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.is_empty()), "{report}");
        assert_eq!(UNDONE.load(SeqCst), 1);
        engine.close().await.unwrap();
    });
}
