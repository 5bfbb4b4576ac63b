//! The machine of scopes: random scopes against a small reference, events that do not fit, and the cost of disposals.

mod draw;
mod events;
mod reference;
mod rig;

use draw::Drawn;
use rig::Seen;

/// Random scopes tried: a few seconds.
const SCOPES: u64 = 20_000;

#[test]
fn random_scopes_end_as_the_reference_says_in_whatever_order_they_are_numbered_and_when_they_are_stored() {
    let (mut results, mut cancels, mut compared) = (0, 0, 0);
    for seed in 0..SCOPES {
        let drawn = Drawn::new(seed);
        let Ok(scope) = drawn.scope(None) else { continue };
        let seen = rig::run(&scope, &drawn, false);
        let Some(expected) = reference::run(&drawn) else { continue };
        assert_eq!(seen, expected, "seed {seed}: {drawn:#?}");
        let renumbered = drawn.scope(Some(seed)).expect("a scope is right in any order");
        assert_eq!(rig::run(&scope, &drawn, true), expected, "seed {seed}, stored and read: {drawn:#?}");
        assert_eq!(rig::run(&renumbered, &drawn, false), expected, "seed {seed}, renumbered: {drawn:#?}");
        compared += 1;
        match seen {
            Seen { end: Ok(_), .. } => results += 1,
            Seen { end: Err(_), .. } => cancels += 1,
        }
    }
    assert!(
        results > compared / 10 && cancels > compared / 10,
        "{results} results and {cancels} cancels of {compared}"
    );
}
