//! Prints the plan of a start: a tree of steps, each with its fate and why.

use crate::{
    printer::{Ink, Printer},
    words,
};
use onceflow_core::plan::{Explanation, Fate, Reason};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most steps that are named in the short form.
const NAMED_MAX: usize = 6;

/// The most steps below one step that are shown, unless all are asked for.
const BELOW_MAX: usize = 8;

/// The reason why a step that was started and must not start twice does not simply run.
const NOT_KNOWN: &str = "it was started, and whether it took effect is not known";

/// The number of steps by fate. A step that has others inside counts as those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) run: usize,
    pub(crate) reuse: usize,
    pub(crate) skip: usize,
    /// Steps that were started and whose outcome is not known.
    pub(crate) unknown: usize,
    /// More steps may run: the number of steps in a loop, or in an each that has not begun, is only known when it runs.
    pub(crate) or_more: bool,
}

/// Elements of eaches by the name of the step: those left to run, and all.
pub(crate) type Eaches = BTreeMap<String, (usize, usize)>;

/// Facts about a run that its plan does not decide.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) eaches: Eaches,
    /// The names of steps that were started and whose outcome is not known: they do not simply run.
    pub(crate) unknown: BTreeSet<String>,
}

impl Known {
    /// Returns the steps with an unknown outcome among this step and those inside it.
    fn unknown_of(&self, step: &str) -> Vec<&String> {
        self.unknown.iter().filter(|name| *name == step || is_below(name, step)).collect()
    }

    /// Returns how many runs are left of a step that is not done; of an each, how many elements.
    fn left(&self, step: &str) -> usize {
        let all = self.eaches.get(step).map_or(1, |(left, _)| *left);
        all.saturating_sub(self.unknown_of(step).len())
    }

    /// Describes an each that is resumed, with how many of its elements run.
    fn elements_of(&self, step: &str) -> Option<String> {
        let (_, all) = self.eaches.get(step)?;
        Some(of_elements(step, (self.left(step), *all)))
    }
}

impl Counts {
    /// Counts the steps of a plan. An each that is resumed counts as its elements.
    pub(crate) fn of(explanation: &Explanation, known: &Known) -> Self {
        let mut counts = Counts::default();
        for step in steps(explanation).iter().filter(|step| step.is_leaf) {
            match (step.fate, known.eaches.get(&step.name)) {
                (Fate::Run, each) => {
                    counts.or_more |= step.is_open && each.is_none();
                    let (left, all) = each.copied().unwrap_or((1, 1));
                    let run = known.left(&step.name);
                    counts.run += run;
                    counts.unknown += left - run;
                    counts.reuse += all - left;
                }
                (Fate::Reused, _) => counts.reuse += 1,
                (Fate::Skipped, _) => counts.skip += 1,
            }
        }
        counts
    }

    fn all(self) -> usize {
        self.run + self.reuse + self.skip + self.unknown
    }
}

/// A step and its position in the tree.
struct Step<'a> {
    name: String,
    fate: Fate,
    /// The reason for its fate; of an element, the change of the list.
    reason: &'a Reason,
    depth: usize,
    /// The step has none below it.
    is_leaf: bool,
    /// The number of steps it stands for is only known when it runs.
    is_open: bool,
}

fn steps(explanation: &Explanation) -> Vec<Step<'_>> {
    let mut steps = named(explanation);
    let mut above: Vec<usize> = Vec::new();
    for at in 0..steps.len() {
        while above.last().is_some_and(|above| !is_below(&steps[at].name, &steps[*above].name)) {
            above.pop();
        }
        let changed = |reason: &Reason| matches!(reason, Reason::InputChanged { .. } | Reason::CodeChanged { .. });
        let around = above.iter().rev().map(|above| steps[*above].reason).find(|reason| changed(reason));
        if let (Reason::NoValue, Some(reason)) = (steps[at].reason, around) {
            steps[at].reason = reason;
        }
        steps[at].depth = above.len();
        if let Some(around) = above.last() {
            steps[*around].is_leaf = false;
        }
        above.push(at);
    }
    steps
}

/// Returns the steps by the names that users know. A helper that computes something for a step counts as that step; one
/// that computes outputs is left out.
fn named(explanation: &Explanation) -> Vec<Step<'_>> {
    let of_people = explanation.lines.iter().filter(|line| !words::is_helper(&line.address));
    let known: BTreeSet<_> = of_people.map(|line| words::step(&line.address)).collect();
    let (mut steps, mut at) = (Vec::new(), BTreeMap::new());
    for line in &explanation.lines {
        let name = words::step(&line.address);
        if !known.contains(&name) {
            continue;
        }
        let step = *at.entry(name.clone()).or_insert(steps.len());
        match steps.get_mut(step) {
            None => {
                let is_open = line.is_open;
                steps.push(Step { name, fate: line.fate, reason: &line.reason, depth: 0, is_leaf: true, is_open });
            }
            Some(step) if (rank(line.fate), weight(&line.reason)) > (rank(step.fate), weight(step.reason)) => {
                (step.fate, step.reason) = (line.fate, &line.reason);
                step.is_open |= line.is_open;
            }
            Some(step) => step.is_open |= line.is_open,
        }
    }
    steps
}

/// Ranks the fates of one step's parts: the highest one is the step's.
pub(crate) fn rank(fate: Fate) -> u8 {
    match fate {
        Fate::Run => 2,
        Fate::Reused => 1,
        Fate::Skipped => 0,
    }
}

/// Ranks the reasons why a step runs: the highest one says most.
fn weight(reason: &Reason) -> u8 {
    match reason {
        Reason::InputChanged { .. } | Reason::CodeChanged { .. } | Reason::New | Reason::Damaged => 2,
        Reason::NoValue => 1,
        Reason::SourceReruns { .. } | Reason::Kept | Reason::NotNeeded => 0,
    }
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with(['/', '[', '@']))
}

/// Returns one line: the steps to resolve, the steps that run, and why.
pub(crate) fn short(explanation: &Explanation, known: &Known) -> String {
    let counts = Counts::of(explanation, known);
    let first = match (known.unknown.is_empty(), counts.run) {
        (true, 0) => return String::from("nothing to run"),
        (true, _) => String::new(),
        (false, _) => {
            let unknown: Vec<_> = known.unknown.iter().cloned().collect();
            format!("{} must be resolved first: {NOT_KNOWN}", some_of(&unknown))
        }
    };
    if counts.run == 0 {
        return first;
    }
    let then = if first.is_empty() { "" } else { "; " };
    let of = words::count(counts.all(), "step");
    let at_least = if counts.or_more { "at least " } else { "" };
    format!("{first}{then}{at_least}{} of {of} will run: {}", counts.run, named_runs(explanation, known))
}

/// Returns the steps that run, each with why.
fn named_runs(explanation: &Explanation, known: &Known) -> String {
    let all = steps(explanation);
    let is_run = |step: &&Step<'_>| step.is_leaf && step.fate == Fate::Run && known.left(&step.name) > 0;
    let runs: Vec<_> = all.iter().filter(is_run).collect();
    let one = |step: &Step<'_>| {
        let name = known.elements_of(&step.name).unwrap_or_else(|| step.name.clone());
        format!("{name} ({})", words::reason(step.reason))
    };
    let named: Vec<_> = match runs.len() > NAMED_MAX {
        false => runs.iter().map(|step| one(step)).collect(),
        true => {
            let each = |step: &Step<'_>| step.name.find('[').map(|at| step.name[..at].to_owned());
            let same = |a: &&Step<'_>, b: &&Step<'_>| each(a).is_some() && each(a) == each(b);
            let told = |some: &[&Step<'_>]| match each(some[0]) {
                Some(name) if some.len() > 1 => {
                    let known = (elements(some.iter().copied(), &name), elements(all.iter(), &name));
                    format!("{} ({})", of_elements(&name, known), words::reason(some[0].reason))
                }
                _ => one(some[0]),
            };
            runs.chunk_by(same).map(told).collect()
        }
    };
    some_of(&named)
}

/// Joins the first few names, and says how many more there are.
fn some_of(named: &[String]) -> String {
    let more = named.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{}{more}", named[..named.len().min(NAMED_MAX)].join(", "))
}

fn of_elements(name: &str, (left, all): (usize, usize)) -> String {
    format!("{name}: {left} of {}", words::count(all, "element"))
}

/// Returns the number of distinct elements of an each among these steps.
fn elements<'a, 'b: 'a>(steps: impl Iterator<Item = &'a Step<'b>>, each: &str) -> usize {
    let number = |step: &Step<'_>| {
        let rest = step.name.strip_prefix(each)?.strip_prefix('[')?;
        rest[..rest.find(']')?].parse::<u64>().ok()
    };
    steps.filter_map(number).collect::<BTreeSet<_>>().len()
}

/// Returns a tree with counts at the end. Of many steps inside one, only those that run are shown, unless `all`.
pub(crate) fn tree(printer: &Printer, explanation: &Explanation, known: &Known, all: bool) -> String {
    let mut text = String::new();
    let steps = steps(explanation);
    let mut rest = &steps[..];
    while let Some((top, below)) = rest.split_first() {
        let inside = below.iter().position(|step| step.depth == 0).unwrap_or(below.len());
        let (inside, after) = below.split_at(inside);
        rest = after;
        text.push_str(&told(printer, top, known));
        let each = known.eaches.get(&top.name);
        if let (true, true, Fate::Reused, Some((_, n))) = (all, inside.is_empty(), top.fate, each) {
            for index in 0..*n {
                let name = format!("{}[{index}]", top.name);
                text.push_str(&told(printer, &Step { name, depth: top.depth + 1, ..*top }, known));
            }
        }
        let few = all || inside.len() <= BELOW_MAX;
        let shown: Vec<_> = match few {
            true => inside.iter().collect(),
            false => inside.iter().filter(|step| step.fate == Fate::Run).take(BELOW_MAX).collect(),
        };
        shown.iter().for_each(|step| text.push_str(&told(printer, step, known)));
        if shown.len() < inside.len() {
            text.push_str(&format!("         … and {} more (--all shows them)\n", inside.len() - shown.len()));
        }
    }
    let Counts { run, reuse, skip, unknown, or_more } = Counts::of(explanation, known);
    let or_more = if or_more { " or more" } else { "" };
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} to resolve") };
    text.push_str(&format!("{run}{or_more} to run, {reuse} reused, {skip} skipped{unknown}\n"));
    text
}

fn told(printer: &Printer, step: &Step<'_>, known: &Known) -> String {
    let indent = |deeper: usize| "  ".repeat(step.depth + deeper);
    let width = if known.unknown.is_empty() { "reuse".len() } else { "unknown".len() };
    // A step that is not unfolded lists the unknown steps inside it.
    let inside = if step.is_leaf { known.unknown_of(&step.name) } else { vec![] };
    let not_known = |name: &str| {
        let deeper = usize::from(name != step.name);
        format!("{}  {}{name}  ({NOT_KNOWN})\n", printer.ink(Ink::Red, "unknown"), indent(deeper))
    };
    let not_known: String = inside.into_iter().map(|name| not_known(name)).collect();
    if step.is_leaf && step.fate == Fate::Run && known.left(&step.name) == 0 {
        return not_known;
    }
    let (ink, fate) = match step.fate {
        Fate::Run => (Ink::Yellow, "run"),
        Fate::Reused => (Ink::Green, "reuse"),
        Fate::Skipped => (Ink::Dim, "skip"),
    };
    let name = match step.fate {
        Fate::Run if step.is_leaf => known.elements_of(&step.name),
        _ => None,
    };
    let (name, reason) = (name.unwrap_or_else(|| step.name.clone()), words::reason(step.reason));
    format!("{}  {}{name}  ({reason})\n{not_known}", printer.ink(ink, &format!("{fate:width$}")), indent(0))
}

/// Returns the plan as JSON: the same steps, fates and reasons as in the tree.
pub(crate) fn to_json(key: &str, explanation: &Explanation, known: &Known) -> Value {
    let Counts { run, reuse, skip, unknown, or_more } = Counts::of(explanation, known);
    let told = steps(explanation);
    let mut steps: Vec<_> = told.iter().map(|of| line(of, known)).collect();
    let is_line = |name: &&String| told.iter().any(|step| step.name == **name);
    let inside = known.unknown.iter().filter(|name| !is_line(name));
    steps.extend(inside.map(|name| json!({"step": name, "fate": "unknown", "reason": "started"})));
    json!({
        "key": key, "run": run, "or_more": or_more, "reuse": reuse, "skip": skip, "unknown": unknown, "steps": steps,
    })
}

fn line(step: &Step<'_>, known: &Known) -> Value {
    let fate = match step.fate {
        Fate::Run => "run",
        Fate::Reused => "reuse",
        Fate::Skipped => "skip",
    };
    let (reason, of) = match step.reason {
        Reason::New => ("new", None),
        Reason::NoValue => ("no-value", None),
        Reason::CodeChanged { .. } => ("code-changed", None),
        Reason::InputChanged { port } => ("input-changed", Some(words::port(port))),
        Reason::SourceReruns { address } => ("source-reruns", Some(words::step(address))),
        Reason::Kept => ("kept", None),
        Reason::NotNeeded => ("not-needed", None),
        Reason::Damaged => ("damaged", None),
    };
    let is_unknown = step.fate == Fate::Run && known.unknown.contains(&step.name);
    let (fate, reason) = if is_unknown { ("unknown", "started") } else { (fate, reason) };
    let mut data = json!({"step": step.name, "fate": fate, "reason": reason, "of": of});
    if let Some((left, all)) = known.eaches.get(&step.name) {
        (data["elements"], data["left"]) = (json!(all), json!(left));
    }
    data
}
