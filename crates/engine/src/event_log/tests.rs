//! Event logs are bounded, and come to the same whatever is listed.

use super::*;
use crate::{Engine, Handle, Options};
use onceflow_core::{
    Batch,
    protocol::rows::{self, Failed},
};
use onceflow_store::{Records, backend::memory::Memory, testing::world::TestWorld, values::Values};

const RUN: RunId = RunId([7; 8]);

/// An engine that logs events of a run which it does not work on.
struct Bed {
    engine: Engine,
    memory: Arc<Memory>,
}

impl Bed {
    async fn new() -> Self {
        let world = TestWorld::new(7);
        let memory = Arc::new(Memory::new(world.clone()));
        let mut batch = Batch::new(Default::default());
        batch.put(keys::heads().key("r"), rows::write(&Head::Active(RUN)));
        assert!(memory.commit(batch).await.unwrap().is_applied());
        Bed { engine: engine(&memory, world), memory }
    }

    fn log(&self, ms: u64, what: EventKind) {
        let event = LoggedEvent { ms, plan: 0, what: Logged::Event(what) };
        self.engine.shared.event_logs.log(RUN, "r", event);
    }

    fn rows(&self) -> Vec<usize> {
        let of_log = |key: &onceflow_core::Key| key.group == keys::events(RUN);
        self.memory.state().all().into_iter().filter(|(_, key, _)| of_log(key)).map(|(_, _, row)| row.len()).collect()
    }

    fn handle(&self) -> Handle {
        Handle::new(self.engine.shared.clone(), String::from("r"), RUN)
    }
}

fn engine(memory: &Arc<Memory>, world: Arc<TestWorld>) -> Engine {
    let values = Arc::new(Values::new(memory.clone(), world.clone(), Default::default()));
    let event_log =
        Some(EventLogOptions { is_hidden: |address| address.ends_with("-when"), ..EventLogOptions::default() });
    Engine::new(memory.clone(), values, world, Options { works: false, event_log, ..Options::default() })
}

fn will_run(address: &str) -> EventKind {
    EventKind::WillRun { address: address.to_owned(), attempt: 1 }
}

fn did_commit(address: &str) -> EventKind {
    EventKind::DidCommit { address: address.to_owned() }
}

#[tokio::test]
async fn full_log_goes_on_counting_and_lists_failures() {
    const STEPS: u64 = 30_000;
    let bed = Bed::new().await;
    bed.log(1, EventKind::DidStart { generation: 0 });
    for at in 0..STEPS {
        let address = format!("/{}[{at}]", "x".repeat(100));
        bed.log(2 + at, will_run(&address));
        bed.log(2 + at, did_commit(&format!("/w[{at}]/x-when")));
        bed.log(3 + at, did_commit(&address));
    }
    let failed = Failed { address: "/last".into(), attempt: 1, causes: vec![String::from("no")], started: false };
    bed.log(STEPS + 9, EventKind::DidFail(failed.clone()));
    bed.engine.close().await.unwrap();
    let (count, bytes) = (bed.rows().len(), bed.rows().iter().sum::<usize>());
    assert!((1..500).contains(&count) && bytes < 5 << 20, "{count} rows of {bytes} bytes");
    let entries = bed.handle().history().logged_events().await.unwrap();
    let commits = |entry: &&LogEntry| matches!(entry.kind, LogEntryKind::Event(EventKind::DidCommit { .. }));
    let listed = entries.iter().filter(commits).count() as u64;
    let counts = entries.iter().find_map(|entry| match &entry.kind {
        LogEntryKind::Unlisted(counts) => Some(counts.clone()),
        _ => None,
    });
    let counts = counts.expect("some are not listed");
    let unlisted = counts.get(&format!("/{}", "x".repeat(100))).expect("they are counted by step");
    assert_eq!((listed + unlisted.done, counts.len()), (STEPS, 1), "helpers are not counted");
    assert!(listed > 1000 && unlisted.spent_ms >= unlisted.done, "{unlisted:?}");
    let has_failed = |entry: &LogEntry| entry.kind == LogEntryKind::Event(EventKind::DidFail(failed.clone()));
    assert!(entries.iter().any(has_failed), "a failure is listed also when the log is full");
    assert_eq!(bed.handle().history().logged_steps().await.unwrap(), STEPS);
}

#[tokio::test]
async fn reader_continues_where_it_was_and_merges_workers_by_plan_and_time() {
    let bed = Bed::new().await;
    let other = engine(&bed.memory, TestWorld::new(8));
    let mut reader = bed.handle().history().event_log();
    assert!(reader.more().await.unwrap().is_empty() && reader.is_empty());
    // This worker was faster than the one that started the run.
    other.shared.event_logs.log(RUN, "r", LoggedEvent { ms: 1, plan: 0, what: Logged::Event(will_run("/a")) });
    other.close().await.unwrap();
    bed.log(5, EventKind::DidStart { generation: 0 });
    bed.log(9, EventKind::DidEnd { how: crate::RunStatus::Failed });
    bed.engine.close().await.unwrap();
    let told = |entries: Vec<LogEntry>| {
        let told = |entry: LogEntry| match entry.kind {
            LogEntryKind::Event(what) => what.to_string(),
            other => format!("{other:?}"),
        };
        entries.into_iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(told(reader.more().await.unwrap()), ["did start", "will run /a", "did end: failed"]);
    assert!(reader.more().await.unwrap().is_empty() && reader.is_at_end());
    let third = engine(&bed.memory, TestWorld::new(9));
    third.shared.event_logs.log(RUN, "r", LoggedEvent { ms: 20, plan: 0, what: Logged::Resumed });
    third.close().await.unwrap();
    assert_eq!(told(reader.more().await.unwrap()), ["Resumed"]);
    assert!(!reader.is_at_end());
}

#[tokio::test]
async fn nothing_is_logged_of_a_run_that_is_gone() {
    let bed = Bed::new().await;
    let mut batch = Batch::new(Default::default());
    batch.delete(keys::heads().key("r"));
    assert!(bed.memory.commit(batch).await.unwrap().is_applied());
    bed.log(1, did_commit("/a"));
    bed.engine.close().await.unwrap();
    assert!(bed.rows().is_empty(), "no run would remove its rows");
}
