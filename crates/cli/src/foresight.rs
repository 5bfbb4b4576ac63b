//! A preview of a run that exists, as people read it: where the run would resume, which steps wait, and notes on changed
//! settings.

use crate::{
    fault::Fault,
    pending::{self, PendingStep},
    plan::{Eaches, Known},
    words,
};
use onceflow_core::plan::{Explanation, Fate, explain::ExplanationLine};
use onceflow_engine::{EachProgress, Engine, Preview, RunStatus, Summary};
use std::collections::BTreeSet;

/// The parts of a preview that its plan does not decide.
#[derive(Default)]
pub(crate) struct Foresight {
    /// Eaches with elements that are left, and steps whose outcome an operator must report.
    pub(crate) known: Known,
    /// Steps that wait for an event, or for an operator to report their outcome.
    pub(crate) waits: Vec<PendingStep>,
    /// Notes to print.
    pub(crate) notes: Vec<String>,
}

impl Foresight {
    /// Reads a preview of `run`. Takes the steps that wait out of the preview.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn of(engine: &Engine, run: &Summary, preview: &mut Preview) -> Result<Self, Fault> {
        if preview.is_same != Some(true) {
            let notes = begun_again(&preview.eaches, &preview.explanation);
            return Ok(Foresight { notes, ..Foresight::default() });
        }
        let (parked, started) = (std::mem::take(&mut preview.undecided), std::mem::take(&mut preview.started));
        let waits = pending::of(engine, parked, started).await?;
        let mut unknown: BTreeSet<_> = pending::unknown(&waits).iter().map(|address| words::step(address)).collect();
        // A failed step that must not start twice may have taken effect: an operator must confirm before it is retried.
        if run.status == RunStatus::Failed {
            let started = run.failures.iter().filter(|failed| failed.started);
            unknown.extend(started.map(|failed| words::step(&failed.address)));
        }
        let known = Known { eaches: preview.eaches.iter().flat_map(left_of).collect(), unknown };
        Ok(Foresight { known, waits, notes: settings(preview) })
    }
}

/// Returns the steps that an each stands for, with how many elements are left: several, where some go through their
/// elements together.
fn left_of(each: &EachProgress) -> Eaches {
    let far = (each.left as usize, each.elements as usize);
    let tasks = each.tasks.iter().flatten().filter_map(|address| Some(address.split_once("[*]")?.0));
    tasks.chain([each.address.as_str()]).map(|address| (words::step(address), far)).collect()
}

/// The most steps that a note names.
const NAMED_MAX: usize = 6;

/// Returns notes on changed settings that the run takes up, and on those that it does not.
fn settings(preview: &Preview) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(names) = named(&preview.taken_up) {
        let what = "`retry`, `timeout`, `resources` or `labels`; steps under way keep what they started with";
        notes.push(format!("note: {names}: the run takes up changed {what}"));
    }
    if let Some(independent) = preview.finish_independent {
        let now = if independent { "finish_independent" } else { "stop" };
        notes.push(format!("note: the run takes up `on_failure: {now}`"));
    }
    if let Some(names) = named(&preview.ignored) {
        let what = "changed in settings of an undo or in `concurrency`, which a run that has begun does not take up";
        notes.push(format!("note: {names}: {what}; `--new` begins anew"));
    }
    notes
}

/// Returns the names of some steps; `None` if there are none.
fn named(addresses: &[String]) -> Option<String> {
    // The settings of a step are those of all its elements and iterations.
    let name = |address: &String| words::step(&address.replace("[*]", "").replace("@*", ""));
    let mut names: Vec<_> = addresses.iter().map(name).collect();
    names.dedup();
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

/// Returns a note for each list in progress that begins anew, though some of its elements are done.
fn begun_again(under_way: &[EachProgress], explanation: &Explanation) -> Vec<String> {
    let is =
        |line: &ExplanationLine, each: &str, fate| line.fate == fate && crate::steps::is_within(&line.address, each);
    let note = |each: &EachProgress| {
        let (name, done) = (words::step(&each.address), each.elements - each.left);
        let any = |fate| explanation.lines.iter().any(|line| is(line, &name, fate));
        let begins_again = done > 0 && any(Fate::Run) && !any(Fate::Reused);
        begins_again.then(|| {
            let of = words::count(each.elements as usize, "element");
            format!(
                "note: {name} begins again with all elements: {done} of {of} were done, and are kept only with `keep`"
            )
        })
    };
    under_way.iter().filter_map(note).collect()
}
