//! Savepoints: made whole or not at all, and begun from by other pipelines.

use crate::{
    bed::{Bed, MemorySink, options},
    life::{expected, now, phase, sums},
    upgrade::{HALF, LAST, Numbers, read},
};
use futures_util::FutureExt;
use onceflow_core::{Group, Shard};
use onceflow_store::{
    Records,
    records::Scan,
    testing::fault::{self, Fault, FaultPlan, Faulty},
};
use onceflow_stream::{
    EdgeMode, Pipeline, StreamError, StreamOptions, StreamPhase, begin_from_savepoint, make_savepoint, pause,
    pipelines, remove_savepoint, resume, savepoints,
};

/// Longer than the lease of a copy.
const LEASE_MS: u64 = 31_000;

fn pipeline(name: &str, numbers: &Numbers, edges: EdgeMode, sink: &MemorySink) -> Pipeline {
    sums(name, numbers, StreamOptions { bundle_records: 20, ..options(edges) }, sink)
}

/// Runs `p` until it is paused at about half of the numbers, with windows that are open; its worker is killed.
async fn paused(bed: &Bed, numbers: &Numbers, edges: EdgeMode) -> MemorySink {
    let sink = MemorySink::default();
    numbers.give(LAST);
    let stops = || {
        if read(bed) >= HALF && phase(&*bed.store) == Some(StreamPhase::Running) {
            assert!(now(pause(&*bed.store, "p")).unwrap());
        }
        phase(&*bed.store) == Some(StreamPhase::Paused)
    };
    assert!(bed.run_on(&pipeline("p", numbers, edges, &sink), bed.store.clone(), stops).await.is_none());
    bed.world.advance(100);
    sink
}

/// Rows below a prefix: of the pipeline, and of its partitions.
async fn rows_below(store: &dyn Records, prefix: &str) -> usize {
    let mut groups = vec![Group::rows(prefix)];
    for stage in 0..3u16 {
        for partition in 0..2u16 {
            let station = [stage.to_be_bytes(), partition.to_be_bytes()].concat();
            groups.push(Group::rows([prefix.as_bytes(), b"/state", &station].concat()));
        }
    }
    let mut rows = 0;
    for group in groups {
        rows += store.scan(Shard(0), Scan::of(group, 4096)).await.unwrap().rows.len();
    }
    rows
}

#[tokio::test(flavor = "current_thread")]
async fn a_second_pipeline_begins_where_the_savepoint_was_made() {
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        let (bed, numbers) = (Bed::new(), Numbers::new(LAST));
        let (store, world) = (&*bed.store, &*bed.world);
        let sink = paused(&bed, &numbers, edges).await;
        let before = sink.lines();
        let made = now(make_savepoint(store, world, "p", "half")).unwrap();
        assert!(made.rows > 0 && made.stream == "p");
        assert!(matches!(now(make_savepoint(store, world, "p", "half")), Err(StreamError::SavepointExists { .. })));
        now(resume(store, "p")).unwrap();
        assert!(bed.run(&pipeline("p", &numbers, edges, &sink)).await.unwrap().has_ended);
        assert_eq!(sink.lines(), expected());
        // The first has ended; the second begins in the middle, with the windows that were open.
        let second = MemorySink::default();
        assert!(matches!(now(begin_from_savepoint(store, world, "half", "p")), Err(StreamError::Exists { .. })));
        now(begin_from_savepoint(store, world, "half", "q")).unwrap();
        let result = bed.run(&pipeline("q", &numbers, edges, &second)).await.unwrap();
        let at = LAST - result.stages[0].counts.records_in;
        assert!((HALF..LAST).contains(&at), "{at}");
        let mut both = [before, second.lines()].concat();
        both.sort();
        assert_eq!(both, expected(), "{edges:?}");
        assert_eq!(now(savepoints(store)).unwrap(), [made]);
        assert!(now(remove_savepoint(store, "half")).unwrap());
        assert!(!now(remove_savepoint(store, "half")).unwrap());
        assert_eq!(rows_below(store, "savepoint/half").await, 0);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_savepoint_is_whole_or_leaves_nothing_whichever_call_fails() {
    for fault in Fault::ALL {
        fault::for_every_n(fault, async |plan: FaultPlan| {
            let (bed, numbers) = (Bed::new(), Numbers::new(LAST));
            let (store, world) = (&*bed.store, &*bed.world);
            let sink = paused(&bed, &numbers, EdgeMode::Local).await;
            let faulty = Faulty::new(bed.store.clone(), plan.clone());
            let made = make_savepoint(&*faulty, world, "p", "half").now_or_never();
            bed.world.advance(LEASE_MS);
            let found = now(savepoints(store)).unwrap();
            match (&made, &found[..]) {
                (Some(Ok(made)), [found]) => assert_eq!(made, found),
                (Some(Ok(_)), _) => panic!("a savepoint that was made is not there"),
                (_, [_]) => {}
                _ => {
                    assert_eq!(rows_below(store, "savepoint/half").await, 0);
                    now(make_savepoint(store, world, "p", "half")).unwrap();
                }
            }
            let (before, second) = (sink.lines(), MemorySink::default());
            now(begin_from_savepoint(store, world, "half", "q")).unwrap();
            bed.run(&pipeline("q", &numbers, EdgeMode::Local, &second)).await.unwrap();
            let mut both = [before, second.lines()].concat();
            both.sort();
            assert_eq!(both, expected());
        })
        .await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_pipeline_from_a_savepoint_is_whole_or_not_there_whichever_call_fails() {
    for fault in Fault::ALL {
        fault::for_every_n(fault, async |plan: FaultPlan| {
            let (bed, numbers) = (Bed::new(), Numbers::new(LAST));
            let (store, world) = (&*bed.store, &*bed.world);
            let sink = paused(&bed, &numbers, EdgeMode::Local).await;
            now(make_savepoint(store, world, "p", "half")).unwrap();
            let faulty = Faulty::new(bed.store.clone(), plan.clone());
            let _begun = begin_from_savepoint(&*faulty, world, "half", "q").now_or_never();
            bed.world.advance(LEASE_MS);
            assert_eq!(now(savepoints(store)).unwrap().len(), 1);
            if !now(pipelines(store)).unwrap().contains(&String::from("q")) {
                assert_eq!(rows_below(store, "stream/q").await, 0);
                now(begin_from_savepoint(store, world, "half", "q")).unwrap();
            }
            let second = MemorySink::default();
            bed.run(&pipeline("q", &numbers, EdgeMode::Local, &second)).await.unwrap();
            let mut both = [sink.lines(), second.lines()].concat();
            both.sort();
            assert_eq!(both, expected());
        })
        .await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_pipeline_that_works_has_no_savepoint() {
    let (bed, numbers, sink) = (Bed::new(), Numbers::new(LAST), MemorySink::default());
    numbers.give(LAST);
    // Killed with records on their way.
    let stops = || read(&bed) >= HALF;
    let worker = pipeline("p", &numbers, EdgeMode::Local, &sink);
    assert!(bed.run_on(&worker, bed.store.clone(), stops).await.is_none());
    let made = now(make_savepoint(&*bed.store, &*bed.world, "p", "half"));
    assert!(matches!(made, Err(StreamError::NotQuiet { .. })), "{made:?}");
    assert!(matches!(
        now(begin_from_savepoint(&*bed.store, &*bed.world, "half", "q")),
        Err(StreamError::NoSavepoint { .. })
    ));
    assert_eq!(now(savepoints(&*bed.store)).unwrap(), []);
}
