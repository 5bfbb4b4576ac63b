//! Durable scopes of the typed builder: the same ends as in memory, whatever call of the store a crash, a lost reply or a
//! refusal meets; each request performed once outside, no row left.

mod cases;
mod hosts;
mod random;

use super::support::Clock;
use onceflow::scope::{DurableScope, Scope};
use onceflow_core::Row;
use onceflow_engine::scope::{DurableEnd, ScopeHost, ScopeHostOptions};
use onceflow_store::{
    Records,
    backend::memory::Memory,
    testing::fault::{Fault, FaultPlan, Faulty},
    values::Values,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The lease of a host in these tests.
const LEASE_MS: u64 = 3_000;

/// A system outside that performs each request once, by its key.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<BTreeMap<String, String>>>);

impl Outside {
    fn perform(&self, key: &str, what: String) {
        let before = self.0.lock().unwrap().insert(key.to_owned(), what.clone());
        assert!(before.is_none_or(|before| before == what), "one key stands for two requests");
    }

    /// Performs a request that nothing repeats.
    fn perform_once(&self, what: String) {
        let number = self.0.lock().unwrap().len();
        self.perform(&format!("once-{number}"), what);
    }

    fn performed(&self) -> Vec<String> {
        let mut all: Vec<_> = self.0.lock().unwrap().values().cloned().collect();
        all.sort();
        all
    }
}

/// A store in memory, with hosts of a scope on it.
struct Bed {
    clock: Clock,
    memory: Arc<Memory>,
}

impl Bed {
    fn new() -> Self {
        let clock = Clock::new();
        let memory = Arc::new(Memory::new(clock.world()));
        Bed { clock, memory }
    }

    fn host(&self, records: Arc<dyn Records>, scope: &DurableScope<i64, String>) -> Arc<ScopeHost> {
        let values = Arc::new(Values::new(records.clone(), self.clock.world(), Default::default()));
        let options = ScopeHostOptions { lease_ms: LEASE_MS, ..ScopeHostOptions::default() };
        let scopes = [(String::from("case"), scope.untyped().clone())];
        ScopeHost::start(records, values, self.clock.world(), options, scopes)
    }

    async fn close(&self, host: &ScopeHost) {
        self.clock.until(host.close()).await;
        self.clock.settle().await;
    }
}

async fn enter(host: &ScopeHost, input: i64) -> Result<String, onceflow_engine::Error> {
    let first = Row::new(rmp_serde::to_vec_named(&input).unwrap());
    let id = host.open("case", "key", first).await?;
    let end = host.end(id).await?;
    host.forget(id).await?;
    Ok(words(&end))
}

/// The end in words: the result or the real cause, streams, mishaps.
fn words(end: &DurableEnd) -> String {
    let result = end.result.as_ref().map(|row| rmp_serde::from_slice::<String>(row).unwrap());
    let streamed = end.streamed.iter().map(|(_, row)| rmp_serde::from_slice::<i64>(row).unwrap());
    say(result.map_err(|cancelled| cancelled.real_cause().1), streamed.collect(), end.mishaps.len())
}

fn say(result: Result<String, String>, streamed: Vec<i64>, mishaps: usize) -> String {
    let result = result.unwrap_or_else(|cause| format!("cancelled: {cause}"));
    let streamed: String = streamed.iter().map(|message| format!(" stream {message}")).collect();
    let mishaps = if mishaps == 0 { String::new() } else { format!(" ({mishaps} mishaps)") };
    format!("{result}{streamed}{mishaps}")
}

/// Runs a session in memory to its end.
async fn light_end(clock: &Clock, scope: &Scope<i64, String>, input: i64) -> String {
    let mut run = scope.open(&clock.world(), input);
    let mut stream = run.stream(cases::SEEN);
    let end = clock.end_of(&mut run).await;
    say(end.result.map_err(|cancelled| cancelled.real_cause().1), stream.take_ready(), end.mishaps.len())
}

/// Runs a session with a fault at the n-th call of the store; a second host takes over after a crash. Gives the end, and
/// true if that call was reached.
async fn durable_end(
    make: &dyn Fn(&Clock) -> DurableScope<i64, String>,
    input: i64,
    (n, fault): (u64, Fault),
) -> (String, bool) {
    let bed = Bed::new();
    let scope = make(&bed.clock);
    let plan = FaultPlan::at(n, fault);
    let host = bed.host(Faulty::new(bed.memory.clone(), plan.clone()), &scope);
    let ended = bed.clock.until(async {
        loop {
            match enter(&host, input).await {
                Ok(end) => break Some(end),
                Err(_) if plan.stopped() => break None,
                Err(_) => {}
            }
        }
    });
    let ended = ended.await;
    bed.close(&host).await;
    let end = match ended {
        Some(end) => end,
        None => {
            bed.clock.0.advance(LEASE_MS);
            let second = bed.host(bed.memory.clone(), &scope);
            let end = bed.clock.until(enter(&second, input)).await.unwrap();
            bed.close(&second).await;
            end
        }
    };
    let left = bed.memory.state().all();
    assert!(left.is_empty(), "{fault:?} at call {n}: left {left:?}");
    (end, plan.reached())
}
