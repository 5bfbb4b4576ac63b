//! Buffers, keys, joins, gates, trims and streams.

use super::support::{Clock, Dropped, Log};
use onceflow::scope::{BufferKeep, BufferKey, CancelCause, Provider, Scope, StreamTag, TrimPart};
use std::collections::BTreeMap;

#[tokio::test]
async fn join_takes_the_oldest_of_each_until_one_is_empty() {
    let clock = Clock::new();
    let scope = Scope::<(Vec<i64>, Vec<char>), Vec<(i64, char)>>::build(|s| {
        let (numbers, letters) = (s.buffer(BufferKeep::All), s.buffer(BufferKeep::All));
        let (a, b) = s.start().unzip();
        a.spread().store(numbers);
        b.spread().store(letters);
        s.join((numbers, letters)).collect(2, Some(2)).terminate(s);
    });
    let result = clock.run(&scope.unwrap(), (vec![1, 2, 3], vec!['a', 'b'])).await;
    assert_eq!(result, Ok(vec![(1, 'a'), (2, 'b')]));
}

#[tokio::test]
async fn join_that_only_copies_gives_once_for_each_change() {
    let clock = Clock::new();
    let scope = Scope::<i64, Vec<(i64, i64)>>::build(|s| {
        let (a, b) = (s.buffer::<i64>(BufferKeep::Last(1)), s.buffer::<i64>(BufferKeep::Last(1)));
        let [one, two] = s.start().fork_clone();
        one.store(a);
        two.map(|v| vec![v, v + 1, v + 2]).spread().store(b);
        s.join((a.by_clone(), b.by_clone())).collect(0, None).terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 1).await, Ok(vec![(1, 1), (1, 2), (1, 3)]));
}

#[tokio::test]
async fn lists_and_maps_of_buffers_are_joined() {
    let clock = Clock::new();
    let scope = Scope::<i64, (Vec<i64>, BTreeMap<&'static str, i64>)>::build(|s| {
        let list: Vec<_> = (0..3).map(|_| s.buffer::<i64>(BufferKeep::All)).collect();
        let map: BTreeMap<_, _> = ["x", "y"].into_iter().map(|name| (name, s.buffer::<i64>(BufferKeep::All))).collect();
        let mut branches = s.start().fork_clone_to(5).into_iter();
        for (add, buffer) in list.iter().chain(map.values()).copied().enumerate() {
            branches.next().unwrap().map(move |v| v + i64::try_from(add).unwrap()).store(buffer);
        }
        let (left, right) = (s.buffer(BufferKeep::All), s.buffer(BufferKeep::All));
        s.join(list).store(left);
        s.join(map).store(right);
        s.join((left, right)).terminate(s);
    });
    let expected = (vec![10, 11, 12], BTreeMap::from([("x", 13), ("y", 14)]));
    assert_eq!(clock.run(&scope.unwrap(), 10).await, Ok(expected));
}

#[tokio::test]
async fn key_held_by_a_future_keeps_the_session_reachable_until_it_is_dropped() {
    let clock = Clock::new();
    let pause = clock.clone();
    let scope = Scope::<bool, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        let keep = s.start().access((buffer,)).map(move |(pushes, (key,)): (bool, (BufferKey<i64>,))| {
            let wait = pause.wait(100);
            // A task outside the scope holds the key.
            let hold = async move {
                wait.await;
                if pushes {
                    key.push(7).unwrap();
                }
            };
            pause.world().spawn("holder", Box::pin(hold));
        });
        keep.dispose();
        s.join((buffer,)).map(|(v,)| v).terminate(s);
    });
    let scope = scope.unwrap();
    let began = clock.now();
    assert_eq!(clock.run(&scope, true).await, Ok(7));
    let cancelled = clock.run(&scope, false).await.unwrap_err();
    assert_eq!((cancelled.cause, clock.now() - began), (CancelCause::Unreachable, 200));
}

#[tokio::test]
async fn listener_is_not_woken_by_its_own_writes_unless_it_asks() {
    for listens_to_itself in [false, true] {
        let (clock, log) = (Clock::new(), Log::default());
        let woken = log.clone();
        let scope = Scope::<i64, i64>::build(|s| {
            let buffer = s.buffer::<i64>(BufferKeep::All);
            s.start().store(buffer);
            let keys = if listens_to_itself { s.listen_to_itself((buffer,)) } else { s.listen((buffer,)) };
            let sum = keys.map(move |(key,): (BufferKey<i64>,)| {
                woken.add(format!("{:?}", key.fetch_all()));
                if key.len() < 3 {
                    key.push(10).unwrap();
                }
                i64::try_from(key.len()).unwrap()
            });
            sum.filter_map(move |len| (len == 3).then_some(len)).terminate(s);
        });
        let result = clock.run(&scope.unwrap(), 1).await;
        if listens_to_itself {
            assert_eq!(result, Ok(3));
            assert_eq!(log.lines(), ["[1]", "[1, 10]"]);
        } else {
            assert_eq!(result.unwrap_err().cause, CancelCause::Unreachable);
            assert_eq!(log.lines(), ["[1]"]);
        }
    }
}

#[tokio::test]
async fn closed_gate_holds_data_back_until_it_opens() {
    let (clock, log) = (Clock::new(), Log::default());
    let (seen, pause) = (log.clone(), clock.clone());
    let scope = Scope::<i64, i64>::build(|s| {
        let (gated, other) = (s.buffer::<i64>(BufferKeep::All), s.buffer::<i64>(BufferKeep::All));
        let [fill, open] = s.start().close_gate(&(gated,)).fork_clone();
        let [one, two] = fill.map(|v| vec![v, v + 1]).fork_clone();
        one.spread().store(gated);
        two.spread().store(other);
        let open = open.map_async(move |v| {
            let wait = pause.wait(10);
            async move {
                wait.await;
                v
            }
        });
        let opened = log.clone();
        open.map(move |v| {
            opened.add("open");
            v
        })
        .open_gate(&(gated,))
        .dispose();
        s.join((gated, other))
            .map(move |(a, b)| {
                seen.add(format!("{a} {b}"));
                a + b
            })
            .collect(2, None)
            .map(|sums| sums.iter().sum())
            .terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 1).await, Ok(6));
    assert_eq!(log.lines(), ["open", "1 1", "2 2"]);
}

#[tokio::test]
async fn opening_a_gate_wakes_a_listener_once_with_all_that_is_there() {
    let clock = Clock::new();
    let scope = Scope::<i64, Vec<Vec<i64>>>::build(|s| {
        let gated = s.buffer::<i64>(BufferKeep::All);
        let [fill, open] = s.start().gate(&(gated,), |_| false).fork_clone();
        fill.map(|v| vec![v, v + 1, v + 2]).spread().store(gated);
        open.map_async(|v| async move { v }).gate(&(gated,), |_| true).dispose();
        s.listen((gated,)).map(|(key,): (BufferKey<i64>,)| key.drain()).collect(1, None).terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 1).await, Ok(vec![vec![1, 2, 3]]));
}

#[tokio::test]
async fn gate_that_nothing_can_open_makes_its_readers_unreachable() {
    let clock = Clock::new();
    let scope = Scope::<i64, i64>::build(|s| {
        let gated = s.buffer::<i64>(BufferKeep::All);
        s.start().close_gate(&(gated,)).store(gated);
        s.join((gated,)).map(|(v,)| v).terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 1).await.unwrap_err().cause, CancelCause::Unreachable);
}

const POSE: StreamTag<i64> = StreamTag::new("pose");

#[tokio::test]
async fn streams_arrive_in_order_and_before_the_result() {
    let clock = Clock::new();
    let inner = Scope::<i64, i64>::build(|s| {
        let (result, poses) = s.start().stream_async(|v, poses| async move {
            for pose in 0..v {
                poses.send(pose);
                tokio::task::yield_now().await;
            }
            v
        });
        poses.connect(s.stream(POSE));
        result.terminate(s);
    });
    let outer = Scope::<i64, i64>::build(|s| {
        let node = s.start().call(&inner.unwrap());
        node.stream(POSE).map(|pose| pose * 10).connect(s.stream(POSE));
        node.result.terminate(s);
    });
    let mut run = outer.unwrap().open(&clock.world(), 100);
    let mut poses = run.stream(POSE);
    assert_eq!(clock.end_of(&mut run).await.result, Ok(100));
    assert_eq!(poses.take_ready(), (0..100).map(|pose| pose * 10).collect::<Vec<_>>());
    assert_eq!(poses.next().await, None);
}

#[tokio::test]
async fn overlapping_sessions_never_see_each_others_data() {
    let clock = Clock::new();
    let pause = clock.clone();
    let scope = Scope::<i64, (i64, i64)>::build(|s| {
        let (a, b) = (s.buffer::<i64>(BufferKeep::All), s.buffer::<i64>(BufferKeep::All));
        let [one, two] = s.start().fork_clone();
        one.store(a);
        two.map_async(move |v| {
            let wait = pause.wait(u64::try_from(100 - v).unwrap());
            async move {
                wait.await;
                v
            }
        })
        .store(b);
        s.join((a, b)).terminate(s);
    });
    let scope = scope.unwrap();
    let runs: Vec<_> = (0..50).map(|v| scope.open(&clock.world(), v)).collect();
    for (v, run) in (0..).zip(runs) {
        assert_eq!(clock.until(run).await, Ok((v, v)));
    }
}

#[tokio::test]
async fn trim_ends_a_branch_really_before_it_goes_on() {
    let (clock, log) = (Clock::new(), Log::default());
    let (guard, after) = (log.clone(), log.clone());
    let scope = Scope::<i64, i64>::build(|s| {
        let [slow, trim] = s.start().fork_clone();
        let slow = slow.map_async(move |v| {
            let guard = Dropped(guard.clone(), "dropped");
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                v
            }
        });
        let point = slow.point();
        slow.map(|v| v + 1).terminate(s);
        let trim = trim.map_async(|v| async move {
            tokio::task::yield_now().await;
            v
        });
        trim.trim(TrimPart::Point(point))
            .map(move |v| {
                after.add("after");
                v
            })
            .terminate(s);
    });
    assert_eq!(clock.run(&scope.unwrap(), 3).await, Ok(3));
    assert_eq!(log.lines(), ["dropped", "after"]);
}

#[tokio::test]
async fn message_may_bring_its_task_along() {
    let clock = Clock::new();
    let nested = Scope::<i64, i64>::build(|s| s.start().map(|v| v * 100).terminate(s)).unwrap();
    let scope = Scope::<i64, i64>::build(|s| {
        let chosen = s.start().map(move |v| match v {
            1 => (v, Provider::map(|v| v + 1)),
            2 => (v, Provider::future(|v| async move { v + 10 })),
            _ => (v, Provider::scope(&nested)),
        });
        chosen.inject().terminate(s);
    });
    let scope = scope.unwrap();
    for (input, output) in [(1, 2), (2, 12), (3, 300)] {
        assert_eq!(clock.run(&scope, input).await, Ok(output));
    }
}

#[tokio::test]
async fn buffers_keep_the_first_the_last_or_all() {
    let clock = Clock::new();
    for (keep, kept) in
        [(BufferKeep::Last(2), vec![3, 4]), (BufferKeep::First(2), vec![1, 2]), (BufferKeep::All, vec![1, 2, 3, 4])]
    {
        let scope = Scope::<Vec<i64>, Vec<i64>>::build(|s| {
            let buffer = s.buffer::<i64>(keep);
            let pushed = s.start().spread().push(buffer).collect(0, None).access((buffer,));
            pushed.map(|(_, (key,)): (_, (BufferKey<i64>,))| key.drain()).terminate(s);
        });
        assert_eq!(clock.run(&scope.unwrap(), vec![1, 2, 3, 4]).await, Ok(kept));
    }
}

#[tokio::test]
async fn waiting_for_a_change_of_a_buffer_ends_with_the_change() {
    let clock = Clock::new();
    let pause = clock.clone();
    let scope = Scope::<i64, i64>::build(|s| {
        let buffer = s.buffer::<i64>(BufferKeep::All);
        let [wait, write] = s.start().fork_clone();
        let waited = wait.access((buffer,)).map_async(|(_, (key,)): (i64, (BufferKey<i64>,))| async move {
            while key.is_empty() {
                key.changed().await;
            }
            key.pull().unwrap()
        });
        waited.terminate(s);
        let write = write.map_async(move |v| {
            let wait = pause.wait(5);
            async move {
                wait.await;
                v
            }
        });
        write.store(buffer);
    });
    assert_eq!(clock.run(&scope.unwrap(), 9).await, Ok(9));
}

#[tokio::test]
async fn lists_and_maps_are_split_by_index_and_key() {
    let clock = Clock::new();
    let list = Scope::<Vec<i64>, (i64, Vec<i64>)>::build(|s| {
        let (first, rest) = (s.buffer(BufferKeep::All), s.buffer(BufferKeep::All));
        let ([one, two], others) = s.start().split();
        one.store(first);
        two.dispose();
        others.store(rest);
        s.join((first, rest)).terminate(s);
    });
    assert_eq!(clock.run(&list.unwrap(), vec![1, 2, 3, 4]).await, Ok((1, vec![3, 4])));
    let map = Scope::<BTreeMap<&'static str, i64>, i64>::build(|s| {
        let ([a], rest) = s.start().split_keys(["a"]);
        a.terminate(s);
        rest.dispose();
    });
    let map = map.unwrap();
    assert_eq!(clock.run(&map, BTreeMap::from([("a", 1), ("b", 2)])).await, Ok(1));
    let cancelled = clock.run(&map, BTreeMap::from([("b", 2)])).await.unwrap_err();
    assert!(cancelled.to_string().contains("the message has no such part"), "{cancelled}");
}
