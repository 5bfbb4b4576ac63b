//! Cleanup: operations first, then all cleanup flows at once, then the result.

use super::support::{Clock, Dropped, Log, drains};
use onceflow::scope::{BufferKeep, BufferKey, CancelCause, Mishap, Scope, Service, SessionPhase};
use std::time::Duration;

fn cause(cancelled: onceflow::scope::Cancellation) -> (String, String) {
    cancelled.real_cause()
}

#[tokio::test]
async fn cancelled_session_hands_its_buffer_to_the_cleanup_flow() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer(BufferKeep::All);
        let [store, cancel] = s.start().fork_clone();
        store.store(buffer);
        cancel.map(|_| None::<i64>).cancel_on_none(s).terminate(s);
        s.on_cancel("send", (buffer,), &drains(&log, "found")).unlimited();
    });
    let end = clock.run(&scope.unwrap(), 5).await.unwrap_err();
    assert_eq!(end.real_cause().1, "nothing came");
    assert_eq!(log.lines(), ["found [5]"]);
}

#[tokio::test]
async fn cleanup_flows_run_at_the_ends_they_are_for() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<i64, i64>::build(|s| {
        let buffers = [0; 3].map(|_| s.buffer::<i64>(BufferKeep::All));
        let [a, b, c, check] = s.start().fork_clone();
        for (chain, buffer) in [a, b, c].into_iter().zip(buffers) {
            chain.store(buffer);
        }
        check.map(|v| if v >= 5 { Ok(v) } else { Err("too small") }).cancel_on_err(s).terminate(s);
        s.on_cancel("c", (buffers[0],), &drains(&log, "cancel")).unlimited();
        s.on_terminate("t", (buffers[1],), &drains(&log, "terminate")).unlimited();
        s.on_cleanup("k", (buffers[2],), &drains(&log, "cleanup")).unlimited();
    });
    let scope = scope.unwrap();
    assert_eq!(cause(clock.run(&scope, 3).await.unwrap_err()).1, "too small");
    assert_eq!(log.sorted(), ["cancel [3]", "cleanup [3]"]);
    assert_eq!(clock.run(&scope, 6).await, Ok(6));
    assert_eq!(log.sorted(), ["cancel [3]", "cleanup [3]", "cleanup [6]", "terminate [6]"]);
}

#[tokio::test]
async fn failed_cleanup_is_reported_and_the_result_stands() {
    let (clock, log) = (Clock::new(), Log::default());
    let broken = Scope::<(BufferKey<i64>,), ()>::build(|s| s.start().map(|_| "broken").connect(s.cancel())).unwrap();
    let scope = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        s.start().terminate(s);
        s.on_cleanup("good", (buffer,), &drains(&log, "good")).unlimited();
        s.on_cleanup("bad", (buffer,), &broken).unlimited();
    });
    let end = clock.end(&scope.unwrap(), 1).await;
    assert_eq!(end.result, Ok(1));
    assert_eq!(log.lines(), ["good []"]);
    assert_eq!(end.mishaps.len(), 1);
    assert!(end.mishaps[0].to_string().ends_with("broken"), "{}", end.mishaps[0]);
}

fn waits(clock: &Clock, log: &Log, label: &'static str, ms: u64) -> Scope<(BufferKey<i64>,), ()> {
    let (clock, log) = (clock.clone(), log.clone());
    let build = Scope::build(|s| {
        let wait = s.start().map_async(move |_| clock.wait(ms));
        wait.map(move |()| log.add(label)).terminate(s);
    });
    build.unwrap()
}

#[tokio::test]
async fn cleanup_flows_run_together_and_the_result_follows_them() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        s.start().terminate(s);
        s.on_cleanup("one", (buffer,), &waits(&clock, &log, "one", 100)).unlimited();
        s.on_cleanup("two", (buffer,), &waits(&clock, &log, "two", 100)).unlimited();
    });
    let began = clock.now();
    let mut run = scope.unwrap().open(&clock.world(), 1);
    assert_eq!(run.phase(), SessionPhase::CleaningBuffers);
    assert_eq!(clock.end_of(&mut run).await.result, Ok(1));
    assert_eq!((log.sorted(), clock.now() - began), (vec!["one".into(), "two".into()], 100));
}

#[tokio::test]
async fn messages_on_their_way_into_a_buffer_are_in_it_at_cleanup() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<i64, i64>::build(|s| {
        let (one, two) = (s.buffer(BufferKeep::All), s.buffer(BufferKeep::All));
        let [end, store, push] = s.start().fork_clone();
        end.terminate(s);
        store.store(one);
        push.push(two).dispose();
        s.on_cleanup("one", (one,), &drains(&log, "one")).unlimited();
        s.on_cleanup("two", (two,), &drains(&log, "two")).unlimited();
    });
    assert_eq!(clock.run(&scope.unwrap(), 8).await, Ok(8));
    assert_eq!(log.sorted(), ["one [8]", "two [8]"]);
}

/// A nested scope that stores its input, then works for some time.
fn nested(clock: &Clock, log: &Log, is_uninterruptible: bool) -> Scope<i64, i64> {
    let (work, done) = (clock.clone(), log.clone());
    let build = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer(BufferKeep::All);
        let [store, go] = s.start().fork_clone();
        store.store(buffer);
        let worked = go.map_async(move |v| {
            let wait = work.wait(1000);
            async move {
                wait.await;
                v
            }
        });
        worked
            .map(move |v| {
                done.add("worked");
                v
            })
            .terminate(s);
        s.on_cancel("c", (buffer,), &drains(log, "nested cancel")).unlimited();
        s.on_terminate("t", (buffer,), &drains(log, "nested terminate")).unlimited();
        if is_uninterruptible {
            s.uninterruptible();
        }
    });
    build.unwrap()
}

#[tokio::test]
async fn parent_that_ends_cancels_a_nested_scope_and_waits_for_its_cleanup() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<i64, i64>::build(|s| {
        let [slow, fast] = s.start().fork_clone();
        slow.call(&nested(&clock, &log, false)).result.dispose();
        fast.map_async(|v| async move { v }).terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 4).await, Ok(4));
    assert_eq!(log.lines(), ["nested cancel [4]"]);
}

#[tokio::test]
async fn cleanup_flows_have_cleanup_flows() {
    let (clock, log) = (Clock::new(), Log::default());
    let outer_log = log.clone();
    let outer = Scope::<(BufferKey<i64>,), ()>::build(|s| {
        let own = s.buffer::<i64>(BufferKeep::All);
        let found = s.start().map(move |(key,): (BufferKey<i64>,)| {
            outer_log.add("outer");
            key.pull().unwrap()
        });
        found.push(own).terminate(s);
        s.on_cleanup("inner", (own,), &drains(&log, "inner")).unlimited();
    });
    let scope = Scope::<i64, ()>::build(|s| {
        let buffer = s.buffer(BufferKeep::All);
        s.start().push(buffer).terminate(s);
        s.on_cleanup("outer", (buffer,), &outer.unwrap()).unlimited();
    });
    assert_eq!(clock.run(&scope.unwrap(), 3).await, Ok(()));
    assert_eq!(log.lines(), ["outer", "inner [3]"]);
}

#[tokio::test]
async fn entries_that_two_cleanups_want_go_to_one_of_them() {
    let (clock, log) = (Clock::new(), Log::default());
    let scope = Scope::<Vec<i64>, ()>::build(|s| {
        let buffer = s.buffer(BufferKeep::All);
        s.start().spread().push(buffer).collect(3, None).trigger().terminate(s);
        s.on_cleanup("one", (buffer,), &drains(&log, "")).unlimited();
        s.on_cleanup("two", (buffer,), &drains(&log, "")).unlimited();
    });
    assert_eq!(clock.run(&scope.unwrap(), vec![1, 2, 3]).await, Ok(()));
    assert_eq!(log.sorted(), [" [1, 2, 3]", " []"]);
}

#[tokio::test]
async fn parent_that_ends_waits_for_a_nested_scope_that_is_cleaning_already() {
    let (clock, log) = (Clock::new(), Log::default());
    let cleaning = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        s.start().terminate(s);
        s.on_terminate("slow", (buffer,), &waits(&clock, &log, "cleaned", 500)).unlimited();
    });
    let pause = clock.clone();
    let scope = Scope::<i64, i64>::build(|s| {
        let [slow, fast] = s.start().fork_clone();
        slow.call(&cleaning.unwrap()).result.dispose();
        let fast = fast.map_async(move |v| {
            let wait = pause.wait(10);
            async move {
                wait.await;
                v
            }
        });
        fast.terminate(s);
    });
    let began = clock.now();
    assert_eq!(clock.run(&scope.unwrap(), 2).await, Ok(2));
    assert_eq!((log.lines(), clock.now() - began), (vec!["cleaned".into()], 500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_waits_for_a_future_that_does_not_yield() {
    let (log, other) = (Log::default(), Log::default());
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (is_in, entered) = std::sync::mpsc::channel::<()>();
    let (blocked, in_future) = (std::sync::Mutex::new(blocked), log.clone());
    let blocked = std::sync::Arc::new(blocked);
    let scope = Scope::<i64, i64>::build(|s| {
        let [stuck, fast] = s.start().fork_clone();
        let stuck = stuck.map_async(move |_| {
            let (blocked, is_in, log) = (blocked.clone(), is_in.clone(), in_future.clone());
            async move {
                is_in.send(()).unwrap();
                blocked.lock().unwrap().recv().unwrap();
                log.add("side effect");
            }
        });
        stuck.dispose();
        let entered = std::sync::Arc::new(std::sync::Mutex::new(entered));
        let fast = fast.map_async(move |v| {
            let entered = entered.clone();
            async move {
                entered.lock().unwrap().recv().unwrap();
                v
            }
        });
        fast.terminate(s);
    });
    let world: std::sync::Arc<dyn onceflow_store::World> = onceflow_store::world::RealWorld::here();
    let run = scope.unwrap().open(&world, 1);
    let ended = async {
        let result = run.await;
        other.add(format!("result after {:?}", log.lines()));
        result
    };
    let release = async { release.send(()).unwrap() };
    let (result, ()) = tokio::join!(ended, release);
    assert_eq!(result, Ok(1));
    assert_eq!(other.lines(), [r#"result after ["side effect"]"#]);
}

#[tokio::test]
async fn cleanup_that_never_ends_is_cancelled_at_its_limit_and_reported() {
    let (clock, log) = (Clock::new(), Log::default());
    let guard = log.clone();
    let endless = Scope::<(BufferKey<i64>,), ()>::build(|s| {
        let wait = s.start().map_async(move |_| {
            let guard = Dropped(guard.clone(), "dropped");
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }
        });
        wait.terminate(s);
    });
    let scope = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        s.start().terminate(s);
        s.on_cleanup("endless", (buffer,), &endless.unwrap()).timeout(Duration::from_secs(30));
    });
    let end = clock.end(&scope.unwrap(), 9).await;
    assert_eq!(end.result, Ok(9));
    assert_eq!(end.mishaps, [Mishap::CleanupTimedOut { flow: "endless".into(), after_ms: 30_000 }]);
    assert_eq!(log.lines(), ["dropped"]);
}

#[tokio::test]
async fn uninterruptible_nested_scope_ends_by_itself_before_its_parent() {
    for is_cancelled in [false, true] {
        let (clock, log) = (Clock::new(), Log::default());
        let scope = Scope::<i64, i64>::build(|s| {
            let [slow, fast] = s.start().fork_clone();
            slow.call(&nested(&clock, &log, true)).result.dispose();
            let fast = fast.map_async(|v| async move { v });
            if is_cancelled {
                fast.map(|_| "enough").connect(s.cancel());
            } else {
                fast.terminate(s);
            }
        });
        let result = clock.run(&scope.unwrap(), 4).await;
        assert_eq!(result.is_err(), is_cancelled);
        assert_eq!(log.lines(), ["worked", "nested terminate [4]"]);
    }
}

#[tokio::test]
async fn serial_service_lets_the_next_request_in_after_the_cleanup_of_the_last() {
    let (clock, log) = (Clock::new(), Log::default());
    let (begun, cleanup) = (log.clone(), waits(&clock, &log, "cleaned", 50));
    let flow = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        s.start()
            .map(move |v| {
                begun.add(format!("begin {v}"));
                v
            })
            .terminate(s);
        s.on_cleanup("clean", (buffer,), &cleanup).unlimited();
    });
    let service = Service::serial(onceflow::scope::Provider::scope(&flow.unwrap()));
    let scope = Scope::<i64, i64>::build(|s| s.start().serve(&service).terminate(s)).unwrap();
    let (one, two) = (scope.open(&clock.world(), 1), scope.open(&clock.world(), 2));
    let both = async { tokio::join!(one, two) };
    assert_eq!(clock.until(both).await, (Ok(1), Ok(2)));
    assert_eq!(log.lines(), ["begin 1", "cleaned", "begin 2", "cleaned"]);
}

#[tokio::test]
async fn request_to_cancel_an_uninterruptible_session_is_deferred() {
    let (clock, log) = (Clock::new(), Log::default());
    let mut run = nested(&clock, &log, true).open(&clock.world(), 6);
    run.cancel("changed my mind");
    assert_eq!(run.phase(), SessionPhase::Deferred);
    assert_eq!(clock.end_of(&mut run).await.result, Ok(6));
    let mut run = nested(&clock, &log, false).open(&clock.world(), 6);
    run.cancel("changed my mind");
    let cancelled = clock.end_of(&mut run).await.result.unwrap_err();
    assert_eq!(cancelled.cause, CancelCause::Requested("changed my mind".into()));
}
