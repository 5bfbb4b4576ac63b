//! A scene as a tree of text: every step, below the group it is in, with its sources.

use super::{
    scene::{BoxKind, Scene},
    states::State,
};
use crate::printer::{Ink, Printer};

/// The most sources of a step that are named.
const NAMED_MAX: usize = 6;

/// Makes the whole text.
pub(crate) fn document(scene: &Scene, printer: &Printer) -> String {
    let mut text = format!("{}\n", printer.ink(Ink::Bold, &scene.title));
    let outputs: Vec<_> = (0..scene.boxes.len()).filter(|at| scene.boxes[*at].kind == BoxKind::Output).collect();
    inside(scene, printer, None, "", &mut text);
    for at in outputs {
        let name = &scene.boxes[at].name;
        text.push_str(&format!("{} {name}{}\n", printer.ink(Ink::Cyan, "=>"), from(scene, printer, at)));
    }
    text
}

#[derive(Clone, Copy)]
enum Branch {
    Box(usize),
    Group(usize),
}

fn inside(scene: &Scene, printer: &Printer, group: Option<usize>, pad: &str, text: &mut String) {
    let boxes = (0..scene.boxes.len()).filter(|at| scene.boxes[*at].is_step() && scene.boxes[*at].group == group);
    let groups = (0..scene.groups.len()).filter(|at| scene.groups[*at].group == group);
    let first = |at: usize| first_of(scene, at);
    let mut branches: Vec<(usize, Branch)> = boxes.map(|at| (at, Branch::Box(at))).collect();
    branches.extend(groups.map(|at| (first(at), Branch::Group(at))));
    branches.sort_by_key(|(at, _)| *at);
    for (nth, (_, branch)) in branches.iter().enumerate() {
        let is_last = nth + 1 == branches.len();
        let (twig, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let lead = printer.ink(Ink::Dim, &format!("{pad}{twig}"));
        match *branch {
            Branch::Box(at) => text.push_str(&format!("{lead}{}\n", told(scene, printer, at))),
            Branch::Group(at) => {
                let group = &scene.groups[at];
                let word =
                    group.repeats.word().map_or(String::new(), |word| format!("  {}", printer.ink(Ink::Dim, word)));
                text.push_str(&format!("{lead}{}{word}\n", printer.ink(Ink::Bold, &group.name)));
                inside(scene, printer, Some(at), &format!("{pad}{below}"), text);
            }
        }
    }
}

/// Returns the first box in a group, however deep: a group is listed where its first step is.
fn first_of(scene: &Scene, group: usize) -> usize {
    let is_in = |mut at: Option<usize>| {
        while let Some(around) = at {
            if around == group {
                return true;
            }
            at = scene.groups[around].group;
        }
        false
    };
    scene.boxes.iter().position(|one| is_in(one.group)).unwrap_or(usize::MAX)
}

fn told(scene: &Scene, printer: &Printer, at: usize) -> String {
    let one = &scene.boxes[at];
    let word = match one.repeats.word() {
        Some(repeats) => format!("{repeats} {}", one.word()),
        None => one.word().to_owned(),
    };
    let mut line = format!("{}  {}", one.name, printer.ink(Ink::Dim, &word));
    if scene.is_run && one.has_state() {
        let ink = match one.state.state {
            State::Done => Ink::Green,
            State::Reused => Ink::Cyan,
            State::Failed | State::Unknown => Ink::Red,
            State::Running | State::Interrupted => Ink::Yellow,
            State::Pending | State::Skipped | State::Undone => Ink::Dim,
        };
        let counts = one.state.told();
        let counts = if counts.is_empty() { String::new() } else { format!(" ({counts})") };
        line.push_str(&format!("  {}{counts}", printer.ink(ink, one.state.state.word())));
    }
    line + &from(scene, printer, at)
}

/// Returns the names of the boxes that feed a box.
fn from(scene: &Scene, printer: &Printer, at: usize) -> String {
    let names: Vec<_> = scene.feeding(at).map(|one| one.id.trim_end_matches('.').to_owned()).collect();
    if names.is_empty() {
        return String::new();
    }
    let more = names.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    printer.ink(Ink::Dim, &format!("  ← {named}{more}"))
}
