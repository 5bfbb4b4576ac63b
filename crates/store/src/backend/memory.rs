//! The reference backend: plain maps behind a lock. Everything it holds is gone with it, so everything is as
//! durable as it gets at once.

use super::clock::StoreClock;
use crate::{
    records::{Committed, Error, Outcome, Page, Position, Records, Refused, Scan},
    state::{Answer, NoEffects, State},
    sync::{Mutex, lock},
    wake::Bell,
    world::{BoxFuture, World},
};
use futures_util::future::{Either, select};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::Invalid, limits};
use std::{pin::pin, sync::Arc};

/// A store in memory.
pub struct Memory {
    world: Arc<dyn World>,
    inner: Mutex<Inner>,
    enabled: Bell,
}

#[derive(Default)]
struct Inner {
    state: State,
    position: Position,
    clock: StoreClock,
}

impl Memory {
    /// An empty store.
    pub fn new(world: Arc<dyn World>) -> Self {
        Memory { world, inner: Mutex::default(), enabled: Bell::default() }
    }

    /// A copy of all rows.
    pub fn state(&self) -> State {
        lock(&self.inner).state.clone()
    }

    fn commit_now(&self, batch: &Batch) -> Result<Outcome, Error> {
        let world = self.world.clock();
        let mut inner = lock(&self.inner);
        let now = inner.clock.read(world);
        let answer = inner.state.apply(batch, now, &mut NoEffects)?;
        let position = inner.position;
        let (outcome, enabled) = outcome(answer, position);
        inner.position = outcome.position();
        if enabled {
            inner.state.note_enabled(batch.shard, outcome.position());
            drop(inner);
            self.enabled.ring();
        }
        Ok(outcome)
    }
}

impl Records for Memory {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        let answer = check_get(keys).map(|()| {
            let inner = lock(&self.inner);
            keys.iter().map(|key| inner.state.get(shard, key).cloned()).collect()
        });
        Box::pin(std::future::ready(answer))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(std::future::ready(Ok(lock(&self.inner).state.scan(shard, &scan))))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(std::future::ready(self.commit_now(&batch)))
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Position {
        lock(&self.inner).position
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        let now = lock(&self.inner).clock.read(self.world.clock());
        Box::pin(std::future::ready(Ok(now)))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let now = self.now().await?;
            let look = || (lock(&self.inner).state.enabled_at(shard) > seen).then_some(());
            wait_for(&*self.world, &self.enabled, look, until.ms_since(now)).await;
            Ok(())
        })
    }
}

/// Ends when `look` answers, asked again whenever the bell rings, or after `ms`.
pub(super) async fn wait_for(world: &dyn World, bell: &Bell, look: impl FnMut() -> Option<()>, ms: u64) {
    match select(pin!(bell.until(look)), world.sleep(ms)).await {
        Either::Left(_) | Either::Right(_) => {}
    }
}

/// What to answer for a batch tried after `position`, and whether someone should wake.
pub(super) fn outcome(answer: Answer, position: Position) -> (Outcome, bool) {
    match answer {
        Answer::Applied { fired, claimed, enabled } => {
            let position = Position(position.0 + 1);
            (Outcome::Applied(Committed { position, fired, claimed }), enabled)
        }
        Answer::Refused { which, found } => (Outcome::Refused(Refused { position, which, found }), false),
    }
}

pub(super) fn check_get(keys: &[Key]) -> Result<(), Error> {
    let (found, limit) = (keys.len(), limits::GET_KEYS_MAX);
    if found <= limit {
        return Ok(());
    }
    Err(Invalid::TooMany { what: "keys in a get", found, limit, name: "GET_KEYS_MAX" }.into())
}
