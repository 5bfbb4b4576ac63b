//! Uploads in parts, stopped at every request.

use super::{upload::Uploads, *};
use crate::testing::{
    blobs::{contract, contract_of_large, generated, generated_at},
    fault::{FaultPlan, Verdict, for_every_fault},
    world::TestWorld,
};
use async_trait::async_trait;
use futures_util::{FutureExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetResult, ListResult, MultipartId, MultipartUpload, PutMultipartOptions, PutOptions, PutResult,
    Result as StoreResult,
    multipart::{MultipartStore, PartId},
};
use onceflow_core::Fences;
use std::{collections::BTreeMap, fmt, sync::Mutex};

const PART_BYTES: usize = 1000;

/// A server in memory that takes parts and tells which uploads are open; its clients fail as planned.
#[derive(Clone)]
struct Server {
    memory: Arc<InMemory>,
    /// How many parts each open upload has.
    open: Arc<Mutex<BTreeMap<MultipartId, usize>>>,
    plan: FaultPlan,
}

impl Server {
    fn new(plan: FaultPlan) -> Self {
        Server { memory: Arc::default(), open: Arc::default(), plan }
    }

    /// The server as another process sees it, without faults.
    fn healthy(&self) -> Self {
        Server { plan: FaultPlan::never(), ..self.clone() }
    }

    fn objects(&self) -> Objects {
        let store = Arc::new(self.clone());
        let uploads = Some(Uploads::new(store.clone(), store.clone(), PART_BYTES, TestWorld::new(1)));
        Objects { store, uploads, prefix: "test".into(), place: "the server".into() }
    }

    fn open_uploads_with_parts(&self) -> usize {
        self.open.lock().unwrap().values().filter(|parts| **parts > 0).count()
    }

    async fn request<T>(&self, request: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let failed = |source: crate::Error| StoreError::Generic { store: "server", source: Box::new(source) };
        match self.plan.next_call() {
            Verdict::Go => request.await,
            Verdict::LoseReply(why) | Verdict::StopAfter(why) => request.await.and(Err(failed(why))),
            Verdict::Refuse(why) | Verdict::Stopped(why) => Err(failed(why)),
        }
    }

    fn close(&self, path: &StorePath, id: &MultipartId) -> StoreResult<()> {
        let not_found = || StoreError::NotFound { path: path.to_string(), source: "no such upload".into() };
        self.open.lock().unwrap().remove(id).map(drop).ok_or_else(not_found)
    }
}

#[async_trait]
impl MultipartStore for Server {
    async fn create_multipart(&self, path: &StorePath) -> StoreResult<MultipartId> {
        let begin = async {
            let id = self.memory.create_multipart(path).await?;
            self.open.lock().unwrap().insert(id.clone(), 0);
            Ok(id)
        };
        self.request(begin).await
    }

    async fn put_part(&self, path: &StorePath, id: &MultipartId, at: usize, data: PutPayload) -> StoreResult<PartId> {
        let put = async {
            match self.open.lock().unwrap().get_mut(id) {
                Some(parts) => *parts += 1,
                None => return Err(StoreError::NotFound { path: path.to_string(), source: "no such upload".into() }),
            }
            self.memory.put_part(path, id, at, data).await
        };
        self.request(put).await
    }

    async fn complete_multipart(
        &self,
        path: &StorePath,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> StoreResult<PutResult> {
        let complete = async {
            if self.memory.head(path).await.is_ok() {
                return Err(StoreError::Precondition { path: path.to_string(), source: "it is there".into() });
            }
            self.close(path, id)?;
            self.memory.complete_multipart(path, id, parts).await
        };
        self.request(complete).await
    }

    async fn abort_multipart(&self, path: &StorePath, id: &MultipartId) -> StoreResult<()> {
        let abort = async {
            self.close(path, id)?;
            self.memory.abort_multipart(path, id).await
        };
        self.request(abort).await
    }
}

#[async_trait]
impl ObjectStore for Server {
    async fn put_opts(&self, path: &StorePath, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.request(self.memory.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(&self, _: &StorePath, _: PutMultipartOptions) -> StoreResult<Box<dyn MultipartUpload>> {
        unreachable!("it would replace what is there")
    }

    async fn get_opts(&self, path: &StorePath, options: GetOptions) -> StoreResult<GetResult> {
        self.request(self.memory.get_opts(path, options)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<StorePath>>,
    ) -> BoxStream<'static, StoreResult<StorePath>> {
        let server = self.clone();
        let delete = move |path: StoreResult<StorePath>| {
            let server = server.clone();
            async move {
                let path = path?;
                server.request(server.memory.delete(&path)).await.map(|()| path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&StorePath>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.memory.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&StorePath>) -> StoreResult<ListResult> {
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &StorePath, _: &StorePath, _: CopyOptions) -> StoreResult<()> {
        unreachable!("nothing is copied")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("server")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("server")
    }
}

fn name() -> ObjectName {
    ObjectName::new(Fences::new(1).next())
}

#[tokio::test]
async fn uploads_in_parts_keep_the_contract() {
    contract(async || Server::new(FaultPlan::never()).objects()).await;
    for len in [1, 9, 10] {
        // One short of some parts, exactly some, one over.
        for len in [len * PART_BYTES as u64 + 999, (len + 1) * PART_BYTES as u64, len * PART_BYTES as u64 + 1001] {
            contract_of_large(async || Server::new(FaultPlan::never()).objects(), len).await;
        }
    }
}

#[tokio::test]
async fn an_upload_stopped_at_any_request_is_made_good_by_a_second_try_or_by_delete() {
    for retry in [true, false] {
        for_every_fault(async |plan| {
            let server = Server::new(plan);
            let first = server.objects().create(name(), generated(1, 3500, 100)).await;
            let healthy = server.healthy().objects();
            if let Ok(stored) = first {
                assert_eq!(healthy.size(name()).await.unwrap(), stored.len);
            }
            if retry {
                let stored = healthy.create(name(), generated(1, 3500, 100)).await.unwrap();
                assert_eq!(stored.digest, super::super::Digest::of(&generated_at(1, 0, 3500)));
                let listed = healthy.list(None, 10).await.unwrap().objects;
                assert_eq!(listed, [Listed { name: name(), state: ObjectState::Whole { len: 3500 } }]);
            }
            healthy.delete(name()).await.unwrap();
            assert_eq!(healthy.list(None, 10).await.unwrap().objects, []);
            assert_eq!(server.memory.list(None).count().await, 0, "nothing is left, listed or not");
            assert_eq!(server.open_uploads_with_parts(), 0);
        })
        .await;
    }
}

#[tokio::test]
async fn a_dropped_upload_is_aborted() {
    let server = Server::new(FaultPlan::never());
    let objects = server.objects();
    let content = generated(1, 3500, 100).chain(std::future::pending().into_stream()).boxed();
    let mut create = objects.create(name(), content);
    assert!((&mut create).now_or_never().is_none(), "it waits for the end of its content");
    assert_eq!(server.open_uploads_with_parts(), 1);
    assert_eq!(
        objects.list(None, 10).await.unwrap().objects,
        [Listed { name: name(), state: ObjectState::Unfinished }]
    );
    drop(create);
    while server.open_uploads_with_parts() > 0 || server.memory.list(None).count().await > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_upload_whose_name_is_deleted_stores_nothing() {
    let server = Server::new(FaultPlan::never());
    for len in [3500, 3000] {
        let (objects, deleting) = (server.objects(), server.objects());
        let end = async move {
            deleting.delete(name()).await.unwrap();
            Ok(Bytes::from_static(b"end"))
        };
        let content = generated(1, len, 100).chain(end.into_stream()).boxed();
        let stored = objects.create(name(), content).await;
        assert!(matches!(stored, Err(Error::Missing { .. })), "{stored:?}");
        assert_eq!(server.memory.list(None).count().await, 0);
    }
}
