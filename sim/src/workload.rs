//! The tasks of a workload: a world goes on until all of them have ended, and the harm with them.

use crate::{
    check,
    executor::{NodeId, OUTSIDE, Step, lock},
    room::Room,
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::oneshot;

/// Virtual time after the harm ends in which every task must have ended.
const PATIENCE_MS: u64 = 1_200_000;

/// How often tasks may go on before a world is thought to run in circles.
pub(crate) const POLLS_MAX: u64 = 3_000_000;

/// The tasks that a world waits for.
pub(crate) struct Workload {
    room: Arc<Room>,
    /// Those that have not ended.
    busy: Arc<AtomicUsize>,
}

impl Workload {
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        Workload { room: room.clone(), busy: Arc::default() }
    }

    /// Starts a user outside of all nodes.
    pub(crate) fn user(&self, live: impl Future<Output = ()> + Send + 'static) {
        self.start("user", live);
    }

    /// Starts a user who runs a process on a node until it ends well: the node may die, and then the process begins anew.
    pub(crate) fn process<P>(&self, node: NodeId, name: &'static str, process: impl Fn() -> P + Send + 'static)
    where
        P: Future<Output = bool> + Send + 'static,
    {
        let room = self.room.clone();
        self.user(async move {
            loop {
                let (sender, receiver) = oneshot::channel();
                let process = process();
                let attempt = async move {
                    let _dead = sender.send(process.await);
                };
                room.sim.spawn(node, name, Box::pin(attempt));
                if receiver.await == Ok(true) {
                    break;
                }
                room.sim.sleep(room.sim.below(500)).await;
            }
        });
    }

    /// Expects so many tasks that are started elsewhere; each calls the answer when it has ended.
    pub(crate) fn expect(&self, tasks: usize) -> impl Fn() + Clone + Send + use<> + 'static {
        self.busy.fetch_add(tasks, Relaxed);
        let busy = self.busy.clone();
        move || {
            busy.fetch_sub(1, Relaxed);
        }
    }

    /// Lets harm loose, and goes on until all tasks have ended or a promise is broken.
    pub(crate) fn drive(self) {
        self.start("harm", self.room.clone().harm());
        let (room, sim) = (&self.room, &self.room.sim);
        let limit_ms = room.faults.until_ms + PATIENCE_MS;
        let mut next_look = 50 + sim.below(2_000);
        while self.busy.load(Relaxed) > 0 {
            let step = sim.step();
            let (polls, now_ms) = (sim.polls(), sim.now_ms());
            if polls >= next_look {
                next_look = polls + 200 + sim.below(5_000 + polls);
                check::anytime(room);
            }
            if step == Step::Still || now_ms > limit_ms || polls > POLLS_MAX {
                let busy = self.busy.load(Relaxed);
                let seen = format!("after {now_ms} ms and {polls} steps {busy} still wait: {:?}", sim.tasks());
                lock(&room.truth).violate("every run ends", seen);
            }
            if !lock(&room.truth).violations.is_empty() {
                return;
            }
        }
    }

    fn start(&self, name: &'static str, live: impl Future<Output = ()> + Send + 'static) {
        let done = self.expect(1);
        let live = async move {
            live.await;
            done();
        };
        self.room.sim.spawn(OUTSIDE, name, Box::pin(live));
    }
}
