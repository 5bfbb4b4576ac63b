//! `onceflow why RUN STEP`: prints why a step ran, or did not: what was different when the run was planned, and what
//! happened at each attempt. The first is stored with the run; the second is in its event log.

mod tries;

use crate::{
    args,
    event_log::{reported_fate, reported_json, reported_text},
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    pending::{self, PendingStep},
    printer::{Ink, Printer},
    runs,
    session::Session,
    steps,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::{
    plan::{Fate, Reason},
    protocol::rows::Failed,
};
use onceflow_engine::{EachProgress, Engine, PLANS_MAX, Reasons, RunStatus, Summary};
use serde_json::{Value, json};
use tries::{End, Inside, Seen, Try, events, is_undone, tries};

/// The most attempts that are shown.
const TRIES_MAX: usize = 20;

/// Prints why.
pub(crate) async fn run(args: &args::Why, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    let handle = engine.find(&run.key).await?;
    let reasons = handle.history().reasons().await?;
    let outline = handle.steps().outline().await?.unwrap_or_default();
    let stands = Stands::of(&engine, &run, &args.step).await?;
    let events = events(&handle).await?;
    engine.stop();
    session.close().await?;
    let mut known = steps::Known::of(&outline);
    reasons.iter().flat_map(|plan| &plan.lines).for_each(|(address, ..)| known.add(address));
    run.failures.iter().for_each(|failed| known.add(&failed.address));
    for event in &events {
        event.address.iter().for_each(|address| known.heard(address, event.what.as_ref()));
    }
    known.must_be(&run.key, &args.step)?;
    let answer = Answer::of(&run, args.step.trim_start_matches('/'), &reasons, &events, stands);
    match printer.json {
        true => printer.pretty(&answer.to_json(&run)),
        false => printer.text(answer.to_text(printer)),
    }
    let key = shell_word(&run.key);
    let must = answer.stands.waits.as_ref().and_then(|waits| pending::next(&run.key, std::slice::from_ref(waits)));
    printer.next(match answer.tries.last() {
        _ if must.is_some() => must.unwrap_or_default(),
        Some(Try { end: End::Failed(_), .. }) => format!("onceflow logs {key} {}", shell_word(&answer.step)),
        _ => format!("onceflow show {key}"),
    });
    Ok(Exit::Done)
}

/// The state of the step in the store, which takes precedence over the event log.
struct Stands {
    /// Its pending step, if an operator must report an outcome or send an event.
    waits: Option<PendingStep>,
    /// Pending steps of the run beside it.
    others: Vec<PendingStep>,
    /// The step is still to be undone.
    is_to_undo: bool,
    /// The failure of the step's undo.
    not_undone: Option<Failed>,
    /// The step is an each that has begun and not ended.
    unfinished: Option<EachProgress>,
    /// No process works on the run.
    is_alone: bool,
    /// A step inside it failed.
    has_failed: bool,
}

impl Stands {
    async fn of(engine: &Engine, run: &Summary, step: &str) -> Result<Self, Fault> {
        let handle = engine.find(&run.key).await?;
        let is_alone = run.status.is_at_rest() || run.status.is_interrupted();
        let undos = match run.status {
            RunStatus::Undoing | RunStatus::UndoInterrupted | RunStatus::Cancelling | RunStatus::NotUndone => {
                handle.steps().pending_undos().await?
            }
            _ => vec![],
        };
        let waits = runs::pending(engine, run).await?.into_iter();
        let (waits, others): (Vec<_>, Vec<_>) = waits.partition(|waits| steps::is(&waits.step.address, step));
        Ok(Stands {
            waits: waits.into_iter().next(),
            others,
            is_to_undo: undos.iter().any(|address| steps::is(address, step)),
            not_undone: run.not_undone.iter().find(|failed| steps::is(&failed.address, step)).cloned(),
            unfinished: handle.steps().each_progress().await?.into_iter().find(|each| steps::is(&each.address, step)),
            is_alone,
            has_failed: run.failures.iter().any(|failed| steps::is_within(&failed.address, step)),
        })
    }

    /// An operator must report the outcome.
    fn is_undecided(&self) -> bool {
        self.waits.is_some()
    }
}

/// The decision of a plan.
struct Decided {
    plan: u32,
    /// The step the decision is about: itself, or the nearest one around it.
    of: String,
    fate: Fate,
    reason: Option<Reason>,
    /// The plan is the first of a run that had nothing to reuse.
    is_first: bool,
}

struct Answer {
    step: String,
    /// Decisions, the latest plan first.
    plans: Vec<Decided>,
    tries: Vec<Try>,
    is_undone: bool,
    /// The steps inside it, if events were seen of any.
    inside: Option<Inside>,
    stands: Stands,
    status: RunStatus,
    /// Steps that failed: the first few.
    failed: Vec<String>,
}

impl Answer {
    fn of(run: &Summary, step: &str, reasons: &[Reasons], events: &[Seen], stands: Stands) -> Self {
        let mut plans: Vec<_> = reasons.iter().rev().filter_map(|plan| decided(plan, step)).collect();
        // The first plan of a run without earlier values has no reasons: everything ran for the first time.
        if reasons.iter().all(|plan| plan.generation > 0) && run.generation < PLANS_MAX {
            plans.push(Decided { plan: 0, of: step.to_owned(), fate: Fate::Run, reason: None, is_first: true });
        }
        let (tries, is_undone) = (tries(step, events), is_undone(step, events));
        // The step ran under a plan whose reasons do not name it: there was no room for all of them.
        if let Some(last) = tries.last().filter(|last| plans.first().is_none_or(|plan| plan.plan < last.plan)) {
            let untold =
                Decided { plan: last.plan, of: step.to_owned(), fate: Fate::Run, reason: None, is_first: false };
            plans.insert(0, untold);
        }
        let inside = Inside::of(step, events);
        let failed = run.failures.iter().map(|failed| words::step(&failed.address)).collect();
        Answer { step: step.to_owned(), plans, tries, is_undone, inside, stands, status: run.status, failed }
    }

    /// Returns its fate, in a word.
    fn fate(&self) -> &'static str {
        match self.undo() {
            Some(Undo::Done) => "undone",
            Some(Undo::Failed(_)) => "not-undone",
            Some(Undo::ToCome) | None => self.came_to(),
        }
    }

    /// Returns the outcome of its last attempt, even if it was undone later.
    fn came_to(&self) -> &'static str {
        let is_done = self.status == RunStatus::Done;
        let last = self.tries.last();
        let is_before = |last: &&Try| self.plans.first().is_some_and(|plan| last.plan < plan.plan);
        if let Some(said) = last.filter(|last| !is_before(last)).and_then(|last| last.said.as_ref()) {
            return reported_fate(said);
        }
        // The process was killed before the event log had the attempt; the store has it.
        if let (None, Some(waits)) = (last, &self.stands.waits) {
            return if waits.event().is_some() { "waiting" } else { "unknown" };
        }
        match (last.map(|last| &last.end), self.plans.first()) {
            (Some(End::Done), Some(plan))
                if plan.fate == Fate::Run || self.tries.last().map(|t| t.plan) == Some(plan.plan) =>
            {
                "ran"
            }
            (Some(End::Unknown | End::Waits), Some(Decided { fate: Fate::Reused, .. }))
                if last.is_some_and(|last| is_before(&last)) =>
            {
                "reused"
            }
            (Some(End::Failed(_) | End::Unknown | End::Waits), Some(Decided { fate: Fate::Run, .. }))
                if last.is_some_and(|last| is_before(&last)) && !self.stands.is_undecided() && !is_done =>
            {
                "not started"
            }
            (Some(End::Failed(_)), _) => "failed",
            (Some(End::Unknown), _) if self.stands.is_undecided() || self.has_stopped() => "unknown",
            (Some(End::Unknown), _) => "resolved",
            (Some(End::Waits), _) if self.stands.is_undecided() => "waiting",
            // No event was sent, and none will be.
            (Some(End::Waits), _) if self.has_stopped() => "not started",
            (Some(End::Waits), _) => "ran",
            (Some(End::Reused), _) => "reused",
            (Some(End::Unsaid), _) if self.stands.is_alone && self.stands.is_undecided() => "unknown",
            (Some(End::Unsaid), _) if self.stands.is_alone => "interrupted",
            (Some(End::Lost | End::Unsaid), _) => "started",
            (_, Some(Decided { fate: Fate::Reused, .. })) => "reused",
            (_, Some(Decided { fate: Fate::Skipped, .. })) => "skipped",
            (Some(End::Done), _) => "ran",
            (None, _) if is_done => "ran",
            // A step with others inside is attempted by attempting those.
            (None, _) if self.stands.has_failed => "failed",
            (None, _) if self.stands.unfinished.is_some() => "started",
            (None, _) => match self.inside {
                Some(Inside { is_each: true }) => "ran",
                Some(Inside { is_each: false }) => "started",
                None => "not started",
            },
        }
    }

    /// The run ends, or has ended, without its outputs: an outcome that is not reported by then never will be.
    fn has_stopped(&self) -> bool {
        use RunStatus::{Cancelled, Cancelling, Removing, Undoing, Undone};
        matches!(self.status, Cancelling | Undoing | Removing | Undone | Cancelled)
    }

    fn undo(&self) -> Option<Undo<'_>> {
        match &self.stands.not_undone {
            Some(failed) => Some(Undo::Failed(failed)),
            None if self.is_undone => Some(Undo::Done),
            None => self.stands.is_to_undo.then_some(Undo::ToCome),
        }
    }

    /// Describes its fate, for people.
    fn headline(&self) -> String {
        let came_to = match self.came_to() {
            "resolved" => "resolved by hand, as done",
            word => word,
        };
        let then = match self.undo() {
            Some(Undo::Done) => ", then undone",
            Some(Undo::Failed(_)) => ", and could not be undone",
            Some(Undo::ToCome) => ", and will be undone",
            None => "",
        };
        format!("{came_to}{then}")
    }

    fn why(&self) -> String {
        let Some(plan) = self.plans.first() else { return String::from("the reasons of so old a plan are not kept") };
        let about = if plan.of == self.step { String::new() } else { format!(" ({})", plan.of) };
        let reason = format!("{}{about}", told(plan, self.has_run(plan)));
        match self.came_to() {
            "not started" => match self.held_up() {
                Some(why) => format!("it has not run: {why}"),
                None if self.stands.is_alone => format!("it runs when the run goes on: {reason}"),
                None => format!("it has not run yet, and will: {reason}"),
            },
            "interrupted" => format!("it runs again when the run goes on: {reason}"),
            "waiting" => match self.stands.waits.as_ref().and_then(PendingStep::event) {
                Some(event) => format!("it waits for `{event}`"),
                None => reason,
            },
            _ => reason,
        }
    }

    /// The log has a try under this plan.
    fn has_run(&self, plan: &Decided) -> bool {
        let is_tried = |one: &Try| one.plan == plan.plan && one.end != End::Waits;
        let is_last = self.plans.first().is_some_and(|first| first.plan == plan.plan);
        self.tries.iter().any(is_tried) || is_last && !matches!(self.came_to(), "not started" | "waiting")
    }

    /// The reason why it does not run, if there is one.
    fn held_up(&self) -> Option<String> {
        let failed = |then: &str| match self.failed.is_empty() {
            true => format!("the run failed first{then}"),
            false => format!("the run failed first, at {}{then}", self.failed.join(", ")),
        };
        let unknown = pending::unknown(&self.stands.others);
        let unknown: Vec<_> = unknown.iter().map(|address| words::step(address)).collect();
        let events: Vec<_> = pending::events(&self.stands.others).into_iter().map(|(_, event)| event).collect();
        match self.status {
            RunStatus::Failed | RunStatus::Failing => Some(failed("")),
            RunStatus::Waiting if !self.failed.is_empty() => Some(failed("")),
            RunStatus::Undone => Some(failed(", and was undone")),
            RunStatus::Cancelled | RunStatus::Cancelling => Some(String::from("the run was cancelled")),
            RunStatus::NotUndone => Some(failed(", and could not be undone")),
            RunStatus::Undoing | RunStatus::UndoInterrupted | RunStatus::Removing => {
                Some(String::from("the run is being undone"))
            }
            RunStatus::Waiting if !unknown.is_empty() => {
                Some(format!("the run waits for the outcome of {}", unknown.join(", ")))
            }
            RunStatus::Waiting if !events.is_empty() => Some(format!("the run waits for {}", events.join(", "))),
            RunStatus::Interrupted if !self.failed.is_empty() => Some(failed("")),
            RunStatus::Waiting
            | RunStatus::Running
            | RunStatus::Interrupted
            | RunStatus::Planning
            | RunStatus::Done => None,
        }
    }

    fn to_text(&self, printer: &Printer) -> String {
        let plan = self.plans.first().map_or(0, |plan| plan.plan);
        let mut text = format!("{}  {} (plan {plan})\n", printer.ink(Ink::Bold, &self.step), self.headline());
        text.push_str(&format!("why     {}\n", self.why()));
        if let Some(each) = &self.stands.unfinished {
            text.push_str(&format!("left    {} of {}\n", each.left, words::count(each.elements as usize, "element")));
        }
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
                End::Unsaid if self.stands.is_alone => String::from("interrupted: its worker is gone"),
                End::Unsaid => String::from("has not said how it ended"),
            };
            let because = one.because.as_ref().map_or(String::new(), |because| format!(", {because}"));
            let number = format!("try {}", one.number);
            text.push_str(&format!("{number:<7} plan {}, attempt {}{because}: {how}{took}\n", one.plan, one.attempt));
            if let Some(said) = &one.said {
                text.push_str(&format!("said    {}\n", reported_text(said)));
            }
        }
        match self.undo() {
            Some(Undo::Done) => text.push_str("undo    done\n"),
            Some(Undo::ToCome) => text.push_str("undo    to come: the run is being undone\n"),
            Some(Undo::Failed(failed)) => {
                let why = failed.causes.first().map_or("", String::as_str);
                let tries = words::count(failed.attempt as usize, "attempt");
                text.push_str(&format!("undo    failed after {tries}: {why}\n"));
            }
            None => {}
        }
        for plan in self.plans.iter().skip(1) {
            text.push_str(&format!(
                "before  plan {}: {}, {}\n",
                plan.plan,
                fate(plan.fate),
                told(plan, self.has_run(plan))
            ));
        }
        text
    }

    fn to_json(&self, run: &Summary) -> Value {
        let plan = |plan: &Decided| {
            let (reason, of, from, to) = parts(plan);
            json!({
                "plan": plan.plan, "step": plan.of, "fate": fate(plan.fate), "reason": reason, "of": of, "from": from,
                "to": to, "text": told(plan, self.has_run(plan)),
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
                "number": one.number, "plan": one.plan, "attempt": one.attempt, "started_ms": one.from,
                "ended_ms": one.until, "end": end, "causes": causes, "because": one.because,
                "said": one.said.as_ref().map(reported_json),
            })
        };
        json!({
            "key": run.key, "id": run.id.to_string(), "step": self.step, "fate": self.fate(), "why": self.why(),
            "plans": self.plans.iter().map(plan).collect::<Vec<_>>(),
            "tries": self.tries.iter().map(one).collect::<Vec<_>>(),
            "elements": self.stands.unfinished.as_ref().map(|each| each.elements),
            "left": self.stands.unfinished.as_ref().map(|each| each.left),
            "undo": self.undo().map(|undo| undo.to_json()),
        })
    }
}

/// The outcome of its compensation.
enum Undo<'a> {
    Done,
    ToCome,
    Failed(&'a Failed),
}

impl Undo<'_> {
    fn to_json(&self) -> Value {
        match self {
            Undo::Done => json!({"end": "done"}),
            Undo::ToCome => json!({"end": "to-come"}),
            Undo::Failed(failed) => json!({"end": "failed", "attempts": failed.attempt, "causes": failed.causes}),
        }
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Run => "run",
        Fate::Reused => "reuse",
        Fate::Skipped => "skip",
    }
}

/// Returns the parts of a reason as data: its kind, its subject, the old and the new value.
fn parts(plan: &Decided) -> (&'static str, Option<String>, Option<&str>, Option<&str>) {
    match &plan.reason {
        None if plan.is_first => ("first", None, None, None),
        None => ("not-kept", None, None, None),
        Some(Reason::New) => ("new", None, None, None),
        Some(Reason::NoValue) => ("no-value", None, None, None),
        Some(Reason::CodeChanged { from, to }) => ("code-changed", None, Some(from), Some(to)),
        Some(Reason::InputChanged { port }) => ("input-changed", Some(words::port(port)), None, None),
        Some(Reason::SourceReruns { address }) => ("source-reruns", Some(words::step(address)), None, None),
        Some(Reason::Kept) => ("kept", None, None, None),
        Some(Reason::NotNeeded) => ("not-needed", None, None, None),
        Some(Reason::Damaged) => ("damaged", None, None, None),
    }
}

/// Describes a reason for people; `has_run` says whether the step has run under the plan, or is still to.
fn told(plan: &Decided, has_run: bool) -> String {
    match &plan.reason {
        None if !plan.is_first => {
            String::from("why is not known any more: the plan has too many steps to keep all reasons")
        }
        None if has_run => String::from("it ran for the first time: nothing was known of it"),
        None => String::from("nothing was known of it"),
        Some(Reason::New) => String::from("there was no such step before"),
        Some(Reason::NoValue) => String::from("what it gave before was not kept, or was never given"),
        Some(Reason::CodeChanged { from, to }) => format!("its code changed, from {} to {}", code(from), code(to)),
        Some(Reason::InputChanged { port }) => format!("its input {} changed", words::port(port)),
        Some(Reason::SourceReruns { address }) => {
            let runs = if has_run { "ran" } else { "runs" };
            format!("{}, which it reads from, {runs} again", words::step(address))
        }
        Some(Reason::Kept) => String::from("its code and its inputs are what they were, and what it gave is kept"),
        Some(Reason::Damaged) => String::from("what it gave before was damaged in the store"),
        Some(Reason::NotNeeded) => String::from("nothing that ran, and nothing that was asked for, needs it"),
    }
}

/// Shortens a version to a length that people can compare.
fn code(version: &str) -> String {
    format!("`{}`", crate::picture::style::short(version, 25))
}

/// The decision of a plan for a step, or for the nearest one around it.
fn decided(plan: &Reasons, step: &str) -> Option<Decided> {
    let around =
        |address: &str| steps::is(address, step) || steps::is_within(&format!("/{step}"), &words::step(address));
    let all = plan.lines.iter().filter(|(address, ..)| around(address));
    // A step and its guards have one name: the one that runs, and whose reason says most, stands for all.
    let rank = |(address, fate, reason): &&(String, Fate, Reason)| {
        let says = !matches!(reason, Reason::NoValue | Reason::Kept | Reason::NotNeeded | Reason::SourceReruns { .. });
        (words::step(address).len(), *fate == Fate::Run, says, !words::is_helper(address))
    };
    let (address, fate, reason) = all.max_by_key(rank)?;
    Some(Decided {
        plan: plan.generation,
        of: words::step(address),
        fate: *fate,
        reason: Some(reason.clone()),
        is_first: false,
    })
}
