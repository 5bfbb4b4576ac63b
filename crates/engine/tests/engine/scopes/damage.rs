//! Rows of an open session that are missing, changed or left over: `fsck` reports each, and a session of another version
//! is neither continued nor ended.

use super::rig::{Outside, Rig, row};
use crate::support::{Kit, graphs::G, int, proof::Proof};
use onceflow_core::{
    Batch, Inbox, Key, Kind, Name, Row, Shard,
    model::{Effect, Port, TaskSpec, Type},
};
use onceflow_engine::{
    Options, Start,
    scope::{DurableScope, end_scope, enter_scope},
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::{BoxFuture, Records, World};
use std::sync::Arc;

const LONG_MS: u64 = 1_000_000_000;

/// Enters a scope and gives its input on.
struct Enters(Arc<DurableScope>);

impl Body for Enters {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let scope = self.0.clone();
        Attempt::Async(Box::pin(async move {
            let ended = enter_scope(&step, scope, row(5)).await;
            ended.map_err(|error| Failure::new(error.to_string()).finally())?;
            Ok(inputs)
        }))
    }

    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        let scope = self.0.clone();
        Some(Box::pin(async move {
            let ended = end_scope(&step, scope).await;
            ended.map(|_| vec![]).map_err(|error| Failure::new(error.to_string()))
        }))
    }
}

/// A scope with an activity, a wait, a nested session and an entry, all open for long.
fn open_for_long(world: &Arc<dyn World>) -> Arc<DurableScope> {
    let outside = Outside::default();
    let mut inner = Rig::default();
    let (wait, end) = (inner.rest("wait", LONG_MS), inner.terminate());
    inner.chain(&[wait, end]);
    let mut rig = Rig::default();
    let [works, waits, nests, kept] = [1, 2, 3, 4].map(onceflow_core::scope::OpId);
    rig.clone_to("start", &[works, waits, nests, kept]);
    rig.activity("works", world, &outside, LONG_MS);
    rig.rest("waits", LONG_MS);
    rig.nested("nests", &inner.build());
    rig.buffer("kept");
    let end = rig.terminate();
    [works, waits, nests].into_iter().for_each(|work| rig.chain(&[work, end]));
    rig.build()
}

struct Scene {
    proof: Proof,
    start: Start,
}

type Found = (Shard, Key, Row);

impl Scene {
    /// A run whose step has a session open; nothing works on it any more.
    async fn open() -> Self {
        let mut kit = Kit::default();
        let mut spec = TaskSpec::new("enter", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
        spec.effect = Effect::Transactional;
        let mut proof = Proof::new(&kit);
        let world: Arc<dyn World> = proof.world.clone();
        kit.tasks.add(spec.clone(), Arc::new(Enters(open_for_long(&world))));
        proof.kit = kit;
        let g = G::new().input("x", Type::Int).output("y", Type::Int).task("enter", &spec);
        let start = Start::new("r", g.connect("x -> enter.x; enter.out -> y").flow()).input("x", int(1));
        let scene = Scene { proof, start };
        let engine = scene.proof.engine();
        let opened = async {
            engine.start(scene.start.clone()).await.unwrap();
            // Three orders of the session, and one of the nested one.
            while scene.rows(|key| key.name.as_bytes().starts_with(b"o")).len() < 4 {
                tokio::task::yield_now().await;
            }
        };
        scene.proof.drive(opened).await;
        scene.proof.calm().await;
        scene.proof.drive(engine.interrupt()).await.unwrap();
        scene.proof.calm().await;
        scene
    }

    /// Rows of sessions, and those of the run that name them.
    fn rows(&self, is_wanted: impl Fn(&Key) -> bool) -> Vec<Found> {
        let is_scope = |key: &Key| {
            let id = key.group.id();
            let is_row = matches!(key.group.kind(), Kind::Queue | Kind::Rows);
            (is_row && id.starts_with(b"scope/"))
                || (key.group.kind() == Kind::Rows && id.first() == Some(&b'S') && id.len() == 9)
        };
        let all = self.proof.memory.state().all();
        all.into_iter().filter(|(_, key, _)| is_scope(key) && is_wanted(key)).collect()
    }

    async fn put(&self, key: &Key, row: Option<Row>) {
        let mut batch = Batch::new(Shard(0));
        match row {
            Some(row) => batch.put(key.clone(), row),
            None => batch.delete(key.clone()),
        };
        let _applied = self.proof.memory.commit(batch).await.unwrap();
    }

    async fn fsck(&self) -> Vec<String> {
        let reader = self.proof.engine_on(self.proof.memory.clone(), Options { works: false, ..Options::default() });
        let found = self.proof.drive(reader.fsck()).await.unwrap().expect("nothing changes the store");
        self.proof.drive(reader.close()).await.unwrap();
        found
    }

    async fn finds(&self, key: &Key, planted: Option<Row>, before: Option<Row>) {
        self.put(key, planted.clone()).await;
        let found = self.fsck().await;
        assert!(!found.is_empty(), "not noticed: {planted:?} at {key}");
        self.put(key, before).await;
    }

    async fn cancel(&self) {
        let engine = self.proof.engine();
        self.proof.world.advance(60_000);
        let ended = async {
            let handle = engine.find("r").await.unwrap();
            handle.cancel().await.unwrap();
            handle.wait().await.unwrap()
        };
        let ended = self.proof.drive(ended).await.to_string();
        assert!(ended.contains("cancelled"), "{ended}");
        self.proof.drive(engine.close()).await.unwrap();
        self.proof.calm().await;
    }
}

/// A row that nothing refers to: a message, the state of an operation, a disposal, and that the run has a session open.
fn is_told_by_none(key: &Key) -> bool {
    (!key.group.id().starts_with(b"scope/"))
        || key.group.id().starts_with(b"scope/s/")
            && key.name.as_bytes().first().is_some_and(|kind| b"bcdmptx".contains(kind))
}

#[tokio::test]
async fn fsck_reports_every_row_of_an_open_session_that_is_missing_or_cannot_be_read() {
    let scene = Scene::open().await;
    assert_eq!(scene.fsck().await, Vec::<String>::new(), "{:?}", scene.rows(|_| true));
    let rows = scene.rows(|_| true);
    assert!(rows.len() > 12, "{rows:?}");
    for (_, key, row) in &rows {
        if !is_told_by_none(key) {
            scene.finds(key, None, Some(row.clone())).await;
        }
        // The store itself refuses a ready row that it cannot read.
        if key.group.kind() != Kind::Queue {
            scene.finds(key, Some(Row::new(vec![0xff; 3])), Some(row.clone())).await;
        }
    }
    assert_eq!(scene.fsck().await, Vec::<String>::new());
    scene.cancel().await;
    scene.proof.only_what_remains().await;
    scene.proof.nothing_remains().await;
}

#[tokio::test]
async fn fsck_reports_rows_that_no_session_needs() {
    let scene = Scene::open().await;
    let other = |key: &Key, at: usize| {
        let mut name = key.name.as_bytes().to_vec();
        name[at] ^= 0x55;
        Key { group: key.group.clone(), name: Name::new(name) }
    };
    let mut planted = Vec::new();
    for (_, key, row) in scene.rows(|_| true) {
        let (group, name) = (key.group.id(), key.name.as_bytes());
        if group.starts_with(b"scope/s/") && matches!(name[0], b'a' | b'o' | b'k') {
            planted.push((other(&key, name.len() - 1), row));
        } else if !group.starts_with(b"scope/s/") {
            planted.push((other(&key, 3), row));
        }
    }
    let run = scene.rows(|key| key.group.id().len() == 9).remove(0).1.group;
    planted.push((run.key("e0123"), Row::new("end")));
    assert!(planted.len() > 8, "{planted:?}");
    for (key, row) in planted {
        scene.finds(&key, Some(row), None).await;
    }
    scene.cancel().await;
    // The run is over: nothing of its sessions may be there.
    scene.finds(&run.key("o0123"), Some(Row::new("open")), None).await;
}

#[tokio::test]
async fn session_of_another_version_is_neither_continued_nor_ended() {
    let scene = Scene::open().await;
    let ready = scene.rows(|key| key.group.kind() == Kind::Queue && key.name.as_bytes().last() == Some(&b's'));
    let before = scene.rows(|key| !matches!(key.group.kind(), Kind::Queue));
    for (_, key, row) in &ready {
        let mut inbox = Inbox::from_row(row).unwrap();
        inbox.note[0] = 1;
        scene.put(key, Some(inbox.to_row())).await;
    }
    let found = scene.fsck().await;
    assert!(found[0].contains("/enter") && found[0].contains("another version"), "{found:?}");
    let engine = scene.proof.engine();
    let mut events = engine.events();
    scene.proof.world.advance(60_000);
    let told = async {
        loop {
            let event = format!("{:?}", events.recv().await.expect("the engine tells why the run does not end"));
            if event.contains("opened by another version of onceflow (format 1") {
                break event;
            }
        }
    };
    assert!(scene.proof.drive(told).await.contains("/enter"));
    scene.proof.drive(engine.interrupt()).await.unwrap();
    scene.proof.calm().await;
    assert_eq!(scene.rows(|key| !matches!(key.group.kind(), Kind::Queue)), before, "the session is untouched");
    for (_, key, row) in &ready {
        scene.put(key, Some(row.clone())).await;
    }
    scene.cancel().await;
    scene.proof.only_what_remains().await;
}
