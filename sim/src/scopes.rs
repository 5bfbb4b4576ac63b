//! The third workload: sessions of durable scopes, on hosts that die. The end of each is known beforehand, or one of few;
//! cleanup finds exactly what was kept, works once, and nothing of a session is left.

mod shape;

use crate::{
    connection::Connection,
    executor::{NodeId, OUTSIDE, Sim, lock},
    room::Room,
    truth::Truth,
    world::NodeWorld,
};
use onceflow_core::{Shard, scope::CancelCause};
use onceflow_engine::scope::{DurableEnd, DurableScope, ScopeHost, ScopeHostOptions, SessionId};
use onceflow_store::{Records, values::Values};
use shape::{Plan, row, scope, text};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// One session as an observer of everything saw it.
#[derive(Default)]
struct Session {
    /// By its stable key.
    performed: BTreeMap<String, String>,
    /// Futures that work for it.
    active: usize,
    end: Option<String>,
}

/// The notes of bodies and users.
#[derive(Clone)]
struct Notes {
    sim: Arc<Sim>,
    truth: Arc<Mutex<Truth>>,
    sessions: Arc<Mutex<BTreeMap<usize, Session>>>,
    /// No node dies or stands still, so a cancelled body has really ended.
    strict: bool,
}

impl Notes {
    fn violate(&self, promise: &'static str, seen: String) {
        lock(&self.truth).violate(promise, seen);
    }

    fn perform(&self, number: usize, key: &str, what: String) {
        let mut sessions = lock(&self.sessions);
        let session = sessions.entry(number).or_default();
        self.sim.tell(|| format!("session {number}: {what}"));
        let before = session.performed.insert(key.to_owned(), what.clone());
        let wrong = match (before, &session.end) {
            (Some(before), _) if before != what => Some(format!("{key} stands for `{before}` and for `{what}`")),
            (_, Some(end)) if self.strict => Some(format!("`{what}` came after the end `{end}`")),
            _ if self.strict && what.starts_with("released") && session.active > 0 => {
                Some(format!("{} futures worked on as cleanup ran", session.active))
            }
            _ => None,
        };
        drop(sessions);
        if let Some(wrong) = wrong {
            self.violate("cleanup comes after the work and before the end", format!("session {number}: {wrong}"));
        }
    }
}

/// A future of a session that lives.
struct Active(Notes, usize);

impl Active {
    fn new(notes: &Notes, number: usize) -> Self {
        lock(&notes.sessions).entry(number).or_default().active += 1;
        Active(notes.clone(), number)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        lock(&self.0.sessions).entry(self.1).or_default().active -= 1;
    }
}

/// The hosts that live, by node.
type Hosts = Arc<Mutex<BTreeMap<NodeId, Arc<ScopeHost>>>>;

/// Sessions as a workload of the room: hosts on all nodes, and users that want sessions.
pub struct Sessions {
    room: Arc<Room>,
    notes: Notes,
    plans: Vec<Plan>,
    scopes: Vec<(String, Arc<DurableScope>)>,
    hosts: Hosts,
}

impl Sessions {
    /// Draws some sessions.
    pub fn new(room: &Arc<Room>, strict: bool) -> Arc<Self> {
        let sim = &room.sim;
        let plans: Vec<_> = (0..1 + sim.below(4) as usize).map(|number| Plan::new(sim, number)).collect();
        sim.tell(|| format!("{plans:?}"));
        let notes = Notes { sim: sim.clone(), truth: room.truth.clone(), sessions: Arc::default(), strict };
        let scopes = plans.iter().map(|plan| (plan.name(), scope(&notes, *plan))).collect();
        Arc::new(Sessions { room: room.clone(), notes, plans, scopes, hosts: Arc::default() })
    }

    /// Users there are.
    pub fn users(&self) -> usize {
        self.plans.len()
    }

    /// A node hosts all scopes for as long as it lives, and again when it is back.
    pub async fn host(self: Arc<Self>, node: NodeId) {
        loop {
            let (there, (sender, receiver)) = (self.clone(), tokio::sync::oneshot::channel::<()>());
            let process = async move {
                let _lives = sender;
                lock(&there.hosts).insert(node, there.start(node));
                std::future::pending::<()>().await;
            };
            self.room.sim.spawn(node, "hosts scopes", Box::pin(process));
            let _died = receiver.await;
            lock(&self.hosts).remove(&node);
            self.room.sim.sleep(1 + self.room.sim.below(500)).await;
        }
    }

    fn start(&self, node: NodeId) -> Arc<ScopeHost> {
        let (room, sim) = (&self.room, &self.room.sim);
        let most = room.faults.skew_ms;
        let ahead_ms = if most == 0 { 0 } else { sim.below(2 * most) as i64 - most as i64 };
        let world = Arc::new(NodeWorld { sim: sim.clone(), node, incarnation: sim.incarnation(node), ahead_ms });
        let records: Arc<dyn Records> = Connection::new(room.store.clone(), node);
        let values = Values::new(records.clone(), world.clone(), Shard::default());
        let values = Arc::new(values.with_blobs(room.blobs_of_node()));
        let options = ScopeHostOptions {
            shard: Shard::default(),
            lease_ms: room.faults.lease_ms,
            poll_ms: 50 + sim.below(300),
            activities_max: 1 + sim.below(4) as usize,
        };
        ScopeHost::start(records, values, world, options, self.scopes.iter().cloned())
    }

    /// A user opens a session, maybe cancels it, and sees its end.
    pub async fn user(self: Arc<Self>, at: usize) {
        let (plan, sim) = (self.plans[at], self.room.sim.clone());
        sim.sleep(sim.below(1_000)).await;
        let mut cancels_ms = plan.user_cancels_ms;
        loop {
            let done = self.on_some_host(plan, cancels_ms).await;
            match done {
                Some(Ok(())) => return,
                // Whether it was cancelled is not known: it is cancelled again, at once.
                Some(Err(error)) => sim.tell(|| format!("session {at}: {error}")),
                None => {}
            }
            cancels_ms = cancels_ms.map(|_| 0);
            sim.sleep(1 + sim.below(300)).await;
        }
    }

    async fn on_some_host(
        self: &Arc<Self>,
        plan: Plan,
        cancels_ms: Option<u64>,
    ) -> Option<Result<(), onceflow_engine::Error>> {
        let sim = &self.room.sim;
        let (node, host) = {
            let hosts = lock(&self.hosts);
            let at = sim.random(|random| random.below(hosts.len()));
            let (node, host) = hosts.iter().nth(at)?;
            (*node, host.clone())
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let there = self.clone();
        let process = async move {
            let _gone = sender.send(there.enter(&host, plan, cancels_ms).await);
        };
        sim.spawn(node, "a user's process", Box::pin(process));
        receiver.await.ok()
    }

    async fn enter(
        &self,
        host: &Arc<ScopeHost>,
        plan: Plan,
        cancels_ms: Option<u64>,
    ) -> Result<(), onceflow_engine::Error> {
        let name = plan.name();
        let id = SessionId::of_key(&name, "key");
        let is_over = lock(&self.notes.sessions).get(&plan.number).is_some_and(|session| session.end.is_some());
        if !is_over {
            host.open(&name, "key", row(plan.messages)).await?;
            if let Some(ms) = cancels_ms {
                self.room.sim.sleep(ms).await;
                host.cancel(&name, id, CancelCause::Requested(String::from("enough"))).await?;
            }
            let end = host.end(id).await?;
            self.saw(plan, words(&end));
        }
        host.forget(id).await
    }

    /// A user has seen the end of a session.
    fn saw(&self, plan: Plan, end: String) {
        self.room.sim.tell(|| format!("session {} ended: {end}", plan.number));
        let mut sessions = lock(&self.notes.sessions);
        let session = sessions.entry(plan.number).or_default();
        let before = session.end.replace(end.clone());
        let released: Vec<_> = session.performed.values().filter_map(|what| what.strip_prefix("released ")).collect();
        let found = plan
            .ends()
            .into_iter()
            .any(|(right, kept)| right == end && released == kept.iter().map(String::as_str).collect::<Vec<_>>());
        let is_new = before.as_ref().is_none_or(|before| *before == end);
        let seen = format!("{plan:?} ended as `{end}` (before: {before:?}), and cleanup found {released:?}");
        drop(sessions);
        if !found || !is_new {
            self.notes.violate("a session ends as its scope says", seen);
        }
    }

    /// All users have seen the end of their sessions: no row of any is there.
    pub fn at_the_end(&self) {
        let all = self.room.store.state().all();
        let left: Vec<_> = all.iter().filter(|(_, key, _)| key.group.id().starts_with(b"scope/")).collect();
        if !left.is_empty() {
            self.notes.violate("nothing of a session is left", format!("{left:?}"));
        }
    }

    /// Sets all nodes to host, and all users to work.
    pub fn begin(self: &Arc<Self>, done: impl Fn() + Clone + Send + 'static) {
        for node in 1..=self.room.nodes {
            self.room.sim.spawn(OUTSIDE, "keeps a host", Box::pin(self.clone().host(node)));
        }
        for at in 0..self.plans.len() {
            let (there, done) = (self.clone(), done.clone());
            let live = async move {
                there.user(at).await;
                done();
            };
            self.room.sim.spawn(OUTSIDE, "user", Box::pin(live));
        }
    }
}

fn words(end: &DurableEnd) -> String {
    let mut words = match &end.result {
        Ok(row) => text(row),
        Err(cancelled) => cancelled.to_string(),
    };
    end.mishaps.iter().for_each(|mishap| words += &format!(" ({mishap})"));
    words
}
