//! Batches. Whatever choices the bytes make, a backend answers every batch as the naive model does, and holds the same rows.

use super::Target;
use onceflow_store::{
    Records,
    backend::{
        journal::{Journal, Options},
        memory::Memory,
    },
    testing::{
        contract::Making,
        disk::Disk,
        oracle::{Expected, Model, compare_script, script_of},
        random::Random,
        world::TestWorld,
    },
};
use std::sync::Arc;
use tokio::runtime::Runtime;

pub(super) const TARGET: Target = Target { name: "batches", run, seeds, words: &[] };

/// Batches of one input.
const BATCHES_MAX: usize = 60;

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
}

/// The first byte chooses the backend.
fn run(input: &[u8]) -> String {
    let (which, choices) = input.split_first().map_or((0, input), |(which, choices)| (*which, choices));
    let script = script_of(choices, BATCHES_MAX);
    let came_out = outcomes(&script);
    RUNTIME.with(|runtime| {
        let make: fn(Arc<TestWorld>) -> Making = if which % 4 == 3 { journal } else { memory };
        if let Err(disagreement) = runtime.block_on(compare_script(&make, 0, script)) {
            panic!("{disagreement}");
        }
    });
    came_out
}

fn memory(world: Arc<TestWorld>) -> Making {
    Box::pin(async { Arc::new(Memory::new(world)) as Arc<dyn Records> })
}

fn journal(world: Arc<TestWorld>) -> Making {
    let options = Options { snapshot_log_bytes_min: 1500, ..Options::default() };
    let journal = Journal::open(Arc::new(Disk::new()), options, world).expect("an empty disk opens").0;
    Box::pin(async { Arc::new(journal) as Arc<dyn Records> })
}

/// How often, roughly, batches of the script are wrong, refused, fire, and claim.
fn outcomes(script: &[onceflow_core::Batch]) -> String {
    let mut model = Model::default();
    let mut counts = [0_u32; 5];
    for batch in script {
        match model.commit(batch, onceflow_core::Timestamp::ZERO) {
            Expected::Invalid => counts[0] += 1,
            Expected::Refused { .. } => counts[1] += 1,
            Expected::Applied { fired, claimed } => {
                counts[2] += u32::from(!fired.is_empty());
                counts[3] += u32::from(claimed.is_some());
                counts[4] += fired.len() as u32;
            }
        }
    }
    format!("{:?}", counts.map(|count| count.checked_ilog2().map_or(0, |log| log + 1)))
}

/// Choices of chance, to begin with.
fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    (0..8).map(|n| std::iter::once(n).chain((0..1500).map(|_| random.bits() as u8)).collect()).collect()
}
