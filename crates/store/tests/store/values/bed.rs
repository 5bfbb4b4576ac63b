//! The test bed of the cases: a store in a world moved by hand, a budget, and short names for the calls on it.

use onceflow_store::{
    Records,
    backend::{
        journal::{Journal, Options},
        memory::Memory,
        socket::{Socket, Welcome, serve},
    },
    core::{Group, Shard},
    records::Scan,
    testing::{disk::Disk, keep::keep, world::TestWorld},
    values::{EdgeName, Error, Expect, Reclaimed, Update, ValueId, Values, fsck::Mode},
};
use std::sync::Arc;

pub(crate) const SHARD: Shard = Shard(0);
pub(crate) const BUDGETS: [usize; 4] = [1, 2, 7, usize::MAX];

/// An empty store of every kind. To add a backend, add a line.
pub(crate) fn stores(world: &Arc<TestWorld>) -> Vec<(&'static str, Arc<dyn Records>)> {
    let (journal, _) = Journal::open(Arc::new(Disk::new()), Options::default(), world.clone()).unwrap();
    vec![("memory", Arc::new(Memory::new(world.clone()))), ("journal", Arc::new(journal))]
}

/// A journal, through a socket.
pub(crate) async fn guest(world: &Arc<TestWorld>) -> Arc<dyn Records> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (journal, _) = Journal::open(Arc::new(Disk::new()), Options::default(), world.clone()).unwrap();
    let welcome = Welcome { opening: 0, holder: "the test".into() };
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = serve(listener, Arc::new(journal), welcome, world.clone());
    let socket = Socket::connect(&path, &**world).await.unwrap();
    keep(Arc::new(socket), (server, dir))
}

/// A real server, with a clock that is moved by hand.
#[cfg(feature = "redis")]
pub(crate) async fn redis(world: &Arc<TestWorld>) -> Arc<dyn Records> {
    use onceflow_store::{
        backend::redis::{Address, Redis},
        testing::redis::forgetful_url,
    };
    let address = Address::parse(&forgetful_url()).unwrap();
    Arc::new(Redis::connect(address, world.clone()).await.unwrap().with_the_worlds_clock())
}

pub(crate) struct Bed {
    pub(crate) name: String,
    pub(crate) world: Arc<TestWorld>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) budget: usize,
}

/// Runs a case on every store, with every budget, each in a world of its own.
pub(crate) async fn each_store(case: impl AsyncFn(&Bed)) {
    each_of(&["memory", "journal", "socket"], &case).await;
    #[cfg(feature = "redis")]
    each_of(&["redis"], &case).await;
}

/// The same for cases that say when a task beside them has its turn: those cannot say when a reply comes from elsewhere.
pub(crate) async fn each_store_at_hand(case: impl AsyncFn(&Bed)) {
    each_of(&["memory", "journal"], &case).await;
}

async fn each_of(stores_wanted: &[&'static str], case: &impl AsyncFn(&Bed)) {
    for budget in BUDGETS {
        // A server takes its time: one small budget, and none.
        if stores_wanted == ["redis"]
            && ![2, usize::MAX].contains(&budget)
            && std::env::var_os("ONCEFLOW_LONG").is_none()
        {
            continue;
        }
        for store in stores_wanted.iter().copied() {
            let world = TestWorld::new(1);
            let records = match store {
                "socket" => guest(&world).await,
                #[cfg(feature = "redis")]
                "redis" => redis(&world).await,
                _ => stores(&world).into_iter().find(|(name, _)| *name == store).expect("it is one of them").1,
            };
            let values = Arc::new(Values::new(records.clone(), world.clone(), SHARD));
            let name = format!("{store}, budget {budget}");
            case(&Bed { name, world, records, values, budget }).await;
        }
    }
}

/// `quux; baz->quux; foo->bar,baz` as puts, in this order. A value's content is its name.
pub(crate) fn puts(text: &str) -> Update {
    text.split(';').map(str::trim).filter(|put| !put.is_empty()).fold(Update::new(), |update, put| {
        let (id, refs) = put.split_once("->").unwrap_or((put, ""));
        update.put(id, refs.split(',').filter(|id| !id.is_empty()), id)
    })
}

pub(crate) fn root(name: &str) -> EdgeName {
    EdgeName::root(name)
}

pub(crate) fn target(id: &str) -> Expect {
    Expect::Target(id.into())
}

impl Bed {
    /// Tries an update, and looks that nothing is broken whatever came of it.
    pub(crate) async fn attempt(&self, update: Update) -> Result<(), Error> {
        let answer = self.values.update(update).await;
        self.fsck().await;
        answer.map(drop)
    }

    pub(crate) async fn update(&self, update: Update) {
        self.attempt(update).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub(crate) async fn set(&self, name: &str, to: &str) {
        self.update(Update::new().set(&root(name), to)).await;
    }

    pub(crate) async fn clear(&self, name: &str) {
        self.update(Update::new().clear(&root(name))).await;
    }

    /// One call of reclaim.
    pub(crate) async fn step(&self) -> Reclaimed {
        let done = self.values.reclaim(self.budget).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        self.fsck().await;
        done
    }

    /// Reclaims until there is nothing more to do.
    pub(crate) async fn drain(&self) -> Reclaimed {
        let mut sum = Reclaimed::default();
        for _ in 0..100_000 {
            let done = self.step().await;
            sum.swept += done.swept;
            sum.expired += done.expired;
            sum.paid += done.paid;
            sum.next_deadline = done.next_deadline;
            if !done.more {
                return sum;
            }
        }
        panic!("{}: reclaim finds no end", self.name);
    }

    pub(crate) async fn fsck(&self) {
        let report = self.values.fsck(Mode::Check).await.unwrap();
        assert!(report.is_clean() && report.exact && report.lost.is_empty(), "{}: {report}", self.name);
    }

    /// The values there are, reclaimed or not.
    pub(crate) async fn stored(&self) -> String {
        let page = self.records.scan(SHARD, Scan::of(Group::rows("values"), 4096)).await.unwrap();
        let ids = page.rows.iter().map(|(name, _)| String::from_utf8_lossy(name.as_bytes()).into_owned());
        ids.collect::<Vec<_>>().join(" ")
    }

    /// The content of the store once there is nothing more to reclaim.
    pub(crate) async fn left(&self) -> String {
        self.drain().await;
        self.stored().await
    }

    /// That nothing at all is left.
    pub(crate) async fn is_empty(&self) {
        self.drain().await;
        let rows = self.values.rows().await.unwrap();
        assert!(rows.is_empty(), "{}: {rows:?} left", self.name);
    }

    /// That a value can be read, and all it refers to.
    pub(crate) async fn reads(&self, id: &str) {
        let mut todo = vec![ValueId::from(id)];
        while let Some(id) = todo.pop() {
            let value = self.values.get(&id).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            todo.extend(value.refs);
        }
    }
}

/// Expects an update to be refused, and nothing to change by it.
pub(crate) async fn refused(bed: &Bed, update: Update, says: &str) {
    let before = bed.stored().await;
    let error = bed.attempt(update).await.expect_err("this update must be refused");
    assert!(error.to_string().contains(says), "{}: {error}", bed.name);
    assert_eq!(bed.stored().await, before, "{}", bed.name);
}
