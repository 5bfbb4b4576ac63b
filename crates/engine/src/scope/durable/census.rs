//! Compares the rows of the sessions that runs and hosts have open with each other, for `fsck`: nothing that a session needs is missing,
//! nothing is there that no session needs. Which code an operation has is not known here; what an order waits for is,
//! because its rows say so.

use super::{
    hosted::{HostedSession, hosted},
    keys::{
        Awaits, CALL_ANSWER, FeedRow, LANE, LanePlace, LaneRow, Note, SessionId, WriterTimer, activity_queue,
        call_queue, feed_name, lane_name, queue, read_note, read_timer,
    },
    open_sessions::{END, OPEN, OpenSession, WORK},
};
use crate::Error;
use onceflow_core::{
    Group, Name, Row,
    protocol::{ids::RunId, keys, rows::read},
    scope::{OrderId, SESSION_ROW, ScopeEvent, check_rows, is_readable, read_order},
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
    let root = |rest: &[u8], row: &Row| {
        let open = read::<OpenSession>(row).filter(|open| open.session.as_bytes() == rest)?;
        let (label, id) = (format!("the session of {}", open.address), SessionId::of_key(&open.session, ""));
        Some(Root { label, scope: open.session, id, has_ended: false })
    };
    check_roots(keys::sessions(run), root, rows).await
}

/// Reports rows of sessions that hosts have open outside any run, as [`check_sessions`] does.
pub(crate) async fn check_hosted(rows: &mut impl ReadGroup) -> Result<Vec<String>, Error> {
    let root = |rest: &[u8], row: &Row| {
        let HostedSession { scope, key } = read(row)?;
        let id = SessionId::of_key(&scope, &key);
        let label = format!("the session of scope `{scope}` with key `{key}`");
        (format!("{id:?}").as_bytes() == rest).then_some(Root { label, scope, id, has_ended: false })
    };
    check_roots(hosted(), root, rows).await
}

/// An outermost session.
struct Root {
    label: String,
    scope: String,
    id: SessionId,
    has_ended: bool,
}

/// Checks the sessions whose rows and ends are in this group.
async fn check_roots(
    group: Group,
    root: impl Fn(&[u8], &Row) -> Option<Root>,
    rows: &mut impl ReadGroup,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let (mut open, mut ends) = (BTreeMap::new(), Vec::new());
    for (name, row) in rows.read_group(group).await? {
        let (kind, rest) = name.as_bytes().split_at(name.as_bytes().len().min(1));
        match kind {
            OPEN => match root(rest, &row) {
                Some(session) => drop(open.insert(rest.to_vec(), session)),
                None => found.push(format!("the row of an open session cannot be read: {name:?}")),
            },
            END => ends.push(rest.to_vec()),
            WORK if read::<OpenSession>(&row).is_some_and(|open| open.session.as_bytes() == rest) => {}
            _ => found.push(format!("a row of unknown kind stands among the open sessions: {name:?}")),
        }
    }
    for end in ends {
        let whole = without_stream(&end);
        match open.get_mut(whole) {
            Some(session) => session.has_ended |= whole.len() == end.len(),
            None => found.push(format!("the end of a session is kept that is not open: {:?}", Name::new(&end[..]))),
        }
    }
    let mut scopes: BTreeMap<String, Vec<Root>> = BTreeMap::new();
    for session in open.into_values() {
        scopes.entry(session.scope.clone()).or_default().push(session);
    }
    for (scope, roots) in scopes {
        found.extend(check_scope(&scope, &roots, rows).await?);
    }
    Ok(found)
}

/// The name of the end that a row of a stream belongs to; any other name is the end's own.
fn without_stream(name: &[u8]) -> &[u8] {
    const SUFFIX: usize = ".s0123456789abcdef01234567".len();
    match name.len().checked_sub(SUFFIX) {
        Some(at) if name[at..].starts_with(b".s") => &name[..at],
        _ => name,
    }
}

/// Checks the open sessions of a scope, with all nested ones.
async fn check_scope(scope: &str, roots: &[Root], rows: &mut impl ReadGroup) -> Result<Vec<String>, Error> {
    let sessions = queue(scope);
    let mut activities: Rows = rows.read_group(activity_queue(&sessions)).await?.into_iter().collect();
    activities.extend(rows.read_group(call_queue(&sessions)).await?);
    let mut ready: Rows = rows.read_group(sessions).await?.into_iter().collect();
    let mut found = Vec::new();
    let mut is_understood = true;
    for root in roots {
        let mut told = Vec::new();
        is_understood &= check_tree(root, (&mut ready, &mut activities), rows, &mut told).await?;
        found.extend(told.into_iter().map(|what| format!("{}: {what}", root.label)));
    }
    if is_understood {
        let label =
            roots.first().filter(|_| roots.len() == 1).map_or(format!("scope `{scope}`"), |root| root.label.clone());
        let kept = |name: &Name| format!("{label}: a ready row is kept that no order needs: {name:?}");
        found.extend(ready.keys().chain(activities.keys()).map(kept));
    }
    Ok(found)
}

/// Checks an open session with all nested ones, and takes their ready rows. Answers false if a ready row says nothing.
async fn check_tree(
    root: &Root,
    (ready, activities): (&mut Rows, &mut Rows),
    rows: &mut impl ReadGroup,
    found: &mut Vec<String>,
) -> Result<bool, Error> {
    match (ready.contains_key(&root.id.ready_name()), root.has_ended) {
        (false, false) => found.push(String::from("nothing drives it: neither its ready row nor its end is there")),
        (true, true) => found.push(String::from("it has ended, and is still open")),
        _ => {}
    }
    let mut next = vec![root.id];
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
                return Ok(false);
            }
        }
        let orders = check_session(id, &own, ready, activities, found);
        next.extend(orders.into_iter().map(|order| id.nested(order)).filter(|id| ready.contains_key(&id.ready_name())));
    }
    Ok(true)
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
    let miscounted = check_rows(rows.iter().map(|(name, row)| (name, row)));
    found.extend(miscounted.into_iter().map(|what| format!("session {id:?}: {what}")));
    if !has_begun {
        found.push(format!("the state of session {id:?} is missing"));
    }
    for order in &orders {
        let is_answered = events.contains(&order.turn());
        // A call that has its answer waits for the host that removes its run.
        let awaits = feeds.remove(order).or_else(|| answers.remove(&order.turn()).then_some(Awaits::Host));
        let activity = activities.remove(&id.activity_name(*order));
        let has_host = activity.is_some();
        let is_its =
            |note: &Note| matches!(note, Note::Activity { session, order: of, .. } if *session == id && of == order);
        if activity.is_some_and(|row| !read_note(&row).is_ok_and(|note| is_its(&note))) {
            found.push(format!("the ready row of order {} of session {id:?} cannot be read", order.turn()));
        }
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
