//! `onceflow why RUN STEP`: why a step ran, or did not: what was different when the run was planned, and what happened at
//! each try. The first is stored with the run; the second is in its trail.

use crate::{
    args,
    exit::Exit,
    fault::Fault,
    place::Place,
    printer::{Ink, Printer},
    session::Session,
    steps, trail,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::plan::{Fate, Reason};
use onceflow_engine::{PLANS_MAX, Reasons, Summary, What};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Tries that are shown.
const TRIES_MAX: usize = 20;

/// Says why.
pub(crate) async fn run(args: &args::Why, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let handle = engine.find(&run.key).await?;
    let reasons = handle.reasons().await?;
    let outline = handle.outline().await?.unwrap_or_default();
    engine.stop();
    let events = events(&session.place, &run);
    session.close().await?;
    let failures = run.failures.iter().map(|failed| failed.address.to_string());
    let known: BTreeSet<String> = reasons
        .iter()
        .flat_map(|plan| plan.lines.iter().map(|(address, ..)| address.clone()))
        .chain(events.iter().filter_map(|event| event.address.clone()))
        .chain(outline.iter().map(|line| line.address.clone()))
        .chain(failures)
        .filter(|address| !words::is_helper(address))
        .collect();
    if !known.iter().any(|address| steps::is(address, &args.step) || is_element(address, &args.step)) {
        return Err(steps::unknown(&run.key, &args.step, known.iter().map(String::as_str)));
    }
    let answer = Answer::of(&run, args.step.trim_start_matches('/'), &reasons, &events);
    match printer.json {
        true => printer.pretty(&answer.to_json(&run)),
        false => printer.text(answer.to_text(printer)),
    }
    let key = shell_word(&run.key);
    printer.next(match answer.tries.last() {
        Some(Try { end: End::Failed(_), .. }) => format!("onceflow logs {key} {}", shell_word(&answer.step)),
        _ => format!("onceflow show {key}"),
    });
    Ok(Exit::Done)
}

/// Whether a step with numbers is one of those that an outline has as `[*]` and `@*`.
fn is_element(outlined: &str, word: &str) -> bool {
    let plain = |text: &str| {
        let mut shown = String::new();
        let mut skips = false;
        for letter in text.chars() {
            skips = match letter {
                '[' | '@' => {
                    shown.push(letter);
                    true
                }
                ']' | '/' => false,
                _ => skips,
            };
            if !skips {
                shown.push(letter);
            }
        }
        shown
    };
    outlined.contains('*') && plain(&words::step(outlined)) == plain(word.trim_start_matches('/'))
}

/// Something that happened, and under which plan.
struct Seen {
    t: u64,
    plan: u32,
    address: Option<String>,
    what: What,
}

fn events(place: &Place, run: &Summary) -> Vec<Seen> {
    let (mut plan, mut seen) = (0, Vec::new());
    for line in trail::Reader::open(&place.run(run.id)).more() {
        let Some(what) = trail::what(&line) else { continue };
        if let What::DidStart { generation } = &what {
            plan = *generation;
        }
        let address = line["step"].as_str().map(str::to_owned);
        seen.push(Seen { t: line["t"].as_u64().unwrap_or_default(), plan, address, what });
    }
    seen
}

/// How a try ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Reused,
    Failed(Vec<String>),
    Unknown,
    /// For something from outside.
    Waits,
    Lost,
    /// Nobody said: it is running, or whoever ran it is gone.
    Unsaid,
}

/// One try at the step.
struct Try {
    plan: u32,
    attempt: u32,
    from: u64,
    until: Option<u64>,
    end: End,
    /// Why there was another one.
    because: Option<String>,
}

/// What a plan decided.
struct Decided {
    plan: u32,
    /// The step the decision is about: itself, or what it is inside of.
    of: String,
    fate: Fate,
    reason: Option<Reason>,
}

struct Answer {
    step: String,
    /// The latest plan first.
    plans: Vec<Decided>,
    tries: Vec<Try>,
    status: String,
}

impl Answer {
    fn of(run: &Summary, step: &str, reasons: &[Reasons], events: &[Seen]) -> Self {
        let mut plans: Vec<_> = reasons.iter().rev().filter_map(|plan| decided(plan, step)).collect();
        // The first plan of a run that knew nothing has no reasons: everything ran for the first time.
        if reasons.iter().all(|plan| plan.generation > 0) && run.generation < PLANS_MAX {
            plans.push(Decided { plan: 0, of: step.to_owned(), fate: Fate::Run, reason: None });
        }
        Answer { step: step.to_owned(), plans, tries: tries(step, events), status: run.status.to_string() }
    }

    /// What became of it, in a word, and why.
    fn fate(&self) -> &'static str {
        match (self.tries.last().map(|last| &last.end), self.plans.first()) {
            (Some(End::Done), Some(plan))
                if plan.fate == Fate::Run || self.tries.last().map(|t| t.plan) == Some(plan.plan) =>
            {
                "ran"
            }
            (Some(End::Failed(_)), _) => "failed",
            (Some(End::Unknown), _) => "unknown",
            (Some(End::Waits), _) if self.status != "done" => "waiting",
            (Some(End::Waits), _) => "ran",
            (Some(End::Reused), _) => "reused",
            (Some(End::Lost | End::Unsaid), _) => "started",
            (_, Some(Decided { fate: Fate::Reused, .. })) => "reused",
            (_, Some(Decided { fate: Fate::Skipped, .. })) => "skipped",
            (Some(End::Done), _) => "ran",
            (None, _) if self.status == "done" => "ran",
            (None, _) => "not started",
        }
    }

    fn why(&self) -> String {
        let Some(plan) = self.plans.first() else { return String::from("the reasons of so old a plan are not kept") };
        let about = if plan.of == self.step { String::new() } else { format!(" ({})", plan.of) };
        format!("{}{about}", told(plan))
    }

    fn to_text(&self, printer: &Printer) -> String {
        let plan = self.plans.first().map_or(0, |plan| plan.plan);
        let mut text = format!("{}  {} (plan {plan})\n", printer.ink(Ink::Bold, &self.step), self.fate());
        text.push_str(&format!("why     {}\n", self.why()));
        let skipped = self.tries.len().saturating_sub(TRIES_MAX);
        for one in self.tries.iter().skip(skipped) {
            let took = one.until.map_or(String::new(), |until| format!(" ({})", words::duration(until - one.from)));
            let how = match &one.end {
                End::Done => String::from("done"),
                End::Reused => String::from("found among what was kept"),
                End::Failed(causes) => format!("failed: {}", causes.first().map_or("", String::as_str)),
                End::Unknown => String::from("whether it took effect is not known"),
                End::Waits => String::from("waited for an event"),
                End::Lost => String::from("another worker took it over"),
                End::Unsaid => String::from("has not said how it ended"),
            };
            let because = one.because.as_ref().map_or(String::new(), |because| format!(", {because}"));
            text.push_str(&format!("try     plan {}, attempt {}{because}: {how}{took}\n", one.plan, one.attempt));
        }
        for plan in self.plans.iter().skip(1) {
            text.push_str(&format!("before  plan {}: {}, {}\n", plan.plan, fate(plan.fate), told(plan)));
        }
        text
    }

    fn to_json(&self, run: &Summary) -> Value {
        let plan = |plan: &Decided| {
            let (reason, of, from, to) = parts(plan);
            json!({
                "plan": plan.plan, "step": plan.of, "fate": fate(plan.fate), "reason": reason, "of": of, "from": from,
                "to": to, "text": told(plan),
            })
        };
        let one = |one: &Try| {
            let (end, causes) = match &one.end {
                End::Done => ("done", None),
                End::Reused => ("reused", None),
                End::Failed(causes) => ("failed", Some(causes)),
                End::Unknown => ("unknown", None),
                End::Waits => ("waits", None),
                End::Lost => ("lost", None),
                End::Unsaid => ("unsaid", None),
            };
            json!({
                "plan": one.plan, "attempt": one.attempt, "started_ms": one.from, "ended_ms": one.until, "end": end,
                "causes": causes, "because": one.because,
            })
        };
        json!({
            "key": run.key, "id": run.id.to_string(), "step": self.step, "fate": self.fate(), "why": self.why(),
            "plans": self.plans.iter().map(plan).collect::<Vec<_>>(),
            "tries": self.tries.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Run => "run",
        Fate::Reused => "reuse",
        Fate::Skipped => "skip",
    }
}

/// The reason as data: what kind, of what, from what to what.
fn parts(plan: &Decided) -> (&'static str, Option<String>, Option<&str>, Option<&str>) {
    match &plan.reason {
        None => ("first", None, None, None),
        Some(Reason::New) => ("new", None, None, None),
        Some(Reason::NoValue) => ("no-value", None, None, None),
        Some(Reason::CodeChanged { from, to }) => ("code-changed", None, Some(from), Some(to)),
        Some(Reason::InputChanged { port }) => ("input-changed", Some(words::port(port)), None, None),
        Some(Reason::SourceReruns { address }) => ("source-reruns", Some(words::step(address)), None, None),
        Some(Reason::Kept) => ("kept", None, None, None),
        Some(Reason::NotNeeded) => ("not-needed", None, None, None),
    }
}

/// The reason for people.
fn told(plan: &Decided) -> String {
    match &plan.reason {
        None => String::from("it ran for the first time: nothing was known of it"),
        Some(Reason::New) => String::from("there was no such step before"),
        Some(Reason::NoValue) => String::from("what it gave before was not kept, or was never given"),
        Some(Reason::CodeChanged { from, to }) => format!("its code changed, from {} to {}", code(from), code(to)),
        Some(Reason::InputChanged { port }) => format!("its input {} changed", words::port(port)),
        Some(Reason::SourceReruns { address }) => format!("{}, which it reads from, ran again", words::step(address)),
        Some(Reason::Kept) => String::from("its code and its inputs are what they were, and what it gave is kept"),
        Some(Reason::NotNeeded) => String::from("nothing that ran, and nothing that was asked for, needs it"),
    }
}

/// A version as people can compare it.
fn code(version: &str) -> String {
    format!("`{}`", crate::picture::style::short(version, 25))
}

/// What a plan decided about a step, or about the nearest one around it.
fn decided(plan: &Reasons, step: &str) -> Option<Decided> {
    let around =
        |address: &str| steps::is(address, step) || steps::is_within(&format!("/{step}"), &words::step(address));
    let all = plan.lines.iter().filter(|(address, ..)| around(address));
    // A step and its guards have one name: what runs, and says most, is it.
    let rank = |(address, fate, reason): &&(String, Fate, Reason)| {
        let says = !matches!(reason, Reason::NoValue | Reason::Kept | Reason::NotNeeded | Reason::SourceReruns { .. });
        (words::step(address).len(), *fate == Fate::Run, says, !words::is_helper(address))
    };
    let (address, fate, reason) = all.max_by_key(rank)?;
    Some(Decided { plan: plan.generation, of: words::step(address), fate: *fate, reason: Some(reason.clone()) })
}

/// All tries at a step, in order.
fn tries(step: &str, events: &[Seen]) -> Vec<Try> {
    let mut found: Vec<Try> = Vec::new();
    let is_it = |address: &str| !words::is_helper(address) && steps::is(address, step);
    for event in events.iter().filter(|event| event.address.as_deref().is_some_and(is_it)) {
        let begins = |attempt: u32, end: End, because: Option<String>| Try {
            plan: event.plan,
            attempt,
            from: event.t,
            until: (end != End::Unsaid).then_some(event.t),
            end,
            because,
        };
        let end = match &event.what {
            What::WillRun { attempt, .. } => {
                let because = found.last().and_then(|last| again(last, event.plan, *attempt));
                found.push(begins(*attempt, End::Unsaid, because));
                continue;
            }
            What::DidCommit { .. } => End::Done,
            What::DidReuse { .. } => End::Reused,
            What::DidFail(failed) => End::Failed(failed.causes.clone()),
            What::DidLoseTrack { .. } => End::Unknown,
            What::WillWait { .. } => End::Waits,
            What::DidLose { .. } => End::Lost,
            _ => continue,
        };
        match found.last_mut() {
            Some(last) if last.end == End::Unsaid && last.plan == event.plan => {
                (last.until, last.end) = (Some(event.t.max(last.from)), end);
            }
            _ => found.push(begins(1, end, None)),
        }
    }
    found
}

/// Why a step was tried again under the same plan.
fn again(last: &Try, plan: u32, attempt: u32) -> Option<String> {
    if last.plan != plan {
        return None;
    }
    match &last.end {
        End::Failed(_) if attempt > last.attempt => Some(format!("because attempt {} failed", last.attempt)),
        End::Failed(_) => Some(format!("because the run was tried again after attempt {} failed", last.attempt)),
        End::Unsaid | End::Lost => Some(String::from("because whoever ran it was gone")),
        End::Unknown => Some(String::from("because somebody said that it did not take effect")),
        End::Done | End::Reused | End::Waits => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_a_step_of_the_outline() {
        assert!(is_element("/align[*]/sort", "align[3]/sort") && is_element("/x@*/run", "/x@12/run"));
        assert!(!is_element("/align[*]/sort", "align/sort") && !is_element("/align", "align"));
    }

    #[test]
    fn every_try_after_the_first_has_its_reason() {
        let event = |t: u64, plan: u32, what: What| Seen { t, plan, address: Some(String::from("/a")), what };
        let run = |attempt| What::WillRun { address: "/a".into(), attempt };
        let failed = |attempt| {
            What::DidFail(onceflow_core::protocol::rows::Failed {
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
            event(7, 0, What::DidCommit { address: "/a".into() }),
            event(8, 1, run(1)),
        ];
        let tries = tries("a", &events);
        let because: Vec<_> = tries.iter().map(|one| one.because.as_deref().unwrap_or("-")).collect();
        assert_eq!(
            because,
            [
                "-",
                "because attempt 1 failed",
                "because the run was tried again after attempt 2 failed",
                "because whoever ran it was gone",
                "-"
            ]
        );
        assert_eq!(tries.iter().map(|one| one.until.is_some()).collect::<Vec<_>>(), [true, true, false, true, false]);
    }
}
