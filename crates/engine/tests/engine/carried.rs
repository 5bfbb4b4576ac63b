//! Forks of runs, and exports to another store: the outputs are the same, and whatever fails on the way, all rows left
//! are removed by their deadlines.

use crate::support;

use onceflow_core::{ValueId, protocol::rows};
use onceflow_engine::{
    Engine, Error, ExportedRun, Fork, HISTORY_MS, Handle, ImportOptions, Options, RunStatus, Start, Summary,
};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use support::{Kit, flows, flows::*, proof::Proof, told};

const KEEPS: [Option<u64>; 2] = [None, Some(HISTORY_MS)];

/// A run that is done, on a bed of its own.
async fn done(make: Make, keep_ms: Option<u64>) -> (Kit, Proof, Start, String) {
    let mut kit = Kit::default();
    let (start, expected) = make(&mut kit);
    let proof = Proof::new(&kit);
    let start = Start { keep_ms, ..start };
    assert_eq!(proof.run(start.clone()).await, expected);
    (kit, proof, start, expected)
}

/// Cases whose runs end as done.
fn cases() -> impl Iterator<Item = (&'static str, Make)> {
    flows::SMALL.into_iter().filter(|(name, _)| !["no arm", "unhandled"].contains(name))
}

async fn exported(proof: &Proof) -> Vec<u8> {
    let engine = proof.engine();
    let handle = engine.find("r").await.unwrap();
    let mut bytes = Vec::new();
    let beside = vec![(String::from("note"), b"beside".to_vec())];
    let written = proof.drive(handle.export(beside, &mut bytes)).await.unwrap();
    assert_eq!(written, bytes.len() as u64);
    proof.drive(engine.close()).await.unwrap();
    bytes
}

async fn take_in(proof: &Proof, engine: &Engine, bytes: &[u8], key: &str) -> Result<Handle, Error> {
    let scratch = tempfile::tempdir().unwrap();
    let mut from = bytes;
    let carried = ExportedRun::read(&mut from)?;
    assert_eq!(carried.beside, [(String::from("note"), b"beside".to_vec())]);
    let how =
        ImportOptions { key: Some(key.to_owned()), scratch: scratch.path().join("s"), ..ImportOptions::default() };
    proof.drive(engine.import(&carried, &mut from, how)).await
}

async fn gave(proof: &Proof, handle: &Handle) -> String {
    match proof.drive(handle.wait()).await.unwrap() {
        Summary { status: RunStatus::Done, outputs, .. } => proof.drive(told(handle, outputs)).await,
        other => other.to_string(),
    }
}

#[tokio::test]
async fn a_run_is_the_same_in_another_store_and_goes_like_any_other() {
    for (name, make) in cases() {
        for keep_ms in KEEPS {
            let (kit, here, start, expected) = done(make, keep_ms).await;
            let bytes = exported(&here).await;
            let there = Proof::new(&kit);
            let engine = there.engine();
            let handle = take_in(&there, &engine, &bytes, "r").await.unwrap();
            assert_eq!(gave(&there, &handle).await, expected, "{name}");
            let again = take_in(&there, &engine, &bytes, "r").await;
            assert!(matches!(again, Err(Error::Refused { .. })), "{name}");
            // A start with the same request is the same run: no step runs.
            let ran = kit.ran();
            assert_eq!(there.drive(there.run_on(&engine, start.clone())).await, expected, "{name}");
            assert_eq!(kit.ran(), ran, "{name}");
            there.drive(engine.close()).await.unwrap();
            there.nothing_remains().await;
        }
    }
}

fn fork(start: &Start, key: &str) -> Fork {
    Fork { key: key.to_owned(), inputs: start.inputs.clone(), ..Fork::default() }
}

#[tokio::test]
async fn a_fork_with_the_same_inputs_gives_the_same_and_leaves_nothing_later() {
    for (name, make) in cases() {
        for keep_ms in KEEPS {
            let (_, proof, start, expected) = done(make, keep_ms).await;
            let engine = proof.engine();
            let handle = proof.drive(engine.fork("r", fork(&start, "forked"))).await.unwrap();
            assert_eq!(gave(&proof, &handle).await, expected, "{name}");
            let twice = proof.drive(engine.fork("r", fork(&start, "forked"))).await;
            assert!(matches!(twice, Err(Error::Refused { .. })), "{name}");
            proof.drive(engine.close()).await.unwrap();
            proof.nothing_remains().await;
        }
    }
}

/// Forks or imports while the store fails at the n-th call; true if that call was reached.
async fn disturb(forks: bool, n: u64, fault: Fault) -> bool {
    let (kit, here, start, _) = done(flows::large, Some(HISTORY_MS)).await;
    let bytes = exported(&here).await;
    let proof = if forks { here } else { Proof::new(&kit) };
    let plan = FaultPlan::at(n, fault);
    let idle = Options { works: false, ..Options::default() };
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), idle);
    let ended = match forks {
        true => proof.drive(engine.fork("r", fork(&start, "new"))).await.map(drop),
        false => take_in(&proof, &engine, &bytes, "new").await.map(drop),
    };
    assert!(ended.is_ok() || plan.reached(), "{ended:?}");
    engine.stop();
    // A second try succeeds, or finds the run.
    let second = proof.engine();
    let again = match forks {
        true => proof.drive(second.fork("r", fork(&start, "new"))).await.map(drop),
        false => take_in(&proof, &second, &bytes, "new").await.map(drop),
    };
    assert!(matches!(again, Ok(()) | Err(Error::Refused { .. })), "{fault:?} at {n}: {again:?}");
    let handle = proof.drive(second.find("new")).await.unwrap();
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(report.status == RunStatus::Done, "{fault:?} at {n}: {report}");
    proof.drive(second.close()).await.unwrap();
    proof.fsck().await;
    if n.is_multiple_of(5) {
        proof.nothing_remains().await;
    }
    plan.reached()
}

#[tokio::test]
async fn a_fault_at_any_call_leaves_nothing_that_does_not_go_by_itself() {
    for forks in [false, true] {
        for fault in Fault::ALL {
            println!("forks: {forks} {fault:?}");
            let mut n = 1;
            while disturb(forks, n, fault).await {
                n += 1;
            }
        }
    }
}

#[tokio::test]
async fn wrong_inputs_of_a_fork_are_refused() {
    let (_, proof, start, _) = done(flows::large, None).await;
    let engine = proof.engine();
    let other = Fork { inputs: vec![], ..fork(&start, "new") };
    let lacking = proof.drive(engine.fork("r", other)).await;
    assert!(matches!(lacking, Err(Error::Inputs(_))), "an input is missing");
    let odd = Fork { inputs: vec![(String::from("xs"), support::ints([3]))], ..fork(&start, "new") };
    let odd = proof.drive(engine.fork("r", odd)).await;
    assert!(matches!(odd, Err(Error::Inputs(ref why)) if why.contains("`xs`")), "an input differs that was not named");
    let gone = proof.drive(engine.fork("nobody", fork(&start, "new"))).await;
    assert!(matches!(gone, Err(Error::NoRun(_))));
    proof.drive(engine.close()).await.unwrap();
}

/// An exported file with this manifest.
fn file(manifest: &[u8], contents: &[u8]) -> Vec<u8> {
    let len = (manifest.len() as u64).to_le_bytes();
    let digest = blake3::hash(manifest);
    [&b"onceflow run 1\n"[..], &len[..], &digest.as_bytes()[..], manifest, contents].concat()
}

/// The same file with a changed manifest and a matching digest.
fn altered(bytes: &[u8], alter: impl Fn(&mut ExportedRun)) -> Vec<u8> {
    let mut from = bytes;
    let mut carried = ExportedRun::read(&mut from).unwrap();
    alter(&mut carried);
    file(&rows::write(&carried), from)
}

/// The same file, with an output of a million nested lists.
fn bottomless(bytes: &[u8]) -> Vec<u8> {
    let mut from = bytes;
    let carried = ExportedRun::read(&mut from).unwrap();
    let begin = rows::write(&(&carried.header, &carried.status, carried.generation, carried.ended_ms));
    let list_of_one = [4_u8, 1];
    let manifest = [&begin[..], &[1, 1, b'x'][..], &[0_u8; 32][..], &list_of_one.repeat(1_000_000)[..]].concat();
    file(&manifest, from)
}

#[tokio::test]
async fn a_file_that_was_made_to_do_harm_is_refused_and_leaves_nothing() {
    const ALTERS: [(&str, fn(&mut ExportedRun)); 6] = [
        ("no key", |carried| carried.header.key.clear()),
        ("a long key", |carried| carried.header.key = "k".repeat(257)),
        ("a key for terminals", |carried| carried.header.key = String::from("\u{1b}[2J")),
        ("a flow of two lines", |carried| carried.header.flow = String::from("a\nb")),
        ("no id", |carried| carried.header.program.id = ValueId::default()),
        ("no next plan", |carried| carried.generation = u32::MAX),
    ];
    let (kit, here, ..) = done(flows::large, Some(HISTORY_MS)).await;
    let bytes = exported(&here).await;
    assert_eq!(altered(&bytes, |_| {}), bytes);
    let there = Proof::new(&kit);
    let engine = there.engine();
    let mut files: Vec<_> = ALTERS.into_iter().map(|(what, alter)| (what, altered(&bytes, alter))).collect();
    files.push(("no bottom", bottomless(&bytes)));
    for (what, file) in files {
        let taken = take_in(&there, &engine, &file, "r").await;
        assert!(matches!(taken, Err(Error::Inputs(_))), "{what}: {:?}", taken.err());
    }
    for key in ["", "a\tb"] {
        let taken = take_in(&there, &engine, &bytes, key).await;
        assert!(matches!(taken, Err(Error::Inputs(_))), "{key:?}: {:?}", taken.err());
    }
    there.drive(engine.close()).await.unwrap();
    there.nothing_remains().await;
}

#[tokio::test]
async fn a_run_that_would_stay_for_ever_stays_as_long_as_it_may_here() {
    const CENTURY_MS: u64 = 100 * 365 * 24 * 3_600_000;
    let (kit, here, _, expected) = done(flows::large, Some(HISTORY_MS)).await;
    let bytes = altered(&exported(&here).await, |carried| {
        carried.header.history_ms = u64::MAX;
        carried.header.keep_ms = Some(u64::MAX);
    });
    for (history_ms_max, keep_ms_max, stays) in [
        (None, None, (CENTURY_MS, Some(CENTURY_MS))),
        (Some(90_000), Some(120_000), (90_000, Some(120_000))),
        (Some(90_000), Some(0), (90_000, None)),
    ] {
        let there = Proof::new(&kit);
        let engine = there.engine();
        let scratch = tempfile::tempdir().unwrap();
        let mut from = &bytes[..];
        let carried = ExportedRun::read(&mut from).unwrap();
        let how = ImportOptions {
            scratch: scratch.path().join("s"),
            history_ms_max,
            keep_ms_max,
            ..ImportOptions::default()
        };
        let handle = there.drive(engine.import(&carried, &mut from, how)).await.unwrap();
        let summary = handle.summary().await.unwrap();
        assert_eq!((summary.history_ms, summary.keep_ms), stays);
        assert_eq!(gave(&there, &handle).await, expected);
        there.drive(engine.close()).await.unwrap();
        if history_ms_max.is_some() {
            there.nothing_remains().await;
        }
    }
}

#[tokio::test]
async fn a_run_that_says_it_ended_in_the_future_goes_like_any_other() {
    let (kit, here, _, expected) = done(flows::large, Some(HISTORY_MS)).await;
    let bytes = altered(&exported(&here).await, |carried| carried.ended_ms = u64::MAX);
    let there = Proof::new(&kit);
    let engine = there.engine();
    let handle = take_in(&there, &engine, &bytes, "r").await.unwrap();
    assert_eq!(gave(&there, &handle).await, expected);
    there.drive(engine.close()).await.unwrap();
    there.nothing_remains().await;
}
