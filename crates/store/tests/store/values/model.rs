//! Case 17: random updates against a model that knows only one rule: a value that an edge reaches is alive.

use super::bed::{Bed, SHARD, each_store, root, stores};
use onceflow_store::{
    testing::{random::Random, world::TestWorld},
    values::{Error, Reclaimed, Update, ValueId, Values, fsck::Mode},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const EDGES: usize = 5;
const TTL_MS: u64 = 1_000;

/// The expected content of the store. Contents and references follow from the id, so a re-put is always the same.
#[derive(Default)]
struct Model {
    /// Every id ever made, with its references.
    made: Vec<(String, Vec<String>)>,
    /// The target of each edge, and its deadline.
    edges: BTreeMap<usize, (String, Option<u64>)>,
    now: u64,
}

impl Model {
    fn alive(&self) -> BTreeSet<String> {
        let refs: BTreeMap<_, _> = self.made.iter().map(|(id, refs)| (id, refs)).collect();
        let mut alive = BTreeSet::new();
        let mut todo: Vec<_> = self.edges.values().map(|(id, _)| id).collect();
        while let Some(id) = todo.pop() {
            if alive.insert(id.clone()) {
                todo.extend(refs[id]);
            }
        }
        alive
    }

    fn expire(&mut self) {
        let now = self.now;
        self.edges.retain(|_, (_, deadline)| deadline.is_none_or(|deadline| deadline > now));
    }
}

async fn is_stored(values: &Values, id: &str) -> bool {
    values.get(&id.into()).await.is_ok()
}

/// One random update, tried on both. Which values are still there although nothing needs them, the store decides.
async fn random_update(bed: &Bed, model: &mut Model, random: &mut Random) {
    let mut update = Update::new();
    let mut known: Vec<String> = Vec::new();
    for (id, _) in &model.made {
        if is_stored(&bed.values, id).await {
            known.push(id.clone());
        }
    }
    let mut fails = false;
    for _ in 0..random.below(4) {
        let again = !model.made.is_empty() && random.below(3) == 0;
        let (id, refs) = if again {
            random.pick(&model.made).clone()
        } else {
            let refs =
                (0..random.below(4)).filter(|_| !known.is_empty()).map(|_| random.pick(&known).clone()).collect();
            (format!("v{}", model.made.len()), refs)
        };
        fails |= !known.contains(&id) && refs.iter().any(|to| !known.contains(to));
        update = update.put(id.as_str(), refs.iter().map(String::as_str), &id);
        if !again {
            model.made.push((id.clone(), refs));
        }
        if !known.contains(&id) {
            known.push(id);
        }
    }
    let mut edges = model.edges.clone();
    for edge in 0..EDGES {
        let name = root(&edge.to_string());
        match random.below(10) {
            0..2 if !known.is_empty() => {
                let id = random.pick(&known);
                update = update.set(&name, id.as_str());
                edges.insert(edge, (id.clone(), None));
            }
            2 if !known.is_empty() => {
                let id = random.pick(&known);
                update = update.lease(&name, id.as_str(), TTL_MS);
                edges.insert(edge, (id.clone(), Some(model.now + TTL_MS)));
            }
            3..5 => {
                update = update.clear(&name);
                edges.remove(&edge);
            }
            _ => {}
        }
    }
    let repeat = random.percent(20);
    for _ in 0..=usize::from(repeat) {
        match bed.attempt(update.clone()).await {
            Ok(()) => assert!(!fails, "{}: {update:?} must be refused", bed.name),
            Err(Error::Missing { .. }) => assert!(fails, "{}: {update:?} must succeed", bed.name),
            Err(error) => panic!("{}: {error}", bed.name),
        }
    }
    if !fails {
        model.edges = edges;
    }
}

#[tokio::test]
async fn a_value_is_alive_exactly_while_an_edge_reaches_it() {
    for seed in 0..12 {
        each_store(async |bed| {
            let mut random = Random::new(seed);
            let mut model = Model::default();
            for _ in 0..60 {
                match random.below(10) {
                    0..6 => random_update(bed, &mut model, &mut random).await,
                    6 => {
                        bed.world.advance(TTL_MS / 2);
                        model.now += TTL_MS / 2;
                    }
                    _ => {
                        let budget = *random.pick(&[1, 2, 3, 7, 50]);
                        let done: Reclaimed = bed.values.reclaim(budget).await.unwrap();
                        bed.fsck().await;
                        // Some, all or none of the leases that were due have ended.
                        if !done.more || done.expired > 0 {
                            bed.drain().await;
                            model.expire();
                        }
                    }
                }
                for id in model.alive() {
                    bed.reads(&id).await;
                }
            }
            model.expire();
            let left: Vec<_> = model.alive().into_iter().collect();
            bed.drain().await;
            let mut stored: Vec<_> =
                bed.stored().await.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect();
            stored.sort();
            assert_eq!(stored, left, "seed {seed}, {}", bed.name);
            let clear = (0..EDGES).fold(Update::new(), |update, edge| update.clear(&root(&edge.to_string())));
            bed.update(clear).await;
            bed.is_empty().await;
        })
        .await;
    }
}

/// Writers that put small families and move their own roots about, over values that all of them share.
async fn writer(values: Arc<Values>, me: usize) {
    let mut random = Random::new(me as u64);
    for round in 0..200 {
        let shared = format!("shared{}", random.below(4));
        let mine = format!("w{me}/{}", random.below(6));
        let top = format!("{mine}/{shared}");
        let edge = root(&format!("{me}/{}", random.below(3)));
        let family = Update::new()
            .leaf(shared.as_str(), "")
            .put(mine.as_str(), [shared.as_str(), shared.as_str()], shared.as_bytes())
            .put(top.as_str(), [mine.as_str(), shared.as_str()], "");
        let update = if random.below(3) == 0 { Update::new().clear(&edge) } else { family.set(&edge, top.as_str()) };
        match values.update(update).await {
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("writer {me}, round {round}: {error}"),
        }
        if let Some(id) = values.edge(&edge).await.unwrap() {
            let mut todo: Vec<ValueId> = vec![id];
            while let Some(id) = todo.pop() {
                todo.extend(values.get(&id).await.unwrap_or_else(|error| panic!("writer {me}: {error}")).refs);
            }
        }
    }
    for n in 0..3 {
        values.update(Update::new().clear(&root(&format!("{me}/{n}")))).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::disallowed_methods, reason = "real threads are what is tested here")]
async fn threads_that_write_and_reclaim_at_once_leave_nothing() {
    let world = TestWorld::new(1);
    for (store, records) in stores(&world) {
        let open = || Arc::new(Values::new(records.clone(), world.clone(), SHARD));
        let writers: Vec<_> = (0..4).map(|me| tokio::spawn(writer(open(), me))).collect();
        let reclaimers: Vec<_> = [1, 3, 50]
            .map(|budget| {
                let values = open();
                tokio::spawn(async move {
                    for _ in 0..300 {
                        match values.reclaim(budget).await {
                            Ok(_) | Err(Error::Contended(_)) => tokio::task::yield_now().await,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .into_iter()
            .collect();
        for task in writers.into_iter().chain(reclaimers) {
            task.await.unwrap();
        }
        let values = open();
        let report = values.fsck(Mode::Check).await.unwrap();
        assert!(report.is_clean(), "{store}: {report}");
        while values.reclaim(50).await.unwrap().more {}
        assert_eq!(values.rows().await.unwrap(), [], "{store}");
    }
}
