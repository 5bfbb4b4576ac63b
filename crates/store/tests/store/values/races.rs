//! Every interleaving of two processes: another one acts between any two calls that an update or a reclaim makes.
//! Whatever they do, nothing is broken, every held value is alive, and in the end nothing is left.

use super::bed::{SHARD, puts, root, stores};
use onceflow_store::{
    BoxFuture, CommitResult, Error as RecordsError, Page, Position, Records,
    core::{Batch, Key, Row, Shard, Timestamp},
    records::Scan,
    testing::{
        fault::{Fault, FaultPlan, Faulty},
        world::TestWorld,
    },
    values::{Error, Update, ValueId, Values, fsck::Mode},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// A store on which another process acts just before the n-th call.
struct Between {
    records: Arc<dyn Records>,
    left: AtomicUsize,
    other: Arc<Values>,
    acts: Vec<Act>,
}

#[derive(Clone, Debug)]
enum Act {
    Update(Update),
    Reclaim(usize),
}

/// Before every call.
const EVERY: usize = usize::MAX;

impl Between {
    async fn act(&self) {
        if self.left.load(SeqCst) == EVERY
            || self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) == Ok(1)
        {
            for act in &self.acts {
                perform(&self.other, act).await;
            }
        }
    }
}

/// Any result is fine: the values it refers to may be gone, or live on as something else.
async fn perform(values: &Values, act: &Act) {
    let done = match act {
        Act::Update(update) => values.update(update.clone()).await.map(drop),
        Act::Reclaim(budget) => values.reclaim(*budget).await.map(drop),
    };
    match done {
        Ok(()) | Err(Error::Missing { .. } | Error::Conflict { .. }) => {}
        Err(error) => panic!("{act:?}: {error}"),
    }
}

impl Records for Between {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, RecordsError>> {
        Box::pin(async move {
            self.act().await;
            self.records.get(shard, keys).await
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, RecordsError>> {
        Box::pin(async move {
            self.act().await;
            self.records.scan(shard, scan).await
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, RecordsError>> {
        Box::pin(async move {
            self.act().await;
            self.records.commit(batch).await
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), RecordsError>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, RecordsError>> {
        self.records.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), RecordsError>> {
        self.records.wait(shard, seen, until)
    }
}

const LADDER: &str = "z; y1->z; y2->z; x->y1,y2; w1->x; w2->x,z; v->w1,w2";
const IDS: [&str; 7] = ["v", "w1", "w2", "x", "y1", "y2", "z"];
const ROOTS: [&str; 3] = ["R", "S", "T"];

fn set(name: &str, id: &str) -> Act {
    Act::Update(Update::new().set(&root(name), id))
}

fn clear(name: &str) -> Act {
    Act::Update(Update::new().clear(&root(name)))
}

fn put(text: &str, name: &str, id: &str) -> Act {
    Act::Update(puts(text).set(&root(name), id))
}

/// The acts of the other process in between.
fn meddling() -> Vec<Vec<Act>> {
    let mut all = vec![
        vec![Act::Reclaim(1)],
        vec![Act::Reclaim(usize::MAX)],
        vec![clear("R")],
        vec![clear("S")],
        // The old life ends and another begins, under the same ids, with other references.
        vec![Act::Reclaim(usize::MAX), put(LADDER, "S", "v")],
        vec![Act::Reclaim(usize::MAX), put("q; z; y1->q; y2->q; x->y1,q; w1->z; v->x,w1", "S", "v"), clear("S")],
        vec![Act::Reclaim(usize::MAX), put("z; q; y1->q,z; x->y1", "S", "x")],
    ];
    for id in IDS {
        all.push(vec![set("S", id)]);
        all.push(vec![set("S", id), clear("S")]);
        all.push(vec![set("S", id), Act::Reclaim(3), clear("S")]);
        all.push(vec![put(&format!("n->{id}"), "S", "n"), clear("R")]);
    }
    all
}

/// Performs `first`, then `acts` one after the other with the other meddling before the n-th call, for every n.
async fn race(first: &[Act], acts: &[Act]) {
    for acts_between in meddling() {
        for n in 1.. {
            let world = TestWorld::new(1);
            let mut ended = true;
            for (_, records) in stores(&world) {
                let other = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
                for act in first {
                    perform(&other, act).await;
                }
                let (left, meddler) = (AtomicUsize::new(n), other.clone());
                let between = Arc::new(Between { records, left, other: meddler, acts: acts_between.clone() });
                let values = Values::new(between.clone(), world.clone(), SHARD);
                for act in acts {
                    perform(&values, act).await;
                }
                ended &= between.left.load(SeqCst) > 0;
                is_sound(&other, &format!("{acts_between:?} before call {n} of {acts:?}")).await;
            }
            if ended {
                break;
            }
        }
    }
}

async fn is_sound(values: &Values, at: &str) {
    let report = values.fsck(Mode::Check).await.unwrap();
    assert!(report.is_clean(), "{at}: {report}");
    for name in ROOTS {
        let mut todo: Vec<ValueId> = values.edge(&root(name)).await.unwrap().into_iter().collect();
        while let Some(id) = todo.pop() {
            todo.extend(values.get(&id).await.unwrap_or_else(|error| panic!("{at}: {error}")).refs);
        }
        values.update(Update::new().clear(&root(name))).await.unwrap();
    }
    while values.reclaim(7).await.unwrap().more {}
    assert_eq!(values.rows().await.unwrap(), [], "{at}");
}

#[tokio::test]
async fn reclaim_holds_against_other_clients_between_any_two_calls() {
    for budget in [1, 2, 7, usize::MAX] {
        let reclaim = vec![Act::Reclaim(budget); 3];
        race(&[put(LADDER, "R", "v"), clear("R")], &reclaim).await;
        race(&[put(LADDER, "R", "v"), set("S", "x"), clear("R")], &reclaim).await;
        race(&[put(LADDER, "R", "v"), clear("R"), Act::Reclaim(1)], &reclaim).await;
    }
}

#[tokio::test]
async fn an_update_holds_against_other_clients_between_any_two_calls() {
    for act in [set("T", "x"), put("t->x,z,z", "T", "t"), put(LADDER, "T", "v"), clear("R"), set("R", "y1")] {
        race(&[put(LADDER, "R", "v")], std::slice::from_ref(&act)).await;
        race(&[put(LADDER, "R", "v"), set("S", "x"), clear("R")], &[act, Act::Reclaim(1)]).await;
    }
}

#[tokio::test]
async fn a_value_still_queued_although_it_lives_again_is_not_forgotten_when_it_dies() {
    // Set S to x, decided while R holds x; meanwhile R lets it go, so that x is queued, and alive.
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        for n in 1..30 {
            let other = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
            perform(&other, &put("x", "R", "x")).await;
            let through = |n, act| {
                let (records, other) = (records.clone(), other.clone());
                let between = Between { records, left: AtomicUsize::new(n), other, acts: vec![act] };
                Values::new(Arc::new(between), world.clone(), SHARD)
            };
            perform(&through(2, clear("R")), &set("S", "x")).await;
            // The queue is cleaned, decided while S holds x; meanwhile S lets it go.
            perform(&through(n, clear("S")), &Act::Reclaim(usize::MAX)).await;
            is_sound(&other, &format!("call {n}")).await;
        }
    }
}

#[tokio::test]
async fn repair_of_a_store_in_use_changes_nothing_that_lives() {
    let world = TestWorld::new(1);
    for acts in [vec![put("x", "R", "x")], vec![set("S", "b")], vec![clear("Q"), Act::Reclaim(usize::MAX)]] {
        for damaged in [false, true] {
            for n in 1..40 {
                for (_, records) in stores(&world) {
                    let other = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
                    perform(&other, &put("b; c", "Q", "b")).await;
                    perform(&other, &set("T", "c")).await;
                    if damaged {
                        let mut batch = Batch::new(SHARD);
                        let count = onceflow_store::core::Group::rows("values.counts").key("c");
                        batch.put(count, onceflow_store::core::row::counter::write(7));
                        assert!(records.commit(batch).await.unwrap().is_applied());
                    }
                    let left = AtomicUsize::new(n);
                    let between = Between { records, left, other: other.clone(), acts: acts.clone() };
                    let report = Values::new(Arc::new(between), world.clone(), SHARD).fsck(Mode::Repair).await.unwrap();
                    assert!(report.is_clean_now() && report.is_clean() != damaged, "call {n}: {report}");
                    let report = other.fsck(Mode::Check).await.unwrap();
                    assert!(report.is_clean() && report.lost.is_empty(), "call {n}: {report}");
                    for name in ["Q", "R", "S", "T"] {
                        if let Some(id) = other.edge(&root(name)).await.unwrap() {
                            other.get(&id).await.unwrap();
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn repair_gives_up_when_the_store_never_rests() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let mut batch = Batch::new(SHARD);
        let count = onceflow_store::core::Group::rows("values.counts").key("c");
        batch.put(count, onceflow_store::core::row::counter::write(7));
        assert!(records.commit(batch).await.unwrap().is_applied());
        let other = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
        let acts = vec![put("x", "R", "x"), clear("R")];
        let busy = Between { records: records.clone(), left: AtomicUsize::new(EVERY), other, acts };
        let repaired = Values::new(Arc::new(busy), world.clone(), SHARD).fsck(Mode::Repair).await;
        assert!(matches!(repaired, Err(Error::Contended(_))), "{repaired:?}");
        let report = Values::new(records, world.clone(), SHARD).fsck(Mode::Check).await.unwrap();
        assert!(report.to_string().contains("the count of c is 7"), "{report}");
    }
}

#[tokio::test]
async fn changes_of_other_clients_after_a_lost_reply_are_not_undone() {
    let world = TestWorld::new(1);
    for (meddling, expected, stays) in [
        (vec![], "", "x"),
        (vec![set("S", "y")], "", "x"),
        (vec![set("R", "y")], "the answer was lost", "y"),
        (vec![set("R", "y"), set("R", "x")], "", "x"),
    ] {
        for (_, records) in stores(&world) {
            let other = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
            perform(&other, &Act::Update(puts("w; x; y").set(&root("R"), "w").set(&root("S"), "x"))).await;
            perform(&other, &set("T", "y")).await;
            // The update reads, tries, and loses the answer; then the others act.
            let records = Faulty::new(records, FaultPlan::at(2, Fault::LoseReply));
            let between = Between { records, left: AtomicUsize::new(3), other: other.clone(), acts: meddling.clone() };
            let values = Values::new(Arc::new(between), world.clone(), SHARD);
            let answer = values.update(Update::new().set(&root("R"), "x")).await;
            assert!(answer.err().map_or(String::new(), |error| error.to_string()).starts_with(expected));
            assert_eq!(other.edge(&root("R")).await.unwrap(), Some(stays.into()), "{meddling:?}");
        }
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_done_once() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let values = Values::new(Faulty::new(records, FaultPlan::at(2, Fault::LoseReply)), world.clone(), SHARD);
        values.release("list").await.unwrap();
        while values.reclaim(7).await.unwrap().more {}
        assert_eq!(values.rows().await.unwrap(), []);
    }
}
