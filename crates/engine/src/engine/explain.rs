//! Explains a plan in full: with the steps inside of containers, as far as kept values tell what they would do. And
//! compares a start with the run of its key.

use super::{
    CheckedStart, Engine, Start, inputs,
    inside::{ContainerPreview, Expected},
    known::KnownValues,
    replan::PlannedRun,
};
use crate::{Error, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    model::{
        Identity, InstancePath,
        program::{NodeOp, ROOT, Source},
    },
    payload::Outcome,
    plan::{Explanation, Fate, explain::ExplanationLine, producer_address},
    protocol::{
        keys::{self, Keys},
        rows::{self, Head, Header},
    },
};

impl Engine {
    /// The run of this key, active or finished, was started with the same flow, inputs and requested outputs. `None` if
    /// there is no run of this key.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn is_same<'a>(&'a self, start: &'a Start) -> BoxFuture<'a, Result<Option<bool>, Error>> {
        Box::pin(async move {
            start.check_key()?;
            let Identity { digest, inputs } = match &start.identity {
                Some(known) => known.clone(),
                None => self.check(start)?.identity(),
            };
            let inputs = inputs::take(inputs, &mut start.inputs.clone(), &start.assumed).await?;
            let row = self.shared.row(keys::heads().key(&start.key)).await?;
            let is = |header: &Header| start.is_of(header, &digest, &inputs);
            Ok(match row.as_deref().and_then(rows::read::<Head>) {
                None => None,
                Some(Head::Active(id)) => self.shared.runs.read_run(id).await?.map(|run| is(&run.header)),
                Some(Head::Finished(finished)) => Some(is(&finished.header)),
            })
        })
    }
}

/// The explanation of a plan; if the run keeps values, with the steps inside of containers that would run.
pub(super) async fn explain_inside(
    shared: &Shared,
    asked: &CheckedStart,
    known: &KnownValues,
    planned: &PlannedRun,
    kept: Option<&Keys>,
) -> Result<Explanation, Error> {
    let explanation = planned.explanation.clone();
    match kept {
        // The steps inside of containers depend on the contents of inputs, which assumed inputs lack.
        Some(keys) if asked.start.assumed.is_empty() => look_inside(shared, asked, known, explanation, keys).await,
        _ => Ok(explanation),
    }
}

/// Adds the steps inside of containers that would run.
async fn look_inside(
    shared: &Shared,
    asked: &CheckedStart,
    known: &KnownValues,
    explanation: Explanation,
    keys: &Keys,
) -> Result<Explanation, Error> {
    let program = &asked.program;
    let mut inside = ContainerPreview { shared, keys, program, lines: Vec::new(), depth: 0 };
    let (mut found, mut lines) = (known.clone(), Vec::new());
    // Eaches that are joined into one node have a line each.
    for of_node in explanation.lines.chunk_by(|a, b| a.node == b.node) {
        let at = of_node[0].node;
        let node = &program.blocks[ROOT as usize].nodes[at as usize];
        let has_inside = !matches!(node.op, NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay);
        if of_node[0].fate != Fate::Run || !has_inside {
            lines.extend_from_slice(of_node);
            continue;
        }
        let input = |source: &Source| -> Expected {
            match source {
                Source::Input(port) => Ok(asked.inputs.outcome_with_elements(*port)),
                Source::Node(node, port) => {
                    let known = found.get(&(*node, *port)).map(|(outcome, _)| outcome.clone());
                    known.ok_or_else(|| producer_address(program, *node, *port).into())
                }
                Source::Constant(at) => Ok(Outcome::Value(program.constants[*at as usize].clone())),
                Source::None => Ok(Outcome::None),
            }
        };
        let inputs: Vec<_> = node.inputs.iter().map(input).collect();
        let given = inside.container(node, &InstancePath::root(), &inputs).await?;
        let given = (0..).zip(given).filter_map(|(port, outcome)| Some(((at, port), (outcome.ok()?, None))));
        found.extend(given);
        let mut below = std::mem::take(&mut inside.lines);
        for line in of_node {
            let is_below = |other: &ExplanationLine| {
                let rest = other.address.strip_prefix(&line.address);
                rest.is_some_and(|rest| rest.starts_with(['/', '[', '@']))
            };
            let (own, others): (Vec<_>, Vec<_>) = below.into_iter().partition(is_below);
            lines.push(line.clone());
            lines.extend(own);
            below = others;
        }
        lines.extend(below);
    }
    Ok(Explanation { lines })
}
