//! One seed: makes a world, lets users and harm loose in it, and looks at it now and then and at the end.

use crate::{
    behaviour::Style,
    check,
    executor::{OUTSIDE, Sim, Step, lock},
    faults::{Faults, StoreKind},
    flows, references,
    room::Room,
    scopes::Sessions,
    store::SimStore,
    streams,
    truth::{Truth, Violation},
    user::{Ask, HISTORY_MS, User},
    value::Value,
    watch::Watch,
    workload::{POLLS_MAX, Workload},
};
use onceflow_core::model::{Library, TaskSpec};
use onceflow_store::{blobs::Objects, testing::random::Random};
use std::sync::{Arc, Mutex};

/// What a seed came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// How often a task went on.
    pub polls: u64,
    /// Bodies that ran.
    pub bodies: u64,
    /// Equal for equal replays.
    pub digest: u64,
    /// What happened, if it was to be written down.
    pub trace: Vec<String>,
}

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Writes down what happens.
    pub trace: bool,
    /// Stops harm at this time, to find out how much of it a failure needs.
    pub harm_until_ms: Option<u64>,
    /// This store instead of the one that the seed chooses.
    pub store: Option<StoreKind>,
    /// Works on a stream instead of on flows or values.
    pub streams: bool,
}

/// One in so many seeds, the last of them, is about scopes.
pub const SEEDS_OF_SCOPES: u64 = 10;

/// Runs a seed.
pub fn run(seed: u64, how: How) -> Outcome {
    let sim = Sim::new(seed, how.trace);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(&sim, seed, how)));
    let mut outcome = Outcome { polls: sim.polls(), digest: sim.digest(), trace: sim.told(), ..Outcome::default() };
    match caught {
        Ok((violation, bodies)) => (outcome.violation, outcome.bodies) = (violation, bodies),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            outcome.violation = Some(Violation { promise: "nothing panics", seen: text });
        }
    }
    sim.clear();
    outcome
}

fn live(sim: &Arc<Sim>, seed: u64, how: How) -> (Option<Violation>, u64) {
    let mut faults = sim.random(Faults::new);
    if let Some(until_ms) = how.harm_until_ms {
        faults.until_ms = faults.until_ms.min(until_ms);
    }
    faults.store = how.store.unwrap_or(faults.store);
    let truth: Arc<Mutex<Truth>> = Arc::default();
    if how.streams {
        return streams::live(sim, faults, &truth);
    }
    if seed % SEEDS_OF_SCOPES == SEEDS_OF_SCOPES - 1 {
        return enter_scopes(sim, faults, &truth);
    }
    if sim.per_mille(150) {
        return change_values(sim, faults, &truth);
    }
    let (asks, specs) = sim.random(workload);
    let nodes = 1 + sim.below(3) as usize;
    sim.tell(|| format!("{nodes} nodes, {} runs, {faults:?}", asks.len()));
    let watch = Watch { truth: truth.clone(), sim: sim.clone() };
    let store = SimStore::new(sim.clone(), faults, watch);
    let room = Room::new(store, Arc::new(Objects::memory()), truth.clone(), specs, nodes);
    for node in 1..=nodes {
        room.start(node);
    }
    let workload = Workload::new(&room);
    for (at, asks) in asks.into_iter().enumerate() {
        let may_cancel = sim.per_mille(400);
        let user = User { room: room.clone(), key: format!("run-{at}"), asks, may_cancel };
        workload.user(async move { user.live().await });
    }
    workload.drive();
    if lock(&truth).violations.is_empty() {
        afterwards(&room);
    }
    room.stop_all();
    let truth = lock(&truth);
    (truth.violations.first().cloned(), truth.starts)
}

/// The other workload: several nodes change one graph of values.
fn change_values(sim: &Arc<Sim>, faults: Faults, truth: &Arc<Mutex<Truth>>) -> (Option<Violation>, u64) {
    let strict = sim.per_mille(300);
    let skew_ms = faults.skew_ms;
    let faults = if strict { Faults { skew_ms, clock_jumps: false, sync_ms: 3, ..faults.calm() } } else { faults };
    let watch = Watch { truth: truth.clone(), sim: sim.clone() };
    let store = SimStore::new(sim.clone(), faults, watch);
    let nodes = 1 + sim.below(3) as usize;
    let room = Room::new(store, Arc::new(Objects::memory()), truth.clone(), vec![], nodes);
    let workload = Workload::new(&room);
    for node in 1..=nodes {
        let (there, changes) = (room.clone(), 10 + sim.below(60));
        workload.process(node, "changes values", move || {
            let there = there.clone();
            async move {
                references::change(there, node, changes, strict).await;
                true
            }
        });
    }
    workload.drive();
    room.stop_all();
    if lock(truth).violations.is_empty() {
        // What is missing would not be missed once nothing refers to it.
        check::anytime(&room);
        let values = room.values();
        for at in 0..references::ROOTS {
            let cleared = values.update(onceflow_store::values::Update::new().clear(&references::root(at)));
            crate::executor::at_once(cleared).expect("nothing goes wrong with who checks");
        }
        check::at_the_end(&room);
    }
    let truth = lock(truth);
    (truth.violations.first().cloned(), truth.starts)
}

/// The third workload: users enter durable scopes.
fn enter_scopes(sim: &Arc<Sim>, faults: Faults, truth: &Arc<Mutex<Truth>>) -> (Option<Violation>, u64) {
    let strict = sim.per_mille(300);
    let faults = if strict { Faults { clock_jumps: false, leave_every_ms: 0, ..faults.calm() } } else { faults };
    let watch = Watch { truth: truth.clone(), sim: sim.clone() };
    let store = SimStore::new(sim.clone(), faults, watch);
    let nodes = 1 + sim.below(3) as usize;
    let room = Room::new(store, Arc::new(Objects::memory()), truth.clone(), vec![], nodes);
    for node in 1..=nodes {
        room.start(node);
    }
    let sessions = Sessions::new(&room, strict);
    let workload = Workload::new(&room);
    sessions.begin(workload.expect(sessions.users()));
    workload.drive();
    if lock(truth).violations.is_empty() {
        pass(&room, 3 * room.faults.lease_ms + 2_000);
        sessions.at_the_end();
    }
    room.stop_all();
    let truth = lock(truth);
    (truth.violations.first().cloned(), truth.starts)
}

/// All users have what they wanted: what is left, now and when history has ended?
fn afterwards(room: &Arc<Room>) {
    let sim = &room.sim;
    pass(room, 3 * room.faults.lease_ms + 2_000);
    room.stop_all();
    check::at_rest(room);
    check::written(room);
    check::undone(&mut lock(&room.truth));
    check::told_once(&mut lock(&room.truth));
    let looks = sim.per_mille(500) || !lock(&room.truth).left.is_empty();
    if !looks || !lock(&room.truth).violations.is_empty() {
        return;
    }
    // The store's clock may have been ahead when they ended.
    sim.jump(HISTORY_MS + 60_000);
    room.start(1);
    pass(room, 5_000 + 4 * room.faults.lease_ms);
    room.stop_all();
    check::at_the_end(room);
}

/// Lets so much time pass.
fn pass(room: &Arc<Room>, ms: u64) {
    let until = room.sim.now_ms() + ms;
    let sim = room.sim.clone();
    room.sim.spawn(OUTSIDE, "time", Box::pin(async move { sim.sleep(ms).await }));
    while room.sim.now_ms() < until && room.sim.step() == Step::Went {
        if room.sim.polls() > 2 * POLLS_MAX {
            lock(&room.truth).violate("every run ends", "something runs in circles at rest");
            return;
        }
    }
}

/// What users ask for, and all tasks there are.
fn workload(random: &mut Random) -> (Vec<Vec<Ask>>, Vec<TaskSpec>) {
    let mut users = Vec::new();
    let mut specs: Vec<TaskSpec> = Vec::new();
    let (mut library, mut families) = (None, 0);
    for _ in 0..1 + random.below(4) {
        let known = library.clone().filter(|_| random.percent(60));
        let (made, asks) = match known {
            Some(known) => asks(random, known),
            None => loop {
                families += 1;
                let style = Style::new(random);
                let made = flows::make(random, style, families % 26);
                let (made, asks) = asks(random, made);
                if !asks.is_empty() {
                    break (made, asks);
                }
            },
        };
        if asks.is_empty() {
            continue;
        }
        for ask in &asks {
            learn(ask.flow.library(), &mut specs);
        }
        library = Some(made);
        users.push(asks);
        if random.percent(25) {
            break;
        }
    }
    (users, specs)
}

/// Some things to ask of one flow, one after the other.
fn asks(random: &mut Random, library: Library) -> (Library, Vec<Ask>) {
    let main = library.flows["main"].clone();
    let inputs = |random: &mut Random| -> Vec<(String, Value)> {
        main.inputs.iter().map(|port| (port.name.clone(), Value::made(&port.ty, random.bits()))).collect()
    };
    let outputs = |random: &mut Random| {
        let some = main.outputs.iter().filter(|_| random.percent(70)).map(|port| port.name.clone()).collect::<Vec<_>>();
        (random.percent(30) && !some.is_empty()).then_some(some)
    };
    let (mut given, mut wanted, mut flow) = (inputs(random), outputs(random), library.clone());
    let keep_ms = random.percent(40).then_some(HISTORY_MS / 2);
    let finish_independent = random.percent(20);
    // Some are forgotten while others are still at it.
    let history_ms = if random.percent(12) { 200 + random.below(15_000) as u64 } else { HISTORY_MS };
    let mut asks = Vec::new();
    for _ in 0..1 + random.below(3) {
        if let Some(ask) = Ask::new(flow.clone(), given.clone(), wanted.clone()) {
            asks.push(Ask { keep_ms, finish_independent, history_ms, ..ask });
        }
        match random.below(4) {
            0 => given = inputs(random),
            1 => {
                let at = random.below(given.len());
                given[at].1 = Value::made(&main.inputs[at].ty, random.bits());
            }
            2 => flow = flows::change_code(random, &flow),
            _ => wanted = outputs(random),
        }
    }
    (library, asks)
}

fn learn(library: &Library, specs: &mut Vec<TaskSpec>) {
    library.for_each_task(&mut |spec| {
        if !specs.iter().any(|known| (&known.name, &known.version) == (&spec.name, &spec.version)) {
            specs.push(spec.clone());
        }
    });
}
