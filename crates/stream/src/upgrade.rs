//! Decides whether a changed pipeline goes on with the rows of the earlier one, and which rows each of its steps gets.
//! Pure: the two plans go in, the plan to install comes out, or every reason why a step cannot.
//!
//! Steps are the same by their names. A stage keeps its rows if it begins with the same step and nothing that those rows
//! depend on has changed; a stage that is new begins empty; rows of a step that is gone are dropped only if that was asked
//! for. Steps without rows, such as a filter, may change, come and go.

use crate::run::installed::{InstalledEdge, InstalledPlan, InstalledStage, InstalledStep, StepRole};
use std::{collections::BTreeSet, fmt};

/// A reason why a step of a changed pipeline cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepConflict {
    /// The step.
    pub step: String,
    /// The reason.
    pub cause: ConflictCause,
}

/// The kind of a [`StepConflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictCause {
    /// Something that its stored rows depend on has changed.
    Changed {
        /// The name of what has changed, as `window`.
        field: String,
        /// Its value in the earlier pipeline.
        before: String,
        /// Its value now.
        now: String,
    },
    /// It is gone, and the store has rows of it.
    Removed,
    /// Records are on the way to it or from it that the changed pipeline has no way for.
    InFlight,
    /// It has ended, so that a new input would never be read.
    Ended,
}

impl fmt::Display for StepConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = &self.step;
        match &self.cause {
            ConflictCause::Changed { field, before, now } => {
                write!(f, "step `{step}`: {field} was {before}, and is {now} now")
            }
            ConflictCause::Removed => write!(f, "step `{step}` is gone, and the store has its state"),
            ConflictCause::InFlight => {
                write!(f, "step `{step}`: records are on their way that the changed pipeline has no way for")
            }
            ConflictCause::Ended => write!(f, "step `{step}` has ended, so it would never read its new input"),
        }
    }
}

/// A changed plan, and the stages of the earlier one that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upgraded {
    /// The plan to install, with the numbers that stages and edges had.
    pub(crate) plan: InstalledPlan,
    /// Numbers of stages whose rows go.
    pub(crate) removed: Vec<u16>,
}

/// Gives the stages and edges of a new plan the numbers that they have in the installed one. `drops` names steps whose rows
/// may go.
pub(crate) fn upgrade(
    old: &InstalledPlan,
    new: InstalledPlan,
    drops: &BTreeSet<String>,
) -> Result<Upgraded, Vec<StepConflict>> {
    let mut conflicts = Vec::new();
    if old.edge_mode != new.edge_mode {
        let values = (format!("{:?}", old.edge_mode), format!("{:?}", new.edge_mode));
        conflicts.push(changed(new.stages[0].first(), "the way between stages", values));
    }
    let kept = |stage: &InstalledStage| old.stages.iter().find(|own| own.first().name == stage.first().name);
    let (mut ids, mut next_ids) = (Vec::new(), old.next_ids);
    for stage in &new.stages {
        match kept(stage) {
            Some(earlier) => {
                compare_stages(earlier, stage, &mut conflicts);
                ids.push(earlier.id);
            }
            None => ids.push(take(&mut next_ids.0)),
        }
    }
    compare_steps(old, &new, drops, &mut conflicts);
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut plan = new;
    plan.stages.iter_mut().zip(&ids).for_each(|(stage, id)| stage.id = *id);
    for edge in &mut plan.edges {
        (edge.from.0, edge.to.0) = (ids[usize::from(edge.from.0)], ids[usize::from(edge.to.0)]);
        edge.id = match old.edges.iter().find(|own| is_same_edge(own, edge)) {
            Some(own) => own.id,
            None => take(&mut next_ids.1),
        };
    }
    plan.next_ids = next_ids;
    let removed = old.stages.iter().map(|stage| stage.id).filter(|id| !ids.contains(id)).collect();
    Ok(Upgraded { plan, removed })
}

fn take(next: &mut u16) -> u16 {
    let id = *next;
    *next = id.checked_add(1).expect("a pipeline has had fewer than 65536 stages and edges");
    id
}

/// Records that were sent on one of these edges arrive on the other.
fn is_same_edge(a: &InstalledEdge, b: &InstalledEdge) -> bool {
    (&a.from, a.to, a.lifted, &a.records) == (&b.from, b.to, b.lifted, &b.records)
}

fn changed(step: &InstalledStep, field: &str, (before, now): (String, String)) -> StepConflict {
    let cause = ConflictCause::Changed { field: field.to_owned(), before, now };
    StepConflict { step: step.name.clone(), cause }
}

fn compare_stages(old: &InstalledStage, new: &InstalledStage, conflicts: &mut Vec<StepConflict>) {
    if old.partitions != new.partitions {
        let values = (old.partitions.to_string(), new.partitions.to_string());
        conflicts.push(changed(new.first(), "its number of partitions", values));
    }
}

/// Compares the steps that have rows.
fn compare_steps(
    old: &InstalledPlan,
    new: &InstalledPlan,
    drops: &BTreeSet<String>,
    conflicts: &mut Vec<StepConflict>,
) {
    let of = |plan: &InstalledPlan, name: &str| {
        let steps = plan.stages.iter().flat_map(|stage| stage.steps.iter().map(move |step| (stage.clone(), step)));
        steps.filter(|(_, step)| step.name == name).map(|(stage, step)| (stage, step.clone())).next()
    };
    for (stage, step) in old.stages.iter().flat_map(|stage| stage.steps.iter().map(move |step| (stage, step))) {
        let now = of(new, &step.name);
        if step.role == StepRole::Stateless {
            // The stage's number would be that of a step with rows.
            let has_rows_now = now.filter(|(_, now)| now.role != StepRole::Stateless && stage.first() == step);
            conflicts.extend(has_rows_now.map(|(_, now)| changed(&now, "its kind", (role(step), role(&now)))));
            continue;
        }
        match now {
            None if drops.contains(&step.name) => {}
            None => conflicts.push(StepConflict { step: step.name.clone(), cause: ConflictCause::Removed }),
            Some((_, now)) if now.role != step.role => {
                conflicts.push(changed(&now, "its kind", (role(step), role(&now))));
            }
            Some((in_stage, now)) => {
                if step.role == StepRole::Sink && in_stage.first().name != stage.first().name {
                    let begins = |stage: &InstalledStage| format!("behind `{}`", stage.first().name);
                    conflicts.push(changed(&now, "its stage", (begins(stage), begins(&in_stage))));
                }
                compare_facts(step, &now, conflicts);
            }
        }
    }
}

fn role(step: &InstalledStep) -> String {
    let word = match step.role {
        StepRole::Source => "source",
        StepRole::Stateful => "step with state",
        StepRole::Sink => "sink",
        StepRole::Stateless => "step without state",
    };
    format!("a {word}")
}

fn compare_facts(old: &InstalledStep, new: &InstalledStep, conflicts: &mut Vec<StepConflict>) {
    let value = |step: &InstalledStep, field: &str| {
        step.state.iter().find(|fact| fact.field == field).map(|fact| fact.value.clone())
    };
    let mut fields: Vec<&str> = Vec::new();
    for fact in old.state.iter().chain(&new.state) {
        if !fields.contains(&fact.field.as_str()) {
            fields.push(&fact.field);
        }
    }
    // A step of another kind has other fields: naming them all would say nothing more.
    if value(old, KIND) != value(new, KIND) {
        fields = vec![KIND];
    }
    for field in fields {
        let (before, now) = (value(old, field), value(new, field));
        if before != now {
            let text = |value: Option<String>| value.unwrap_or_else(|| String::from("not given"));
            conflicts.push(changed(new, &format!("its {field}"), (text(before), text(now))));
        }
    }
}

/// The field that says what kind of state a step has.
pub(crate) const KIND: &str = "kind";
