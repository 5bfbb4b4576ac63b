//! Cases 1 to 12: the effects of an update, and the rows that are left.

use super::bed::{Bed, SHARD, each_store, guest, puts, refused, root, target};
use onceflow_store::{
    testing::world::TestWorld,
    values::{EdgeName, Error, Expect, Update, Values},
};

const FAMILY: &str = "quux; bar; baz->quux; foo->bar,baz";

#[tokio::test]
async fn clearing_the_only_root_leaves_nothing() {
    each_store(async |bed| {
        bed.update(puts(FAMILY).set(&root("R"), "foo")).await;
        assert_eq!(bed.left().await, "bar baz foo quux");
        bed.clear("R").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn values_of_a_second_root_stay_until_it_is_cleared_too() {
    each_store(async |bed| {
        bed.update(puts(FAMILY).set(&root("R"), "foo").set(&root("S"), "baz")).await;
        bed.clear("R").await;
        assert_eq!(bed.left().await, "baz quux");
        bed.clear("S").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_copied_path_shares_what_it_did_not_change() {
    each_store(async |bed| {
        bed.update(puts("a; b; r1->a,b").set(&root("R"), "r1")).await;
        bed.update(puts("c; r2->a,c").compare_and_set(&root("R"), target("r1"), "r2")).await;
        assert_eq!(bed.left().await, "a c r2");
        bed.clear("R").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn setting_a_root_to_what_it_is_frees_nothing() {
    each_store(async |bed| {
        bed.update(puts("a; r->a").set(&root("R"), "r")).await;
        bed.set("R", "r").await;
        bed.update(Update::new().compare_and_set(&root("R"), target("r"), "r")).await;
        assert_eq!(bed.left().await, "a r");
        // "The old one" had another name; it holds nothing of R.
        bed.clear("old R").await;
        assert_eq!(bed.left().await, "a r");
    })
    .await;
}

#[tokio::test]
async fn an_update_repeated_word_for_word_has_no_further_effect() {
    each_store(async |bed| {
        let updates = [
            puts("a; b; r1->a,b,b").set(&root("R"), "r1"),
            puts("c; r2->a,c").compare_and_set(&root("R"), target("r1"), "r2").set(&root("S"), "c"),
            Update::new().clear(&root("S")),
            Update::new().clear(&root("R")),
        ];
        for (update, left) in updates.into_iter().zip(["a b r1", "a c r2", "a c r2", ""]) {
            for _ in 0..2 {
                bed.update(update.clone()).await;
            }
            assert_eq!(bed.left().await, left, "{}", bed.name);
            let repeated =
                !update.changes.iter().any(|change| matches!(change, onceflow_store::values::ValueChange::Put { .. }));
            if repeated {
                bed.update(update).await;
                assert_eq!(bed.left().await, left, "{}", bed.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_reference_to_what_is_not_there_writes_nothing() {
    each_store(async |bed| {
        bed.update(puts("gone")).await;
        assert_eq!(bed.left().await, "");
        refused(bed, puts("new; p->new,gone").set(&root("R"), "p"), "value gone is missing").await;
        refused(bed, Update::new().set(&root("R"), "gone"), "value gone is missing").await;
        refused(bed, puts("p->c; c").set(&root("R"), "p"), "value c is missing").await;
        refused(bed, puts("p->p"), "value p is missing").await;
        assert_eq!(bed.values.edge(&root("R")).await.unwrap(), None);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_reference_to_a_later_put_holds_if_that_value_is_stored_already() {
    each_store(async |bed| {
        bed.update(puts("c")).await;
        bed.update(puts("p->c; c").set(&root("R"), "p")).await;
        assert_eq!(bed.left().await, "c p");
    })
    .await;
}

#[tokio::test]
async fn a_value_at_zero_can_be_referred_to_again_until_it_is_swept() {
    each_store(async |bed| {
        bed.update(puts(FAMILY).set(&root("R"), "foo")).await;
        bed.clear("R").await;
        bed.set("S", "foo").await;
        assert_eq!(bed.left().await, "bar baz foo quux");
        bed.reads("foo").await;
    })
    .await;
}

#[tokio::test]
async fn at_every_point_of_a_cascade_a_value_is_missing_or_fully_alive() {
    const LADDER: &str = "z; y1->z; y2->z; x->y1,y2; w1->x; w2->x,z; v->w1,w2";
    for steps in 0.. {
        let mut ended = true;
        each_store(async |bed| {
            for id in ["v", "w1", "w2", "x", "y1", "y2", "z"] {
                bed.update(puts(LADDER).set(&root("R"), "v")).await;
                bed.clear("R").await;
                for _ in 0..steps {
                    bed.step().await;
                }
                match bed.attempt(Update::new().set(&root("S"), id)).await {
                    Ok(()) => {
                        bed.drain().await;
                        bed.reads(id).await;
                    }
                    Err(Error::Missing { .. }) => {}
                    Err(other) => panic!("{}: {other}", bed.name),
                }
                bed.clear("S").await;
                bed.is_empty().await;
            }
        })
        .await;
        ended &= steps > 30;
        if ended {
            break;
        }
    }
}

#[tokio::test]
async fn an_id_made_again_while_its_old_life_is_unpaid_has_the_right_count() {
    each_store(async |bed| {
        for steps in 0..6 {
            bed.update(puts("a; b; c; p->a,b,c,c").set(&root("A"), "a").set(&root("R"), "p")).await;
            bed.clear("R").await;
            for _ in 0..steps {
                bed.step().await;
            }
            bed.update(puts("a; b; c; p->a,b,c,c").set(&root("R"), "p")).await;
            assert_eq!(bed.left().await, "a b c p");
            bed.clear("R").await;
            assert_eq!(bed.left().await, "a");
            bed.clear("A").await;
            bed.is_empty().await;
        }
    })
    .await;
}

#[tokio::test]
async fn references_count_as_often_as_they_occur() {
    each_store(async |bed| {
        bed.update(puts("x; p->x,x,x").set(&root("R"), "p")).await;
        bed.clear("R").await;
        bed.is_empty().await;
        bed.update(puts("d; b->d; c->d; a->b,c").set(&root("R"), "a").set(&root("S"), "c")).await;
        bed.clear("R").await;
        assert_eq!(bed.left().await, "c d");
        bed.clear("S").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_ladder_of_a_hundred_diamonds_goes_as_a_whole() {
    each_store(async |bed| {
        let mut ladder = "t0".to_owned();
        for n in 1..=100 {
            let below = n - 1;
            ladder += &format!("; l{n}->t{below}; r{n}->t{below}; t{n}->l{n},r{n}");
        }
        bed.update(puts(&ladder).set(&root("R"), "t100")).await;
        bed.clear("R").await;
        assert_eq!(bed.drain().await.swept, 301);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_value_is_what_it_was_first_put_as() {
    each_store(async |bed| {
        bed.update(puts("a; b; p->a").set(&root("R"), "p")).await;
        refused(bed, puts("p->b"), "value p is stored already").await;
        refused(bed, puts("p"), "value p is stored already").await;
        refused(bed, puts("new; p->a,a"), "value p is stored already").await;
        refused(bed, Update::new().put("p", ["a"], "other"), "value p is stored already").await;
        refused(bed, puts("q->a; q->b"), "value q is stored already").await;
        assert_eq!(bed.left().await, "a p");
    })
    .await;
}

#[tokio::test]
async fn a_stale_compare_and_set_changes_nothing_and_says_so() {
    each_store(async |bed| {
        bed.update(puts("a; b; c").set(&root("R"), "a").set(&root("B"), "b")).await;
        let stale = |expect| puts("d->b").compare_and_set(&root("R"), expect, "d");
        refused(bed, stale(target("b")), "edge R is not what was expected: set to a").await;
        refused(bed, stale(Expect::Unset), "edge R is not what was expected: set to a").await;
        let unset = puts("d").compare_and_set(&root("new"), target("a"), "d");
        refused(bed, unset, "edge new is not what was expected: not set").await;
        assert_eq!(bed.left().await, "a b");
    })
    .await;
}

#[tokio::test]
async fn edges_may_swap_their_values_in_one_update() {
    each_store(async |bed| {
        bed.update(puts("a; b").set(&root("A"), "a").set(&root("B"), "b")).await;
        bed.update(Update::new().set(&root("A"), "b").set(&root("B"), "a")).await;
        assert_eq!(bed.left().await, "a b");
        bed.update(Update::new().set(&root("A"), "a").clear(&root("B"))).await;
        assert_eq!(bed.left().await, "a");
    })
    .await;
}

#[tokio::test]
async fn an_update_over_a_limit_names_the_limit() {
    each_store(async |bed| {
        let wide = |n: usize| {
            let ids: Vec<String> = (0..n).map(|n| format!("e{n}")).collect();
            let update = ids.iter().fold(Update::new(), |update, id| update.leaf(id.as_str(), ""));
            update.put("wide", ids.iter().map(String::as_str), "").set(&root("R"), "wide")
        };
        refused(bed, wide(501), "REFS_PER_VALUE_MAX").await;
        refused(bed, Update::new().leaf("big", vec![0; 2 << 20]), "VALUE_BYTES_MAX").await;
        refused(bed, Update::new().clear(&EdgeName::root([0; 300])), "ID_BYTES_MAX").await;
        let many = (0..1100).fold(Update::new(), |update, n| update.leaf(n.to_string().as_str(), ""));
        refused(bed, many, "UPDATE_OPS_MAX").await;
        bed.update(wide(500)).await;
        bed.clear("R").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn an_edge_stands_once_in_an_update() {
    each_store(async |bed: &Bed| {
        bed.update(puts("a; b").set(&root("A"), "a").set(&root("B"), "b")).await;
        let twice = Update::new().set(&root("R"), "a").set(&root("R"), "b");
        refused(bed, twice, "edge R stands twice").await;
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_empty_or_too_long_is_refused() {
    each_store(async |bed| {
        let long = "x".repeat(257);
        for (id, says) in [("", "a value's id is empty"), (long.as_str(), "ID_BYTES_MAX")] {
            refused(bed, Update::new().leaf(id, ""), says).await;
            refused(bed, Update::new().put("a", [id], ""), says).await;
            refused(bed, Update::new().set(&root("R"), id), says).await;
            assert!(matches!(bed.values.get(&id.into()).await, Err(Error::Missing { .. })));
        }
    })
    .await;
}

#[tokio::test]
async fn large_values_are_reclaimed_over_a_socket_however_many_they_are() {
    let world = TestWorld::new(1);
    let values = Values::new(guest(&world).await, world.clone(), SHARD);
    let content = vec![7; 1_000_000];
    for n in (0..72).step_by(3) {
        let three = (n..n + 3).fold(Update::new(), |update, n| update.leaf(format!("{n}").as_str(), &content));
        values.apply(three).await.unwrap();
    }
    assert_eq!(values.reclaim(usize::MAX).await.unwrap().swept, 72);
    assert_eq!(values.rows().await.unwrap(), []);
}
