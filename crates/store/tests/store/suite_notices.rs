//! Would the suite notice? Every flaw here is one that a backend could have; the contract must break by it, and where
//! scripts can show it, so must the comparison with the model.

mod flawed;

use flawed::{FLAWS, Flaw, Flawed};
use onceflow_store::{
    Records,
    backend::memory::Memory,
    testing::{
        contract::{Making, broken_promises},
        oracle::compare,
        world::TestWorld,
    },
};
use std::sync::Arc;

fn make(flaw: Flaw) -> impl Fn(Arc<TestWorld>) -> Making {
    move |world| {
        let records = Arc::new(Memory::new(world.clone()));
        let flawed: Arc<dyn Records> = Arc::new(Flawed { records, world, flaw });
        Box::pin(std::future::ready(flawed))
    }
}

#[test]
fn every_flaw_breaks_a_promise_and_no_flaw_breaks_none() {
    // Promises break by the hundred here; their panics are the expected outcome.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let none = broken_promises(&make(Flaw::None));
    // Some flaws show only if two get in each other's way, which not every try of a busy machine has.
    let tried = |flaw| (0..10).map(|_| broken_promises(&make(flaw))).find(|broken| !broken.is_empty());
    let broken: Vec<_> = FLAWS.iter().map(|(flaw, _)| (flaw, tried(*flaw).unwrap_or_default())).collect();
    std::panic::set_hook(hook);
    assert_eq!(none, [""; 0]);
    for (flaw, promises) in &broken {
        println!("{flaw:?} breaks {} promises: {}", promises.len(), promises.join(" "));
    }
    let unnoticed: Vec<_> = broken.iter().filter(|(_, promises)| promises.is_empty()).collect();
    assert!(unnoticed.is_empty(), "nothing noticed {unnoticed:?}");
}

#[tokio::test]
async fn every_flaw_that_a_script_can_show_is_shown_by_a_short_one() {
    for (flaw, shown) in FLAWS {
        let mut found = None;
        for seed in 0..20 {
            found = compare(&make(*flaw), seed, 200).await.err();
            if found.is_some() {
                break;
            }
        }
        let found = found.map(|found| (found.batches.len(), found.to_string()));
        println!("{flaw:?}: {}", found.as_ref().map_or("not shown", |found| &found.1));
        assert_eq!(found.is_some(), *shown, "{flaw:?}");
        assert!(found.is_none_or(|found| found.0 <= 8), "{flaw:?} should have been shrunk further");
    }
    compare(&make(Flaw::None), 0, 200).await.expect("no flaw, no disagreement");
}
