//! Runs with failed compensations: they are at rest until an operator decides.

use super::*;

/// Runs until the compensation of `/b` has failed.
async fn stand_still(proof: &Proof, engine: &Engine, begin: &Start) -> onceflow_engine::Handle {
    let handle = proof.drive(engine.start(begin.clone())).await.unwrap();
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(
        matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.len() == 1),
        "{report}"
    );
    handle
}

#[tokio::test]
async fn a_run_whose_undo_failed_does_not_start_again_until_that_is_tried_again_or_decided() {
    use onceflow_engine::Resolution;
    let decisions =
        [None, Some(Resolution::Done(vec![])), Some(Resolution::Redo), Some(Resolution::Fail("gone".into()))];
    for decision in decisions {
        let (mut kit, undone, stuck) = (Kit::default(), Undone::default(), Stuck::default());
        stuck.store(true, SeqCst);
        let begin = undoable_unless(&mut kit, &undone, &stuck, None);
        let proof = Proof::new(&kit);
        let engine = proof.engine();
        let handle = stand_still(&proof, &engine, &begin).await;
        let ran = kit.ran();
        for _ in 0..2 {
            let refused = proof.drive(engine.start(begin.clone())).await.err().expect("it does not start");
            let named = matches!(&refused, Error::NotUndone { steps, .. } if &*steps[0].address == "/b");
            assert!(named && refused.to_string().contains("/b failed"), "{refused}");
        }
        assert!(matches!(proof.drive(handle.cancel()).await, Err(Error::NotUndone { .. })));
        assert_eq!(kit.ran(), ran, "nothing runs again");
        stuck.store(false, SeqCst);
        match decision.clone() {
            None => assert_eq!(proof.drive(handle.retry(None)).await.unwrap(), 1),
            Some(decision) => proof.drive(handle.resolve("/b", decision)).await.unwrap(),
        }
        let report = proof.drive(handle.wait()).await.unwrap();
        let left = usize::from(matches!(decision, Some(Resolution::Fail(_))));
        assert!(
            matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.len() == left),
            "{report}"
        );
        let tried = undone.lock().unwrap().len();
        let again = usize::from(matches!(decision, None | Some(Resolution::Redo)));
        assert_eq!(tried, 7 + again, "three undos, one of them tried five times, and once more if it was asked for");
        let handle = proof.drive(engine.start(begin.clone())).await.unwrap();
        let report = proof.drive(handle.wait()).await.unwrap();
        assert!(
            matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.is_empty()),
            "{report}"
        );
        proof.drive(engine.close()).await.unwrap();
        proof.only_what_remains().await;
        proof.nothing_remains().await;
    }
}
