//! Files by reference: tasks read the user's own file, and outputs made while it changed are never committed.

use super::*;
use onceflow_engine::{SOURCE_CHANGED, Summary};
use onceflow_store::values::Content;

/// A run of one task that reads a file, reports its path, and modifies it before it ends.
fn reading(kit: &mut Kit, seen: Arc<Mutex<Vec<PathBuf>>>, meanwhile: impl Fn(&Path) + Send + Sync + 'static) -> Start {
    let read = reads(kit, seen, meanwhile);
    let g = G::new().input("x", Type::File).output("n", Type::Int);
    start(g.task("read", &read).connect("x -> read.x; read.n -> n"))
}

fn reads(
    kit: &mut Kit,
    seen: Arc<Mutex<Vec<PathBuf>>>,
    meanwhile: impl Fn(&Path) + Send + Sync + 'static,
) -> onceflow_core::model::TaskSpec {
    let read = spec("read", &[("x", Type::File)], &[("n", Type::Int)]);
    kit.add(read, move |_, inputs| {
        let Data::File(given) = &inputs[0] else { return Err(Failure::new("no file")) };
        assert!(given.by_reference);
        seen.lock().unwrap().push(given.path.clone());
        let n = fs::read(&given.path).unwrap().len();
        meanwhile(&given.path);
        Ok(vec![int(n as i64)])
    })
}

async fn end(place: &Path, kit: &Kit, begin: Start) -> Summary {
    let (store, engine) = open(place, kit, true).await;
    let report = engine.start(begin).await.unwrap().wait().await.unwrap();
    let values = store.values().await.unwrap();
    let fsck = values.fsck(Mode::Check).await.unwrap();
    assert!(fsck.is_clean(), "{fsck}");
    closed((store, engine)).await;
    report
}

fn is_parked(report: &Summary) -> String {
    let Summary { status: RunStatus::Failed, failures, .. } = report else { panic!("{report}") };
    assert!(failures[0].causes[0].starts_with(SOURCE_CHANGED), "{report}");
    failures[0].causes[0].clone()
}

#[tokio::test]
async fn a_task_reads_the_users_own_file_and_the_store_holds_none_of_it() {
    for len in [SMALL_BYTES, LARGE_BYTES] {
        let (place, mut kit, seen) = (tempfile::tempdir().unwrap(), Kit::default(), Arc::default());
        let place = place.path();
        let given = file(place, "one", &vec![1; len]).by_reference();
        let begin = reading(&mut kit, Arc::clone(&seen), |_| {}).input("x", Data::from(given.clone()));
        let report = end(place, &kit, begin).await;
        assert!(report.status == RunStatus::Done, "{report}");
        assert_eq!(*seen.lock().unwrap(), [given.path]);
        let objects = fs::read_dir(place.join("store/blobs/0/objects")).map_or(0, Iterator::count);
        assert_eq!(objects, 0, "nothing is copied");
    }
}

#[tokio::test]
async fn outputs_made_while_an_input_changed_are_dropped_and_the_run_waits_for_a_new_plan() {
    let (place, mut kit, seen) = (tempfile::tempdir().unwrap(), Kit::default(), Arc::default());
    let place = place.path();
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let meanwhile = move |path: &Path| {
        if is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            fs::write(path, "another content").unwrap();
        }
    };
    let given = || Data::from(FileData::new("one", place.join("one")).by_reference());
    file(place, "one", b"one");
    let begin = reading(&mut kit, Arc::clone(&seen), meanwhile);
    let report = end(place, &kit, begin.clone().input("x", given())).await;
    assert!(is_parked(&report).contains("input changed"), "{report}");
    let report = end(place, &kit, begin.input("x", given())).await;
    assert!(matches!(&report, Summary { status: RunStatus::Done, outputs, .. } if outputs.len() == 1), "{report}");
    assert_eq!(seen.lock().unwrap().len(), 2, "it ran once more, with what the file holds now");
}

#[tokio::test]
async fn a_handler_of_failures_is_not_asked_about_an_input_that_changed() {
    let (place, mut kit, seen) = (tempfile::tempdir().unwrap(), Kit::default(), Arc::default());
    let place = place.path();
    let meanwhile = |path: &Path| fs::write(path, "another content").unwrap();
    let read = reads(&mut kit, Arc::clone(&seen), meanwhile);
    let g = G::new().input("x", Type::File).output("n", Type::option(Type::Int)).output("e", Type::option(Type::Text));
    let g = g
        .attempt("read", onceflow_core::model::graph::ModuleKind::Task(read.into()))
        .connect("x -> read.x; read.n -> n; read.error -> e");
    let begin = start(g);
    let given = file(place, "one", b"one").by_reference();
    let report = end(place, &kit, begin.input("x", Data::from(given))).await;
    is_parked(&report);
}

#[tokio::test]
async fn an_input_that_is_removed_before_its_step_begins_is_said_to_be_gone() {
    let (place, mut kit, seen) = (tempfile::tempdir().unwrap(), Kit::default(), Arc::default());
    let place = place.path();
    let given = file(place, "one", b"one").by_reference();
    let begin = reading(&mut kit, Arc::clone(&seen), |_| {}).input("x", Data::from(given.clone()));
    // No worker takes its step yet.
    let (store, engine) = open(place, &kit, false).await;
    engine.start(begin.clone()).await.unwrap();
    let values = store.values().await.unwrap();
    let files = values.sources().all().await.unwrap();
    assert!(files.len() == 1 && files[0].path == given.path);
    closed((store, engine)).await;
    fs::rename(&given.path, place.join("away")).unwrap();
    let (store, engine) = open(place, &kit, true).await;
    let report = engine.find("r").await.unwrap().wait().await.unwrap();
    assert!(is_parked(&report).contains("is gone"), "{report}");
    assert!(seen.lock().unwrap().is_empty(), "the body did not run");
    closed((store, engine)).await;
    // The file came back, as another file of the same content.
    fs::write(&given.path, b"one").unwrap();
    let report = end(place, &kit, begin).await;
    assert!(report.status == RunStatus::Done, "{report}");
}

#[tokio::test]
async fn a_blob_that_was_handed_over_is_stored_again_when_it_is_put_again() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let store = Store::open(place.join("store")).await.unwrap();
    let values = store.values().await.unwrap();
    let content = vec![7; LARGE_BYTES];
    let root = onceflow_store::values::EdgeName::root("held");
    let upload = values.uploads().upload(onceflow_store::blobs::content::from_bytes(content.clone())).await.unwrap();
    let (id, digest) = (upload.id(), onceflow_core::Digest::of(&content));
    let update = onceflow_store::values::Update::new().change(upload.change()).set(&root, id.clone());
    values.update(update).await.unwrap();
    let out = place.join("results/big");
    assert!(values.files().link(&id, &out).await.unwrap());
    assert!(!values.files().hand_over(digest, &place.join("elsewhere")).await.unwrap(), "that is not its object");
    assert!(values.files().hand_over(digest, &out).await.unwrap());
    while values.reclaim(usize::MAX).await.unwrap().more {}
    assert!(matches!(values.get(&id).await.unwrap().content, Content::Source(_)));
    assert_eq!(values.read_all(&id).await.unwrap(), content);
    let fsck = values.fsck(Mode::Check).await.unwrap();
    assert!(fsck.is_clean(), "{fsck}");
    let upload = values.uploads().upload(onceflow_store::blobs::content::from_bytes(content.clone())).await.unwrap();
    values.update(onceflow_store::values::Update::new().change(upload.change())).await.unwrap();
    assert!(matches!(values.get(&id).await.unwrap().content, Content::Object { .. }));
    fs::write(&out, "the user's").unwrap();
    assert_eq!(values.read_all(&id).await.unwrap(), content);
    let fsck = values.fsck(Mode::Check).await.unwrap();
    assert!(fsck.is_clean(), "{fsck}");
    store.close().await.unwrap();
}
