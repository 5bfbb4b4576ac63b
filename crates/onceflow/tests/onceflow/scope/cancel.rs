//! Cancellation and reachability.

use super::support::{Clock, Dropped, Log};
use onceflow::scope::{BufferKeep, CancelCause, DisposalCause, Scope, ScopeFault, StreamTag};
use std::time::Duration;

#[tokio::test]
async fn scopes_that_nothing_can_end_are_refused_with_the_reason() {
    let unreachable = vec![ScopeFault::TerminateUnreachable];
    let nothing = Scope::<i64, i64>::build(|s| s.start().map(|v| v).dispose());
    let self_loop = Scope::<i64, i64>::build(|s| {
        let (slot, chain) = s.junction::<i64>();
        s.start().connect(slot);
        chain.map(|v| v).connect(slot);
    });
    let branches = Scope::<i64, i64>::build(|s| {
        let [a, b, c] = s.start().fork_clone();
        a.dispose();
        b.dispose();
        c.map(|v| v + 1).dispose();
    });
    let buffer = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer(BufferKeep::All);
        s.start().store(buffer);
    });
    for build in [nothing, self_loop, branches, buffer] {
        assert_eq!(build.err().map(|faults| faults.0), Some(unreachable.clone()));
    }
}

#[tokio::test]
async fn two_collects_on_one_cycle_are_refused() {
    let build = Scope::<i64, Vec<i64>>::build(|s| {
        let (slot, chain) = s.junction::<i64>();
        s.start().connect(slot);
        let [round, end] = chain.collect(1, None).named("one").spread().collect(1, None).named("two").fork_clone();
        round.spread().connect(slot);
        end.terminate(s);
    });
    let faults = build.err().expect("two collects wait for each other").0;
    assert_eq!(faults, [ScopeFault::CircularCollects(vec!["one".into(), "two".into()])]);
}

#[tokio::test]
async fn branch_that_will_never_come_cancels_at_once_with_its_reasons() {
    let clock = Clock::new();
    let scope = Scope::<i64, i64>::build(|s| {
        let [small, large] = s.start().fork_by(|v| usize::from(*v > 9));
        small.terminate(s);
        large.named("size").dispose();
    });
    let cancelled = clock.run(&scope.unwrap(), 10).await.unwrap_err();
    assert_eq!(cancelled.cause, CancelCause::Unreachable);
    let reasons: Vec<_> = cancelled.disposals.iter().map(ToString::to_string).collect();
    assert_eq!(reasons, ["size: another branch was taken", "dispose-2: disposed of"]);
}

#[tokio::test]
async fn nested_sessions_that_are_cancelled_are_left_out_of_a_collection() {
    let clock = Clock::new();
    let small = Scope::<i64, i64>::build(|s| {
        s.start().map(|v| if v < 3 { Ok(v) } else { Err(format!("{v} is too large")) }).cancel_on_err(s).terminate(s);
    });
    let small = small.unwrap();
    let scope =
        Scope::<Vec<i64>, Vec<i64>>::build(|s| s.start().spread().call(&small).result.collect(0, None).terminate(s));
    assert_eq!(clock.run(&scope.unwrap(), (0..5).collect()).await, Ok(vec![0, 1, 2]));
    let one = Scope::<i64, i64>::build(|s| s.start().call(&small).result.named("small").terminate(s)).unwrap();
    let outer = Scope::<i64, i64>::build(|s| s.start().call(&one).result.named("one").terminate(s)).unwrap();
    let (address, cause) = clock.run(&outer, 7).await.unwrap_err().real_cause();
    assert!(address.starts_with("one/small/cancel-"), "{address}");
    assert_eq!(cause, "7 is too large");
}

#[tokio::test]
async fn operations_before_a_cancel_run() {
    let (clock, log) = (Clock::new(), Log::default());
    let record = log.clone();
    let scope = Scope::<Result<i64, String>, i64>::build(|s| {
        let (ok, err) = s.start().fork_result();
        ok.terminate(s);
        err.map(move |e: String| {
            record.add(e.clone());
            e
        })
        .connect(s.cancel());
    });
    assert!(clock.run(&scope.unwrap(), Err("broken".into())).await.is_err());
    assert_eq!(log.lines(), ["broken"]);
}

#[tokio::test]
async fn disposal_does_not_cancel_while_more_may_come() {
    let clock = Clock::new();
    let scope = Scope::<Vec<Result<i64, ()>>, i64>::build(|s| {
        let (ok, err) = s.start().spread().fork_result();
        ok.terminate(s);
        err.dispose();
    });
    let input = vec![Err(()), Err(()), Ok(5), Err(()), Ok(10)];
    assert_eq!(clock.run(&scope.unwrap(), input).await, Ok(5));
}

#[tokio::test]
async fn stream_that_is_never_sent_cancels_when_its_node_is_done() {
    let clock = Clock::new();
    let scope = Scope::<i64, i64>::build(|s| {
        let (result, stream) = s.start().stream_async(|v: i64, _sender| async move { v });
        result.named("node").dispose();
        stream.terminate(s);
    });
    let cancelled = clock.run(&scope.unwrap(), 1).await.unwrap_err();
    let unused = cancelled.disposals.iter().find(|disposal| disposal.cause == DisposalCause::UnusedStream);
    assert_eq!(unused.map(|disposal| (disposal.at.as_str(), disposal.port)), Some(("node", 1)));
}

#[tokio::test]
async fn fast_branch_wins_at_once_and_the_other_future_is_dropped() {
    let (clock, log) = (Clock::new(), Log::default());
    let (slow_clock, guard) = (clock.clone(), log.clone());
    let scope = Scope::<i64, i64>::build(|s| {
        let [slow, fast] = s.start().fork_clone();
        let slow = slow.map_async(move |v| {
            let (wait, guard) = (slow_clock.wait(10_000), Dropped(guard.clone(), "dropped"));
            async move {
                let _guard = guard;
                wait.await;
                v + 1
            }
        });
        slow.terminate(s);
        fast.map_async(|v| async move { v }).terminate(s);
    });
    let began = clock.now();
    assert_eq!(clock.run(&scope.unwrap(), 1).await, Ok(1));
    assert_eq!((log.lines(), clock.now() - began), (vec!["dropped".into()], 0));
}

fn rounds(max: Option<u32>) -> Scope<i64, i64> {
    let build = Scope::<i64, i64>::build(|s| {
        let (slot, chain) = s.junction();
        s.start().connect(slot);
        let [back, on] = chain.map(|v: i64| v.wrapping_mul(3)).named("triple").fork_clone();
        back.connect(slot);
        on.filter_map(move |v| max.is_none().then_some(v)).map(|v| v * 3).terminate(s);
        if let Some(max) = max {
            s.rounds_max(max);
        }
    });
    build.unwrap()
}

#[tokio::test]
async fn endless_side_loop_is_cut_by_the_result() {
    assert_eq!(Clock::new().run(&rounds(None), 4).await, Ok(36));
}

#[tokio::test]
async fn rounds_of_a_cycle_can_be_limited() {
    let cancelled = Clock::new().run(&rounds(Some(20_000)), 1).await.unwrap_err();
    let CancelCause::Rounds { max, .. } = cancelled.cause else { panic!("{cancelled}") };
    assert_eq!(max, 20_000);
}

#[tokio::test]
async fn collection_needs_its_minimum() {
    let clock = Clock::new();
    let scope = Scope::<usize, usize>::build(|s| {
        s.start().map(|n| vec![0; n]).spread().collect(4, None).map(|all| all.len()).terminate(s);
    });
    let scope = scope.unwrap();
    for (copies, expected) in [(0, None), (2, None), (3, None), (4, Some(4)), (5, Some(5)), (8, Some(8))] {
        let result = clock.run(&scope, copies).await;
        assert_eq!(result.as_ref().ok().copied(), expected, "{copies} copies: {result:?}");
        if let Err(cancelled) = result {
            let deficient = DisposalCause::Deficient { held: u32::try_from(copies).unwrap(), min: 4 };
            assert!(cancelled.disposals.iter().any(|disposal| disposal.cause == deficient), "{cancelled}");
        }
    }
}

#[tokio::test]
async fn deadline_ends_a_session_that_takes_too_long() {
    let clock = Clock::new();
    let pause = clock.clone();
    let scope = Scope::<i64, ()>::build(|s| {
        s.start().map_async(move |_| pause.wait(60_000)).terminate(s);
        s.deadline(Duration::from_secs(5));
    });
    let began = clock.now();
    let cancelled = clock.run(&scope.unwrap(), 1).await.unwrap_err();
    assert_eq!((cancelled.cause, clock.now() - began), (CancelCause::Deadline { after_ms: 5000 }, 5000));
}

#[tokio::test]
async fn panic_stays_inside_its_session() {
    let clock = Clock::new();
    let scope = Scope::<i64, i64>::build(|s| {
        s.start()
            .map(|v: i64| if v < 0 { panic!("negative") } else { v })
            .named("sign")
            .map_async(|v: i64| async move { if v == 0 { panic!("zero") } else { v } })
            .named("zero")
            .terminate(s);
    });
    let scope = scope.unwrap();
    let real = |result: Result<i64, onceflow::scope::Cancellation>| result.unwrap_err().real_cause();
    assert_eq!(real(clock.run(&scope, -1).await), ("sign".into(), "panicked: negative".into()));
    assert_eq!(real(clock.run(&scope, 0).await), ("zero".into(), "panicked: zero".into()));
    assert_eq!(clock.run(&scope, 1).await, Ok(1));
}

/// A message that cannot be copied.
#[derive(Debug, PartialEq)]
struct Unique;

impl Clone for Unique {
    fn clone(&self) -> Self {
        panic!("only one")
    }
}

#[tokio::test]
async fn panic_of_a_copy_stays_inside_its_session() {
    let clock = Clock::new();
    let scope = Scope::<Unique, Unique>::build(|s| {
        let [copy, original] = s.start().fork_clone();
        copy.map(|_| ()).named("copy").dispose();
        original.map_async(|v| async move { v }).terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), Unique).await, Ok(Unique));
    let scope = Scope::<Unique, Unique>::build(|s| {
        let [copy, original] = s.start().fork_clone();
        copy.terminate(s);
        original.dispose();
    });
    let (_, cause) = clock.run(&scope.unwrap(), Unique).await.unwrap_err().real_cause();
    assert_eq!(cause, "panicked: copying the message panicked: only one");
}

#[tokio::test]
async fn failure_can_be_reacted_to() {
    let clock = Clock::new();
    let scope = Scope::<i64, String>::build(|s| {
        let half = s.start().try_map(|v| if v % 2 == 0 { Ok(v / 2) } else { Err("odd") }).named("half");
        let failures = s.disposals(&[half.point()]);
        half.map(|v| v.to_string()).terminate(s);
        failures.map(|disposal| disposal.to_string()).terminate(s);
    });
    let scope = scope.unwrap();
    assert_eq!(clock.run(&scope, 8).await.unwrap(), "4");
    assert_eq!(clock.run(&scope, 7).await.unwrap(), "half: failed: odd");
}

#[tokio::test]
async fn dropped_caller_cancels_the_session() {
    let (clock, log) = (Clock::new(), Log::default());
    let guard = log.clone();
    let scope = Scope::<i64, i64>::build(|s| {
        let wait = s.start().map_async(move |v| {
            let guard = Dropped(guard.clone(), "dropped");
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                v
            }
        });
        wait.terminate(s);
    });
    let run = scope.unwrap().open(&clock.world(), 1);
    clock.settle().await;
    assert_eq!(run.overview().len(), 1, "one operation is active");
    drop(run);
    clock.settle().await;
    assert_eq!(log.lines(), ["dropped"]);
}

#[tokio::test]
async fn stream_of_a_nested_scope_that_does_not_exist_is_refused() {
    const NOTHING: StreamTag<i64> = StreamTag::new("nothing");
    let inner = Scope::<i64, i64>::build(|s| s.start().terminate(s)).unwrap();
    let build = Scope::<i64, i64>::build(|s| {
        let node = s.start().call(&inner);
        node.stream(NOTHING).dispose();
        node.result.terminate(s);
    });
    assert_eq!(build.err().map(|faults| faults.0), Some(vec![ScopeFault::UnknownStream("stream nothing".into())]));
}
