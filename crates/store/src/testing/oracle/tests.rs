//! The oracle, held to its word.

use super::*;
use onceflow_core::{Pick, Timestamp};

/// The results of the batches of many scripts.
#[derive(Default, Debug)]
struct Tally {
    applied: u32,
    refused: u32,
    invalid: u32,
    fired: u32,
    fired_deep: u32,
    fresh: u32,
    in_turn: u32,
    found_none: u32,
}

#[test]
fn scripts_meet_every_kind_of_outcome_often() {
    let mut tally = Tally::default();
    for seed in 0..50 {
        let mut model = Model::default();
        for batch in script(seed, 200) {
            match model.commit(&batch, Timestamp::ZERO) {
                Expected::Invalid => tally.invalid += 1,
                Expected::Refused { .. } => tally.refused += 1,
                Expected::Applied { fired, claimed } => {
                    tally.applied += 1;
                    tally.fired += u32::from(!fired.is_empty());
                    tally.fired_deep += u32::from(fired.iter().any(|key| key.name.as_bytes()[1] > 0));
                    match (&batch.claim, &claimed) {
                        (Some(claim), Some(_)) if claim.pick == Pick::InTurn => tally.in_turn += 1,
                        (Some(_), Some(_)) => tally.fresh += 1,
                        (Some(_), None) => tally.found_none += 1,
                        (None, _) => {}
                    }
                }
            }
        }
    }
    let Tally { applied, refused, invalid, fired, fired_deep, fresh, in_turn, found_none } = tally;
    assert!(applied > 4000, "{tally:?}");
    for many in [refused, invalid, fired, fired_deep, fresh, in_turn, found_none] {
        assert!(many > 400, "{tally:?}");
    }
}

#[test]
fn a_seed_gives_the_same_script_again() {
    assert_eq!(script(3, 50), script(3, 50));
    assert_ne!(script(3, 50), script(4, 50));
}

/// Rule 1 of the kernel, for every batch that claims to keep it.
#[test]
fn a_repeatable_batch_sent_again_at_once_changes_nothing() {
    let mut seen = 0;
    for seed in 0..200 {
        let mut model = Model::default();
        for batch in script(seed, 200).into_iter().filter(Batch::is_repeatable) {
            let answer = model.commit(&batch, Timestamp::ZERO);
            if batch.claim.is_none() && matches!(answer, Expected::Applied { .. }) {
                seen += 1;
                let before = model.lasting();
                let again = model.commit(&batch, Timestamp::ZERO);
                assert_eq!(model.lasting(), before, "seed {seed}: {batch:#?}\nanswered {answer:?}, then {again:?}");
            }
        }
    }
    assert!(seen > 5000, "{seen}");
}
