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
        for line in leaves(explanation) {
            match line.fate {
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

/// Lines that have none below them.
fn leaves(explanation: &Explanation) -> impl Iterator<Item = &Line> {
    let lines = &explanation.lines;
    lines.iter().enumerate().filter(|(at, line)| !lines.get(at + 1).is_some_and(|next| is_below(next, line))).map(|(_, line)| line)
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
    let runs = leaves(explanation).filter(|line| line.fate == Fate::Run);
    let named: Vec<_> = runs
        .take(NAMED_MAX)
        .map(|line| format!("{} ({})", words::step(&line.address), words::reason(&line.reason)))
        .collect();
    let more = counts.run.saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{} of {} will run: {}{more}", counts.run, words::count(counts.all(), "step"), named.join(", "))
}

/// As a tree, with counts at the end.
pub(crate) fn tree(printer: &Printer, explanation: &Explanation, all: bool) -> String {
    let mut text = String::new();
    let (mut shown, mut hidden) = (0, 0);
    let mut above: Vec<&Line> = Vec::new();
    for line in &explanation.lines {
        while above.last().is_some_and(|above| !is_below(line, above)) {
            above.pop();
        }
        let depth = above.len();
        above.push(line);
        shown = if depth == 0 { 0 } else { shown + 1 };
        if depth == 0 && hidden > 0 {
            text.push_str(&format!("         … and {hidden} more (--all shows them)\n"));
            hidden = 0;
        }
        if !all && depth > 0 && shown > BELOW_MAX {
            hidden += 1;
            continue;
        }
        let (ink, fate) = match line.fate {
            Fate::Run => (Ink::Yellow, "run  "),
            Fate::Reused => (Ink::Green, "reuse"),
            Fate::Skipped => (Ink::Dim, "skip "),
        };
        let name = words::step(&line.address);
        let reason = words::reason(&line.reason);
        text.push_str(&format!("{}  {}{name}  ({reason})\n", printer.ink(ink, fate), "  ".repeat(depth)));
    }
    if hidden > 0 {
        text.push_str(&format!("         … and {hidden} more (--all shows them)\n"));
    }
    let Counts { run, reuse, skip } = Counts::of(explanation);
    text.push_str(&format!("{run} to run, {reuse} reused, {skip} skipped\n"));
    text
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
