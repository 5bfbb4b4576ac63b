//! The machines: which node lives, with which engine; what is done to them.

use crate::{
    behaviour::NARROW,
    blobs::SimBlobs,
    body::SimBody,
    connection::{Connection, Direct},
    executor::{NodeId, OUTSIDE, Sim, lock},
    faults::Faults,
    store::SimStore,
    truth::Truth,
    world::NodeWorld,
};
use onceflow_core::{Shard, model::TaskSpec};
use onceflow_engine::{Engine, EventKind, EventLogOptions, Options, task::Tasks};
use onceflow_store::{Records, blobs::Blobs, values::Values};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::oneshot;

/// All there is.
pub struct Room {
    /// Time, chance, tasks.
    pub sim: Arc<Sim>,
    /// Rows.
    pub store: Arc<SimStore>,
    /// Large bytes.
    pub blobs: Arc<dyn Blobs>,
    /// What really happened.
    pub truth: Arc<Mutex<Truth>>,
    /// What goes wrong.
    pub faults: Faults,
    /// Every task any flow has.
    pub specs: Vec<TaskSpec>,
    /// How many nodes there are; they are numbered from 1.
    pub nodes: usize,
    engines: Mutex<BTreeMap<NodeId, Engine>>,
    fuse: bool,
}

impl Room {
    /// Machines, none of which runs.
    pub fn new(
        store: Arc<SimStore>,
        blobs: Arc<dyn Blobs>,
        truth: Arc<Mutex<Truth>>,
        specs: Vec<TaskSpec>,
        nodes: usize,
    ) -> Arc<Self> {
        let (sim, faults) = (store.sim.clone(), store.faults.clone());
        let fuse = sim.per_mille(700);
        Arc::new(Room { sim, store, blobs, truth, faults, specs, nodes, engines: Mutex::default(), fuse })
    }

    /// The values of the store, read without faults: for checks.
    pub fn values(&self) -> Values {
        let world = NodeWorld { sim: self.sim.clone(), node: OUTSIDE, incarnation: 0, ahead_ms: 0 };
        Values::new(Arc::new(Direct(self.store.clone())), Arc::new(world), Shard::default())
            .with_blobs(self.blobs.clone())
    }

    /// Objects as a node sees them.
    pub fn blobs_of_node(&self) -> Arc<dyn Blobs> {
        Arc::new(SimBlobs { inner: self.blobs.clone(), store: self.store.clone() })
    }

    /// A node begins to work.
    pub fn start(&self, node: NodeId) {
        let ahead_ms = match self.faults.skew_ms {
            0 => 0,
            most => self.sim.below(2 * most) as i64 - most as i64,
        };
        let incarnation = self.sim.incarnation(node);
        let world = Arc::new(NodeWorld { sim: self.sim.clone(), node, incarnation, ahead_ms });
        let records: Arc<dyn Records> = Connection::new(self.store.clone(), node);
        let values = Values::new(records.clone(), world.clone(), Shard::default());
        let values = Arc::new(values.with_blobs(self.blobs_of_node()));
        let engine = Engine::new(records, values, world, self.options());
        engine.add_tasks(&self.tasks(node)).expect("no two tasks have one name and version");
        self.listen(node, &engine);
        self.store.own(node);
        self.sim.tell(|| format!("node {node} starts"));
        lock(&self.engines).insert(node, engine);
    }

    /// Writes down what an engine tells.
    fn listen(&self, node: NodeId, engine: &Engine) {
        let (mut events, truth) = (engine.events(), self.truth.clone());
        let listen = async move {
            while let Some(event) = events.recv().await {
                if let EventKind::DidCommit { address } = event.kind {
                    *lock(&truth).events.entry((event.run.to_string(), address)).or_default() += 1;
                }
            }
        };
        self.sim.spawn(node, "listener", Box::pin(listen));
    }

    fn options(&self) -> Options {
        let mut options = Options {
            steps_max: 1 + self.sim.below(6) as usize,
            blocking_max: 2,
            lease_ms: self.faults.lease_ms,
            cpu_milli: 4000,
            fuse: self.fuse,
            scratch: "/nonexistent".into(),
            ..Options::default()
        };
        if self.sim.per_mille(500) {
            options.event_log = Some(EventLogOptions::default());
        }
        if self.sim.per_mille(500) {
            options.classes.insert(NARROW.into(), 1);
        }
        options
    }

    fn tasks(&self, node: NodeId) -> Tasks {
        let mut tasks = Tasks::new();
        for spec in &self.specs {
            let body = SimBody {
                sim: self.sim.clone(),
                truth: self.truth.clone(),
                store: self.store.clone(),
                node,
                spec: spec.clone(),
                lease_ms: self.faults.lease_ms,
            };
            tasks.add(spec.clone(), Arc::new(body));
        }
        tasks
    }

    /// A node dies, and with it the store, if it had that open.
    pub fn crash(&self, node: NodeId) {
        let engine = lock(&self.engines).remove(&node);
        self.sim.tell(|| format!("node {node} dies"));
        self.sim.crash(node);
        drop(engine);
        lock(&self.truth).taken.retain(|(taker, _), _| *taker != node);
        self.store.node_died(node, 1 + self.sim.below(300));
    }

    /// The nodes that live.
    pub fn up(&self) -> Vec<NodeId> {
        lock(&self.engines).keys().copied().collect()
    }

    /// Does something on a node that lives, as a process there would. `None` if the node died meanwhile, or none lives.
    pub async fn on_some_node<T, F>(&self, action: impl FnOnce(Engine) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (node, engine) = {
            let engines = lock(&self.engines);
            let at = self.sim.random(|random| random.below(engines.len()));
            let (node, engine) = engines.iter().nth(at)?;
            (*node, engine.clone())
        };
        let (sender, receiver) = oneshot::channel();
        let action = action(engine);
        let run = async move {
            let _gone = sender.send(action.await);
        };
        self.sim.spawn(node, "a user's process", Box::pin(run));
        receiver.await.ok()
    }

    /// Does harm until it is time to stop, then lets everything recover.
    pub async fn harm(self: Arc<Self>) {
        let faults = &self.faults;
        self.sim.spawn(OUTSIDE, "doom", Box::pin(self.clone().doom()));
        let mut next: BTreeMap<&str, u64> = BTreeMap::new();
        let kinds = [
            ("crash", faults.crash_every_ms),
            ("pause", faults.pause_every_ms),
            ("outage", faults.outage_every_ms),
            ("leave", faults.leave_every_ms),
            ("clock", if faults.skew_ms > 0 && faults.clock_jumps { 3_000 } else { 0 }),
        ];
        for (kind, every_ms) in kinds {
            if every_ms > 0 {
                next.insert(kind, self.sim.below(every_ms));
            }
        }
        while let Some((kind, at)) = next.iter().map(|(kind, at)| (*kind, *at)).min_by_key(|(_, at)| *at) {
            if at >= faults.until_ms {
                break;
            }
            self.sim.sleep(at.saturating_sub(self.sim.now_ms())).await;
            let every_ms = kinds.iter().find(|(name, _)| *name == kind).map_or(1, |(_, every_ms)| *every_ms);
            next.insert(kind, at + 1 + self.sim.below(2 * every_ms));
            self.do_harm(kind);
        }
        self.sim.sleep(faults.until_ms.saturating_sub(self.sim.now_ms())).await;
        self.sim.tell(|| String::from("the harm ends"));
        self.store.heal();
        self.sim.resume_all();
        for node in 1..=self.nodes {
            if !self.up().contains(&node) {
                self.start(node);
            }
        }
    }

    /// Nodes die just after something of theirs happened.
    async fn doom(self: Arc<Self>) {
        loop {
            self.store.doom.notified().await;
            while let Some(node) = self.store.next_doomed() {
                self.crash_for_a_while(node);
            }
        }
    }

    /// The owner closes the store in order, and is back a little later.
    fn leave_for_a_while(self: &Arc<Self>) {
        let Some(node) = self.store.owner().filter(|node| self.up().contains(node)) else { return };
        let engine = lock(&self.engines).remove(&node);
        self.sim.tell(|| format!("node {node} leaves"));
        self.sim.crash(node);
        drop(engine);
        lock(&self.truth).taken.retain(|(taker, _), _| *taker != node);
        self.store.hand_over(node);
        self.restart_later(node);
    }

    fn crash_for_a_while(self: &Arc<Self>, node: NodeId) {
        self.crash(node);
        self.restart_later(node);
    }

    fn restart_later(self: &Arc<Self>, node: NodeId) {
        let (room, after) = (self.clone(), 1 + self.sim.below(2 * self.faults.lease_ms));
        let restart = async move {
            room.sim.sleep(after).await;
            if !room.up().contains(&node) {
                room.start(node);
            }
        };
        self.sim.spawn(OUTSIDE, "restart", Box::pin(restart));
    }

    fn do_harm(self: &Arc<Self>, kind: &str) {
        let node = 1 + self.sim.below(self.nodes as u64) as usize;
        match kind {
            "crash" => self.crash_for_a_while(node),
            "leave" => self.leave_for_a_while(),
            "pause" => {
                let ms = self.sim.below(3 * self.faults.lease_ms);
                self.sim.tell(|| format!("node {node} stands still for {ms} ms"));
                self.sim.pause(node, ms);
            }
            "outage" => {
                let ms = self.sim.below(self.faults.lease_ms.min(1_000));
                self.sim.tell(|| format!("the store cannot be asked for {ms} ms"));
                self.store.go_down(ms);
            }
            _ => {
                let most = self.faults.skew_ms;
                self.store.skew(self.sim.below(2 * most) as i64 - most as i64);
            }
        }
    }

    /// Ends all nodes.
    pub fn stop_all(&self) {
        for node in self.up() {
            let engine = lock(&self.engines).remove(&node);
            self.sim.crash(node);
            drop(engine);
        }
    }
}
