//! Blobs in S3, over a real wire: a moto server of our own, on a private port.

mod moto;

use futures_util::{FutureExt, StreamExt, future::join_all};
use moto::Moto;
use onceflow_store::{
    BoxFuture, World,
    blobs::{Blobs, Error, Listed, ObjectName, ObjectState, Objects, objects::S3},
    core::{Fences, Timestamp, limits::PART_BYTES},
    testing::blobs::{self, generated},
    world::RealWorld,
};
use std::sync::{Arc, Mutex};

fn open(moto: &Moto, prefix: &str, world: Arc<dyn World>) -> Objects {
    let s3 = S3 {
        bucket: "blobs".into(),
        prefix: prefix.into(),
        endpoint: Some(moto.url()),
        region: Some("us-east-1".into()),
        keys: Some(("test".into(), "test".into())),
    };
    s3.open(world).unwrap()
}

/// A bucket of its own each time, as far as a store can tell.
fn fresh(moto: &Moto) -> Objects {
    open(moto, &format!("stores/{:032x}", RealWorld::here().random()), RealWorld::here())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_keeps_the_contract() {
    let moto = Moto::start("blobs");
    blobs::contract(async || fresh(&moto)).await;
    blobs::contract_under_faults(async || fresh(&moto)).await;
    blobs::contract_of_large(async || fresh(&moto), 2 * PART_BYTES as u64 + 12_345).await;
    assert_eq!(moto.open_uploads("blobs"), 0, "every upload was completed or aborted");
}

/// A world in which background tasks wait until they are told to run, or die with their process.
#[derive(Default)]
struct Waiting(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Waiting {
    fn tasks(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl World for Waiting {
    fn clock(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn random(&self) -> u128 {
        0
    }

    fn sleep(&self, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.spawn(name, task);
    }
}

#[tokio::test]
async fn an_upload_that_is_dropped_is_aborted() {
    let (moto, world) = (Moto::start("blobs"), Arc::new(Waiting::default()));
    let (objects, name) = (open(&moto, "store", world.clone()), ObjectName::new(Fences::new(1).next()));
    stop_in_the_middle(&objects, name).await;
    assert_eq!(moto.open_uploads("blobs"), 1);
    join_all(world.tasks()).await;
    assert_eq!(moto.open_uploads("blobs"), 0);
    assert_eq!(objects.list(None, 10).await.unwrap().objects, []);
}

#[tokio::test]
async fn an_upload_that_a_killed_process_left_is_listed_and_goes_with_its_name() {
    let (moto, world) = (Moto::start("blobs"), Arc::new(Waiting::default()));
    let (objects, name) = (open(&moto, "store", world.clone()), ObjectName::new(Fences::new(1).next()));
    stop_in_the_middle(&objects, name).await;
    drop(world.tasks());
    assert_eq!(objects.list(None, 10).await.unwrap().objects, [Listed { name, state: ObjectState::Unfinished }]);
    assert!(matches!(objects.size(name).await, Err(Error::Missing { .. })));
    objects.delete(name).await.unwrap();
    assert_eq!(objects.list(None, 10).await.unwrap().objects, []);
    assert_eq!(moto.open_uploads("blobs"), 0);
}

/// Begins to create two parts and a half, and drops it when all of that was taken.
async fn stop_in_the_middle(objects: &Objects, name: ObjectName) {
    let (taken, all_taken) = tokio::sync::oneshot::channel::<()>();
    let end = async move {
        let _ = taken.send(());
        std::future::pending().await
    };
    let content = generated(1, 5 * PART_BYTES as u64 / 2, 1 << 20).chain(end.into_stream()).boxed();
    futures_util::future::select(objects.create(name, content), all_taken).await;
}
