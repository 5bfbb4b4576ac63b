//! The decisions of an update, for facts written down by hand.

use super::*;
use crate::values::stored::lost_row;
use onceflow_core::{Digest, Require, row::counter};

const NOW: Timestamp = Timestamp::from_ms(1_000);

/// A store in which `a` is referred to, `z` is not, `l` is lost, and root R is set to `a`.
fn facts(keys: &Keys) -> Facts {
    let plain = |id: &str| value_row(&[], &Content::Inline(id.into()));
    let edge = Edge { target: "a".into(), deadline: None };
    Facts(BTreeMap::from([
        (keys.value(&"a".into()), plain("a")),
        (keys.count(&"a".into()), counter::write(1)),
        (keys.value(&"z".into()), plain("z")),
        (keys.value(&"l".into()), lost_row()),
        (keys.edge(&EdgeName::root("R")), edge.to_row()),
        (keys.sealed(&Name::new("full")), Seal::Released.to_row()),
    ]))
}

/// The decision as text: requires, then operations; or the error.
fn decided(update: Update) -> String {
    let keys = Keys::new();
    let decided = Asked::new(&update).and_then(|asked| decide(&keys, Shard(0), &facts(&keys), &asked, NOW));
    match decided {
        Err(error) => format!("error: {error}"),
        Ok(None) => "nothing".into(),
        Ok(Some(batch)) => {
            assert_eq!(batch.check().err(), None);
            assert!(batch.is_repeatable());
            let requires = batch.requires.iter().map(|require| match require {
                Require::Absent(key) => format!("no {key}"),
                Require::Present(key) => format!("some {key}"),
                Require::Equals(key, _) => format!("same {key}"),
            });
            let ops = batch.ops.iter().map(|op| match op {
                Op::Put(key, _) => format!("put {key}"),
                Op::Delete(key) => format!("delete {key}"),
                Op::Add { key, delta, at_zero } => {
                    format!("{key} {delta:+}{}", if at_zero.is_empty() { "" } else { "?" })
                }
                other => format!("{other:?}"),
            });
            let both = [requires.collect::<Vec<_>>().join(", "), ops.collect::<Vec<_>>().join(", ")];
            both.join(": ").replace("values", "v")
        }
    }
}

fn new() -> Update {
    Update::new()
}

#[test]
fn a_put_is_garbage_until_an_edge_refers_to_it() {
    assert_eq!(decided(new().leaf("n", "")), "no v/n: put v/n, put v.zero/n");
    let held = new().leaf("n", "").set(&EdgeName::root("N"), "n");
    assert_eq!(decided(held), "no v/n, no v.edges/rN: put v/n, put v.edges/rN, v.counts/n +1");
}

#[test]
fn a_reference_requires_the_value_and_takes_it_out_of_the_queue() {
    assert_eq!(decided(new().put("n", ["a", "a"], "")), "no v/n, some v/a: put v/n, v.counts/a +2, put v.zero/n");
    assert_eq!(
        decided(new().put("n", ["z"], "")),
        "no v/n, some v/z: put v/n, v.counts/z +1, delete v.zero/z, put v.zero/n"
    );
}

#[test]
fn setting_an_edge_to_its_present_value_does_nothing() {
    assert_eq!(decided(new().leaf("a", "a").set(&EdgeName::root("R"), "a")), "nothing");
    assert_eq!(decided(new().clear(&EdgeName::root("other"))), "nothing");
    let stale_but_so = new().compare_and_set(&EdgeName::root("R"), Expect::Unset, "a");
    assert_eq!(decided(stale_but_so), "nothing");
}

#[test]
fn an_edge_that_moves_takes_its_reference_along() {
    let moved = new().set(&EdgeName::root("R"), "z");
    assert_eq!(
        decided(moved),
        "same v.edges/rR, some v/z: put v.edges/rR, v.counts/a -1?, v.counts/z +1, delete v.zero/z"
    );
    assert_eq!(decided(new().clear(&EdgeName::root("R"))), "same v.edges/rR: delete v.edges/rR, v.counts/a -1?");
    let kept = new().clear(&EdgeName::root("R")).set(&EdgeName::root("S"), "a");
    assert_eq!(
        decided(kept),
        "same v.edges/rR, no v.edges/rS, some v/a: delete v.edges/rR, put v.edges/rS",
        "one goes, one comes: the count stays"
    );
}

#[test]
fn a_deadline_is_an_edge_and_an_index_row() {
    let lease = decided(new().lease(&EdgeName::root("R"), "a", 5));
    assert!(lease.contains("put v.due/\\x00\\x00\\x00\\x00\\x00\\x00\\x03\\xedrR"), "{lease}");
    assert!(!lease.contains("counts"), "{lease}");
}

#[test]
fn a_contradictory_update_is_refused() {
    for (update, says) in [
        (new().put("n", ["n"], ""), "value n is missing"),
        (new().put("n", ["m"], "").leaf("m", ""), "value m is missing"),
        (new().leaf("a", "other"), "value a is stored already"),
        (new().put("a", ["z"], "a"), "value a is stored already"),
        (new().compare_and_set(&EdgeName::root("R"), Expect::Unset, "z"), "edge R is not what was expected: set to a"),
        (new().set(&EdgeName::element("full", 0), "a"), "the elements under full are sealed"),
        (new().gather("n", "full", 0, Digest::default()), "the elements under full are sealed"),
        (new().put("l", ["a"], ""), "value l is lost"),
    ] {
        let decided = decided(update);
        assert!(decided.contains(says), "{decided}");
    }
}

#[test]
fn a_lost_value_is_healed_by_one_without_references() {
    assert_eq!(decided(new().leaf("l", "l")), "same v/l: put v/l");
}

#[test]
fn a_blob_needs_its_upload_unless_it_is_there() {
    let name = ObjectName::new(onceflow_core::Fences::new(1).next());
    let blob = |id: &str| {
        let content = Content::Object { name, len: 3 };
        new().put_value(id, Value { refs: Vec::<ValueId>::new(), content })
    };
    assert!(decided(blob("n")).contains("the upload of n is lost"));
    assert!(decided(blob("a")).contains("value a is stored already"));
}
