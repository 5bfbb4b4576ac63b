//! The one writer of a session: reads it when it is claimed, commits a batch for the events that have come, and waits.
//! Whatever goes wrong, it drops what it has in memory; the session is claimed and read again, as after a crash.

use super::{
    host::ScopeHost,
    keys::{Header, SessionId},
    turn::{SessionState, TurnEnd},
};
use crate::{
    Error,
    kernel::{ClaimedWork, Decision, Job, Refusal, WorkCommit},
};
use futures_util::future::select_all;
use onceflow_core::{
    Key, Name, Row,
    limits::BATCH_BYTES_MAX,
    protocol::{claim::WorkClaim, rows::read},
    scope::{CancelCause, ScopeEvent},
};
use onceflow_store::BoxFuture;
use std::sync::Arc;
use tokio::sync::Notify;

/// Events that are taken into one batch.
const EVENTS_AT_ONCE: usize = 64;

/// The bytes of events that one batch takes, unless a single event has more. The batch holds their messages a second
/// time, as inputs of the next operations.
const EVENT_BYTES_AT_ONCE: usize = BATCH_BYTES_MAX / 4;

/// A session or an activity as work of the kernel.
pub(super) struct Claimed<'a>(pub(super) &'a WorkClaim);

impl ClaimedWork for Claimed<'_> {
    fn claim(&self) -> &WorkClaim {
        self.0
    }

    fn elsewhere(&self) -> Vec<Key> {
        vec![]
    }

    fn refused(&self, _: &Key, _: Option<&Row>) -> Refusal {
        Refusal::Changed
    }
}

/// The result of a turn.
enum Turned {
    /// Committed; the session goes on.
    On,
    /// Committed; the session is done.
    Done,
    /// Another writer has the session, or its rows are not as they were read.
    Lost,
    /// The store does not take so much in one batch; memory is ahead of the rows.
    TooLarge(CancelCause),
}

/// The way the next turn takes events.
enum Taking {
    /// As many as a batch takes.
    Several,
    /// One only: several were too large.
    One,
    /// None: one was too large, and the session is cancelled for that.
    Refusing(CancelCause),
}

impl ScopeHost {
    /// Drives a claimed session until it is done, lost, or the host closes. The claim is still held in the last case.
    pub(super) async fn write(self: &Arc<Self>, job: &Job, header: Header) -> Result<(), Error> {
        let id = header.id;
        let Some(scope) = self.scope_at(&job.claim.queue, &header.path) else {
            return Err(Error::damaged("the path of a scope's session"));
        };
        let news = self.listen(id);
        let restore = |rows: &[(Name, Row)]| {
            let state = SessionState::restore(header.clone(), scope.clone(), rows);
            state.ok_or_else(|| Error::damaged("a session of a scope"))
        };
        let rows = self.rows(id, b"").await?;
        let mut state = restore(&rows)?;
        let mut events = read_events(&rows)?;
        let mut taking = Taking::Several;
        loop {
            let now = self.kernel.records.now().await?;
            let is_due = state.next_timer().is_some_and(|due| due <= now);
            if !events.is_empty() || is_due || state.is_waiting() {
                if !matches!(taking, Taking::Several) {
                    events.truncate(1);
                }
                taking = match (self.turn(job, &mut state, std::mem::take(&mut events), &taking, now).await?, taking) {
                    (Turned::On, _) => Taking::Several,
                    (Turned::Done | Turned::Lost, _) => return Ok(()),
                    (Turned::TooLarge(cause), taking) => {
                        let rows = self.rows(id, b"").await?;
                        (state, events) = (restore(&rows)?, read_events(&rows)?);
                        match taking {
                            Taking::Several => Taking::One,
                            Taking::One => Taking::Refusing(cause),
                            Taking::Refusing(_) => return Err(Error::Inputs(cause.to_string())),
                        }
                    }
                };
                if !matches!(taking, Taking::Several) {
                    continue;
                }
            } else {
                self.wait(&news, state.next_timer().map(|due| due.ms_since(now))).await;
            }
            if self.drain.is_stopping() {
                return self.give_back(job).await;
            }
            events = read_events(&self.rows(id, b"e").await?)?;
        }
    }

    async fn turn(
        self: &Arc<Self>,
        job: &Job,
        state: &mut SessionState,
        events: Vec<(Name, ScopeEvent<Row>)>,
        taking: &Taking,
        now: onceflow_core::Timestamp,
    ) -> Result<Turned, Error> {
        let store = (self.kernel.shard, &job.claim.queue);
        let (mut batch, TurnEnd { cancelled, told, is_done, busiest }) = match taking {
            Taking::Refusing(cause) => state.refuse_turn(cause.clone(), events, store, now),
            Taking::Several => state.turn(events, store, now),
            Taking::One => state.small_turn(events.into_iter().next(), store, now),
        };
        job.claim.require(&mut batch);
        if is_done {
            job.claim.leave(&mut batch);
        }
        let decide = || Some(Decision::from(batch.clone()));
        match self.kernel.commit(&Claimed(&job.claim), None, &[], decide).await {
            Err(Error::Store(onceflow_store::Error::Invalid(limit))) => {
                let at = busiest.unwrap_or_default();
                return Ok(Turned::TooLarge(CancelCause::TooLarge { at, limit: limit.to_string() }));
            }
            committed => match committed? {
                WorkCommit::Committed { .. } => {}
                WorkCommit::Lost => return Ok(Turned::Lost),
                WorkCommit::DecideAgain => {
                    // Another event came in between: the session is read again.
                    self.give_back(job).await?;
                    return Ok(Turned::Lost);
                }
            },
        }
        let id = state.header.id;
        self.alive.end(|(session, order)| *session == id && cancelled.contains(order));
        told.into_iter().for_each(|session| self.tell(session));
        if is_done {
            self.tell(id);
            return Ok(Turned::Done);
        }
        Ok(Turned::On)
    }

    async fn wait(&self, news: &Notify, timer_ms: Option<u64>) {
        let ms = timer_ms.unwrap_or(u64::MAX).min(self.poll_ms).max(1);
        let waits: Vec<BoxFuture<'_, ()>> =
            vec![Box::pin(news.notified()), self.world.sleep(ms), Box::pin(self.drain.stopped.notified())];
        select_all(waits).await;
    }

    /// Rows of a session whose names begin with this, in order.
    async fn rows(&self, id: SessionId, prefix: &[u8]) -> Result<Vec<(Name, Row)>, Error> {
        self.kernel.all_rows(id.group(), prefix).await
    }
}

/// The first events among these rows, as many as one batch takes.
fn read_events(rows: &[(Name, Row)]) -> Result<Vec<(Name, ScopeEvent<Row>)>, Error> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    for (name, row) in rows.iter().filter(|(name, _)| name.as_bytes().first() == Some(&b'e')) {
        bytes += row.len();
        if events.len() == EVENTS_AT_ONCE || (bytes > EVENT_BYTES_AT_ONCE && !events.is_empty()) {
            break;
        }
        let event = read(row).ok_or_else(|| Error::damaged("an event of a scope's session"))?;
        events.push((name.clone(), event));
    }
    Ok(events)
}
