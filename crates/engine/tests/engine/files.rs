//! Files: digested before they are stored, given to tasks without a copy, moved from tasks into the store, and handed
//! out as independent files.

mod by_reference;
use crate::support;

use onceflow_core::{Digest, model::Type};
use onceflow_engine::{
    Engine, Error, Options, RunStatus, Start,
    task::{Data, Failure, FileData, KnownContent},
};
use onceflow_store::{
    Store,
    values::{fsck::Mode, limits::INLINE_FILE_BYTES_MAX},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use support::{Kit, as_int, flows::*, graphs::*, int, show};

const SMALL_BYTES: usize = 10;
const LARGE_BYTES: usize = INLINE_FILE_BYTES_MAX as usize + 1;

/// Writes a file and returns it as data.
fn file(directory: &Path, name: &str, content: &[u8]) -> FileData {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    FileData::new(name, path)
}

/// All files below a directory with their contents, except the lock files of processes that have the store open.
fn everything(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        } else if !matches!(path.file_name().unwrap().to_str(), Some("lock" | "store.sock")) {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// Joins files, one line each, into a file of the task's own.
fn join(kit: &mut Kit, place: &Path) -> onceflow_core::model::TaskSpec {
    let at = place.to_owned();
    let join = spec("join", &[("xs", Type::list(Type::File)), ("one", Type::File)], &[("out", Type::File)]);
    kit.add(join, move |step, inputs| match (&inputs[0], &inputs[1]) {
        (Data::List(list), Data::File(one)) => {
            let mut all = Vec::new();
            for file in list.clone().into_iter().chain([Data::File(one.clone())]) {
                let Data::File(file) = file else { return Err(Failure::new("no file")) };
                all.extend(fs::read(&file.path).unwrap());
            }
            Ok(vec![Data::from(file(&at, &format!("joined.{}", step.key()), &all))])
        }
        other => Err(Failure::new(format!("{other:?}"))),
    })
}

fn joining(kit: &mut Kit, place: &Path) -> Start {
    let join = join(kit, place);
    let g = G::new().input("xs", Type::list(Type::File)).input("one", Type::File).output("all", Type::File);
    start(g.task("join", &join).connect("xs -> join.xs; one -> join.one; join.out -> all"))
}

async fn open(place: &Path, kit: &Kit, works: bool) -> (Store, Engine) {
    let store = Store::open(place.join("store")).await.unwrap();
    let options = Options { works, scratch: place.join("scratch"), ..Options::default() };
    let engine = Engine::open(&store, options).await.unwrap();
    engine.add_tasks(&kit.tasks).unwrap();
    (store, engine)
}

async fn closed((store, engine): (Store, Engine)) {
    engine.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn explaining_and_starting_what_is_done_write_nothing() {
    for len in [SMALL_BYTES, LARGE_BYTES] {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut kit = Kit::default();
        let begin = joining(&mut kit, place);
        let xs = Data::List((0..3).map(|n| Data::from(file(place, &format!("in/{n}"), &vec![n; len]))).collect());
        let begin = begin.input("xs", xs).input("one", Data::from(file(place, "in/one", b"end")));
        let (store, engine) = open(place, &kit, true).await;
        let handle = engine.start(begin.clone()).await.unwrap();
        assert!(handle.wait().await.unwrap().status == RunStatus::Done);
        let values = store.values().await.unwrap();
        while values.reclaim(usize::MAX).await.unwrap().more {}
        closed((store, engine)).await;
        // Opening the store may have to clean up after the last process.
        closed(open(place, &kit, true).await).await;
        let before = everything(&place.join("store"));
        for works in [false, true] {
            let (store, engine) = open(place, &kit, works).await;
            let seen = store.records().position();
            engine.preview(begin.clone()).await.unwrap();
            let handle = engine.start(begin.clone()).await.unwrap();
            assert!(handle.wait().await.unwrap().status == RunStatus::Done);
            // A worker has tried to claim a step, which takes a position, and has changed nothing else.
            assert!(works || store.records().position() == seen, "something was applied");
            closed((store, engine)).await;
        }
        let after = everything(&place.join("store"));
        let changed: Vec<_> = before.iter().filter(|(path, bytes)| after.get(*path) != Some(bytes)).collect();
        assert!(
            changed.is_empty() && before.len() == after.len(),
            "{:?}",
            changed.iter().map(|(p, _)| p).collect::<Vec<_>>()
        );
        assert_eq!(kit.ran(), "/join");
    }
}

#[tokio::test]
async fn explaining_a_run_that_does_not_exist_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut kit = Kit::default();
    let begin = joining(&mut kit, place).input("xs", Data::List(vec![].into()));
    let begin = begin.input("one", Data::from(file(place, "one", &[1; LARGE_BYTES])));
    let (store, engine) = open(place, &kit, false).await;
    let seen = store.records().position();
    assert_eq!(engine.preview(begin).await.unwrap().explanation.lines.len(), 1);
    assert_eq!(store.records().position(), seen);
    assert_eq!(fs::read_dir(place.join("store/blobs/0/objects")).unwrap().count(), 0);
    closed((store, engine)).await;
}

#[tokio::test]
async fn an_input_that_is_not_what_it_is_said_to_be_is_refused_and_nothing_begins() {
    for len in [SMALL_BYTES, LARGE_BYTES] {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut kit = Kit::default();
        let mut one = file(place, "one", &vec![1; len]);
        one.known = Some(KnownContent { digest: Digest::from_bytes([7; 32]), len: len as u64 });
        let begin = joining(&mut kit, place).input("xs", Data::List(vec![].into())).input("one", Data::from(one));
        let (store, engine) = open(place, &kit, true).await;
        let told = engine.start(begin).await.err().expect("it is not what it is said to be");
        assert!(matches!(&told, Error::Inputs(why) if why.ends_with("one changed while it was read")), "{told}");
        assert!(matches!(engine.find("r").await, Err(Error::NoRun(_))));
        closed((store, engine)).await;
    }
}

#[tokio::test]
async fn a_file_with_a_known_digest_is_not_read_again() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut kit = Kit::default();
    let content = vec![3; LARGE_BYTES];
    let mut one = file(place, "one", &content);
    one.known = Some(KnownContent { digest: Digest::of(&content), len: content.len() as u64 });
    let begin = joining(&mut kit, place).input("xs", Data::List(vec![].into())).input("one", Data::from(one.clone()));
    let (store, engine) = open(place, &kit, true).await;
    let handle = engine.start(begin.clone()).await.unwrap();
    assert!(handle.wait().await.unwrap().status == RunStatus::Done);
    fs::remove_file(&one.path).unwrap();
    let again = engine.start(begin).await.unwrap();
    assert!(again.wait().await.unwrap().status == RunStatus::Done);
    assert_eq!(kit.ran(), "/join");
    closed((store, engine)).await;
}

#[tokio::test]
async fn a_task_reads_the_object_itself_and_may_pass_it_on() {
    for len in [SMALL_BYTES, LARGE_BYTES] {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let (mut kit, seen) = (Kit::default(), Arc::new(Mutex::new(Vec::new())));
        let paths = seen.clone();
        let pass = spec("pass", &[("x", Type::File)], &[("out", Type::File), ("same", Type::File)]);
        let pass = kit.add(pass, move |_, inputs| {
            let Data::File(given) = &inputs[0] else { return Err(Failure::new("no file")) };
            assert!(fs::metadata(&given.path).unwrap().permissions().readonly());
            paths.lock().unwrap().push(given.path.clone());
            Ok(vec![inputs[0].clone(), Data::from(FileData::new("other name", given.path.clone()))])
        });
        let g = G::new().input("x", Type::File).output("y", Type::File).output("z", Type::File);
        let g = g.task("a", &pass).task("b", &pass);
        let g = g.connect("x -> a.x; a.out -> b.x; b.out -> y; a.same -> z");
        let (store, engine) = open(place, &kit, true).await;
        let content = vec![9; len];
        let begin = start(g).input("x", Data::from(file(place, "x", &content)));
        let handle = engine.start(begin).await.unwrap();
        assert!(handle.wait().await.unwrap().status == RunStatus::Done);
        let objects = fs::read_dir(place.join("store/blobs/0/objects")).unwrap().count();
        let is_large = len == LARGE_BYTES;
        assert_eq!(objects, usize::from(is_large), "one object for one content, none for what is small");
        for path in seen.lock().unwrap().iter() {
            assert_eq!(path.starts_with(place.join("store").canonicalize().unwrap()), is_large, "{path:?}");
        }
        // A file that is handed out is independent: writing to it changes nothing in the store.
        for (output, name) in [("y", "x"), ("z", "other name")] {
            let into = place.join("out").join(output);
            let Data::File(got) = handle.outputs().output_into(output, Some(&into)).await.unwrap() else {
                panic!("no file")
            };
            assert_eq!((got.path.clone(), got.name.as_str()), (into.join(name), name));
            assert_eq!(fs::read(&got.path).unwrap(), content);
            fs::write(&got.path, "changed").unwrap();
            let again = place.join("again").join(output);
            let Data::File(got) = handle.outputs().output_into(output, Some(&again)).await.unwrap() else {
                panic!("no file")
            };
            assert_eq!(fs::read(&got.path).unwrap(), content);
        }
        let values = store.values().await.unwrap();
        let fsck = values.fsck(Mode::Check).await.unwrap();
        assert!(fsck.is_clean() && fsck.lost.is_empty(), "{fsck}");
        closed((store, engine)).await;
        let scratch = place.join("scratch");
        assert!(!scratch.exists() || fs::read_dir(&scratch).unwrap().next().is_none(), "scratch is left");
    }
}

#[tokio::test]
async fn twenty_thousand_files_go_in_and_a_directory_of_five_thousand_comes_out() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut kit = Kit::default();
    let len = spec("len", &[("x", Type::File)], &[("out", Type::Int)]);
    let len = kit.add(len, |_, inputs| match &inputs[0] {
        Data::File(file) => Ok(vec![int(fs::metadata(&file.path).unwrap().len() as i64)]),
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let at = place.to_owned();
    let make = spec("make", &[("xs", Type::list(Type::Int))], &[("dir", Type::list(Type::File)), ("n", Type::Int)]);
    let make = kit.add(make, move |_, inputs| {
        let Data::List(xs) = &inputs[0] else { return Err(Failure::new("no list")) };
        let one = |n: usize| {
            // A few of them are objects.
            let content = if n.is_multiple_of(1000) { vec![n as u8; LARGE_BYTES] } else { n.to_string().into_bytes() };
            Data::from(FileData { name: format!("d/{n}"), ..file(&at, &format!("made/{n}"), &content) })
        };
        Ok(vec![Data::List((0..5000).map(one).collect()), int(xs.iter().map(|x| as_int(&x)).sum())])
    });
    let body = G::new().input("x", Type::File).output("y", Type::Int).task("len", &len);
    let body = body.connect("x -> len.x; len.out -> y").graph();
    let g = G::new().input("xs", Type::list(Type::File)).output("dir", Type::list(Type::File)).output("n", Type::Int);
    let g = g.module("each", each(body)).task("make", &make);
    let g = g.connect("xs -> each.x; each.y -> make.xs; make.dir -> dir; make.n -> n");
    let xs = (0..20_000).map(|n| Data::from(file(place, &format!("in/{n}"), &vec![b'x'; n % 7]))).collect();
    let (store, engine) = open(place, &kit, true).await;
    let handle = engine.start(start(g).input("xs", Data::List(xs))).await.unwrap();
    let report = handle.wait().await.unwrap();
    assert!(report.status == RunStatus::Done, "{report}");
    let expected: i64 = (0..20_000).map(|n| n % 7).sum();
    assert_eq!(show(&handle.output("n").await.unwrap()), expected.to_string());
    let into = place.join("out");
    let Data::List(files) = handle.outputs().output_into("dir", Some(&into)).await.unwrap() else { panic!("no list") };
    assert_eq!(files.len(), 5000);
    assert_eq!(fs::read_to_string(into.join("d/4999")).unwrap(), "4999");
    assert_eq!(fs::metadata(into.join("d/3000")).unwrap().len(), LARGE_BYTES as u64);
    let values = store.values().await.unwrap();
    while values.reclaim(usize::MAX).await.unwrap().more {}
    let fsck = values.fsck(Mode::Check).await.unwrap();
    assert!(fsck.is_clean() && fsck.lost.is_empty(), "{fsck}");
    closed((store, engine)).await;
}
