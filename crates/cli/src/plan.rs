//! What a start would do, as people read it: a tree of steps, each with what becomes of it and why.

use crate::{
    printer::{Ink, Printer},
    words,
};
use onceflow_core::plan::{Explanation, Fate, Reason, explain::Line};
use serde_json::{Value, json};

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

impl Counts {
    pub(crate) fn of(explanation: &Explanation) -> Self {
        let mut counts = Counts::default();
        for step in steps(explanation).iter().filter(|step| step.is_leaf) {
            match step.line.fate {
                Fate::Run => counts.run += 1,
                Fate::Reused => counts.reuse += 1,
                Fate::Skipped => counts.skip += 1,
            }
        }
        counts
    }

    fn all(self) -> usize {
        self.run + self.reuse + self.skip
    }
}

/// A line and where it is in the tree.
struct Step<'a> {
    line: &'a Line,
    depth: usize,
    /// Whether there is nothing below it.
    is_leaf: bool,
    /// Why it runs: of an element, what changed about the list.
    reason: &'a Reason,
}

fn steps(explanation: &Explanation) -> Vec<Step<'_>> {
    let lines = &explanation.lines;
    let mut above: Vec<&Line> = Vec::new();
    let step = |(at, line)| {
        while above.last().is_some_and(|above| !is_below(line, above)) {
            above.pop();
        }
        let depth = above.len();
        let changed = |above: &&&Line| matches!(above.reason, Reason::InputChanged { .. } | Reason::CodeChanged { .. });
        let reason = match above.iter().rev().find(changed) {
            Some(above) if line.reason == Reason::NoValue => &above.reason,
            _ => &line.reason,
        };
        above.push(line);
        let is_leaf = !lines.get(at + 1).is_some_and(|next| is_below(next, line));
        Step { line, depth, is_leaf, reason }
    };
    lines.iter().enumerate().map(step).collect()
}

fn is_below(line: &Line, above: &Line) -> bool {
    line.address.strip_prefix(above.address.as_str()).is_some_and(|rest| rest.starts_with(['/', '[', '@']))
}

/// In one line: what runs, and why.
pub(crate) fn short(explanation: &Explanation) -> String {
    let counts = Counts::of(explanation);
    if counts.run == 0 {
        return String::from("nothing to run");
    }
    let all = steps(explanation);
    let runs = all.iter().filter(|step| step.is_leaf && step.line.fate == Fate::Run);
    let named: Vec<_> = runs
        .take(NAMED_MAX)
        .map(|step| format!("{} ({})", words::step(&step.line.address), words::reason(step.reason)))
        .collect();
    let more = counts.run.saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{} of {} will run: {}{more}", counts.run, words::count(counts.all(), "step"), named.join(", "))
}

/// As a tree, with counts at the end. Of many steps inside one, those that run are shown, unless all are asked for.
pub(crate) fn tree(printer: &Printer, explanation: &Explanation, all: bool) -> String {
    let mut text = String::new();
    let steps = steps(explanation);
    let mut rest = &steps[..];
    while let Some((top, below)) = rest.split_first() {
        let inside = below.iter().position(|step| step.depth == 0).unwrap_or(below.len());
        let (inside, after) = below.split_at(inside);
        rest = after;
        text.push_str(&told(printer, top));
        let few = all || inside.len() <= BELOW_MAX;
        let shown: Vec<_> = match few {
            true => inside.iter().collect(),
            false => inside.iter().filter(|step| step.line.fate == Fate::Run).take(BELOW_MAX).collect(),
        };
        shown.iter().for_each(|step| text.push_str(&told(printer, step)));
        if shown.len() < inside.len() {
            text.push_str(&format!("         … and {} more (--all shows them)\n", inside.len() - shown.len()));
        }
    }
    let Counts { run, reuse, skip } = Counts::of(explanation);
    text.push_str(&format!("{run} to run, {reuse} reused, {skip} skipped\n"));
    text
}

fn told(printer: &Printer, step: &Step<'_>) -> String {
    let (ink, fate) = match step.line.fate {
        Fate::Run => (Ink::Yellow, "run  "),
        Fate::Reused => (Ink::Green, "reuse"),
        Fate::Skipped => (Ink::Dim, "skip "),
    };
    let (name, reason) = (words::step(&step.line.address), words::reason(step.reason));
    format!("{}  {}{name}  ({reason})\n", printer.ink(ink, fate), "  ".repeat(step.depth))
}

/// As data.
pub(crate) fn to_json(key: &str, explanation: &Explanation) -> Value {
    let Counts { run, reuse, skip } = Counts::of(explanation);
    let steps: Vec<_> = explanation.lines.iter().map(line).collect();
    json!({"key": key, "run": run, "reuse": reuse, "skip": skip, "steps": steps})
}

fn line(line: &Line) -> Value {
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
    json!({"step": line.address, "fate": fate, "reason": reason, "of": of})
}
