//! Steps that must not be repeated without consent: at-most-once steps, and those whose writes go into their commit. A
//! new plan that would run such a step again after it was done is refused, unless the caller accepts it.

use super::{CheckedStart, replan::PlannedRun};
use crate::Error;
use onceflow_core::{
    model::{
        Effect, InstancePath, Node, Program,
        program::{NodeOp, ROOT},
    },
    plan::Fate,
    protocol::rows::{self, Finished, Header, Status},
};
use onceflow_store::values::Values;
use std::collections::BTreeSet;

/// Addresses of steps, with `*` for the numbers of elements and iterations.
pub(crate) type Steps = BTreeSet<String>;

/// Hashes of such addresses: short enough to be carried from plan to plan.
pub(crate) type Marks = BTreeSet<u64>;

/// The hash of an address. A collision refuses two steps together, at worst.
fn mark(address: &str) -> u64 {
    let digest = blake3::hash(address.as_bytes());
    u64::from_be_bytes(*digest.as_bytes().first_chunk().expect("a digest is longer"))
}

pub(super) fn marks(steps: &Steps) -> Marks {
    steps.iter().map(|step| mark(step)).collect()
}

/// The record stored beside the result of a run: its request, its status, and the steps that must not be repeated
/// without consent.
pub(crate) type Sealed = (Header, Status, Vec<String>);

/// The steps of a program that must not be repeated without consent.
pub(crate) fn once_only(program: &Program) -> Steps {
    let mut found = Steps::new();
    // Most programs have none, and need no walk.
    if program.tasks.iter().any(|task| is_once_only(task.effect)) {
        for node in &program.blocks[ROOT as usize].nodes {
            walk(program, node, &InstancePath::root(), &mut BTreeSet::new(), &mut found);
        }
    }
    found
}

fn is_once_only(effect: Effect) -> bool {
    matches!(effect, Effect::AtMostOnce | Effect::Transactional)
}

/// Collects such steps of a node, and of everything inside it.
pub(super) fn walk(
    program: &Program,
    node: &Node,
    place: &InstancePath,
    around: &mut BTreeSet<u32>,
    found: &mut Steps,
) {
    let mut task = |task: u32, path: &[_]| {
        if is_once_only(program.tasks[task as usize].effect) {
            found.insert(place.address(path));
        }
    };
    match &node.op {
        NodeOp::Task(one) => task(*one, &node.path),
        NodeOp::Fused(tasks) => tasks.iter().for_each(|fused| task(fused.task, &fused.path)),
        NodeOp::Relay | NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Call { .. } | NodeOp::Choice { .. } => {}
    }
    let inside = inside(node, place);
    for body in bodies(node) {
        // A flow that calls itself is visited once.
        if around.insert(body) {
            for node in &program.blocks[body as usize].nodes {
                walk(program, node, &inside, around, found);
            }
            around.remove(&body);
        }
    }
}

/// The blocks inside of a node.
pub(super) fn bodies(node: &Node) -> Vec<u32> {
    match &node.op {
        NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => vec![],
        NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => vec![*body],
        NodeOp::Choice { arms } => arms.iter().map(|arm| arm.body).collect(),
    }
}

/// The path of the steps inside a node.
pub(super) fn inside(node: &Node, place: &InstancePath) -> InstancePath {
    if let NodeOp::Call { .. } = node.op { place.called(node) } else { place.clone() }
}

/// Refuses a plan that repeats steps which were done and must not be repeated without consent.
pub(super) fn no_reruns(asked: &CheckedStart, planned: &PlannedRun) -> Result<(), Error> {
    if asked.start.accept_reruns || planned.done_before.is_empty() {
        return Ok(());
    }
    let (program, mut again) = (&asked.program, Steps::new());
    for line in planned.explanation.lines.iter().filter(|line| line.fate == Fate::Run) {
        let node = &program.blocks[ROOT as usize].nodes[line.node as usize];
        walk(program, node, &InstancePath::root(), &mut BTreeSet::new(), &mut again);
    }
    again.retain(|step| planned.done_before.contains(&mark(step)));
    if again.is_empty() {
        return Ok(());
    }
    Err(Error::WouldRerun { key: asked.start.key.clone(), steps: again.into_iter().collect() })
}

/// The steps that a finished run has done, in this generation or before, and that must not be repeated without
/// consent.
pub(super) async fn done_by(values: &Values, finished: &Finished) -> Result<Marks, Error> {
    let mut done: Marks = finished.header.done_before.iter().copied().collect();
    if let Some(sealed) = &finished.sealed {
        let bytes = match values.read_all(&sealed.id).await {
            // The history of the run has just ended, and its record is gone.
            Err(onceflow_store::values::Error::Missing { .. }) => return Ok(done),
            bytes => bytes?,
        };
        let sealed: Sealed = rows::read(&bytes).ok_or_else(|| Error::damaged("the sealed record of a run"))?;
        done.extend(sealed.2.iter().map(|step| mark(step)));
    }
    Ok(done)
}
