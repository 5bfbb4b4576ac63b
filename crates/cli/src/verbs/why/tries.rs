//! The attempts at a step, read from the event log, and what followed: outcomes that were reported by hand, and its
//! undo.

use crate::{event_log, fault::Fault, steps, words};
use onceflow_engine::{EventKind, Handle, ReportedOutcome};

/// An event, and the plan it happened under.
pub(super) struct Seen {
    pub(super) t: u64,
    pub(super) plan: u32,
    pub(super) address: Option<String>,
    pub(super) what: Option<EventKind>,
    /// The reported outcome, if the event is that.
    pub(super) said: Option<ReportedOutcome>,
}

/// All events of a run.
///
/// # Errors
/// If the store does not answer.
pub(super) async fn events(handle: &Handle) -> Result<Vec<Seen>, Fault> {
    let (mut plan, mut seen) = (0, Vec::new());
    for line in event_log::lines(handle).await? {
        let event_log::Line { t, step: address, what, said, .. } = line;
        if what.is_none() && said.is_none() {
            continue;
        }
        if let Some(EventKind::DidStart { generation }) = &what {
            plan = *generation;
        }
        seen.push(Seen { t, plan, address, what, said });
    }
    Ok(seen)
}

/// The end of a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Reused,
    Failed(Vec<String>),
    Unknown,
    /// The step waits for an event.
    Waits,
    Lost,
    /// The end is not logged: the attempt is running, or its worker is gone.
    Unsaid,
}

/// One try at the step.
pub(super) struct Try {
    /// The number, from 1, under its plan: a retry by hand counts on, though its attempts begin anew.
    pub(super) number: usize,
    pub(super) plan: u32,
    pub(super) attempt: u32,
    pub(super) from: u64,
    pub(super) until: Option<u64>,
    pub(super) end: End,
    /// The reason for this try, if it is not the first.
    pub(super) because: Option<String>,
    /// The outcome that was reported for it.
    pub(super) said: Option<ReportedOutcome>,
}

/// All tries at a step, in order.
pub(super) fn tries(step: &str, events: &[Seen]) -> Vec<Try> {
    let mut found: Vec<Try> = Vec::new();
    for event in events.iter().filter(|event| is_of(event, step)) {
        if let Some(said) = &event.said {
            // A reported outcome belongs to the attempt that waited for it, and is no attempt itself. A worker may have
            // begun the next attempt before the report was logged.
            let is_open = |one: &&mut Try| matches!(one.end, End::Unknown | End::Waits) && one.said.is_none();
            if let Some(one) = found.iter_mut().rfind(is_open) {
                one.said = Some(said.clone());
            } else if let Some(last) = found.last_mut() {
                last.said = Some(said.clone());
            }
            continue;
        }
        let number = 1 + found.iter().filter(|before| before.plan == event.plan).count();
        let begins = |attempt: u32, end: End, because: Option<String>| Try {
            number,
            plan: event.plan,
            attempt,
            from: event.t,
            until: (end != End::Unsaid).then_some(event.t),
            end,
            because,
            said: None,
        };
        let end = match &event.what {
            Some(EventKind::WillRun { attempt, .. }) => {
                let because = found.last().and_then(|last| again(last, event.plan, *attempt));
                found.push(begins(*attempt, End::Unsaid, because));
                continue;
            }
            Some(EventKind::DidCommit { .. }) => End::Done,
            Some(EventKind::DidReuse { .. }) => End::Reused,
            Some(EventKind::DidFail(failed)) => End::Failed(failed.causes.clone()),
            Some(EventKind::DidMarkUnknown { .. }) => End::Unknown,
            Some(EventKind::WillWait { .. }) => End::Waits,
            Some(EventKind::DidLose { .. }) => End::Lost,
            _ => continue,
        };
        match found.last_mut() {
            Some(last) if last.end == End::Unsaid && last.plan == event.plan => {
                (last.until, last.end) = (Some(event.t.max(last.from)), end);
            }
            // An unknown outcome is logged again whenever the run is resumed: that is no further attempt.
            Some(last) if last.end == end && end == End::Unknown && last.said.is_none() => {}
            _ => found.push(begins(1, end, None)),
        }
    }
    found
}

/// Steps inside a step, of which events were seen.
pub(super) struct Inside {
    /// The step is an each, under its last plan.
    pub(super) is_each: bool,
}

impl Inside {
    pub(super) fn of(step: &str, events: &[Seen]) -> Option<Self> {
        let is_inside = |event: &&Seen| event.address.as_deref().is_some_and(|address| steps::is_within(address, step));
        let last = events.iter().rfind(is_inside)?;
        let opened = |event: &Seen| matches!(event.what, Some(EventKind::DidOpen { .. })) && is_of(event, step);
        Some(Inside { is_each: events.iter().any(|event| event.plan == last.plan && opened(event)) })
    }
}

/// The step was undone.
pub(super) fn is_undone(step: &str, events: &[Seen]) -> bool {
    events.iter().any(|event| is_of(event, step) && matches!(event.what, Some(EventKind::DidUndo { .. })))
}

fn is_of(event: &Seen, step: &str) -> bool {
    event.address.as_deref().is_some_and(|address| !words::is_helper(address) && steps::is(address, step))
}

/// The reason why a step was tried again under the same plan.
fn again(last: &Try, plan: u32, attempt: u32) -> Option<String> {
    if last.plan != plan {
        return None;
    }
    match (&last.end, &last.said) {
        (_, Some(ReportedOutcome::Redo)) => {
            Some(String::from("because an operator reported that it did not take effect"))
        }
        (End::Failed(_), _) if attempt > last.attempt => Some(format!("because try {} failed", last.number)),
        (End::Failed(_), _) | (_, Some(_)) => Some(format!("by hand, after try {} failed", last.number)),
        (End::Unsaid | End::Lost, _) => Some(String::from("because its worker was gone")),
        (End::Unknown, _) => Some(String::from("because an operator reported that it did not take effect")),
        (End::Done | End::Reused | End::Waits, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t: u64, plan: u32, what: EventKind) -> Seen {
        let address = what.address().map(str::to_owned);
        Seen { t, plan, address, what: Some(what), said: None }
    }

    #[test]
    fn every_try_after_the_first_has_its_number_and_its_reason() {
        let run = |attempt| EventKind::WillRun { address: "/a".into(), attempt };
        let failed = |attempt| {
            EventKind::DidFail(onceflow_core::protocol::rows::Failed {
                address: "/a".into(),
                attempt,
                causes: vec![String::from("no")],
                started: false,
            })
        };
        let events = [
            event(1, 0, run(1)),
            event(2, 0, failed(1)),
            event(3, 0, run(2)),
            event(4, 0, failed(2)),
            event(5, 0, run(1)),
            event(6, 0, run(1)),
            event(7, 0, EventKind::DidCommit { address: "/a".into() }),
            event(8, 1, run(1)),
        ];
        let tries = tries("a", &events);
        let because: Vec<_> = tries.iter().map(|one| one.because.as_deref().unwrap_or("-")).collect();
        assert_eq!(
            because,
            ["-", "because try 1 failed", "by hand, after try 2 failed", "because its worker was gone", "-"]
        );
        assert_eq!(tries.iter().map(|one| one.number).collect::<Vec<_>>(), [1, 2, 3, 4, 1]);
        assert_eq!(tries.iter().map(|one| one.until.is_some()).collect::<Vec<_>>(), [true, true, false, true, false]);
    }
}
