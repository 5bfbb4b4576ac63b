//! The rows of durable sessions. A session has a group of its own, which goes with it; its ready row stands in the queue of
//! its outermost scope, those of its activities in a queue beside it, from which a host takes only as many as it has
//! places for, and those of its calls in a third.
//!
//! | row of the session's group | content |
//! |---|---|
//! | those of `onceflow_core::scope::session::saved` | the machine |
//! | `e` … | an event that the session has not taken yet |
//! | `a`, turn | the input of an order that is not answered |
//! | `w`, turn | the answer of a call whose run is still to be removed; the input is gone |
//! | `l`, turn | an order that is served in a lane: how, and whether it waits, with its input then |
//! | `k`, timer | the deadline of a timer |

use super::body::ScopeShape;
use crate::Error;
use onceflow_core::{
    Group, Inbox, Key, Name, Row, Timestamp,
    protocol::rows::{read, write},
    scope::{Cancellation, Feed, Instruction, Mishap, OpId, OrderId, SESSION_ROW, SessionTimer, order_row},
};
use serde::{Deserialize, Serialize};

/// The identity of a session: that of the outermost one comes from its key, that of a nested one from its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The end of an outermost session, as its caller sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DurableEnd {
    /// The result, or why there is none.
    pub result: Result<Row, Cancellation>,
    /// Problems that did not change the result.
    pub mishaps: Vec<Mishap>,
    /// Messages that left by the scope's streams, in order, each with the index of its stream.
    pub streamed: Vec<(u32, Row)>,
    /// The names of the rows that the end takes in the store, until it is forgotten.
    pub rows: Vec<Name>,
}

/// A timer of a session, or of an order that only waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum WriterTimer {
    Session(SessionTimer),
    Sleep(OrderId),
}

/// One step on the way from the outermost scope to a nested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Hop {
    Op(OpId),
    Cleanup(u32),
}

/// The number of the format of sessions: their rows, and how front ends number the operations of what they lower. It stands in
/// each ready row, and a session of another number is neither driven nor ended: its rows would be taken for something
/// else. Raise it with every change of either.
pub(super) const FORMAT: u8 = 6;

/// The reason why an order is not answered, stored with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Awaits {
    /// The next batch of its session.
    Turn,
    /// A host that runs the activity.
    Host,
    /// A timer.
    Timer,
    /// An event from outside.
    Event,
}

/// The input of an order, as its row.
pub(super) type FeedRow = (OrderId, OpId, Awaits, Feed<Row>);

/// An order that is served in a lane, as its row.
pub(super) type LaneRow = (OrderId, OpId, Instruction, LanePlace);

/// The place of an order in its lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum LanePlace {
    /// It waits for its turn, with its input.
    Waits(Feed<Row>),
    /// It is served.
    Runs,
    /// A later one took its place: it is being stopped.
    Stops,
}

/// The note in the ready row of a session or an activity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Note {
    Session(Header),
    Activity { session: SessionId, shape: ScopeShape, path: Vec<Hop>, op: OpId, order: OrderId },
}

impl Note {
    /// The shape that the outermost scope had when the session was opened.
    pub(super) fn shape(&self) -> ScopeShape {
        match self {
            Note::Session(Header { shape, .. }) | Note::Activity { shape, .. } => *shape,
        }
    }
}

/// The place of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) id: SessionId,
    /// That of the outermost scope.
    pub(super) shape: ScopeShape,
    pub(super) path: Vec<Hop>,
    pub(super) answers: Answers,
}

/// The one that the end of a session is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answers {
    /// An order of another session.
    Order(SessionId, OrderId),
    /// A caller, who finds the end in this row.
    Caller(Key),
}

/// An event's place among those of its session: first come events of the session as a whole.
pub(super) enum EventPlace {
    Start,
    ParentEnds,
    Cancel,
    /// Of an order; later ones have higher numbers.
    Order(OrderId, u64),
}

/// The queue of an outermost scope.
pub(super) fn queue(scope: &str) -> Group {
    Group::queue(Name::join(&[b"scope/", scope.as_bytes()]))
}

/// The queue of the activities of the sessions in this queue.
pub(super) fn activity_queue(sessions: &Group) -> Group {
    Group::queue(Name::join(&[sessions.id(), b"\0a"]))
}

/// The queue of the calls of the sessions in this queue. A call only waits for its run, so it must not take the place of an
/// activity: the run may contain one.
pub(super) fn call_queue(sessions: &Group) -> Group {
    Group::queue(Name::join(&[sessions.id(), b"\0c"]))
}

impl SessionId {
    /// The session that this scope is entered with for this key.
    pub fn of_key(scope: &str, key: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("onceflow scope session");
        hasher.update(&(scope.len() as u64).to_le_bytes()).update(scope.as_bytes()).update(key.as_bytes());
        SessionId::of(&hasher)
    }

    /// The session that an order of this one opens.
    pub(super) fn nested(self, order: OrderId) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("onceflow nested scope session");
        hasher.update(&self.0).update(&order.turn().to_le_bytes());
        SessionId::of(&hasher)
    }

    fn of(hasher: &blake3::Hasher) -> Self {
        SessionId(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    pub(super) fn group(self) -> Group {
        Group::rows(Name::join(&[b"scope/s/", &self.0]))
    }

    pub(super) fn key(self, name: impl AsRef<[u8]>) -> Key {
        self.group().key(name)
    }

    pub(super) fn own_row(self) -> Key {
        self.key(SESSION_ROW)
    }

    pub(super) fn order(self, order: OrderId) -> Key {
        self.key(order_row(order))
    }

    pub(super) fn feed(self, order: OrderId) -> Key {
        self.key(feed_name(order))
    }

    pub(super) fn lane(self, order: OrderId) -> Key {
        self.key(lane_name(order))
    }

    /// The answer of a call whose run is still to be removed.
    pub(super) fn call_answer(self, order: OrderId) -> Key {
        self.key(call_answer_name(order))
    }

    pub(super) fn timer(self, timer: WriterTimer) -> Key {
        self.key(Name::join(&[b"k", &write(&timer)]))
    }

    pub(super) fn event(self, place: &EventPlace) -> Key {
        self.key(match place {
            EventPlace::Start => Name::new([b'e', 0]),
            EventPlace::ParentEnds => Name::new([b'e', 1]),
            EventPlace::Cancel => Name::new([b'e', 2]),
            EventPlace::Order(order, number) => {
                Name::join(&[b"e", &[3], &order.turn().to_be_bytes(), &number.to_be_bytes()])
            }
        })
    }

    /// The name of its ready row.
    pub(super) fn ready_name(self) -> Name {
        Name::join(&[&self.0, b"s"])
    }

    pub(super) fn activity_name(self, order: OrderId) -> Name {
        Name::join(&[&self.0, b"a", &order.turn().to_be_bytes()])
    }

    /// The stable key of an activity.
    pub(super) fn activity_key(self, order: OrderId) -> String {
        format!("{self:?}-{}", order.turn())
    }
}

/// The names of the rows of an outermost session's streams begin with this.
pub(super) fn streamed_prefix(end: &Key) -> Name {
    Name::join(&[end.name.as_bytes(), b".s"])
}

/// A row of a stream of an outermost session.
pub(super) fn streamed(end: &Key, commit: u64, at: u32) -> Key {
    let number = format!("{commit:016x}{at:08x}");
    end.group.key(Name::join(&[streamed_prefix(end).as_bytes(), number.as_bytes()]))
}

/// The names of the rows of orders in lanes begin with this.
pub(super) const LANE: &[u8] = b"l";

pub(super) fn lane_name(order: OrderId) -> Name {
    Name::join(&[LANE, &order.turn().to_be_bytes()])
}

pub(super) fn call_answer_name(order: OrderId) -> Name {
    Name::join(&[CALL_ANSWER, &order.turn().to_be_bytes()])
}

/// The names of the answers of calls begin with this.
pub(super) const CALL_ANSWER: &[u8] = b"w";

pub(super) fn feed_name(order: OrderId) -> Name {
    Name::join(&[b"a", &order.turn().to_be_bytes()])
}

impl Header {
    /// The ready row of the session.
    pub(super) fn ready(&self) -> Row {
        inbox(self.id, b"e", &Note::Session(self.clone()))
    }
}

pub(super) fn inbox(session: SessionId, prefix: &[u8], note: &Note) -> Row {
    let note = [&[FORMAT], &write(note)[..]].concat();
    Inbox { group: session.group(), prefix: Name::new(prefix), note }.to_row()
}

/// The note of a ready row.
pub(super) fn read_note(row: &Row) -> Result<Note, Error> {
    let damaged = || Error::damaged("a ready row of a scope");
    let inbox = Inbox::from_row(row).ok_or_else(damaged)?;
    match inbox.note.split_first() {
        Some((&FORMAT, note)) => read(note).ok_or_else(damaged),
        Some((other, _)) => Err(other_format(*other)),
        None => Err(damaged()),
    }
}

/// A session that this version does not understand.
fn other_format(found: u8) -> Error {
    Error::Inputs(format!(
        "a session of a scope was opened by another version of onceflow (format {found}; this one has {FORMAT}), and can only be \
         continued or ended, with its cleanup, by that version"
    ))
}

/// A timer's row: when it is due, and which it is.
pub(super) fn timer_row(timer: WriterTimer, due: Timestamp) -> Row {
    write(&(timer, due.as_ms()))
}

pub(super) fn read_timer(row: &Row) -> Option<(WriterTimer, Timestamp)> {
    let (timer, ms) = read(row)?;
    Some((timer, Timestamp::from_ms(ms)))
}
