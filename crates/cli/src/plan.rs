//! What a start would do, as people read it: a tree of steps, each with what becomes of it and why.

use crate::{
    printer::{Ink, Printer},
    words,
};
use onceflow_core::plan::{Explanation, Fate, Reason, explain::Line};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Steps that are named in the short form.
const NAMED_MAX: usize = 6;

/// Steps below one step that are shown, unless all are asked for.
const BELOW_MAX: usize = 8;

/// How many steps have each fate. A step that has others inside counts as those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) run: usize,
    pub(crate) reuse: usize,
    pub(crate) skip: usize,
}

/// Of eaches, by the name of the step: how many elements are left to run, and how many there are.
pub(crate) type Eaches = BTreeMap<String, (usize, usize)>;

impl Counts {
    /// An each that goes on counts as its elements.
    pub(crate) fn of(explanation: &Explanation, eaches: &Eaches) -> Self {
        let mut counts = Counts::default();
        for step in steps(explanation).iter().filter(|step| step.is_leaf) {
            match (step.fate, eaches.get(&step.name)) {
                (Fate::Run, Some((left, all))) => {
                    counts.run += left;
                    counts.reuse += all - left;
                }
                (Fate::Run, None) => counts.run += 1,
                (Fate::Reused, _) => counts.reuse += 1,
                (Fate::Skipped, _) => counts.skip += 1,
            }
        }
        counts
    }

    fn all(self) -> usize {
        self.run + self.reuse + self.skip
    }
}

/// A step and where it is in the tree.
struct Step<'a> {
    name: String,
    fate: Fate,
    /// Why: of an element, what changed about the list.
    reason: &'a Reason,
    depth: usize,
    /// Whether there is nothing below it.
    is_leaf: bool,
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

/// The steps as people name them. What computes something for a step is that step; what computes outputs is none.
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
            None => steps.push(Step { name, fate: line.fate, reason: &line.reason, depth: 0, is_leaf: true }),
            Some(step) if (rank(line.fate), weight(&line.reason)) > (rank(step.fate), weight(step.reason)) => {
                (step.fate, step.reason) = (line.fate, &line.reason);
            }
            Some(_) => {}
        }
    }
    steps
}

/// Of two fates of one step, the higher one is the step's.
pub(crate) fn rank(fate: Fate) -> u8 {
    match fate {
        Fate::Run => 2,
        Fate::Reused => 1,
        Fate::Skipped => 0,
    }
}

/// Of two reasons why a step runs, the higher one says more.
fn weight(reason: &Reason) -> u8 {
    match reason {
        Reason::InputChanged { .. } | Reason::CodeChanged { .. } | Reason::New => 2,
        Reason::NoValue => 1,
        Reason::SourceReruns { .. } | Reason::Kept | Reason::NotNeeded => 0,
    }
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with(['/', '[', '@']))
}

/// In one line: what runs, and why.
pub(crate) fn short(explanation: &Explanation, eaches: &Eaches) -> String {
    let counts = Counts::of(explanation, eaches);
    if counts.run == 0 {
        return String::from("nothing to run");
    }
    let all = steps(explanation);
    let runs: Vec<_> = all.iter().filter(|step| step.is_leaf && step.fate == Fate::Run).collect();
    let one = |step: &Step<'_>| {
        let name = eaches.get(&step.name).map_or(step.name.clone(), |known| of_elements(&step.name, *known));
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
    let more = named.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let named = &named[..named.len().min(NAMED_MAX)];
    format!("{} of {} will run: {}{more}", counts.run, words::count(counts.all(), "step"), named.join(", "))
}

fn of_elements(name: &str, (left, all): (usize, usize)) -> String {
    format!("{name}: {left} of {}", words::count(all, "element"))
}

/// How many elements of an each these steps are of.
fn elements<'a, 'b: 'a>(steps: impl Iterator<Item = &'a Step<'b>>, each: &str) -> usize {
    let number = |step: &Step<'_>| {
        let rest = step.name.strip_prefix(each)?.strip_prefix('[')?;
        rest[..rest.find(']')?].parse::<u64>().ok()
    };
    steps.filter_map(number).collect::<BTreeSet<_>>().len()
}

/// As a tree, with counts at the end. Of many steps inside one, those that run are shown, unless all are asked for.
pub(crate) fn tree(printer: &Printer, explanation: &Explanation, eaches: &Eaches, all: bool) -> String {
    let mut text = String::new();
    let steps = steps(explanation);
    let mut rest = &steps[..];
    while let Some((top, below)) = rest.split_first() {
        let inside = below.iter().position(|step| step.depth == 0).unwrap_or(below.len());
        let (inside, after) = below.split_at(inside);
        rest = after;
        text.push_str(&told(printer, top, eaches));
        if let (true, true, Fate::Reused, Some((_, n))) = (all, inside.is_empty(), top.fate, eaches.get(&top.name)) {
            for index in 0..*n {
                let name = format!("{}[{index}]", top.name);
                text.push_str(&told(printer, &Step { name, depth: top.depth + 1, ..*top }, eaches));
            }
        }
        let few = all || inside.len() <= BELOW_MAX;
        let shown: Vec<_> = match few {
            true => inside.iter().collect(),
            false => inside.iter().filter(|step| step.fate == Fate::Run).take(BELOW_MAX).collect(),
        };
        shown.iter().for_each(|step| text.push_str(&told(printer, step, eaches)));
        if shown.len() < inside.len() {
            text.push_str(&format!("         … and {} more (--all shows them)\n", inside.len() - shown.len()));
        }
    }
    let Counts { run, reuse, skip } = Counts::of(explanation, eaches);
    text.push_str(&format!("{run} to run, {reuse} reused, {skip} skipped\n"));
    text
}

fn told(printer: &Printer, step: &Step<'_>, eaches: &Eaches) -> String {
    let (ink, fate) = match step.fate {
        Fate::Run => (Ink::Yellow, "run  "),
        Fate::Reused => (Ink::Green, "reuse"),
        Fate::Skipped => (Ink::Dim, "skip "),
    };
    let (name, reason) = (&step.name, words::reason(step.reason));
    let name = match (step.fate, eaches.get(name)) {
        (Fate::Run, Some(known)) if step.is_leaf => of_elements(name, *known),
        _ => name.clone(),
    };
    format!("{}  {}{name}  ({reason})\n", printer.ink(ink, fate), "  ".repeat(step.depth))
}

/// As data.
pub(crate) fn to_json(key: &str, explanation: &Explanation, eaches: &Eaches) -> Value {
    let Counts { run, reuse, skip } = Counts::of(explanation, eaches);
    let steps: Vec<_> = explanation.lines.iter().map(|of| line(of, eaches)).collect();
    json!({"key": key, "run": run, "reuse": reuse, "skip": skip, "steps": steps})
}

fn line(line: &Line, eaches: &Eaches) -> Value {
    let fate = match line.fate {
        Fate::Run => "run",
        Fate::Reused => "reuse",
        Fate::Skipped => "skip",
    };
    let (reason, of) = match &line.reason {
        Reason::New => ("new", None),
        Reason::NoValue => ("no-value", None),
        Reason::CodeChanged { .. } => ("code-changed", None),
        Reason::InputChanged { port } => ("input-changed", Some(words::port(port))),
        Reason::SourceReruns { address } => ("source-reruns", Some(address.clone())),
        Reason::Kept => ("kept", None),
        Reason::NotNeeded => ("not-needed", None),
    };
    let mut data = json!({"step": line.address, "fate": fate, "reason": reason, "of": of});
    if let Some((left, all)) = eaches.get(&words::step(&line.address)) {
        (data["elements"], data["left"]) = (json!(all), json!(left));
    }
    data
}
