//! Machines whose clocks are minutes apart, on one real server: only the server's clock counts.

use crate::support;

use onceflow_core::{
    Shard, Timestamp,
    model::{Effect, Type},
};
use onceflow_engine::{
    About, Options, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Step},
};
use onceflow_store::{
    Records,
    backend::redis::{Address, Redis},
    testing::{redis::shared_url, world::SkewedWorld},
    world::RealWorld,
};
use std::sync::Arc;
use support::{
    Bed, Kit,
    flows::{list, spec, start},
    graphs::{G, each},
    ints,
};
use tokio::sync::{mpsc, watch};

const TEN_MINUTES: i64 = 600_000;
const LEASE_MS: u64 = 10_000;

/// A machine whose clock is so much ahead; its engines use the server's clock.
async fn machine(url: &str, ahead_ms: i64) -> Bed {
    let world = SkewedWorld::new(RealWorld::here(), ahead_ms);
    let redis = Redis::connect(Address::parse(url).unwrap(), world.clone()).await.unwrap();
    Bed::on(Arc::new(redis), world)
}

fn options(host: &str) -> Options {
    let about = Some(About { host: host.into(), ..About::default() });
    Options { lease_ms: LEASE_MS, classes: [(String::from("default"), 4)].into(), about, ..Options::default() }
}

/// Reports that it runs, and waits until it may end.
struct Gated {
    began: mpsc::UnboundedSender<()>,
    open: watch::Receiver<bool>,
}

impl Body for Gated {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        let (began, mut open) = (self.began.clone(), self.open.clone());
        Attempt::Async(Box::pin(async move {
            began.send(()).expect("the test listens");
            open.wait_for(|open| *open).await.expect("the test holds the gate");
            Ok(inputs)
        }))
    }
}

/// A flow whose steps wait at a gate.
struct Gate {
    kit: Kit,
    begin: Start,
    began: mpsc::UnboundedReceiver<()>,
    open: watch::Sender<bool>,
}

/// A flow of `n` steps that wait at a gate; the result is kept for a minute.
fn gate(n: i64) -> Gate {
    let (sender, began) = mpsc::unbounded_channel();
    let (open, is_open) = watch::channel(false);
    let mut kit = Kit::default();
    let mut gated = spec("gated", &[("x", Type::Int)], &[("out", Type::Int)]);
    gated.effect = Effect::Idempotent;
    kit.tasks.add(gated.clone(), Arc::new(Gated { began: sender, open: is_open }));
    let body = G::new().input("x", Type::Int).output("y", Type::Int).task("f", &gated);
    let body = body.connect("x -> f.x; f.out -> y").graph();
    let g = G::new().input("x", list()).output("y", list()).module("all", each(body));
    let begin = start(g.connect("x -> all.x; all.y -> y")).input("x", ints(0..n));
    Gate { kit, begin: Start { keep_ms: Some(60_000), ..begin }, began, open }
}

/// Ends when so much time has passed on the server.
async fn pass(records: &dyn Records, ms: u64) {
    let until = records.now().await.unwrap().plus_ms(ms);
    while records.now().await.unwrap() < until {
        records.wait(Shard::default(), records.position(), until).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_hold_and_nothing_runs_twice_or_goes_early_on_machines_twenty_minutes_apart() {
    let url = shared_url();
    let mut gate = gate(8);
    let (ahead, behind) = (machine(&url, TEN_MINUTES).await, machine(&url, -TEN_MINUTES).await);
    let right = machine(&url, 0).await;
    let engines = [(&ahead, "ahead"), (&behind, "behind")].map(|(bed, host)| bed.engine(&gate.kit, options(host)));
    let handle = engines[1].start(gate.begin.clone()).await.unwrap();
    for _ in 0..8 {
        gate.began.recv().await.unwrap();
    }
    // Each machine holds four steps, for longer than a claim stands without heartbeats.
    pass(&*right.records, LEASE_MS * 2).await;
    assert!(gate.began.try_recv().is_err(), "a step was taken from a machine that is alive");
    let idle = Options { works: false, ..Options::default() };
    for bed in [&ahead, &behind, &right] {
        let mut seen: Vec<_> = bed.engine(&gate.kit, idle.clone()).workers().await.unwrap();
        seen.sort_by(|a, b| a.about.host.cmp(&b.about.host));
        let seen: Vec<_> = seen.iter().map(|it| (it.about.host.as_str(), it.lost, it.steps.len())).collect();
        assert_eq!(seen, [("ahead", 0, 4), ("behind", 0, 4)]);
    }
    gate.open.send_replace(true);
    assert!(handle.wait().await.unwrap().status == RunStatus::Done);
    assert!(gate.began.try_recv().is_err(), "a step ran twice");
    // A result with a history of a minute stays for a minute, whichever machine removes what is due.
    for (bed, engine) in [(&ahead, &engines[0]), (&behind, &engines[1])] {
        engine.remove_due().await.unwrap();
        while bed.values.reclaim(usize::MAX).await.unwrap().more {}
        let found = engine.find("r").await.unwrap();
        let Summary { status: RunStatus::Done, outputs, .. } = found.wait().await.unwrap() else { panic!("not done") };
        assert_eq!(support::told(&found, outputs).await, "y=[0 1 2 3 4 5 6 7]");
    }
    for engine in &engines {
        engine.close().await.unwrap();
    }
}

/// The runtime of another process: after it is dropped, nothing of that process runs.
fn process() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_killed_machine_is_taken_over_when_its_lease_is_over_on_the_servers_clock() {
    for skew in [TEN_MINUTES, -TEN_MINUTES] {
        let url = shared_url();
        let mut gate = gate(1);
        let (other, killed) = (machine(&url, -skew).await, process());
        let before: Timestamp = other.records.now().await.unwrap();
        let (kit, begin, at) = (gate.kit.clone(), gate.begin.clone(), url.clone());
        let start = async move {
            let engine = machine(&at, skew).await.engine(&kit, options("killed"));
            engine.start(begin).await.unwrap();
        };
        killed.spawn(start).await.unwrap();
        gate.began.recv().await.unwrap();
        killed.shutdown_background();
        let engine = other.engine(&gate.kit, options("other"));
        gate.began.recv().await.unwrap();
        let after_ms = other.records.now().await.unwrap().ms_since(before);
        assert!(after_ms >= LEASE_MS, "it was taken over after {after_ms} ms");
        gate.open.send_replace(true);
        let handle = engine.find("r").await.unwrap();
        assert!(handle.wait().await.unwrap().status == RunStatus::Done);
        engine.close().await.unwrap();
    }
}
