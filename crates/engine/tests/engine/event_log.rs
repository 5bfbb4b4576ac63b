//! The event log of a run: told by the store to any engine, sealed when the run ends, and removed with it.

use crate::support;

use onceflow_engine::{EventLogOptions, Handle, LogEntryKind, Options, Start};
use support::{Kit, flows::each_of, graphs::chain, int, ints, proof::Proof};

fn logging() -> Options {
    Options { event_log: Some(EventLogOptions::default()), ..Options::default() }
}

/// Plan and text of every event.
async fn told(handle: &Handle) -> Vec<(u32, String)> {
    let entries = handle.history().logged_events().await.unwrap();
    let told = entries.into_iter().filter_map(|entry| match entry.kind {
        LogEntryKind::Event(what) => Some((entry.plan, what.to_string())),
        _ => None,
    });
    told.collect()
}

fn commits(told: &[(u32, String)], plan: u32) -> usize {
    told.iter().filter(|(of, what)| *of == plan && what.starts_with("did commit /")).count()
}

#[tokio::test]
async fn log_is_told_to_any_engine_sealed_when_the_run_ends_and_removed_with_it() {
    for is_forgotten in [true, false] {
        const ELEMENTS: i64 = 500;
        let mut kit = Kit::default();
        let (start, _) = each_of(&mut kit, ELEMENTS);
        let proof = Proof::new(&kit);
        let rows = || {
            let all = proof.memory.state().all().into_iter().map(|(_, key, _)| key);
            all.filter(|key| key.group.id().starts_with(b"E")).collect::<Vec<_>>()
        };
        let reader = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
        for (plan, elements) in [(0, ELEMENTS), (1, ELEMENTS + 1)] {
            let engine = proof.engine_on(proof.memory.clone(), logging());
            let start = Start { inputs: vec![(String::from("xs"), ints(0..elements))], ..start.clone() };
            proof.drive(proof.run_on(&engine, start)).await;
            proof.drive(engine.close()).await.unwrap();
            assert_eq!(rows().len(), 1, "the log is sealed: {:?}", rows());
            let handle = reader.find("r").await.unwrap();
            let told = told(&handle).await;
            let of_plan: Vec<_> = told.iter().filter(|(of, _)| *of == plan).map(|(_, what)| what.as_str()).collect();
            assert!(of_plan[0].starts_with("did start") && of_plan.last() == Some(&"did end: done"), "{of_plan:?}");
            assert!(commits(&told, plan) > elements as usize && commits(&told, 0) > ELEMENTS as usize);
            let steps = handle.history().logged_steps().await.unwrap();
            assert_eq!(steps, elements as u64 + 1, "a step that ran again counts once");
        }
        if is_forgotten {
            let seen = reader.find("r").await.unwrap().summary().await.unwrap();
            assert!(proof.drive(reader.forget(&seen)).await.unwrap());
            assert!(rows().is_empty(), "{:?}", rows());
        }
        proof.drive(reader.close()).await.unwrap();
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn engine_that_keeps_no_log_writes_none() {
    let mut kit = Kit::default();
    let one = kit.task("one", &["x"], |inputs| Ok(vec![inputs[0].clone()]));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let start = Start::new("r", chain(&one, 3).flow()).input("x", int(1));
    assert_eq!(proof.drive(proof.run_on(&engine, start)).await, "y=1");
    let handle = engine.find("r").await.unwrap();
    assert_eq!(
        (handle.history().logged_events().await.unwrap(), handle.history().logged_steps().await.unwrap()),
        (vec![], 0)
    );
    assert!(!proof.rows().contains("\"E"), "{}", proof.rows());
    proof.drive(engine.close()).await.unwrap();
}
