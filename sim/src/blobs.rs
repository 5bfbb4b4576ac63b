//! One node's way to the objects: every call takes its time, may fail, may happen and lose its reply, and may be left
//! half-way when their node dies. Stored objects outlive all nodes.

use crate::store::SimStore;
use onceflow_store::{
    BoxFuture,
    blobs::{Blobs, ByteStream, Chunks, ContentInfo, Error, ObjectName, Page},
};
use std::{ops::Range, path::Path, sync::Arc};

/// Objects as a node sees them.
pub struct SimBlobs {
    /// Where they really are.
    pub inner: Arc<dyn Blobs>,
    /// What goes wrong.
    pub store: Arc<SimStore>,
}

impl SimBlobs {
    /// Others go first; then it may be that nothing happens.
    async fn travel(&self) -> Result<(), Error> {
        let (store, faults) = (&self.store, &self.store.faults);
        let ms = if store.harm(faults.delayed) { store.sim.below(faults.delay_ms + 1) } else { 0 };
        store.sim.sleep(ms).await;
        match store.harm(faults.blob_failed) {
            true => Err(Error::Unavailable { place: "the room".into(), why: "simulated".into() }),
            false => Ok(()),
        }
    }

    /// It happened. Others go first; then the reply may be lost.
    async fn reply(&self, name: ObjectName) -> Result<(), Error> {
        self.store.sim.sleep(0).await;
        match self.store.harm(self.store.faults.blob_reply_lost) {
            true => {
                self.store.sim.tell(|| format!("the reply about object {name} is lost"));
                Err(Error::Unknown { place: "the room".into(), why: "simulated".into() })
            }
            false => Ok(()),
        }
    }
}

impl Blobs for SimBlobs {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(async move {
            self.travel().await?;
            let stored = self.inner.create(name, content).await?;
            self.store.sim.tell(|| format!("object {name} is stored"));
            self.reply(name).await.map(|()| stored)
        })
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(async move {
            self.travel().await?;
            let stored = self.inner.adopt(name, path).await?;
            self.reply(name).await.map(|()| stored)
        })
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        Box::pin(async move {
            self.travel().await?;
            self.inner.read(name, range).await
        })
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            self.travel().await?;
            self.inner.size(name).await
        })
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.travel().await?;
            self.inner.delete(name).await?;
            self.store.sim.tell(|| format!("object {name} is deleted"));
            self.reply(name).await
        })
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            self.travel().await?;
            self.inner.list(after, limit).await
        })
    }
}
