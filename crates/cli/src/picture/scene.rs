//! The content of a flow's picture: a box for each step, a group for each step with others inside, an arrow from each
//! producer to its consumers. A step that runs for every element is one box.

use super::trace::{Feed, Leaf, Trace};
use crate::words;
use onceflow_core::model::{Program, program::ROOT};
use onceflow_exec::action::{Action, EXECUTORS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// All that is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) title: String,
    pub(crate) boxes: Vec<Box>,
    pub(crate) groups: Vec<SceneGroup>,
    /// Arrows from box to box, by index.
    pub(crate) arrows: BTreeSet<(usize, usize)>,
    /// The scene is of a run: boxes have states.
    #[serde(skip)]
    pub(crate) is_run: bool,
}

/// A step without others inside, an input, or an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Box {
    /// Unique in the scene.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: BoxKind,
    /// The group it is in.
    pub(crate) group: Option<usize>,
    pub(crate) repeats: Repeats,
    pub(crate) in_choice: bool,
    /// Addresses of the eaches around it, the innermost last.
    pub(crate) eaches: Vec<String>,
    /// The reserved resources: thousandths of a processor, and bytes of memory.
    pub(crate) reserves: (u32, u64),
    #[serde(skip)]
    pub(crate) state: super::states::Stand,
}

/// The kind of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BoxKind {
    Input,
    Output,
    /// A step that does something: `run`, `script`, `http`, `expr`, or the name of a task in Rust.
    Step(String),
    /// A flow that calls itself.
    Call,
    /// An operation, buffer, cleanup flow or end of a scope.
    Operation(String),
}

/// How often a step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Repeats {
    #[default]
    Once,
    Each,
    Loop,
}

impl Repeats {
    /// Returns the word for a step that runs more than once.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Repeats::Once => None,
            Repeats::Each => Some("each"),
            Repeats::Loop => Some("loop"),
        }
    }

    /// Returns the same with a space, to stand in front of another word.
    pub(crate) fn before(self) -> String {
        self.word().map_or(String::new(), |word| format!("{word} "))
    }
}

/// A step with others inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SceneGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) repeats: Repeats,
    /// The group around it.
    pub(crate) group: Option<usize>,
}

impl Box {
    /// Returns the kind in a word.
    pub(crate) fn word(&self) -> &str {
        match &self.kind {
            BoxKind::Input => "input",
            BoxKind::Output => "output",
            BoxKind::Call => "calls itself",
            BoxKind::Step(word) | BoxKind::Operation(word) => word,
        }
    }

    /// The box is a step, or a part of one.
    pub(crate) fn is_step(&self) -> bool {
        matches!(self.kind, BoxKind::Step(_) | BoxKind::Call | BoxKind::Operation(_))
    }

    /// The box is a part of a scope.
    pub(crate) fn is_operation(&self) -> bool {
        matches!(self.kind, BoxKind::Operation(_))
    }

    /// The state of the box in a run is known: parts of a scope have one only while a session waits for them.
    pub(crate) fn has_state(&self) -> bool {
        self.is_step() && !(self.is_operation() && self.state.state == super::states::State::Pending)
    }
}

impl Scene {
    /// Makes the scene of a program.
    pub(crate) fn of(program: &Program, title: &str) -> Self {
        let mut scene = Scene { title: title.to_owned(), ..Scene::default() };
        let trace = Trace::of(program);
        let inputs: Vec<usize> = program.blocks[ROOT as usize]
            .inputs
            .iter()
            .map(|input| scene.add(format!("inputs.{}", input.port.name), input.port.name.clone(), BoxKind::Input))
            .collect();
        let boxes = scene.steps(program, &trace);
        for (leaf, to) in &boxes {
            for feed in trace.feeds(*leaf) {
                scene.arrow(feed, *to, &inputs, &boxes);
            }
        }
        for (name, feeds) in trace.outputs() {
            let to = scene.add(format!("outputs.{name}"), name, BoxKind::Output);
            feeds.into_iter().for_each(|feed| scene.arrow(feed, to, &inputs, &boxes));
        }
        for (leaf, at) in &boxes {
            let task = trace.leaves[*leaf].task.map(|task| &program.tasks[task as usize]);
            let action = task.filter(|_| is_step(&trace.leaves[*leaf].address)).map(Action::from_spec);
            if let Some(Ok(Action::Scope(action))) = action {
                scene.draw_scope(*at, &action);
            }
        }
        scene.without_unread_inputs()
    }

    pub(super) fn add(&mut self, id: String, name: String, kind: BoxKind) -> usize {
        self.boxes.push(Box {
            id,
            name,
            kind,
            group: None,
            repeats: Repeats::Once,
            in_choice: false,
            eaches: vec![],
            reserves: (0, 0),
            state: super::states::Stand::default(),
        });
        self.boxes.len() - 1
    }

    fn arrow(&mut self, feed: Feed, to: usize, inputs: &[usize], boxes: &BTreeMap<usize, usize>) {
        let from = match feed {
            Feed::Input(port) => inputs.get(usize::from(port)),
            Feed::Leaf(leaf) => boxes.get(&leaf),
        };
        if let Some(from) = from.filter(|from| **from != to) {
            self.arrows.insert((*from, to));
        }
    }

    /// Makes a box for each step, in the order of the program; returns leaf → box.
    fn steps(&mut self, program: &Program, trace: &Trace<'_>) -> BTreeMap<usize, usize> {
        let seen: Vec<_> = (0..trace.leaves.len()).filter(|leaf| trace.is_seen(*leaf)).collect();
        let (mut groups, mut made, mut boxes) = (BTreeMap::new(), BTreeMap::<String, usize>::new(), BTreeMap::new());
        let mut order: Vec<_> = seen.iter().map(|leaf| (*leaf, parts(&trace.leaves[*leaf].address))).collect();
        // Helpers come last, so that a box gets the kind of its step.
        order.sort_by_key(|(leaf, _)| (!is_step(&trace.leaves[*leaf].address), *leaf));
        for (leaf, parts) in order {
            let id = id(&parts);
            let at = match made.get(&id) {
                Some(at) => *at,
                None => {
                    let group = self.group(&parts[..parts.len().saturating_sub(1)], &mut groups);
                    let at = self.step(program, &trace.leaves[leaf], &parts, group);
                    made.insert(id, at);
                    at
                }
            };
            boxes.insert(leaf, at);
        }
        // A step that also has others inside stands inside its own group.
        for (id, group) in groups {
            if let Some(at) = made.get(&id) {
                self.boxes[*at].group = Some(group);
                self.boxes[*at].id.push('.');
            }
        }
        boxes
    }

    fn step(&mut self, program: &Program, leaf: &Leaf, parts: &[(String, String)], group: Option<usize>) -> usize {
        let task = leaf.task.map(|task| &program.tasks[task as usize]);
        let kind = match task {
            None => BoxKind::Call,
            Some(task) if task.name == EXECUTORS[0] => BoxKind::Step(String::from("run")),
            Some(task) => BoxKind::Step(task.name.clone()),
        };
        let (name, marks) = parts.last().cloned().unwrap_or_default();
        let at = self.add(id(parts), name, kind);
        let made = &mut self.boxes[at];
        made.group = group;
        made.repeats = repeats(&marks);
        made.in_choice = leaf.in_choice;
        made.eaches.clone_from(&leaf.eaches);
        made.reserves = task.map_or((0, 0), |task| (task.resources.cpu_milli, task.resources.memory_bytes));
        at
    }

    /// Returns the group with this path, made if it does not exist, together with those around it.
    fn group(&mut self, parts: &[(String, String)], known: &mut BTreeMap<String, usize>) -> Option<usize> {
        let ((name, marks), around) = parts.split_last()?;
        if let Some(at) = known.get(&id(parts)) {
            return Some(*at);
        }
        let group = self.group(around, known);
        let at = self.groups.len();
        self.groups.push(SceneGroup { id: id(parts), name: name.clone(), repeats: repeats(marks), group });
        known.insert(id(parts), at);
        Some(at)
    }

    /// Removes inputs that no step reads.
    fn without_unread_inputs(mut self) -> Self {
        let read: BTreeSet<_> = self.arrows.iter().map(|(from, _)| *from).collect();
        let mut now = BTreeMap::new();
        let all = std::mem::take(&mut self.boxes);
        for (at, one) in all.into_iter().enumerate() {
            if one.kind != BoxKind::Input || read.contains(&at) {
                now.insert(at, self.boxes.len());
                self.boxes.push(one);
            }
        }
        self.arrows = self.arrows.iter().map(|(from, to)| (now[from], now[to])).collect();
        self
    }

    /// Returns the boxes that feed a box.
    pub(crate) fn feeding(&self, at: usize) -> impl Iterator<Item = &Box> {
        self.arrows.iter().filter(move |(_, to)| *to == at).map(|(from, _)| &self.boxes[*from])
    }

    /// Returns the scene as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let group = |at: Option<usize>| at.map(|at| self.groups[at].id.clone());
        let one = |it: &Box| {
            let mut data = json!({
                "id": it.id, "name": it.name, "kind": it.word(), "in": group(it.group), "repeats": it.repeats.word(),
            });
            if self.is_run && it.has_state() {
                data["state"] = it.state.to_json();
            }
            data
        };
        let groups = self
            .groups
            .iter()
            .map(|it| json!({"id": it.id, "name": it.name, "in": group(it.group), "repeats": it.repeats.word()}));
        let arrows = self.arrows.iter().map(|(from, to)| json!([self.boxes[*from].id, self.boxes[*to].id]));
        json!({
            "title": self.title, "boxes": self.boxes.iter().map(one).collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(), "arrows": arrows.collect::<Vec<_>>(),
        })
    }
}

/// Splits an address as people write it into names, each with the numbers behind it: `align[*]/sort`.
fn parts(address: &str) -> Vec<(String, String)> {
    let shown = words::step(address);
    let part = |part: &str| {
        let at = part.find(['[', '@']).unwrap_or(part.len());
        (part[..at].to_owned(), part[at..].to_owned())
    };
    shown.split('/').map(part).collect()
}

/// The address is of something users know as a step: not a helper that computes something for a step, nor one that
/// decides whether a loop goes on.
pub(crate) fn is_step(address: &str) -> bool {
    !words::is_helper(address)
}

/// Returns the id of the box that an address belongs to: without numbers.
pub(crate) fn box_id(address: &str) -> String {
    id(&parts(address))
}

fn id(parts: &[(String, String)]) -> String {
    parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("/")
}

fn repeats(marks: &str) -> Repeats {
    match marks {
        "" => Repeats::Once,
        marks if marks.contains('[') => Repeats::Each,
        _ => Repeats::Loop,
    }
}
