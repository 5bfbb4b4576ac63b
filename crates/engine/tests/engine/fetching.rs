//! Inputs that take longer to fetch than a claim stands.

use crate::support;

use onceflow_core::{Batch, Key, Row, Shard, Timestamp, model::Type};
use onceflow_engine::{
    About, Options, RunStatus, Summary,
    task::{Data, Failure, FileData},
};
use onceflow_store::{
    BoxFuture, CommitResult, Error, Page, Position, Records, World, records::Scan, testing::world::TestWorld,
};
use std::sync::Arc;
use support::{
    Kit,
    flows::{spec, start},
    graphs::G,
    int,
    proof::Proof,
};

/// A store that takes a second for every read.
struct Slow {
    records: Arc<dyn Records>,
    clock: Clock,
}

/// The clock, as the test moves it.
struct Clock(Arc<TestWorld>);

impl Records for Slow {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            self.clock.0.sleep(1000).await;
            self.records.get(shard, keys).await
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        self.records.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        self.records.commit(batch)
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.records.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.records.wait(shard, seen, until)
    }
}

fn about(host: &str) -> Option<About> {
    Some(About { host: host.into(), ..About::default() })
}

#[tokio::test]
async fn a_join_whose_files_take_longer_to_fetch_than_its_lease_is_not_taken_away() {
    const FILES: usize = 40;
    const LEASE_MS: u64 = 9_000;
    let place = tempfile::tempdir().unwrap();
    let file = |n: usize| {
        let path = place.path().join(n.to_string());
        std::fs::write(&path, format!("file {n}")).unwrap();
        Data::from(FileData::new(n.to_string(), path))
    };
    let mut kit = Kit::default();
    let join = spec("join", &[("xs", Type::list(Type::File))], &[("out", Type::Int)]);
    let join = kit.add(join, |_, inputs| match &inputs[0] {
        Data::List(files) => Ok(vec![int(files.len() as i64)]),
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let g = G::new().input("xs", Type::list(Type::File)).output("n", Type::Int);
    let begin = start(g.task("join", &join).connect("xs -> join.xs; join.out -> n"));
    let begin = begin.input("xs", Data::List((0..FILES).map(file).collect()));
    let proof = Proof::new(&kit);
    let options = || Options { lease_ms: LEASE_MS, scratch: place.path().join("scratch"), ..Options::default() };
    // This worker takes no steps, but frees those of workers whose heartbeats stopped.
    let classes = [(String::from("default"), 0)].into();
    let frees = Options { classes, other_classes: false, about: about("frees"), ..options() };
    let frees = proof.engine_on(proof.memory.clone(), frees);
    let slow = Arc::new(Slow { records: proof.memory.clone(), clock: Clock(proof.world.clone()) });
    let slow = proof.engine_on(slow, Options { about: about("slow"), ..options() });
    let handle = proof.drive(slow.start(begin)).await.unwrap();
    let before = proof.memory.now().await.unwrap();
    let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
        panic!("not done")
    };
    assert_eq!(proof.drive(support::told(&handle, outputs)).await, format!("n={FILES}"));
    let took_ms = proof.memory.now().await.unwrap().ms_since(before);
    assert!(took_ms > 3 * LEASE_MS, "it took only {took_ms} ms, which proves nothing");
    proof.once();
    proof.drive(slow.close()).await.unwrap();
    proof.drive(frees.close()).await.unwrap();
    proof.only_what_remains().await;
}
