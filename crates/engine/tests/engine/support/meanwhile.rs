//! A store in front of another at which something happens just before one batch, or just after one look: what others may
//! do while somebody decides.

use onceflow_core::{Batch, Key, Row, Shard, Timestamp};
use onceflow_store::{BoxFuture, CommitResult, Error, Page, Position, Records, records::Scan};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// What somebody does.
pub(crate) enum Call<'a> {
    /// Is about to send a batch.
    Sends(&'a Batch),
    /// Has seen what a scan found.
    Saw(&'a Scan),
}

type When = Box<dyn Fn(Call<'_>) -> bool + Send + Sync>;

/// Over another store.
pub(crate) struct Meanwhile {
    records: Arc<dyn Records>,
    when: When,
    what: Mutex<Option<BoxFuture<'static, ()>>>,
    is_dead: AtomicBool,
    /// Whether the batch at which it happens does not, and nobody is told so.
    loses: bool,
}

impl Meanwhile {
    /// At the first call of which `when` is true, `what` happens.
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
        let meanwhile = Arc::into_inner(Meanwhile::new(records, when, what)).expect("nobody else has it yet");
        Arc::new(Meanwhile { loses: true, ..meanwhile })
    }

    /// Whether it happened.
    pub(crate) fn happened(&self) -> bool {
        self.what.lock().unwrap().is_none()
    }

    /// Whoever uses it is dead from now on: none of its calls happen.
    pub(crate) fn die(&self) {
        self.is_dead.store(true, SeqCst);
    }

    fn alive(&self) -> Result<(), Error> {
        match self.is_dead.load(SeqCst) {
            true => Err(Error::Unavailable("dead".into())),
            false => Ok(()),
        }
    }

    /// Whether it happened now.
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
