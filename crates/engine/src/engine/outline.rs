//! The steps of a run's flow as a tree.

use super::known::PreviousPlan;
use crate::{Error, RunSteps};
use futures_util::future::BoxFuture;
use onceflow_core::{
    model::{
        InstancePath, Node, Program,
        program::{NodeOp, ROOT},
        task::TaskSpec,
    },
    protocol::{
        keys,
        rows::{self, Head},
    },
};
use std::collections::BTreeSet;

/// A step of a flow as it was written: one line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The step's address, with `*` for the numbers of elements and iterations: `/align[*]/sort`.
    pub address: String,
    /// `task`, `each`, `loop`, `choice` or `call`.
    pub kind: &'static str,
    /// The task's name, if the step is a task.
    pub task: Option<String>,
    /// The number of containers around the step.
    pub depth: usize,
}

impl<'a> RunSteps<'a> {
    /// The program of the run's flow, for all that was requested; `None` if it is not kept any more.
    ///
    /// # Errors
    /// If the store does not answer, or there is no such run.
    pub fn program(self) -> BoxFuture<'a, Result<Option<Program>, Error>> {
        Box::pin(async move {
            let header = match self
                .handle
                .shared
                .row(keys::heads().key(&self.handle.key))
                .await?
                .as_deref()
                .and_then(rows::read::<Head>)
            {
                Some(Head::Finished(finished)) => finished.header,
                Some(Head::Active(id)) => match self.handle.shared.runs.read_run(id).await? {
                    Some(run) => run.header.clone(),
                    None => return Ok(None),
                },
                None => return Err(self.handle.shared.no_run(&self.handle.key).await),
            };
            Ok(PreviousPlan::read(&self.handle.shared.values, &header).await?.map(|before| before.program))
        })
    }

    /// The steps of the run's flow as a tree, from the outside in; `None` if the flow is not kept any more.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn outline(self) -> BoxFuture<'a, Result<Option<Vec<Outline>>, Error>> {
        Box::pin(async move { Ok(self.program().await?.map(|program| outline(&program))) })
    }
}

/// The steps of a program as a tree.
pub(super) fn outline(program: &Program) -> Vec<Outline> {
    let line =
        |(line, task): (Outline, Option<&TaskSpec>)| Outline { task: task.map(|task| task.name.clone()), ..line };
    drawn(program).into_iter().map(line).collect()
}

/// The steps of a program, each with its task if it is one.
fn drawn(program: &Program) -> Vec<(Outline, Option<&TaskSpec>)> {
    let mut lines = Vec::new();
    for node in &program.blocks[ROOT as usize].nodes {
        draw(program, node, &InstancePath::root(), &mut BTreeSet::new(), &mut lines);
    }
    lines
}

fn draw<'a>(
    program: &'a Program,
    node: &Node,
    place: &InstancePath,
    around: &mut BTreeSet<u32>,
    lines: &mut Vec<(Outline, Option<&'a TaskSpec>)>,
) {
    let mut line = |path: &[_], kind, task: Option<u32>| {
        let line = Outline { address: place.address(path), kind, task: None, depth: around.len() };
        lines.push((line, task.map(|task| &program.tasks[task as usize])));
    };
    let (kind, bodies) = match &node.op {
        NodeOp::Relay => return,
        NodeOp::Task(task) => return line(&node.path, "task", Some(*task)),
        NodeOp::Fused(tasks) => return tasks.iter().for_each(|fused| line(&fused.path, "task", Some(fused.task))),
        NodeOp::Each { body, .. } => ("each", vec![*body]),
        NodeOp::Loop { body, .. } => ("loop", vec![*body]),
        NodeOp::Call { body } => ("call", vec![*body]),
        NodeOp::Choice { arms } => ("choice", arms.iter().map(|arm| arm.body).collect()),
    };
    line(&node.path, kind, None);
    let inside = if let NodeOp::Call { .. } = node.op { place.called(node) } else { place.clone() };
    for body in bodies {
        if around.insert(body) {
            for node in &program.blocks[body as usize].nodes {
                draw(program, node, &inside, around, lines);
            }
            around.remove(&body);
        }
    }
}
