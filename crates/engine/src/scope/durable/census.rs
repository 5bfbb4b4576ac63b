//! Compares the rows of the sessions that a run has open with each other, for `fsck`: nothing that a session needs is missing,
//! nothing is there that no session needs. Which code an operation has is not known here; what an order waits for is,
//! because its rows say so.

use super::{
    keys::{
        Awaits, CALL_ANSWER, FeedRow, LANE, LanePlace, LaneRow, Note, SessionId, WriterTimer, activity_queue,
        call_queue, feed_name, lane_name, queue, read_note, read_timer,
    },
    open_sessions::{END, OPEN, OpenSession},
};
use crate::Error;
use onceflow_core::{
    Group, Name, Row,
    protocol::{ids::RunId, keys, rows::read},
    scope::{OrderId, SESSION_ROW, ScopeEvent, is_readable, read_order},
};
use std::collections::{BTreeMap, BTreeSet};

/// Reads all rows of a group.
pub(crate) trait ReadGroup {
    /// All rows of this group, in the order of their names.
    async fn read_group(&mut self, group: Group) -> Result<Vec<(Name, Row)>, Error>;
}

type Rows = BTreeMap<Name, Row>;

/// Reports rows of sessions of this run that cannot be read, are missing, or are kept though nothing needs them.
pub(crate) async fn check_sessions(run: RunId, rows: &mut impl ReadGroup) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let (mut open, mut ends) = (Vec::new(), Vec::new());
    for (name, row) in rows.read_group(keys::sessions(run)).await? {
        let (kind, rest) = name.as_bytes().split_at(1);
        match kind {
            OPEN => match read::<OpenSession>(&row).filter(|open| open.session.as_bytes() == rest) {
                Some(session) => open.push(session),
                None => found.push(format!("the row of an open session cannot be read: {name:?}")),
            },
            END => ends.push(rest.to_vec()),
            _ => found.push(format!("a row of unknown kind stands among the open sessions: {name:?}")),
        }
    }
    for end in &ends {
        let is_of = |open: &OpenSession| {
            end.strip_prefix(open.session.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b".s"))
        };
        if !open.iter().any(is_of) {
            found.push(format!("the end of a session is kept that is not open: {:?}", Name::new(end.as_slice())));
        }
    }
    for session in open {
        let has_ended = ends.iter().any(|end| end == session.session.as_bytes());
        let told = check_tree(&session, has_ended, rows).await?;
        found.extend(told.into_iter().map(|what| format!("the session of {}: {what}", session.address)));
    }
    Ok(found)
}

/// Checks an open session with all nested ones.
async fn check_tree(open: &OpenSession, has_ended: bool, rows: &mut impl ReadGroup) -> Result<Vec<String>, Error> {
    let sessions = queue(&open.session);
    let mut activities: Rows = rows.read_group(activity_queue(&sessions)).await?.into_iter().collect();
    activities.extend(rows.read_group(call_queue(&sessions)).await?);
    let mut ready: Rows = rows.read_group(sessions).await?.into_iter().collect();
    let root = SessionId::of_key(&open.session, "");
    let mut found = Vec::new();
    match (ready.contains_key(&root.ready_name()), has_ended) {
        (false, false) => found.push(String::from("nothing drives it: neither its ready row nor its end is there")),
        (true, true) => found.push(String::from("it has ended, and is still open")),
        _ => {}
    }
    let mut next = vec![root];
    while let Some(id) = next.pop() {
        let own = rows.read_group(id.group()).await?;
        let Some(row) = ready.remove(&id.ready_name()) else {
            if !own.is_empty() {
                found.push(format!("{} rows are kept of session {id:?}, which is not open", own.len()));
            }
            continue;
        };
        match read_note(&row) {
            Ok(Note::Session(header)) if header.id == id => {}
            Ok(_) => found.push(format!("the ready row of session {id:?} is that of something else")),
            Err(error) => {
                // Of another version, or damaged: its rows say nothing.
                found.push(error.to_string());
                return Ok(found);
            }
        }
        let orders = check_session(id, &own, &ready, &mut activities, &mut found);
        next.extend(orders.into_iter().map(|order| id.nested(order)).filter(|id| ready.contains_key(&id.ready_name())));
    }
    let kept = |name: &Name| format!("a ready row is kept that no order needs: {name:?}");
    found.extend(ready.keys().chain(activities.keys()).map(kept));
    Ok(found)
}

/// Checks the rows of one session, and takes the ready rows of its activities. Returns its orders.
fn check_session(
    id: SessionId,
    rows: &[(Name, Row)],
    ready: &Rows,
    activities: &mut Rows,
    found: &mut Vec<String>,
) -> Vec<OrderId> {
    let (mut orders, mut feeds, mut sleeps) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    // Orders that are served in lanes, and whether they wait for their turn.
    let mut lanes = BTreeMap::new();
    // The turns of orders that have an event, and of calls that have their answer.
    let (mut events, mut answers) = (BTreeSet::new(), BTreeSet::new());
    let mut has_begun = false;
    for (name, row) in rows {
        let bytes = name.as_bytes();
        has_begun |= bytes == SESSION_ROW || bytes == [b'e', 0];
        let is_read = match bytes.first() {
            Some(b'a') => {
                let feed = read::<FeedRow>(row).filter(|(order, ..)| feed_name(*order) == *name);
                feeds.extend(feed.iter().map(|(order, _, awaits, _)| (*order, *awaits)));
                feed.is_some()
            }
            Some(_) if bytes.starts_with(CALL_ANSWER) => {
                let turn = bytes.get(1..).and_then(|turn| turn.first_chunk().copied()).map(u32::from_be_bytes);
                answers.extend(turn);
                turn.is_some() && read::<ScopeEvent<Row>>(row).is_some()
            }
            Some(_) if bytes.starts_with(LANE) => {
                let lane = read::<LaneRow>(row).filter(|(order, ..)| lane_name(*order) == *name);
                lanes.extend(lane.iter().map(|(order, _, _, place)| (*order, matches!(place, LanePlace::Waits(_)))));
                lane.is_some()
            }
            Some(b'k') => {
                let timer = read_timer(row).filter(|(timer, _)| id.timer(*timer).name == *name);
                sleeps.extend(timer.and_then(|(timer, _)| of_order(timer)));
                timer.is_some()
            }
            Some(b'e') => {
                events.extend(bytes.get(2..).and_then(|turn| turn.first_chunk().copied()).map(u32::from_be_bytes));
                read::<ScopeEvent<Row>>(row).is_some()
            }
            _ => {
                orders.extend(bytes.starts_with(b"o").then(|| read_order(row)).flatten());
                is_readable::<Row>(bytes, row).unwrap_or(false)
            }
        };
        if !is_read {
            found.push(format!("a row of session {id:?} cannot be read: {name:?}"));
        }
    }
    if !has_begun {
        found.push(format!("the state of session {id:?} is missing"));
    }
    for order in &orders {
        let is_answered = events.contains(&order.turn());
        // A call that has its answer waits for the host that removes its run.
        let awaits = feeds.remove(order).or_else(|| answers.remove(&order.turn()).then_some(Awaits::Host));
        let has_host = activities.remove(&id.activity_name(*order)).is_some();
        let is_served = match awaits {
            Some(Awaits::Turn | Awaits::Event) => true,
            Some(Awaits::Timer) => sleeps.remove(order),
            Some(Awaits::Host) => has_host,
            None if lanes.get(order) == Some(&true) => true,
            None => is_answered || ready.contains_key(&id.nested(*order).ready_name()),
        };
        lanes.remove(order);
        if !is_served {
            found.push(format!("order {} of session {id:?} waits for something that is missing", order.turn()));
        }
        if has_host && awaits != Some(Awaits::Host) {
            found.push(format!("order {} of session {id:?} has an activity that it does not wait for", order.turn()));
        }
    }
    let over = feeds.into_keys().chain(sleeps).chain(lanes.into_keys()).map(OrderId::turn).chain(answers);
    found.extend(over.map(|turn| format!("rows of order {turn} are kept in session {id:?}, which lacks it")));
    orders.into_iter().collect()
}

fn of_order(timer: WriterTimer) -> Option<OrderId> {
    match timer {
        WriterTimer::Sleep(order) => Some(order),
        WriterTimer::Session(_) => None,
    }
}
