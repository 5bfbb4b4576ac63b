//! Starting is resuming: one key is one run, on disk too; and engines that are closed, dropped, or only watch.

use super::support::{add, count_to, shout, sum};
use onceflow::{Error, prelude::*};
use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

#[tokio::test]
async fn the_same_key_is_the_same_run_and_done_is_done() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    #[task]
    fn work(n: u64) -> u64 {
        RAN.fetch_add(1, SeqCst);
        n + 1
    }
    let flow = Flow::new("work", ["n"], ["m"], |f, n: Port<u64>| f.add(work(n)));
    let place = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let engine = Engine::open(place.path()).await.unwrap();
        assert_eq!(engine.start(&flow, 1).key("work").await.unwrap().result().await.unwrap(), 2);
        assert_eq!(engine.start(&flow, 1).key("other").await.unwrap().result().await.unwrap(), 2);
        assert_eq!(engine.find(&flow, "other").await.unwrap().result().await.unwrap(), 2);
        engine.close().await.unwrap();
    }
    assert_eq!(RAN.load(SeqCst), 2);
    let engine = Engine::open(place.path()).await.unwrap();
    let other = engine.start(&flow, 5).key("work").await.unwrap();
    assert_eq!(other.result().await.unwrap(), 6, "other inputs are other work");
    let error = engine.find(&flow, "nobody").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no run `nobody`");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn inputs_can_be_given_by_name_and_outputs_left_out() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    #[task]
    fn unwanted(n: u64) -> u64 {
        ASKED.fetch_add(1, SeqCst);
        n
    }
    let flow = Flow::new("parts", ["a", "b"], ["sum", "other"], |f, (a, b): (Port<u64>, Port<u64>)| {
        (f.add(add(a, b)), f.add(unwanted(b)))
    });
    let engine = Engine::in_memory();
    let ((_, b), (sum, other)) = (flow.inputs(), flow.outputs());
    let run = engine.start(&flow, (1, 2)).key("parts").input(&b, 40).only(&sum).await.unwrap();
    assert_eq!(run.output(&sum).await.unwrap(), 41);
    let message = "run `parts` was not asked for its output `other`";
    assert_eq!(run.output(&other).await.unwrap_err().to_string(), message);
    assert_eq!(run.result().await.unwrap_err().to_string(), message);
    assert_eq!(ASKED.load(SeqCst), 0);
}

#[tokio::test]
async fn two_bodies_under_one_task_name_are_refused() {
    mod one {
        #[onceflow::task(version = "1")]
        pub(super) fn double(n: u64) -> u64 {
            n * 2
        }
    }
    mod two {
        #[onceflow::task(version = "1")]
        pub(super) fn double(n: u64) -> u64 {
            n + n + 1
        }
    }
    let one = Flow::new("one", ["n"], ["m"], |f, n: Port<u64>| f.add(one::double(n)));
    let two = Flow::new("two", ["n"], ["m"], |f, n: Port<u64>| f.add(two::double(n)));
    let engine = Engine::in_memory();
    assert_eq!(engine.run(&one, 1).await.unwrap(), 2);
    let error = engine.run(&two, 1).await.unwrap_err().to_string();
    assert!(error.contains("two different tasks are called `double`, version 1"), "{error}");
    assert_eq!(engine.start(&one, 2).key("again").await.unwrap().result().await.unwrap(), 4);
}

#[tokio::test]
async fn a_start_that_was_first_tried_too_long_ago_is_refused() {
    let flow = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    let engine = Engine::in_memory();
    let long_ago = onceflow::Timestamp::from_ms(engine.now().await.unwrap().as_ms() - 2000);
    let start = engine.start(&flow, "a".into()).history(Duration::from_secs(1)).first_tried(long_ago);
    let error = start.await.unwrap_err();
    assert!(matches!(error, Error::Engine(_)) && error.to_string().contains("first tried"), "{error}");
    let start = engine.start(&flow, "a".into()).first_tried(long_ago);
    assert_eq!(start.await.unwrap().result().await.unwrap(), "A");
}

#[tokio::test]
async fn an_engine_that_only_watches_leaves_the_work_to_others() {
    let place = tempfile::tempdir().unwrap();
    let flow = Flow::new("sums", ["n"], ["sum"], |f, n: Port<u64>| {
        let numbers = f.add(count_to(n));
        f.add(sum(numbers))
    });
    let watching = Engine::builder().works(false).open(place.path()).await.unwrap();
    let run = watching.start(&flow, 10).key("far").await.unwrap();
    assert_eq!(run.summary().await.unwrap().to_string(), "interrupted");
    drop(run);
    watching.close().await.unwrap();
    let working = Engine::open(place.path()).await.unwrap();
    assert_eq!(working.find(&flow, "far").await.unwrap().result().await.unwrap(), 55);
    working.close().await.unwrap();
}

#[tokio::test]
async fn a_closed_engine_drains_and_what_is_left_goes_on_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let flow = Flow::new("sums", ["n"], ["sum"], |f, n: Port<u64>| {
        let numbers = f.add(count_to(n));
        let more = f.each(numbers, |f, n| f.add(add(n, 1)));
        f.add(sum(more))
    });
    let engine = Engine::open(place.path()).await.unwrap();
    engine.start(&flow, 100).key("sums").await.unwrap();
    engine.close().await.unwrap();
    assert!(engine.run(&flow, 100).await.is_err());
    let engine = Engine::open(place.path()).await.unwrap();
    assert_eq!(engine.start(&flow, 100).key("sums").await.unwrap().result().await.unwrap(), 5150);
    engine.close().await.unwrap();
}

#[test]
fn dropping_everything_does_not_hang_and_lets_go_of_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let flow = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    // In the middle of a run, with the runtime: nothing is waited for.
    for _ in 0..3 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let engine = runtime.block_on(Engine::open(place.path())).unwrap();
        runtime.block_on(async { engine.start(&flow, "a".into()).await }).unwrap();
        drop(engine);
        drop(runtime);
    }
    // Without closing, on one runtime: the next one takes the directory, or is let in.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for n in 0..3 {
            let run = {
                let engine = Engine::open(place.path()).await.unwrap();
                engine.start(&flow, format!("text {n}")).key(format!("{n}")).await.unwrap()
            };
            assert_eq!(run.result().await.unwrap(), format!("TEXT {n}"), "a run holds its engine");
        }
    });
}

#[tokio::test]
async fn a_hundred_concurrent_runs_each_get_their_own_answer() {
    let flow = Flow::new("loud", ["n", "text"], ["n", "text"], |f, (n, text): (Port<u64>, Port<String>)| {
        (f.add(add(n, 1)), f.add(shout(text)))
    });
    let engine = Engine::in_memory();
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..100_u64 {
        let (engine, flow) = (engine.clone(), flow.clone());
        runs.spawn(async move { (n, engine.run(&flow, (n, format!("text {n}"))).await) });
    }
    while let Some(run) = runs.join_next().await {
        let (n, answer) = run.unwrap();
        assert_eq!(answer.unwrap(), (n + 1, format!("TEXT {n}")));
    }
    engine.close().await.unwrap();
}

#[tokio::test]
async fn runs_without_a_key_leave_nothing_behind() {
    #[task]
    fn grow(n: u64) -> Result<String, &'static str> {
        if n % 5 == 4 { Err("too large") } else { Ok("x".repeat(n as usize * 10_000)) }
    }
    let flow = Flow::new("grow", ["n"], ["text"], |f, n: Port<u64>| f.add(grow(n)));
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::open(place.path()).await.unwrap();
    let mut answers = tokio::task::JoinSet::new();
    for n in 0..20_u64 {
        let (engine, flow) = (engine.clone(), flow.clone());
        // Some are waited for, some are started and dropped; every fifth fails.
        answers.spawn(async move {
            let run = engine.start(&flow, n).await.unwrap();
            if n % 3 > 0 {
                assert_eq!(run.result().await.ok().map(|text| text.len()), (n % 5 < 4).then_some(n as usize * 10_000));
            }
            run.key().to_owned()
        });
    }
    let mut keys = std::collections::BTreeSet::new();
    while let Some(key) = answers.join_next().await {
        keys.insert(key.unwrap());
    }
    assert_eq!(keys.len(), 20, "each has a key of its own");
    // Runs that are still at work end by themselves: the test waits only for their rows to go.
    let heads = async || {
        let mut left = 0;
        for key in &keys {
            left += usize::from(engine.find(&flow, key).await.is_ok());
        }
        left
    };
    while heads().await > 0 {
        tokio::task::yield_now().await;
    }
    engine.close().await.unwrap();
    drop(engine);
    let store = onceflow_store::Store::open(place.path()).await.unwrap();
    let values = store.values_of(Default::default()).await.unwrap();
    while values.reclaim(usize::MAX).await.unwrap().more {}
    let rows = values.rows().await.unwrap();
    let left: Vec<_> = rows.iter().filter(|(group, _)| group != "values.sweeper").collect();
    assert!(left.is_empty(), "{left:?}");
    for group in ["runs", "runs.due"] {
        let scan = onceflow_store::records::Scan::of(onceflow_core::Group::rows(group), 10);
        let page = store.records_of(Default::default()).scan(Default::default(), scan).await.unwrap();
        assert!(page.rows.is_empty(), "{group}: {:?}", page.rows);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_handle_whose_run_was_replanned_to_other_inputs_is_superseded() {
    static GATE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);
    #[task]
    async fn pass(n: u64) -> u64 {
        GATE.acquire().await.unwrap().forget();
        n
    }
    let flow = Flow::new("pass", ["n"], ["n"], |f, n: Port<u64>| f.add(pass(n)));
    let engine = Engine::in_memory();
    let first = engine.start(&flow, 1).key("k").await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn({
        let first = first.clone();
        async move { first.result().await }
    });
    let second = engine.start(&flow, 2).key("k").await.unwrap();
    GATE.add_permits(10);
    assert_eq!(second.result().await.unwrap(), 2);
    let error = waiting.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, Error::Superseded { key } if key == "k"), "{error}");
    assert!(matches!(first.output(&flow.outputs()).await, Err(Error::Superseded { .. })));
    assert!(matches!(first.wait().await, Err(Error::Superseded { .. })));
    // A finished run that is started again gives the same; a caller that finds a run takes whatever it gives.
    let third = engine.start(&flow, 3).key("k").await.unwrap();
    assert_eq!(third.result().await.unwrap(), 3);
    assert!(matches!(second.result().await, Err(Error::Superseded { .. })));
    assert_eq!(engine.find(&flow, "k").await.unwrap().result().await.unwrap(), 3);
    // Asked for the same, two handles answer the same.
    let again = engine.start(&flow, 3).key("k").await.unwrap();
    assert_eq!((again.result().await.unwrap(), third.result().await.unwrap()), (3, 3));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_run_without_a_key_answers_as_long_as_it_is_held() {
    let flow = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    let engine = Engine::in_memory();
    let run = engine.start(&flow, "a".into()).await.unwrap();
    let other = run.clone();
    assert_eq!(run.result().await.unwrap(), "A");
    drop(run);
    assert_eq!(other.result().await.unwrap(), "A", "a clone is a handle, too");
    // An explicit history is respected.
    let kept = engine.start(&flow, "b".into()).history(Duration::from_secs(60)).await.unwrap();
    assert_eq!(kept.result().await.unwrap(), "B");
    let key = kept.key().to_owned();
    drop(kept);
    assert_eq!(engine.find(&flow, &key).await.unwrap().result().await.unwrap(), "B");
    engine.close().await.unwrap();
}
