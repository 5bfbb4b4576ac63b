//! Hosts of durable scopes: a process that offers some scopes claims their sessions and activities, sends heartbeats for
//! them, and takes over those of hosts that died.

use super::{
    body::DurableScope,
    call::Caller,
    entry::ScopeStore,
    hosted::HostedSession,
    keys::{
        Answers, DurableEnd, EventPlace, Header, Hop, Note, SessionId, activity_queue, call_queue, queue, read_note,
        streamed_prefix,
    },
    turn::open_session,
};
use crate::{
    Error,
    kernel::{Drain, Heartbeats, Hold, Job, Kernel},
    shared::lock,
};
use futures_util::future::{Either, select};
use onceflow_core::{
    Batch, Fence, Fences, Group, Key, Pick, Row, Shard,
    limits::{CLAIM_QUEUES_MAX, SCOPE_ACTIVITIES_MAX, SCOPE_CALLS_MAX},
    protocol::{
        ids::RunId,
        rows::{read, write},
    },
    scope::{CancelCause, Cancellation, Mishap, OrderId, ScopeEvent},
};
use onceflow_store::{CommitResult, Records, World, records::commit_durably, values::Values};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, Weak},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The pause after the store did not answer.
const TROUBLE_MS: u64 = 200;

/// The pause after a reply about the opening of a session was lost.
const LOST_REPLY_MS: u64 = 10;

/// Settings of a host.
#[derive(Clone, Copy, Debug)]
pub struct ScopeHostOptions {
    /// The shard of the store that its sessions are in.
    pub shard: Shard,
    /// How long a claim stands without a heartbeat: a session of a host that died goes on after that.
    pub lease_ms: u64,
    /// How often a session looks for events of other processes; those of its own process come at once.
    pub poll_ms: u64,
    /// Activities that the host runs at once; the others wait as rows.
    pub activities_max: usize,
}

impl Default for ScopeHostOptions {
    fn default() -> Self {
        ScopeHostOptions { shard: Shard(0), lease_ms: 30_000, poll_ms: 500, activities_max: SCOPE_ACTIVITIES_MAX }
    }
}

/// A host. It works until it is closed.
pub struct ScopeHost {
    pub(super) kernel: Kernel,
    pub(super) world: Arc<dyn World>,
    pub(super) alive: Arc<Heartbeats<(SessionId, OrderId)>>,
    pub(super) drain: Arc<Drain>,
    pub(super) poll_ms: u64,
    scopes: BTreeMap<Group, Arc<DurableScope>>,
    activities: Arc<Semaphore>,
    /// The places for calls. They are the host's own: a run that is called may enter a scope that calls others.
    calls: Arc<Semaphore>,
    pub(super) caller: Option<Caller>,
    /// Those who wait for news of a session in this process: its writer, and callers that wait for its end.
    news: Mutex<BTreeMap<SessionId, Weak<Notify>>>,
}

impl ScopeHost {
    /// Starts a host of these scopes, by name. All hosts of a store that offer a name must mean the same scope.
    pub fn start(
        records: Arc<dyn Records>,
        values: Arc<Values>,
        world: Arc<dyn World>,
        options: ScopeHostOptions,
        scopes: impl IntoIterator<Item = (String, Arc<DurableScope>)>,
    ) -> Arc<Self> {
        let activities = Arc::new(Semaphore::new(options.activities_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self::sharing((records, values, world), options, (activities, None), scopes)
    }

    /// Starts a host on the store of an engine, with the places for activities of all that the engine enters. In a run, its
    /// operations may call flows.
    pub(crate) fn of_store(
        store: &ScopeStore,
        run: Option<RunId>,
        scopes: impl IntoIterator<Item = (String, Arc<DurableScope>)>,
    ) -> Arc<Self> {
        let options = ScopeHostOptions { shard: store.shard, lease_ms: store.lease_ms, ..ScopeHostOptions::default() };
        let of = (store.records.clone(), store.values.clone(), store.world.clone());
        let of_run = store.engine.get().cloned().zip(run);
        let caller = of_run.map(|(engine, run)| Caller { engine, world: store.world.clone(), run });
        Self::sharing(of, options, (store.activities.clone(), caller), scopes)
    }

    /// A kernel that only reads, on the store of an engine.
    pub(super) fn kernel_of(store: &ScopeStore) -> Kernel {
        Kernel {
            records: store.records.clone(),
            values: store.values.clone(),
            fences: Fences::new(store.world.random()),
            shard: store.shard,
            lease_ms: store.lease_ms,
            is_same_attempt: |claimed, now| claimed == now,
        }
    }

    /// Starts a host that shares the places for activities with others, and calls flows if there is a caller.
    fn sharing(
        (records, values, world): (Arc<dyn Records>, Arc<Values>, Arc<dyn World>),
        options: ScopeHostOptions,
        (activities, caller): (Arc<Semaphore>, Option<Caller>),
        scopes: impl IntoIterator<Item = (String, Arc<DurableScope>)>,
    ) -> Arc<Self> {
        let kernel = Kernel {
            records,
            values,
            fences: Fences::new(world.random()),
            shard: options.shard,
            lease_ms: options.lease_ms,
            is_same_attempt: |claimed, now| claimed == now,
        };
        let host = Arc::new(ScopeHost {
            kernel,
            world,
            alive: Arc::default(),
            drain: Arc::default(),
            poll_ms: options.poll_ms.max(1),
            scopes: scopes.into_iter().map(|(name, scope)| (queue(&name), scope)).collect(),
            activities,
            calls: Arc::new(Semaphore::new(SCOPE_CALLS_MAX)),
            caller,
            news: Mutex::default(),
        });
        host.world.spawn("onceflow scopes", Box::pin(host.clone().claim_sessions()));
        host.world.spawn(
            "onceflow scope activities",
            Box::pin(host.clone().claim_orders(host.activities.clone(), activity_queue)),
        );
        if host.scopes.values().any(|scope| scope.calls) {
            host.world
                .spawn("onceflow scope calls", Box::pin(host.clone().claim_orders(host.calls.clone(), call_queue)));
        }
        host.world.spawn("onceflow scope heartbeats", Box::pin(host.clone().stay_alive()));
        host
    }

    /// Opens a session of a scope, unless this key has opened it before. The session is durable when this returns.
    ///
    /// # Errors
    /// If the store does not answer, or the host does not offer the scope.
    pub async fn open(&self, scope: &str, key: &str, first: Row) -> Result<SessionId, Error> {
        let id = SessionId::of_key(scope, key);
        let mut opening = self.opening(scope, id, first, id.end())?;
        opening.put(id.hosted(), write(&HostedSession { scope: scope.to_owned(), key: key.to_owned() }));
        if !self.commit_opening(opening).await? {
            // It was opened before, maybe by a program that has the scope in another shape.
            self.check_format(scope, id).await?;
        }
        Ok(id)
    }

    /// The batch that opens a session whose end is put into this row. Refused if it was opened before.
    pub(super) fn opening(&self, scope: &str, id: SessionId, first: Row, end: Key) -> Result<Batch, Error> {
        let queue = queue(scope);
        let Some(offered) = self.scopes.get(&queue) else {
            return Err(Error::Inputs(format!("there is no scope `{scope}` here")));
        };
        let header = Header { id, shape: offered.shape(), path: vec![], answers: Answers::Caller(end.clone()) };
        let mut batch = Batch::new(self.kernel.shard);
        batch.require_absent(queue.key(id.ready_name())).require_absent(end);
        open_session(&mut batch, &queue, &header, first);
        Ok(batch)
    }

    /// Commits a batch that opens a session; false if it is refused, maybe because a reply was lost.
    pub(super) async fn commit_opening(&self, batch: Batch) -> Result<bool, Error> {
        loop {
            match commit_durably(&*self.kernel.records, batch.clone()).await {
                Ok(result) => return Ok(matches!(result, CommitResult::Applied(_))),
                // A store that is gone for good says so again and again: asking it without a pause would keep the thread.
                Err(onceflow_store::Error::Unknown(_)) => self.world.sleep(LOST_REPLY_MS).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks a session to end. An uninterruptible one goes on to its own end; one that has ended is not concerned.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn cancel(&self, scope: &str, id: SessionId, cause: CancelCause) -> Result<(), Error> {
        let mut batch = Batch::new(self.kernel.shard);
        batch.require_present(queue(scope).key(id.ready_name()));
        let event: ScopeEvent<Row> = ScopeEvent::Cancel(cause);
        batch.put(id.event(&EventPlace::Cancel), write(&event));
        let _refused_if_it_has_ended = commit_durably(&*self.kernel.records, batch).await?;
        self.tell(id);
        Ok(())
    }

    /// Waits for the end of an outermost session. The end stays in the store until [`ScopeHost::forget`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn end(&self, id: SessionId) -> Result<DurableEnd, Error> {
        self.end_at(id, &id.end()).await
    }

    pub(crate) async fn end_at(&self, id: SessionId, end: &Key) -> Result<DurableEnd, Error> {
        let news = self.listen(id);
        loop {
            let told = news.notified();
            if let Some(row) = self.kernel.row(end.clone()).await? {
                self.kernel.records.durable(self.kernel.records.position()).await?;
                let damaged = || Error::damaged("the end of a scope's session");
                type End = (Result<Row, Cancellation>, Vec<Mishap>);
                let (result, mishaps): End = read(&row).ok_or_else(damaged)?;
                let streams = self.end_rows(end).await?;
                let streamed = streams.iter().map(|(_, row)| read(row)).collect::<Option<_>>().ok_or_else(damaged)?;
                let rows = streams.into_iter().map(|(name, _)| name).chain([end.name.clone()]).collect();
                return Ok(DurableEnd { result, mishaps, streamed, rows });
            }
            select(pin!(told), self.world.sleep(self.poll_ms)).await;
        }
    }

    /// The session is open, or its end stands in this row.
    pub(crate) async fn is_known(&self, scope: &str, id: SessionId, end: &Key) -> Result<bool, Error> {
        // One read: a session that ends deletes its row and puts its end in one batch.
        let keys = [queue(scope).key(id.ready_name()), end.clone()];
        Ok(self.kernel.records.get(self.kernel.shard, &keys).await?.iter().any(Option::is_some))
    }

    /// Fails if the session is open, and was opened by a version with another format, or with other operations.
    pub(super) async fn check_format(&self, scope: &str, id: SessionId) -> Result<(), Error> {
        let queue = queue(scope);
        match self.kernel.row(queue.key(id.ready_name())).await? {
            Some(row) => self.check_shape(&queue, &read_note(&row)?),
            None => Ok(()),
        }
    }

    fn check_shape(&self, queue: &Group, note: &Note) -> Result<(), Error> {
        match self.scope_at(queue, &[]) {
            Some(scope) if scope.shape() != note.shape() => Err(Error::Inputs(String::from(
                "a session of a scope was opened when the scope had other operations, names or connections: only a program in \
                 which they are as they were can continue or end it, with its cleanup",
            ))),
            _ => Ok(()),
        }
    }

    /// Waits until a session has ended, whether or not its end was taken by another host's caller meanwhile.
    pub(crate) async fn end_or_gone(&self, scope: &str, id: SessionId, end: &Key) -> Result<(), Error> {
        let news = self.listen(id);
        loop {
            let told = news.notified();
            let open = self.kernel.row(queue(scope).key(id.ready_name())).await?;
            if open.is_none() || self.kernel.row(end.clone()).await?.is_some() {
                return Ok(());
            }
            select(pin!(told), self.world.sleep(self.poll_ms)).await;
        }
    }

    /// Deletes the end of a session that its caller has seen. Opening the session again enters the scope anew.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn forget(&self, id: SessionId) -> Result<(), Error> {
        self.forget_with(&id.end(), [id.hosted()]).await
    }

    /// Deletes the end of a session, and these rows with it.
    pub(super) async fn forget_with(&self, end: &Key, others: impl IntoIterator<Item = Key>) -> Result<(), Error> {
        let mut batch = Batch::new(self.kernel.shard);
        batch.delete(end.clone());
        for other in others {
            batch.delete(other);
        }
        for (name, _) in &self.end_rows(end).await? {
            batch.delete(end.group.key(name));
        }
        let _always_applied = commit_durably(&*self.kernel.records, batch).await?;
        Ok(())
    }

    async fn end_rows(&self, end: &Key) -> Result<Vec<(onceflow_core::Name, Row)>, Error> {
        self.kernel.all_rows(end.group.clone(), streamed_prefix(end).as_bytes()).await
    }

    /// Begins to end the host, as [`ScopeHost::close`] does, and waits for nothing.
    pub fn stop(&self) {
        self.drain.stop();
        self.alive.interrupt();
    }

    /// Ends the host: activities are stopped and go back to the queue, sessions are left to other hosts.
    pub async fn close(&self) {
        self.stop();
        self.drain.drain(&*self.world, || self.alive.told()).await;
    }

    pub(super) fn scope_at(&self, queue: &Group, path: &[Hop]) -> Option<Arc<DurableScope>> {
        let offered = self.scopes.iter().find(|(sessions, _)| queues_of(sessions).contains(queue));
        offered?.1.at(path)
    }

    /// News of a session, for as long as the answer is held.
    pub(super) fn listen(&self, id: SessionId) -> Arc<Notify> {
        let mut news = lock(&self.news);
        if let Some(known) = news.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Notify::new());
        news.retain(|_, waiting| waiting.strong_count() > 0);
        news.insert(id, Arc::downgrade(&new));
        new
    }

    /// A session has got an event.
    pub(super) fn tell(&self, id: SessionId) {
        let waiting = lock(&self.news).get(&id).and_then(Weak::upgrade);
        if let Some(waiting) = waiting {
            // One may be about to wait, and others wait already.
            waiting.notify_waiters();
            waiting.notify_one();
        }
    }

    pub(super) async fn give_back(&self, job: &Job) -> Result<(), Error> {
        self.alive.release(&job.claim.name, job.claim.fence);
        self.kernel.give_back(&job.claim).await
    }

    async fn claim_sessions(self: Arc<Self>) {
        let queues: Vec<Group> = self.scopes.keys().cloned().collect();
        while !self.drain.is_stopping() {
            self.claim_from(&queues, None).await;
        }
    }

    /// Claims activities, or calls, while there are places for them. Sessions have a queue of their own: one that waits for
    /// nothing but its activities must always find a writer.
    async fn claim_orders(self: Arc<Self>, places: Arc<Semaphore>, queue: fn(&Group) -> Group) {
        let queues: Vec<Group> = self.scopes.keys().map(queue).collect();
        loop {
            let stopped = pin!(self.drain.stopped.notified());
            if self.drain.is_stopping() {
                return;
            }
            let place = pin!(places.clone().acquire_owned());
            if let Either::Left((place, _)) = select(place, stopped).await {
                let place = place.expect("the semaphore is never closed");
                self.claim_from(&queues, Some(place)).await;
            }
        }
    }

    /// Claims work and begins it, or waits until there may be some; then its place is free again.
    async fn claim_from(self: &Arc<Self>, queues: &[Group], place: Option<OwnedSemaphorePermit>) {
        let seen = self.kernel.records.position();
        match self.claim_next(queues).await {
            Ok(Some(job)) => self.clone().begin(job, place),
            Ok(None) => {
                drop(place);
                let until = self.world.clock().plus_ms(self.poll_ms);
                let news = self.kernel.records.wait(self.kernel.shard, seen, until);
                let stopped = pin!(self.drain.stopped.notified());
                if let Either::Left((Err(error), _)) = select(news, stopped).await {
                    self.trouble(&error.into()).await;
                }
            }
            Err(error) => {
                drop(place);
                self.trouble(&error).await;
            }
        }
    }

    async fn claim_next(&self, queues: &[Group]) -> Result<Option<Job>, Error> {
        for queues in queues.chunks(CLAIM_QUEUES_MAX) {
            let asked = self.kernel.ask(queues.to_vec(), Pick::InTurn, self.world.clock());
            if let Some(asked) = asked
                && let Some(job) = self.kernel.take(&asked).await?
            {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    async fn trouble(&self, error: &Error) {
        tracing::warn!(%error, "the store did not answer a host of scopes; retrying in {TROUBLE_MS} ms");
        select(self.world.sleep(TROUBLE_MS), pin!(self.drain.stopped.notified())).await;
    }

    fn begin(self: Arc<Self>, job: Job, place: Option<OwnedSemaphorePermit>) {
        let (world, busy, hold) = (self.world.clone(), self.drain.begin(), self.alive.hold(&job));
        world.spawn(
            "onceflow scope",
            Box::pin(async move {
                self.perform(job, hold).await;
                drop((busy, place));
            }),
        );
    }

    async fn perform(self: &Arc<Self>, job: Job, hold: Result<Hold<(SessionId, OrderId)>, Fence>) {
        let performed = match &hold {
            Ok(_) => self.perform_held(&job).await,
            Err(before) => self.alive.restore(&self.kernel, &job, *before).await,
        };
        if let Err(error) = performed {
            self.trouble(&error).await;
            if hold.is_ok()
                && let Err(error) = self.give_back(&job).await
            {
                tracing::warn!(%error, "failed to give a session back; it stays claimed until the lease ends");
            }
        }
    }

    async fn perform_held(self: &Arc<Self>, job: &Job) -> Result<(), Error> {
        if !self.alive.is_still_ours(&self.kernel, job, self.world.clock()).await? {
            return Ok(());
        }
        let note = read_note(&job.claim.row)?;
        self.check_shape(&job.claim.queue, &note)?;
        match note {
            Note::Session(header) => self.write(job, header).await,
            Note::Activity { session, path, op, order, .. } => {
                match self.call_of(&job.claim.queue, (session, order), (&path, op)) {
                    // Boxed, as rare futures are: a call is larger than an activity.
                    Some(called) => Box::pin(self.call(job, called)).await,
                    None => self.act(job, (session, order), (&path, op)).await,
                }
            }
        }
    }

    /// Sends heartbeats, and frees the work of dead hosts, three times in a lease.
    async fn stay_alive(self: Arc<Self>) {
        let pause_ms = (self.kernel.lease_ms / 3).max(1);
        let queues: Vec<Group> = self.scopes.keys().flat_map(queues_of).collect();
        while !self.drain.is_drained() {
            select(self.world.sleep(pause_ms), pin!(self.drain.stopped.notified())).await;
            let renewed = self.alive.renew(&self.kernel).await;
            let freed = self.alive.take_over(&self.kernel, queues.clone()).await;
            if let Err(error) = renewed.and(freed.map(drop)) {
                tracing::warn!(%error, "failed to send heartbeats of scopes; retrying in {pause_ms} ms");
            }
        }
    }
}

/// The queues of the sessions of a scope, of their activities and of their calls.
fn queues_of(sessions: &Group) -> [Group; 3] {
    [sessions.clone(), activity_queue(sessions), call_queue(sessions)]
}
