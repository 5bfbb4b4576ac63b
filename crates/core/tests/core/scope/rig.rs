//! A driver of one session for tests: code runs at once, futures end in the order they began, when nothing else can
//! happen.

use super::draw::{Drawn, Kind, behave};
use onceflow_core::{
    Name, Row,
    scope::{
        CancelCause, Contents, Emitted, Feed, OpId, OrderId, Scope, ScopeEffect, ScopeEvent, Session, SessionPhase,
    },
};
use std::collections::{BTreeMap, VecDeque};

/// Messages are numbers.
pub(super) struct Numbers;

impl Contents<i64> for Numbers {
    fn duplicate(&self, _: OpId, message: &i64) -> i64 {
        *message
    }

    fn describe(&self, _: OpId, message: &i64) -> Option<String> {
        Some(message.to_string())
    }
}

/// All that can be seen of a session.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    /// The result, or the cause in words.
    pub(super) end: Result<i64, String>,
    /// The entries that cleanup found, by buffer.
    pub(super) found: BTreeMap<String, Vec<i64>>,
}

fn index(scope: &Scope, op: OpId) -> usize {
    scope.operations()[op.at()].name[2..].parse().expect("op and a number")
}

pub(super) fn words(cause: &CancelCause) -> String {
    match cause {
        CancelCause::Triggered { at, reason } => format!("{at} {reason:?}"),
        CancelCause::Rounds { at, .. } => format!("rounds {at}"),
        CancelCause::TooLarge { at, .. } => format!("too large at {at}"),
        other => format!("{other:?}"),
    }
}

/// Stores a session as rows, as a durable driver does, and reads it back.
fn stored_and_read(scope: &Scope, mut session: Session<i64>, rows: &mut BTreeMap<Name, Row>) -> Session<i64> {
    for (name, row) in session.take_changes(scope) {
        match row {
            Some(row) => rows.insert(name, row),
            None => rows.remove(&name),
        };
    }
    Session::restore(scope, rows.iter()).expect("a session reads the rows that it wrote")
}

/// Runs a session to its end; if `is_stored`, the session is stored and read back whenever it waits.
pub(super) fn run(scope: &Scope, drawn: &Drawn, is_stored: bool) -> Seen {
    let mut session = Session::recorded(scope);
    let mut rows = BTreeMap::new();
    let mut effects = VecDeque::new();
    let mut futures: VecDeque<(OrderId, OpId, i64)> = VecDeque::new();
    let mut found = BTreeMap::new();
    session.apply(scope, &Numbers, ScopeEvent::Start(drawn.input), &mut effects);
    loop {
        let event = match effects.pop_front() {
            Some(ScopeEffect::Run { order, .. }) if !session.is_wanted(order) => {
                ScopeEvent::Dropped { order, mishaps: Vec::new() }
            }
            Some(ScopeEffect::Run { order, op, feed: Feed::One(message) })
                if drawn.ops[index(scope, op)].0 == Kind::Future =>
            {
                futures.push_back((order, op, message));
                continue;
            }
            Some(ScopeEffect::Run { order, op, feed }) => {
                let input = match feed {
                    Feed::One(message) => vec![message],
                    Feed::Many(messages) => messages,
                    _ => Vec::new(),
                };
                let emitted = Emitted::Many(behave(drawn.ops[index(scope, op)].0, &input));
                ScopeEvent::Ended { order, emitted, mishaps: Vec::new() }
            }
            Some(ScopeEffect::Cancel { order }) => {
                let before = futures.len();
                futures.retain(|(other, ..)| *other != order);
                if futures.len() == before {
                    continue;
                }
                ScopeEvent::Dropped { order, mishaps: Vec::new() }
            }
            Some(ScopeEffect::Clean { order, flow }) => {
                let buffer = scope.cleanups()[flow as usize].buffers[0];
                let entries = session.entries(scope, buffer).copied().collect::<Vec<_>>();
                found.insert(scope.operations()[buffer.at()].name.clone(), entries);
                ScopeEvent::Ended { order, emitted: Emitted::Nothing, mishaps: Vec::new() }
            }
            Some(ScopeEffect::Deliver(end)) => {
                assert!(session.is_empty() && session.phase() == SessionPhase::Done, "something is left");
                assert!(effects.is_empty() && futures.is_empty(), "something follows the end");
                return Seen { end: end.result.map_err(|cancelled| words(&cancelled.cause)), found };
            }
            Some(_) => continue,
            None => {
                session.apply(scope, &Numbers, ScopeEvent::Idle, &mut effects);
                if !effects.is_empty() {
                    continue;
                }
                if is_stored {
                    session = stored_and_read(scope, session, &mut rows);
                }
                let (order, op, message) = futures.pop_front().expect("a session that is not done waits for something");
                let emitted = Emitted::Many(behave(drawn.ops[index(scope, op)].0, &[message]));
                ScopeEvent::Ended { order, emitted, mishaps: Vec::new() }
            }
        };
        session.apply(scope, &Numbers, event, &mut effects);
    }
}
