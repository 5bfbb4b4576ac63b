//! The open sessions of a run's scopes, for people: where each stands, what it waits for, what it holds.

use crate::{fault::Fault, run_meta::bounded, words};
use onceflow_core::{Row, scope::SessionPhase};
use onceflow_engine::{
    Handle,
    scope::{OrderView, OrderWork, SessionView},
};
use serde_json::{Value, json};

/// The most orders, and the most buffers, that are listed of a session; JSON has all.
const LISTED_MAX: usize = 10;

/// Reads the open sessions of a run.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn open(handle: &Handle) -> Result<Vec<SessionView>, Fault> {
    Ok(handle.open_sessions(&onceflow_exec::scope_of).await?)
}

/// The name of a session: its step, and the way to it in the scope.
pub(crate) fn name(session: &SessionView) -> String {
    let step = words::step(&session.step);
    session.path.iter().fold(step, |name, part| format!("{name}/{part}"))
}

/// The orders that wait for an event, each with the name of its operation.
pub(crate) fn waiting<'a>(sessions: &'a [SessionView], event: &'a str) -> Vec<(String, &'a OrderView)> {
    let of = |session: &'a SessionView| {
        let orders = session.waits.iter().filter(move |order| order.event.as_deref() == Some(event));
        orders
            .filter(|order| !order.is_cancelled)
            .map(move |order| (format!("{}/{}", name(session), order.name), order))
    };
    sessions.iter().flat_map(of).collect()
}

/// Where a session stands, in words.
fn standing(session: &SessionView) -> String {
    match (session.phase, &session.cancelled) {
        (SessionPhase::New, _) => String::from("begins"),
        (SessionPhase::Running, _) => String::from("running"),
        (SessionPhase::Deferred, _) => String::from("running to its own end, for it is uninterruptible"),
        (SessionPhase::Terminating, _) => String::from("has its result; its operations end"),
        (SessionPhase::Cancelling, Some(cause)) => format!("cancelled, its operations end: {cause}"),
        (SessionPhase::CleaningBuffers, Some(cause)) => format!("cancelled, cleaning up: {cause}"),
        (SessionPhase::Cancelling, None) => String::from("cancelled, its operations end"),
        (SessionPhase::CleaningBuffers, None) => String::from("has its result; cleaning up"),
        (SessionPhase::Done, _) => String::from("done; its step takes the result"),
    }
}

fn word(phase: SessionPhase) -> &'static str {
    match phase {
        SessionPhase::New => "new",
        SessionPhase::Running => "running",
        SessionPhase::Deferred => "deferred",
        SessionPhase::Terminating => "terminating",
        SessionPhase::Cancelling => "cancelling",
        SessionPhase::CleaningBuffers => "cleaning",
        SessionPhase::Done => "done",
    }
}

fn kind(work: OrderWork) -> &'static str {
    match work {
        OrderWork::Task => "task",
        OrderWork::Call => "call",
        OrderWork::Nested => "scope",
        OrderWork::Cleanup => "cleanup",
        OrderWork::Sleep => "sleep",
        OrderWork::Event => "event",
        OrderWork::Inline => "inline",
    }
}

/// A message as JSON; text if it is not JSON.
fn message(row: &Row) -> Value {
    serde_json::from_slice(row).unwrap_or_else(|_| String::from_utf8_lossy(row).into_owned().into())
}

/// The lines about all sessions.
pub(crate) fn to_text(sessions: &[SessionView], now_ms: u64) -> String {
    let mut text = String::new();
    for session in sessions {
        text.push_str(&format!("scope    {}: {}\n", name(session), standing(session)));
        for order in session.waits.iter().take(LISTED_MAX) {
            text.push_str(&format!("         waits for {}\n", waited(order, now_ms)));
        }
        text.push_str(&more(session.waits.len(), "waited for"));
        for buffer in session.holds.iter().take(LISTED_MAX) {
            let closed = if buffer.is_closed { ", closed" } else { "" };
            text.push_str(&format!(
                "         {} holds {}{closed}\n",
                buffer.name,
                words::count(buffer.holds, "message")
            ));
        }
        text.push_str(&more(session.holds.len(), "hold messages"));
    }
    text
}

fn more(all: usize, what: &str) -> String {
    match all.saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!("         … and {more} more {what}; --json has them\n"),
    }
}

fn waited(order: &OrderView, now_ms: u64) -> String {
    let kind = match order.kind {
        OrderWork::Cleanup => "cleanup ",
        OrderWork::Nested => "the nested scope ",
        OrderWork::Task | OrderWork::Call | OrderWork::Sleep | OrderWork::Event | OrderWork::Inline => "",
    };
    let mut text = format!("{kind}{}", order.name);
    if let (OrderWork::Call, Some(run)) = (order.kind, &order.key) {
        text.push_str(&format!(", run `{run}`"));
    }
    if let Some(event) = &order.event {
        text.push_str(&format!(", for `{event}`"));
    }
    if order.is_queued {
        text.push_str(", which waits for its turn");
    }
    if order.is_cancelled {
        text.push_str(", which was told to end");
    }
    if let Some(due) = order.due {
        let left = words::duration(due.as_ms().saturating_sub(now_ms));
        text.push_str(&format!(", for {left} at most"));
    }
    if let Some(row) = &order.message {
        text.push_str(&format!(": {}", words::clipped(&message(row).to_string())));
    }
    text
}

/// The same for programs.
pub(crate) fn to_json(sessions: &[SessionView]) -> Value {
    let wait = |order: &OrderView| {
        json!({
            "operation": order.name, "kind": kind(order.kind), "key": order.key, "event": order.event,
            "message": order.message.as_ref().map(|row| bounded(message(row))),
            "queued": order.is_queued, "told_to_end": order.is_cancelled, "until_ms": order.due.map(|due| due.as_ms()),
        })
    };
    let session = |session: &SessionView| {
        let holds = session.holds.iter();
        let holds = holds.map(|op| json!({ "name": op.name, "messages": op.holds, "closed": op.is_closed }));
        json!({
            "step": words::step(&session.step), "path": session.path, "phase": word(session.phase),
            "cancelled": session.cancelled.as_ref().map(ToString::to_string),
            "waits": session.waits.iter().map(wait).collect::<Vec<_>>(), "holds": holds.collect::<Vec<_>>(),
        })
    };
    sessions.iter().map(session).collect()
}
