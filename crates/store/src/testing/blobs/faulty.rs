//! A blob store that fails as planned, over any other, and a writer that must live with it.

use super::{contract::all, generated};
use crate::{
    blobs::{
        Blobs, ByteStream, Chunks, ContentInfo, Error, Listed, ObjectName, ObjectState, Page,
        content::{from_bytes, read_bytes},
    },
    testing::fault::{FaultPlan, Verdict, for_every_fault},
    world::BoxFuture,
};
use onceflow_core::Fences;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A blob store that fails as planned. Every call counts; share the plan with a
/// [`fault::Faulty`](crate::testing::fault::Faulty) to let records and blobs of one process fail and stop together.
pub struct Faulty {
    blobs: Arc<dyn Blobs>,
    plan: FaultPlan,
}

impl Faulty {
    /// Over this store, by this plan.
    pub fn new(blobs: Arc<dyn Blobs>, plan: FaultPlan) -> Arc<Self> {
        Arc::new(Faulty { blobs, plan })
    }

    async fn read_call<T>(&self, call: BoxFuture<'_, Result<T, Error>>) -> Result<T, Error> {
        match self.plan.next_call() {
            Verdict::Go => call.await,
            Verdict::StopAfter(why) => call.await.and(Err(unavailable(why))),
            Verdict::LoseReply(why) | Verdict::Refuse(why) | Verdict::Stopped(why) => Err(unavailable(why)),
        }
    }

    async fn change<T>(&self, call: BoxFuture<'_, Result<T, Error>>) -> Result<T, Error> {
        match self.plan.next_call() {
            Verdict::Go => call.await,
            Verdict::LoseReply(why) | Verdict::StopAfter(why) => call.await.and(Err(unknown(why))),
            Verdict::Refuse(why) | Verdict::Stopped(why) => Err(unavailable(why)),
        }
    }
}

fn unavailable(why: crate::records::Error) -> Error {
    Error::Unavailable { place: "a store that fails as planned".into(), why: why.to_string().into() }
}

fn unknown(why: crate::records::Error) -> Error {
    Error::Unknown { place: "a store that fails as planned".into(), why: why.to_string().into() }
}

impl Blobs for Faulty {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(self.change(self.blobs.create(name, content)))
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(self.change(self.blobs.adopt(name, path)))
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        Box::pin(self.read_call(self.blobs.read(name, range)))
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.read_call(self.blobs.size(name)))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.change(self.blobs.delete(name)))
    }

    fn local(&self, name: ObjectName) -> Option<PathBuf> {
        self.blobs.local(name)
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.read_call(self.blobs.list(after, limit)))
    }
}

/// A writer whose every call fails once, in every way, ends where one that nothing befell does: after a stop the next
/// process repeats the whole of it.
///
/// # Panics
/// When it breaks a promise.
pub async fn contract_under_faults<B: Blobs>(make: impl AsyncFn() -> B) {
    for_every_fault(async |plan| {
        let store: Arc<dyn Blobs> = Arc::new(make().await);
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("out"), "adopted").unwrap();
        let worker = Faulty::new(store.clone(), plan.clone());
        let done = write(&*worker, scratch.path()).await;
        assert_eq!(done.is_err(), plan.stopped(), "{done:?}");
        if plan.stopped() {
            write(&*store, scratch.path()).await.unwrap();
        }
        let [one, two, three] = names();
        let whole = |name, len| Listed { name, state: ObjectState::Whole { len } };
        assert_eq!(all(&*store).await, [whole(one, 100_000), whole(three, 7)]);
        assert!(matches!(store.size(two).await, Err(Error::Missing { .. })));
        assert_eq!(read_bytes(&*store, three, 7).await.unwrap(), "adopted");
    })
    .await;
}

fn names() -> [ObjectName; 3] {
    let fences = Fences::new(1);
    [(); 3].map(|()| ObjectName::new(fences.next()))
}

/// Creates two, deletes one, adopts one; everything again when told to.
async fn write(blobs: &dyn Blobs, scratch: &Path) -> Result<(), Error> {
    let [one, two, three] = names();
    again(|| blobs.create(one, generated(1, 100_000, 9000))).await?;
    again(|| blobs.create(two, from_bytes("two"))).await?;
    assert_eq!(again(|| blobs.size(one)).await?, 100_000);
    again(|| blobs.delete(two)).await?;
    let file = scratch.join("out");
    let adopted = again(|| blobs.adopt(three, &file)).await?;
    assert_eq!(adopted.len, 7);
    let page = again(|| blobs.list(None, 10)).await?;
    assert_eq!(page.objects.len(), 2);
    Ok(())
}

/// Retries a call that failed once, as the errors' hints say.
async fn again<'a, T>(call: impl Fn() -> BoxFuture<'a, Result<T, Error>>) -> Result<T, Error> {
    match call().await {
        Err(Error::Unavailable { .. } | Error::Unknown { .. }) => call().await,
        done => done,
    }
}
