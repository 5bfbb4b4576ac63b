//! The steps that may be claimed, as a table of the slots and the classes they hold places in.

use super::*;

/// A capacity for so many steps together, of classes with these limits.
fn capacity(together: usize, classes: &[(&str, usize)]) -> Capacity {
    let classes = classes.iter().map(|(name, max)| (String::from(*name), *max)).collect();
    Capacity::new(&Options { classes, classes_max: together, other_classes: false, ..Options::default() })
}

/// The classes that a slot may take a step of now.
fn open(capacity: &Capacity, slot: &Slot) -> String {
    let queues = capacity.queues(slot);
    queues.iter().filter_map(keys::class_of).filter(|class| !class.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A slot that took a step of this class.
async fn assigned(capacity: &Capacity, class: &str) -> Slot {
    let mut slot = capacity.slot().await;
    assert!(open(capacity, &slot).split(' ').any(|open| open == class), "{class} is full");
    capacity.assign(&mut slot, &keys::class_queue(class));
    slot
}

#[tokio::test]
async fn no_more_steps_are_taken_together_than_there_is_room_for_whatever_their_classes() {
    let capacity = capacity(2, &[("a", 2), ("b", 1)]);
    let (mut one, two) = (assigned(&capacity, "a").await, assigned(&capacity, "b").await);
    let another = capacity.slot().await;
    assert_eq!(open(&capacity, &another), "", "both places are taken");
    // A slot that has a place may claim the next step with it, of any class that has capacity.
    assert_eq!((open(&capacity, &one), open(&capacity, &two)), (String::from("a"), String::from("a b")));
    // A slot that moved on to an internal step leaves its place to others.
    capacity.assign(&mut one, &keys::internal_queue());
    assert_eq!(open(&capacity, &another), "a");
    assert_eq!(open(&capacity, &one), "", "the other one asks for it");
    another.release();
    assert_eq!(open(&capacity, &one), "a");
}

#[tokio::test]
async fn a_step_that_only_waits_does_not_count_and_what_was_taken_meanwhile_is_not_followed() {
    let capacity = capacity(1, &[("a", 1)]);
    let (waits, other) = (assigned(&capacity, "a").await, capacity.slot().await);
    assert_eq!(open(&capacity, &other), "");
    let resting = capacity.rest(&waits);
    let meanwhile = assigned(&capacity, "a").await;
    assert_eq!(open(&capacity, &meanwhile), "a", "a chain may go on");
    drop(resting);
    assert_eq!(open(&capacity, &meanwhile), "", "the one that waited comes first");
    drop(meanwhile);
    assert_eq!((open(&capacity, &waits).as_str(), open(&capacity, &other).as_str()), ("a", ""));
    drop(waits);
    assert_eq!(open(&capacity, &other), "a");
}

#[tokio::test]
async fn a_class_that_is_narrower_than_the_room_keeps_its_place_while_its_step_waits() {
    let capacity = capacity(4, &[("a", 1), ("b", 4)]);
    let (waits, other) = (assigned(&capacity, "a").await, capacity.slot().await);
    let resting = capacity.rest(&waits);
    assert_eq!(open(&capacity, &other), "b", "the one of class a comes back");
    drop(resting);
    drop(waits);
    assert_eq!(open(&capacity, &other), "a b");
}
