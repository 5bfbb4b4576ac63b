//! Blobs as values: stored once for equal content, deleted with the last reference, and never left behind.

use super::bed::{SHARD, root, stores};
use futures_util::{StreamExt, TryStreamExt};
use onceflow_store::{
    Records,
    blobs::{Blobs, Objects, content::from_bytes},
    records,
    testing::{
        blobs,
        fault::{self, FaultPlan, Faulty},
        world::TestWorld,
    },
    values::{Error, Update, Upload, Values, fsck::Mode, limits},
};
use std::sync::Arc;

struct Bed {
    world: Arc<TestWorld>,
    records: Arc<dyn Records>,
    objects: Arc<dyn Blobs>,
    values: Values,
}

async fn each_store(case: impl AsyncFn(&Bed)) {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let objects: Arc<dyn Blobs> = Arc::new(Objects::memory());
        let values = Values::new(records.clone(), world.clone(), SHARD).with_blobs(objects.clone());
        case(&Bed { world: world.clone(), records, objects, values }).await;
    }
}

impl Bed {
    async fn upload(&self, text: &'static str) -> Upload {
        let upload = self.values.uploads().upload(from_bytes(text)).await.unwrap();
        self.fsck().await;
        upload
    }

    async fn update(&self, update: Update) {
        self.values.update(update).await.unwrap();
        self.fsck().await;
    }

    async fn fsck(&self) {
        let report = self.values.fsck(Mode::Check).await.unwrap();
        assert!(report.is_clean(), "{report}");
    }

    /// How many objects there are when there is nothing more to reclaim.
    async fn left(&self) -> usize {
        for budget in [1, usize::MAX] {
            while self.values.reclaim(budget).await.unwrap().more {
                self.fsck().await;
            }
        }
        self.objects.list(None, 100).await.unwrap().objects.len()
    }
}

async fn text(values: &Values, upload: &Upload) -> String {
    let chunks = values.contents().stream(&upload.id(), None).await.unwrap();
    let bytes: Vec<_> = chunks.map(|chunk| chunk.map(|bytes| bytes.to_vec())).try_concat().await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_blob_is_read_back_and_its_object_goes_with_the_last_reference() {
    each_store(async |bed| {
        let upload = bed.upload("once").await;
        bed.update(Update::new().change(upload.change()).put("v", [upload.id()], "").set(&root("R"), "v")).await;
        assert_eq!((bed.left().await, text(&bed.values, &upload).await.as_str()), (1, "once"));
        bed.update(Update::new().clear(&root("R"))).await;
        assert_eq!(bed.left().await, 0);
        assert_eq!(bed.values.rows().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn equal_content_is_stored_once_and_the_later_object_goes() {
    each_store(async |bed| {
        let (one, two) = (bed.upload("same").await, bed.upload("same").await);
        assert_eq!(one.id(), two.id());
        bed.update(Update::new().change(one.change()).set(&root("R"), one.id())).await;
        for _ in 0..2 {
            bed.update(Update::new().change(two.change()).set(&root("S"), two.id())).await;
        }
        assert_eq!(bed.left().await, 1);
        bed.update(Update::new().clear(&root("R"))).await;
        assert_eq!((bed.left().await, text(&bed.values, &two).await.as_str()), (1, "same"));
        bed.update(Update::new().clear(&root("S"))).await;
        assert_eq!(bed.left().await, 0);
    })
    .await;
}

#[tokio::test]
async fn an_upload_that_is_never_referenced_goes_when_its_time_is_over() {
    each_store(async |bed| {
        let upload = bed.upload("abandoned").await;
        assert_eq!(bed.left().await, 1);
        bed.world.advance(limits::UPLOAD_MS_MAX);
        assert_eq!(bed.left().await, 0);
        let late = bed.values.update(Update::new().change(upload.change()).set(&root("R"), upload.id())).await;
        assert!(matches!(late, Err(Error::UploadLost { .. })), "{late:?}");
        assert_eq!(bed.values.rows().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_upload_cannot_be_used_again_when_its_blob_is_gone() {
    each_store(async |bed| {
        let upload = bed.upload("gone").await;
        bed.update(Update::new().change(upload.change())).await;
        assert_eq!(bed.left().await, 0);
        let again = bed.values.update(Update::new().change(upload.change())).await;
        assert!(matches!(again, Err(Error::UploadLost { .. })), "{again:?}");
    })
    .await;
}

#[tokio::test]
async fn fsck_finds_missing_objects_and_orphans() {
    each_store(async |bed| {
        let upload = bed.upload("lost").await;
        bed.update(Update::new().change(upload.change()).set(&root("R"), upload.id())).await;
        let name = bed.objects.list(None, 1).await.unwrap().objects[0].name;
        bed.objects.delete(name).await.unwrap();
        let orphan = onceflow_store::blobs::ObjectName::new(onceflow_store::core::Fences::new(99).next());
        bed.objects.create(orphan, from_bytes("orphan")).await.unwrap();
        let report = bed.values.fsck(Mode::Repair).await.unwrap().to_string();
        assert!(report.contains("which is not there") && report.contains("is named by nothing"), "{report}");
        assert_eq!(bed.left().await, 0);
        assert!(matches!(bed.values.get(&upload.id()).await, Err(Error::Lost { .. })));
        // Uploading it again heals it.
        let again = bed.upload("lost").await;
        bed.update(Update::new().change(again.change())).await;
        assert_eq!(text(&bed.values, &again).await, "lost");
        bed.update(Update::new().clear(&root("R"))).await;
        assert_eq!((bed.left().await, bed.values.rows().await.unwrap()), (0, vec![]));
    })
    .await;
}

async fn life(values: &Values) -> Result<(), Error> {
    for root_name in ["R", "S"] {
        let upload = values.uploads().upload(from_bytes("content")).await?;
        values.update(Update::new().change(upload.change()).set(&root(root_name), upload.id())).await?;
    }
    values.update(Update::new().clear(&root("R")).clear(&root("S"))).await?;
    while values.reclaim(1).await?.more {}
    Ok(())
}

#[tokio::test]
async fn a_crash_at_any_call_leaves_no_object_behind() {
    fault::for_every_fault(async |plan: FaultPlan| {
        each_store(async |bed| {
            let records = Faulty::new(bed.records.clone(), plan.clone());
            let objects = blobs::Faulty::new(bed.objects.clone(), plan.clone());
            let dying = Values::new(records, bed.world.clone(), SHARD).with_blobs(objects);
            match life(&dying).await {
                Ok(()) | Err(Error::Blobs(_)) => {}
                Err(Error::Records(records::Error::Unavailable(_) | records::Error::Unknown(_))) => {}
                Err(error) => panic!("{error}"),
            }
            bed.fsck().await;
            bed.update(Update::new().clear(&root("R")).clear(&root("S"))).await;
            bed.world.advance(limits::UPLOAD_MS_MAX);
            assert_eq!(bed.left().await, 0);
            assert_eq!(bed.values.rows().await.unwrap(), []);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn equal_uploads_in_one_update_are_one_blob() {
    each_store(async |bed| {
        let (one, two) = (bed.upload("same").await, bed.upload("same").await);
        let both = || {
            Update::new()
                .change(one.change())
                .change(two.change())
                .change(one.change())
                .change(two.change())
                .set(&root("R"), one.id())
        };
        for _ in 0..2 {
            bed.update(both()).await;
            assert_eq!((bed.left().await, text(&bed.values, &two).await.as_str()), (1, "same"));
        }
        bed.update(Update::new().clear(&root("R"))).await;
        assert_eq!((bed.left().await, bed.values.rows().await.unwrap()), (0, vec![]));
    })
    .await;
}

#[tokio::test]
async fn a_blob_whose_reply_was_lost_is_stored_once() {
    each_store(async |bed| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let lossy = || {
            let objects = blobs::Faulty::new(bed.objects.clone(), FaultPlan::at(1, fault::Fault::LoseReply));
            Values::new(bed.records.clone(), bed.world.clone(), SHARD).with_blobs(objects)
        };
        std::fs::write(&path, "adopted").unwrap();
        for (values, upload) in [(lossy(), None), (lossy(), Some("sent"))] {
            let upload = match upload {
                None => values.uploads().adopt(&path).await.unwrap(),
                Some(text) => values.uploads().upload(from_bytes(text)).await.unwrap(),
            };
            bed.update(Update::new().change(upload.change()).set(&root("R"), upload.id())).await;
            assert_eq!(bed.left().await, 1);
        }
    })
    .await;
}

/// Values on a directory, as a process of its own has them.
async fn of_process(bed: &(Arc<dyn Records>, Arc<TestWorld>), path: &std::path::Path) -> Values {
    let blobs = onceflow_store::blobs::DirectoryBlobs::open_here(path).await.unwrap();
    Values::new(bed.0.clone(), bed.1.clone(), SHARD).with_blobs(Arc::new(blobs))
}

fn files(path: &std::path::Path) -> usize {
    let count = |name: &str| std::fs::read_dir(path.join(name)).map_or(0, Iterator::count);
    count("objects") + count("unfinished") + count("writers")
}

#[tokio::test]
async fn partial_uploads_go_when_their_process_is_dead_and_not_before() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let (directory, bed) = (tempfile::tempdir().unwrap(), (records, world.clone()));
        let path = directory.path();
        let (dies, lives) = (of_process(&bed, path).await, of_process(&bed, path).await);
        dies.uploads().upload(from_bytes("an object that no value names")).await.unwrap();
        let mut hold = dies.hold();
        let upload = dies.uploads().upload(from_bytes("one that was put ahead of a batch")).await.unwrap();
        hold.put_ahead(&dies, &mut vec![upload.change()]).await.unwrap();
        std::fs::write(path.join("unfinished").join("not-ours"), "").unwrap();
        let reclaim = async |values: &Values| while values.reclaim(usize::MAX).await.unwrap().more {};
        reclaim(&lives).await;
        assert_eq!(files(path), 4, "two objects, their writer, and what is not ours");
        let kept = lives.uploads().upload(from_bytes("of one who lives")).await.unwrap();
        drop(dies);
        reclaim(&lives).await;
        assert_eq!(files(path), 3, "one object, its writer, and what is not ours");
        lives.update(Update::new().change(kept.change()).set(&root("kept"), kept.id())).await.unwrap();
        lives.update(Update::new().clear(&root("kept"))).await.unwrap();
        reclaim(&lives).await;
        assert_eq!(lives.rows().await.unwrap(), []);
    }
}
