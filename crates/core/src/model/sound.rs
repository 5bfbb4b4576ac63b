//! What holds for every program that lowering gives, asserted: the engine relies on it and does not look again.

use super::{
    Block, Program, Source,
    program::Op,
    wiring::{BlockWiring, Consumer},
};
use crate::limits::{BITMAP_BITS_MAX, FAN_OUT_MAX};

impl Program {
    /// Panics unless every index is in range, every node stands after what feeds it and leads to an output of its block,
    /// containers and bodies agree on their ports, and nothing is wider than a batch. For tests and debug builds.
    pub fn assert_sound(&self) {
        for (at, block) in self.blocks.iter().enumerate() {
            let fail = |what: &str| panic!("block {at}: {what}\n{block:#?}");
            if let Err(what) = self.indices(block).and_then(|()| self.bodies(block)).and_then(|()| shape(block)) {
                fail(&what);
            }
        }
    }

    fn indices(&self, block: &Block) -> Result<(), String> {
        for (at, node) in block.nodes.iter().enumerate() {
            for source in node.sources() {
                self.source(block, source, at).map_err(|what| format!("node {at}: {what}"))?;
            }
            let in_range = match &node.op {
                Op::Task(task) => (*task as usize) < self.tasks.len(),
                Op::Fused(tasks) => tasks.iter().all(|task| (task.task as usize) < self.tasks.len()),
                Op::Relay => !node.inputs.is_empty() && node.outputs.len() == 1 && !node.attempt,
                Op::Each { body, .. } | Op::Loop { body, .. } | Op::Call { body } => *body != 0 && self.has(*body),
                Op::Choice { arms } => arms.iter().all(|arm| arm.body != 0 && self.has(arm.body)),
            };
            ensure(in_range, || format!("node {at}: its operation refers to nothing"))?;
            ensure(!node.outputs.is_empty(), || format!("node {at} gives nothing"))?;
        }
        let outputs = block.outputs.iter().try_for_each(|output| self.source(block, output.from, block.nodes.len()));
        outputs.map_err(|what| format!("outputs: {what}"))
    }

    fn has(&self, block: u32) -> bool {
        (block as usize) < self.blocks.len()
    }

    fn source(&self, block: &Block, source: Source, before: usize) -> Result<(), String> {
        let fits = match source {
            Source::Input(input) => usize::from(input) < block.inputs.len(),
            Source::Node(node, port) => {
                (node as usize) < before && usize::from(port) < block.nodes[node as usize].outputs.len()
            }
            Source::Constant(constant) => (constant as usize) < self.constants.len(),
            Source::None => true,
        };
        ensure(fits, || format!("{source:?} is not there, or not yet"))
    }

    /// Bodies take and give what their nodes do.
    fn bodies(&self, block: &Block) -> Result<(), String> {
        for (at, node) in block.nodes.iter().enumerate() {
            let gives = node.outputs.len() - usize::from(node.attempt);
            let fits = |body: u32, more: usize| {
                let body = &self.blocks[body as usize];
                let visible = body.outputs.iter().filter(|output| !output.hidden).count();
                body.inputs.len() == node.inputs.len() && visible == gives + more
            };
            let fits = match &node.op {
                Op::Task(task) => {
                    let spec = &self.tasks[*task as usize];
                    spec.inputs.len() == node.inputs.len() && spec.outputs.len().max(1) == gives
                }
                Op::Fused(_) | Op::Relay => true,
                Op::Each { body, .. } => {
                    fits(*body, 0) && self.blocks[*body as usize].inputs.iter().any(|input| input.varying)
                }
                Op::Call { body } => fits(*body, 0),
                Op::Loop { body, carried } => {
                    let inputs = &self.blocks[*body as usize].inputs;
                    let varies = |at: usize| carried.iter().any(|(_, input)| usize::from(*input) == at);
                    fits(*body, 1)
                        && inputs.iter().enumerate().all(|(at, input)| input.varying == varies(at))
                        && carried.iter().all(|(output, _)| usize::from(*output) <= gives)
                }
                Op::Choice { arms } => {
                    let guards = arms.iter().filter_map(|arm| arm.guard);
                    arms.iter().all(|arm| fits(arm.body, 0)) && guards.max() < Some(node.inputs.len() as u16)
                }
            };
            ensure(fits, || {
                let bodies: Vec<_> =
                    super::lower::bodies(&node.op).iter().map(|at| &self.blocks[*at as usize]).collect();
                format!("node {at} and its body disagree on ports: {node:?}\n{bodies:?}")
            })?;
        }
        Ok(())
    }
}

/// Width, and that everything is waited for.
fn shape(block: &Block) -> Result<(), String> {
    let wiring = BlockWiring::of(block);
    ensure(wiring.opening_deliveries() <= FAN_OUT_MAX, || String::from("its opening is too wide"))?;
    ensure(wiring.end.of <= BITMAP_BITS_MAX, || String::from("its end waits for too much"))?;
    let mut waited_for = vec![false; block.nodes.len()];
    for (at, node) in wiring.nodes.iter().enumerate().rev() {
        ensure(wiring.deliveries(at as u32) <= FAN_OUT_MAX, || format!("node {at} is too wide"))?;
        ensure(node.joins.of <= BITMAP_BITS_MAX, || format!("node {at} waits for too much"))?;
        let leads = |to: &Consumer| match to {
            Consumer::Node(node) => waited_for[*node as usize],
            Consumer::End => true,
        };
        waited_for[at] = node.targets.iter().any(|target| leads(&target.to));
        ensure(waited_for[at], || format!("nobody waits for node {at}"))?;
    }
    let hidden = block.outputs.iter().skip_while(|output| !output.hidden);
    ensure(hidden.clone().all(|output| output.hidden), || String::from("hidden outputs stand last"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
