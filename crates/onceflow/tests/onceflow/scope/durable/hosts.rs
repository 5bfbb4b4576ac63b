//! Hosts and sessions as users see them, and the faults that a durable scope alone can have.

use onceflow::{
    Engine,
    scope::{BufferKeep, DurableScope, Scope, ScopeFault, StreamTag},
};

const SEEN: StreamTag<u64> = StreamTag::new("seen");

fn doubles() -> DurableScope<u64, u64> {
    let build = Scope::durable(|s| {
        let [seen, go] = s.start().fork_clone();
        seen.connect(s.stream(SEEN));
        go.map_async(|v| async move { v * 2 }).named("double").terminate(s);
    });
    build.unwrap()
}

#[tokio::test]
async fn same_key_is_the_same_session_until_its_end_is_forgotten() {
    let engine = Engine::in_memory();
    let host = engine.host("doubles", &doubles()).unwrap();
    let first = host.open("a", 4).await.unwrap();
    let again = host.open("a", 40).await.unwrap();
    let (end, same) = (first.end().await.unwrap(), again.end().await.unwrap());
    assert_eq!((end.result.clone(), same.result), (Ok(8), Ok(8)));
    assert_eq!(end.stream_of(), [4]);
    first.forget().await.unwrap();
    assert_eq!(host.open("a", 5).await.unwrap().end().await.unwrap().result, Ok(10));
    host.close().await;
    engine.close().await.unwrap();
}

/// The stream of the tests.
trait StreamOf {
    fn stream_of(&self) -> Vec<u64>;
}

impl<O> StreamOf for onceflow::scope::DurableOutcome<O> {
    fn stream_of(&self) -> Vec<u64> {
        self.stream(SEEN).unwrap()
    }
}

#[tokio::test]
async fn session_goes_on_in_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let build = |ends: bool| {
        let work = move |v: u64| async move {
            if !ends {
                std::future::pending::<()>().await;
            }
            v + 1
        };
        let build = Scope::<u64, u64, onceflow::scope::Durable>::durable(|s| {
            s.start().map_async(work).named("work").terminate(s);
        });
        build.unwrap()
    };
    let engine = Engine::open(directory.path()).await.unwrap();
    let host = engine.host("case", &build(false)).unwrap();
    drop(host.open("a", 1).await.unwrap());
    host.close().await;
    engine.close().await.unwrap();
    let engine = Engine::open(directory.path()).await.unwrap();
    let host = engine.host("case", &build(true)).unwrap();
    assert_eq!(host.open("a", 1).await.unwrap().end().await.unwrap().result, Ok(2));
    host.close().await;
    engine.close().await.unwrap();
}

#[tokio::test]
async fn cancelled_session_says_who_asked() {
    let engine = Engine::in_memory();
    let build = Scope::durable(|s| s.start().map_async(|_| std::future::pending::<u64>()).named("wait").terminate(s));
    let waits: DurableScope<u64, u64> = build.unwrap();
    let host = engine.host("waits", &waits).unwrap();
    let session = host.open("a", 1).await.unwrap();
    session.cancel("enough").await.unwrap();
    assert_eq!(session.end().await.unwrap().result.unwrap_err().real_cause().1, "requested: enough");
    host.close().await;
    engine.close().await.unwrap();
}

#[tokio::test]
async fn session_of_a_scope_that_has_changed_is_refused() {
    let engine = Engine::in_memory();
    let build = |name: &str| -> DurableScope<u64, u64> {
        let build = Scope::durable(|s| s.start().map_async(|_| std::future::pending::<u64>()).named(name).terminate(s));
        build.unwrap()
    };
    let host = engine.host("waits", &build("wait")).unwrap();
    drop(host.open("a", 1).await.unwrap());
    host.close().await;
    let host = engine.host("waits", &build("rest")).unwrap();
    let refused = host.open("a", 1).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("when the scope had other operations"), "{refused}");
    host.close().await;
    engine.close().await.unwrap();
}

#[test]
fn durable_scope_needs_names_for_what_runs_or_holds_something() {
    let build = Scope::<u64, u64, onceflow::scope::Durable>::durable(|s| {
        let buffer = s.buffer::<u64>(BufferKeep::All);
        let [keep, go] = s.start().fork_clone();
        keep.store(buffer);
        go.map(|v| v + 1).terminate(s);
    });
    let unnamed = |name: &str| ScopeFault::Unnamed(String::from(name));
    assert_eq!(build.map(drop).unwrap_err().0, [unnamed("buffer-1"), unnamed("map-3")]);
}

#[tokio::test]
async fn function_that_uses_a_buffer_it_has_not_asked_for_fails() {
    let build = Scope::<u64, u64>::build(|s| {
        let [one, two] = [0; 2].map(|_| s.buffer::<u64>(BufferKeep::All));
        s.start().access_with(&(one,), move |_, access| access.len(two) as u64).named("peep").terminate(s);
    });
    let (at, why) = build.unwrap().run(1).await.unwrap_err().real_cause();
    assert_eq!(at, "peep");
    assert!(why.contains("has not asked for"), "{why}");
}
