//! The draft of a step that ends an iteration of a loop and begins the next in its own commit, so that an iteration costs
//! no batch of its own.

use super::{
    draft::{Draft, InstalledProgram, Site, standing},
    ids::StepId,
    rows::{RunState, Shape},
    step::Taken,
};
use crate::{
    limits,
    model::{
        program::{self, Node, PortIndex},
        wiring::Consumer,
    },
    payload::Outcome,
};

/// The next iteration of a loop, begun by the commit of the step that ends the one before.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The step that opened the loop.
    pub opener: StepId,
    /// The node of that step.
    pub node: &'a Node,
    /// The iteration that begins.
    pub iteration: u32,
    /// Pairs of an output of the loop's body and the input that gets it in the next iteration.
    carried: &'a [(PortIndex, PortIndex)],
    /// The outputs of the body, in their order.
    given: Vec<Outcome>,
}

/// Returns the iteration that the commit of these outputs can begin: the step alone delivers to the end of its instance,
/// the instance is an iteration of a loop, and its condition holds. The step knows then all that the end would read after
/// it was claimed: its own outputs, and the frame, which does not change. `None` leaves the decision to the end's own
/// step: also if a failure is delivered, or both commits together might be too large for a batch.
pub fn following<'a>(plan: &'a InstalledProgram, taken: &Taken, outputs: &[Outcome]) -> Option<Turn<'a>> {
    let (opener, block) = taken.frame.opened_by.filter(|_| matches!(taken.frame.shape, Shape::Single))?;
    let node = &plan.program.blocks[block as usize].nodes[opener.node as usize];
    let program::NodeOp::Loop { carried, .. } = &node.op else { return None };
    let wiring = plan.wiring.block(taken.ready_step.block);
    let deliveries = wiring.deliveries(taken.step.node) + wiring.opening_deliveries();
    if wiring.end.of != 1 || deliveries > limits::TURN_DELIVERIES_MAX {
        return None;
    }
    let end = wiring.targets(taken.step.node).iter().find(|target| target.to == Consumer::End)?;
    let body = &plan.program.blocks[taken.ready_step.block as usize];
    let given = |(port, output): (usize, &program::BlockOutput)| {
        let outcome = standing(plan, taken.site(), output.from).or_else(|| {
            let (from, _) = end.ports.iter().find(|(_, to)| usize::from(*to) == port)?;
            Some(outputs[usize::from(*from)].clone())
        })?;
        (!matches!(outcome, Outcome::Failed(_))).then_some(outcome)
    };
    let given: Vec<_> = body.outputs.iter().enumerate().map(given).collect::<Option<_>>()?;
    let condition = node.outputs.len() - usize::from(node.attempt);
    let iteration = taken.step.index.checked_add(1)?;
    given[condition].is_true().then_some(Turn { opener, node, iteration, carried, given })
}

/// Commits the outputs of a step that ends an iteration of a loop, and begins the next iteration in the same batch. The
/// end of the iteration gets no ready row: it would be claimed, performed and deleted by a batch of its own.
pub fn commit<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    taken: &Taken,
    outputs: &[Outcome],
    turn: &Turn<'_>,
) -> Draft<'a> {
    assert_eq!(
        Some(turn.iteration),
        taken.step.index.checked_add(1),
        "step {:?} begins an iteration that does not follow its own",
        taken.step
    );
    let mut draft = taken.consuming(plan, state);
    let targets = plan.wiring.block(taken.ready_step.block).targets(taken.step.node);
    let (end, nodes) = targets.split_last().expect("the step delivers to the end of its iteration");
    assert_eq!(end.to, Consumer::End, "the end is the last consumer of step {:?}", taken.step);
    draft.deliver(taken.site(), nodes, &|port| outputs[usize::from(port)].clone());
    let site = Site { index: turn.iteration, ..taken.site() };
    draft.open(site, &|port| {
        let (from, _) = turn.carried.iter().find(|(_, to)| *to == port).expect("what varies in a loop is carried");
        turn.given[usize::from(*from)].clone()
    });
    draft
}
