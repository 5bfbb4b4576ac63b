//! A store in front of another that runs an action just before one batch, or just after one read: a commit of another
//! process while this one decides.

use onceflow_core::{Batch, Key, Row, Shard, Timestamp};
use onceflow_store::{BoxFuture, CommitResult, Error, Page, Position, Records, records::Scan};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// A call of the store.
pub(crate) enum Call<'a> {
    /// A batch is about to be sent.
    Sends(&'a Batch),
    /// A scan has been read.
    Saw(&'a Scan),
}

type When = Box<dyn Fn(Call<'_>) -> bool + Send + Sync>;

/// The wrapper of a store.
pub(crate) struct Meanwhile {
    records: Arc<dyn Records>,
    when: When,
    what: Mutex<Option<BoxFuture<'static, ()>>>,
    is_dead: AtomicBool,
    /// The batch at which the action runs is lost, and so is its reply.
    loses: bool,
}

impl Meanwhile {
    /// Runs `what` at the first call for which `when` is true.
    pub(crate) fn new(
        records: Arc<dyn Records>,
        when: impl Fn(Call<'_>) -> bool + Send + Sync + 'static,
        what: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        let what = Mutex::new(Some(Box::pin(what) as BoxFuture<'static, ()>));
        Arc::new(Meanwhile { records, when: Box::new(when), what, is_dead: AtomicBool::new(false), loses: false })
    }

    /// The same, and that batch is lost, with its reply.
    pub(crate) fn losing(
        records: Arc<dyn Records>,
        when: impl Fn(Call<'_>) -> bool + Send + Sync + 'static,
        what: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        let meanwhile = Arc::into_inner(Meanwhile::new(records, when, what)).expect("it is not shared yet");
        Arc::new(Meanwhile { loses: true, ..meanwhile })
    }

    /// The action has run.
    pub(crate) fn happened(&self) -> bool {
        self.what.lock().unwrap().is_none()
    }

    /// Kills the process that uses this store: none of its calls take effect from now on.
    pub(crate) fn die(&self) {
        self.is_dead.store(true, SeqCst);
    }

    fn alive(&self) -> Result<(), Error> {
        match self.is_dead.load(SeqCst) {
            true => Err(Error::Unavailable("dead".into())),
            false => Ok(()),
        }
    }

    /// Runs the action if this is its call; true if it ran now.
    async fn look(&self, call: Call<'_>) -> bool {
        if !(self.when)(call) {
            return false;
        }
        let what = self.what.lock().unwrap().take();
        let happens = what.is_some();
        if let Some(what) = what {
            what.await;
        }
        happens
    }
}

impl Records for Meanwhile {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            self.alive()?;
            self.records.get(shard, keys).await
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            self.alive()?;
            let page = self.records.scan(shard, scan.clone()).await;
            self.look(Call::Saw(&scan)).await;
            page
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            self.alive()?;
            if self.look(Call::Sends(&batch)).await && self.loses {
                return Err(Error::Unknown("lost".into()));
            }
            self.records.commit(batch).await
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.records.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.records.wait(shard, seen, until)
    }
}
