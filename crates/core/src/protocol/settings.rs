//! Settings of steps that a changed flow brings to a run that has begun: retry, timeout, class and resources of each
//! step, and what follows a failure. They are no part of a step's code, so nothing runs again for them.
//!
//! They stand in a row of the generation, over those in its program, which stays as it was installed. The run's
//! [`RunState`](super::rows::RunState) has the number of that row: a commit that rests on earlier settings is refused, and
//! decided again with these, so that no step comes into a queue that its class has left.

use crate::model::{
    InstancePath, Node, Program, ResourceRequest, Retry, TaskSpec,
    program::{BlockIndex, NodeIndex, NodeOp, ROOT},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The settings of a run that differ from those it was planned with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The number of the row: 0 if there is none.
    pub revision: u32,
    /// After a failure, steps that do not depend on it continue; `None` is as the run was started.
    pub finish_independent: Option<bool>,
    /// The settings of steps, by block and node.
    pub steps: BTreeMap<(BlockIndex, NodeIndex), TaskSettings>,
    /// Classes that earlier settings gave to steps: their queues may still have rows of the run.
    pub former_classes: BTreeSet<String>,
}

/// The settings of a task that are no part of its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSettings {
    /// The retry policy.
    pub retry: Retry,
    /// The longest an attempt may take.
    pub timeout_ms: Option<u64>,
    /// The class, and so the queue.
    pub class: String,
    /// The resources it needs.
    pub resources: ResourceRequest,
}

impl TaskSettings {
    /// Returns the settings of a task.
    pub fn of(spec: &TaskSpec) -> Self {
        let TaskSpec { retry, timeout_ms, class, resources, .. } = spec;
        TaskSettings { retry: retry.clone(), timeout_ms: *timeout_ms, class: class.clone(), resources: *resources }
    }

    /// Returns the task with these settings.
    pub fn applied_to(&self, spec: TaskSpec) -> TaskSpec {
        let TaskSettings { retry, timeout_ms, class, resources } = self.clone();
        TaskSpec { retry, timeout_ms, class, resources, ..spec }
    }
}

/// The settings in which a flow differs from the program of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedSettings {
    /// The settings that the run can take up, by block and node.
    pub steps: BTreeMap<(BlockIndex, NodeIndex), TaskSettings>,
    /// The addresses of these steps, with `*` for the numbers of elements and iterations.
    pub addresses: Vec<String>,
    /// The addresses of steps with changes that the run cannot take up: settings of an undo, the concurrency of an
    /// each, and tasks that were merged into one step and differ now.
    pub ignored: Vec<String>,
}

impl ChangedSettings {
    /// Compares the installed program of a run with that of a flow of the same meaning. Steps are matched by their
    /// paths; a step that the installed program does not have is done, or not needed.
    pub fn between(installed: &Program, flow: &Program) -> Self {
        let mut found = Comparison { installed, flow, changed: Self::default(), seen: BTreeSet::new() };
        found.block(ROOT, ROOT, &InstancePath::root());
        found.changed
    }
}

struct Comparison<'a> {
    installed: &'a Program,
    flow: &'a Program,
    changed: ChangedSettings,
    /// Blocks that were compared: a flow that calls itself is visited once.
    seen: BTreeSet<BlockIndex>,
}

impl Comparison<'_> {
    fn block(&mut self, block: BlockIndex, of_flow: BlockIndex, place: &InstancePath) {
        if !self.seen.insert(block) {
            return;
        }
        let (installed, flow) = (self.installed, self.flow);
        let others: BTreeMap<_, _> =
            flow.blocks[of_flow as usize].nodes.iter().map(|node| (&*node.path, node)).collect();
        for (at, node) in (0..).zip(&installed.blocks[block as usize].nodes) {
            let other = others.get(&*node.path).copied();
            match (&node.op, other.map(|other| &other.op)) {
                (NodeOp::Task(task), Some(NodeOp::Task(other))) => {
                    self.tasks((block, at), place, &[(node, *task, Some(*other))]);
                }
                (NodeOp::Fused(tasks), _) => {
                    let other = |path| match others.get(path).map(|node| &node.op) {
                        Some(NodeOp::Task(other)) => Some(*other),
                        _ => None,
                    };
                    let all: Vec<_> = tasks.iter().map(|fused| (node, fused.task, other(&*fused.path))).collect();
                    self.tasks((block, at), place, &all);
                }
                (NodeOp::Each { body, concurrency }, Some(NodeOp::Each { body: of_flow, concurrency: other })) => {
                    if concurrency != other {
                        self.changed.ignored.push(place.address(&node.path));
                    }
                    self.block(*body, *of_flow, place);
                }
                (NodeOp::Loop { body, .. }, Some(NodeOp::Loop { body: of_flow, .. })) => {
                    self.block(*body, *of_flow, place);
                }
                (NodeOp::Call { body }, Some(NodeOp::Call { body: of_flow })) => {
                    self.block(*body, *of_flow, &place.called(node));
                }
                (NodeOp::Choice { arms }, Some(NodeOp::Choice { arms: of_flow })) => {
                    arms.iter().zip(of_flow).for_each(|(arm, other)| self.block(arm.body, other.body, place));
                }
                _ => {}
            }
        }
    }

    /// Compares the tasks of one step; several if they are fused.
    fn tasks(&mut self, at: (BlockIndex, NodeIndex), place: &InstancePath, tasks: &[(&Node, u32, Option<u32>)]) {
        let spec = |task: u32| &self.installed.tasks[task as usize];
        let other = |task: u32| &self.flow.tasks[task as usize];
        let (node, first, _) = tasks[0];
        let address = place.address(&node.path);
        let undo = |spec: &TaskSpec| {
            let undo = spec.compensation.as_deref().map(TaskSettings::of);
            // An undo goes where its step goes.
            undo.map(|undo| TaskSettings { class: String::new(), ..undo })
        };
        let is_changed_undo =
            |(_, task, of): &(&Node, u32, Option<u32>)| of.is_some_and(|of| undo(other(of)) != undo(spec(*task)));
        if tasks.iter().any(is_changed_undo) {
            self.changed.ignored.push(address.clone());
        }
        let now = TaskSettings::of(spec(first));
        let wanted: Vec<_> =
            tasks.iter().map(|(_, _, of)| of.map_or_else(|| now.clone(), |of| TaskSettings::of(other(of)))).collect();
        if wanted.iter().any(|one| *one != wanted[0]) {
            self.changed.ignored.push(address);
        } else if wanted[0] != now {
            self.changed.steps.insert(at, wanted[0].clone());
            self.changed.addresses.push(address);
        }
    }
}
