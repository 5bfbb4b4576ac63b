//! Operations that the store fails are retried, reported, and given up in the end; the outputs of a body are not
//! computed again.

use super::support::{Bed, Kit, flows::*, graphs::*, int};
use onceflow_core::model::{Effect, Type};
use onceflow_engine::{Engine, Event, EventKind, Options, RunStatus, Start, Summary, task::Data};
use onceflow_store::{
    BoxFuture, World,
    backend::memory::Memory,
    blobs::{Blobs, ByteStream, Chunks, ContentInfo, Error, ObjectName, Objects, Page},
    testing::world::{TestWorld, poll_once},
    values::Values,
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::Poll,
};
use tokio::sync::{Semaphore, mpsc::UnboundedReceiver};

/// An object store that refuses so many writes, and so many reads, and whose writes wait at a gate.
struct Refusing {
    blobs: Objects,
    writes: AtomicU32,
    reads: AtomicU32,
    gate: Semaphore,
}

fn refuses(left: &AtomicU32) -> Result<(), Error> {
    match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
        Ok(_) => Err(Error::Unavailable { place: "objects".into(), why: "permission denied".into() }),
        Err(_) => Ok(()),
    }
}

impl Blobs for Refusing {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(async move {
            refuses(&self.writes)?;
            let _passed = self.gate.acquire().await;
            self.blobs.create(name, content).await
        })
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(async move {
            refuses(&self.writes)?;
            let _passed = self.gate.acquire().await;
            self.blobs.adopt(name, path).await
        })
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        Box::pin(async move {
            refuses(&self.reads)?;
            self.blobs.read(name, range).await
        })
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        self.blobs.size(name)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        self.blobs.delete(name)
    }

    fn local(&self, name: ObjectName) -> Option<PathBuf> {
        self.blobs.local(name)
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        self.blobs.list(after, limit)
    }
}

struct Trial {
    bed: Bed,
    world: Arc<TestWorld>,
    blobs: Arc<Refusing>,
    kit: Kit,
    start: Start,
    engine: Engine,
    events: UnboundedReceiver<Event>,
}

impl Trial {
    /// A step that makes a large value, and one that reads it.
    fn new(writes: u32, reads: u32) -> Self {
        Trial::of(Type::Bytes, |value| value, writes, reads)
    }

    /// A step that makes a list of large values, behind a closed gate, and one that reads it.
    fn of_list() -> Self {
        let trial = Trial::of(Type::list(Type::Bytes), |value| Data::List([value].into_iter().collect()), 0, 0);
        trial.blobs.gate.forget_permits(1);
        trial
    }

    fn of(made: Type, make_it: fn(Data) -> Data, writes: u32, reads: u32) -> Self {
        let (world, mut kit) = (TestWorld::new(1), Kit::default());
        let make = spec("make", &[("x", Type::Int)], &[("v", made.clone())]);
        let make = kit.add(make, move |_, _| Ok(vec![make_it(bytes(200_000, 1))]));
        let read = effect(spec("read", &[("v", made)], &[("out", Type::Int)]), Effect::AtMostOnce);
        let read = kit.add(read, |_, _| Ok(vec![int(7)]));
        let g = G::new().input("x", Type::Int).output("y", Type::Int).task("make", &make).task("read", &read);
        let start = start(g.connect("x -> make.x; make.v -> read.v; read.out -> y")).input("x", int(1));
        let blobs = Arc::new(Refusing {
            blobs: Objects::memory(),
            writes: AtomicU32::new(writes),
            reads: AtomicU32::new(reads),
            gate: Semaphore::new(1),
        });
        let records = Arc::new(Memory::new(world.clone() as Arc<dyn World>));
        let values = Values::new(records.clone(), world.clone(), Default::default()).with_blobs(blobs.clone());
        let bed = Bed { records, values: Arc::new(values), world: world.clone() };
        let engine = bed.engine(&kit, Options { fuse: false, ..Options::default() });
        let events = engine.events();
        Trial { bed, world, blobs, kit, start, engine, events }
    }

    /// Starts the run, and waits until the outputs of its first body are being stored.
    async fn begin(&self) {
        self.world.hurry(self.engine.start(self.start.clone())).await.unwrap();
        let is_storing = || self.kit.ran() == "/make" && self.world.sleeping() > 0;
        let storing = std::future::poll_fn(|_| if is_storing() { Poll::Ready(()) } else { Poll::Pending });
        self.world.hurry(storing).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Another engine brings the run to its end.
    async fn ends_elsewhere(&self) {
        let engine = self.bed.engine(&self.kit, Options { fuse: false, ..Options::default() });
        let handle = self.world.hurry(engine.find("r")).await.unwrap();
        assert!(self.world.hurry(handle.wait()).await.unwrap().status == RunStatus::Done);
        self.world.hurry(engine.close()).await.unwrap();
    }

    async fn run(&self) -> Summary {
        let handle = self.world.hurry(self.engine.start(self.start.clone())).await.unwrap();
        self.world.hurry(handle.wait()).await.unwrap()
    }

    /// Closes the engine, and returns the reports of held-up steps.
    async fn held_up(mut self) -> Vec<String> {
        self.world.hurry(self.engine.close()).await.unwrap();
        let mut told = Vec::new();
        while let Some(event) = self.events.recv().await {
            if let EventKind::HeldUp { address, why } = event.kind {
                told.push(format!("{address} {why}"));
            }
        }
        told
    }
}

#[tokio::test]
async fn a_result_that_the_store_does_not_take_is_kept_and_stored_later() {
    let trial = Trial::new(3, 0);
    assert!(trial.run().await.status == RunStatus::Done);
    assert_eq!(trial.kit.ran(), "/make /read", "nothing is computed again");
    let told = trial.held_up().await;
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("/make cannot store its output: objects is unavailable"), "{told:?}");
    assert!(told[2].ends_with("retrying in 0.8 s"), "{told:?}");
}

#[tokio::test]
async fn a_store_that_never_takes_a_result_fails_the_step_and_runs_it_once() {
    let trial = Trial::new(u32::MAX, 0);
    let Summary { status: RunStatus::Failed, failures, .. } = trial.run().await else { panic!("it fails") };
    assert_eq!((failures.len(), &*failures[0].address), (1, "/make"));
    let told = failures[0].causes.join(": ");
    assert!(told.starts_with("cannot store its output") && told.contains("permission denied"), "{told}");
    assert_eq!(trial.kit.ran(), "/make", "it ran once");
    trial.blobs.writes.store(0, SeqCst);
    assert!(trial.run().await.status == RunStatus::Done, "trying the run again runs it again");
    trial.held_up().await;
}

#[tokio::test]
async fn inputs_that_cannot_be_read_fail_a_step_that_has_not_started() {
    let trial = Trial::new(0, u32::MAX);
    let Summary { status: RunStatus::Failed, failures, .. } = trial.run().await else {
        panic!("it fails, and is not said to have started")
    };
    assert_eq!((failures.len(), &*failures[0].address), (1, "/read"));
    assert!(failures[0].causes.join(": ").contains("permission denied"), "{failures:?}");
    assert_eq!(trial.kit.ran(), "/make", "no body ran without its inputs");
    trial.blobs.reads.store(0, SeqCst);
    assert!(trial.run().await.status == RunStatus::Done);
    let told = trial.held_up().await;
    assert!(told.len() >= 5 && told.iter().all(|one| one.starts_with("/read cannot be performed")), "{told:?}");
}

#[tokio::test]
async fn an_interrupt_waits_a_moment_for_the_result_of_a_body_that_has_ended() {
    let trial = Trial::of_list();
    trial.begin().await;
    let mut interrupted = std::pin::pin!(trial.engine.interrupt());
    for _ in 0..100 {
        assert!(poll_once(&mut interrupted).await.is_pending(), "the result is dropped");
        trial.world.advance(10);
        tokio::task::yield_now().await;
    }
    trial.blobs.gate.add_permits(1);
    trial.world.hurry(interrupted).await.unwrap();
    trial.ends_elsewhere().await;
    assert_eq!(trial.kit.ran(), "/make /read", "nothing is computed again");
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_ever_for_a_result_to_be_stored() {
    let trial = Trial::of_list();
    trial.begin().await;
    let before = trial.world.clock();
    trial.world.hurry(trial.engine.interrupt()).await.unwrap();
    let took = trial.world.clock().ms_since(before);
    assert!((5000..10_000).contains(&took), "it took {took} ms");
    trial.blobs.gate.add_permits(1);
    trial.ends_elsewhere().await;
    assert_eq!(trial.kit.ran(), "/make×2 /read", "its result was given up, and it ran again");
}
