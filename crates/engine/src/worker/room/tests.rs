//! How many steps may be taken, as a table of who sits where.

use super::*;

/// A room for so many steps together, of classes with these limits.
fn room(together: usize, classes: &[(&str, usize)]) -> Room {
    let classes = classes.iter().map(|(name, max)| (String::from(*name), *max)).collect();
    Room::new(&Options { classes, classes_max: together, other_classes: false, ..Options::default() })
}

/// The classes that a seat may take a step of now.
fn open(room: &Room, seat: &Seat) -> String {
    let queues = room.queues(seat);
    queues.iter().filter_map(keys::class_of).filter(|class| !class.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A seat that took a step of this class.
async fn seated(room: &Room, class: &str) -> Seat {
    let mut seat = room.seat().await;
    assert!(open(room, &seat).split(' ').any(|open| open == class), "{class} is full");
    room.sit(&mut seat, &keys::class_queue(class));
    seat
}

#[tokio::test]
async fn no_more_steps_are_taken_together_than_there_is_room_for_whatever_their_classes() {
    let room = room(2, &[("a", 2), ("b", 1)]);
    let (mut one, two) = (seated(&room, "a").await, seated(&room, "b").await);
    let another = room.seat().await;
    assert_eq!(open(&room, &another), "", "both places are taken");
    // Who has a place may take the next step with it, of any class that has room.
    assert_eq!((open(&room, &one), open(&room, &two)), (String::from("a"), String::from("a b")));
    // One that became an internal step leaves its place to others.
    room.sit(&mut one, &keys::internal_queue());
    assert_eq!(open(&room, &another), "a");
    assert_eq!(open(&room, &one), "", "the other one asks for it");
    another.leave_quietly();
    assert_eq!(open(&room, &one), "a");
}

#[tokio::test]
async fn a_step_that_only_waits_does_not_count_and_what_was_taken_meanwhile_is_not_followed() {
    let room = room(1, &[("a", 1)]);
    let (waits, other) = (seated(&room, "a").await, room.seat().await);
    assert_eq!(open(&room, &other), "");
    let resting = room.rest(&waits);
    let meanwhile = seated(&room, "a").await;
    assert_eq!(open(&room, &meanwhile), "a", "a chain may go on");
    drop(resting);
    assert_eq!(open(&room, &meanwhile), "", "the one that waited comes first");
    drop(meanwhile);
    assert_eq!((open(&room, &waits).as_str(), open(&room, &other).as_str()), ("a", ""));
    drop(waits);
    assert_eq!(open(&room, &other), "a");
}

#[tokio::test]
async fn a_class_that_is_narrower_than_the_room_keeps_its_place_while_its_step_waits() {
    let room = room(4, &[("a", 1), ("b", 4)]);
    let (waits, other) = (seated(&room, "a").await, room.seat().await);
    let resting = room.rest(&waits);
    assert_eq!(open(&room, &other), "b", "the one of class a comes back");
    drop(resting);
    drop(waits);
    assert_eq!(open(&room, &other), "a b");
}
