//! The invariants of every program that lowering makes. Debug builds assert them, and the engine relies on them without
//! checking again; programs that come from outside are checked with [`Program::is_sound`].

use super::{
    Block, FusedSource, FusedTask, Node, Program, Source,
    program::NodeOp,
    wiring::{BlockWiring, Consumer},
};
use crate::limits::{BITMAP_BITS_MAX, FAN_OUT_MAX, NESTING_DEPTH_MAX};

impl Program {
    /// Panics unless every index is in range, every node stands after the nodes that feed it and leads to an output of
    /// its block, containers and bodies agree on their ports, and nothing is wider than a batch. For tests and debug
    /// builds.
    pub fn assert_sound(&self) {
        for (at, block) in self.blocks.iter().enumerate() {
            let fail = |what: &str| panic!("block {at}: {what}\n{block:#?}");
            if let Err(what) = self.indices(block).and_then(|()| self.bodies(block)).and_then(|()| shape(block)) {
                fail(&what);
            }
        }
    }

    /// True if there is a root block, every index is in range, containers and bodies agree on their ports, and a block
    /// contains itself only through a call. For programs that come from outside: running or drawing an unsound one
    /// panics. Visits every node.
    pub fn is_sound(&self) -> bool {
        let holds = |block: &Block| {
            let fits = self.indices(block).and_then(|()| self.bodies(block));
            fits.is_ok() && block.nodes.iter().all(|node| self.inner(node))
        };
        !self.blocks.is_empty() && self.blocks.iter().all(holds) && self.ends()
    }

    /// The ports that a loop's carried pairs and a fused step's tasks refer to are in range.
    fn inner(&self, node: &Node) -> bool {
        match &node.op {
            NodeOp::Loop { carried, .. } => carried.iter().all(|(_, input)| usize::from(*input) < node.inputs.len()),
            NodeOp::Fused(tasks) => {
                !tasks.is_empty() && (0..tasks.len()).all(|at| self.fused(node, &tasks[at], &tasks[..at]))
            }
            _ => true,
        }
    }

    fn fused(&self, node: &Node, task: &FusedTask, before: &[FusedTask]) -> bool {
        let spec = &self.tasks[task.task as usize];
        let is_there = |input: &FusedSource| match *input {
            FusedSource::Input(port) => usize::from(port) < node.inputs.len(),
            FusedSource::Task(at, port) => {
                before.get(usize::from(at)).is_some_and(|task| usize::from(port) < task.outputs.len())
            }
        };
        task.inputs.len() == spec.inputs.len()
            && task.outputs.len() == spec.outputs.len().max(1)
            && task.inputs.iter().all(is_there)
            && task.outputs.iter().flatten().all(|port| usize::from(*port) < node.outputs.len())
    }

    /// Every descent from block to block, not following calls, ends within a bounded depth. Joining eaches may add
    /// levels to the nesting that was checked, so twice [`NESTING_DEPTH_MAX`] is allowed.
    fn ends(&self) -> bool {
        let mut ended = vec![false; self.blocks.len()];
        for _ in 0..2 * NESTING_DEPTH_MAX {
            let ends = |node: &Node| match &node.op {
                NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } => ended[*body as usize],
                NodeOp::Choice { arms } => arms.iter().all(|arm| ended[arm.body as usize]),
                NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay | NodeOp::Call { .. } => true,
            };
            let now: Vec<bool> = self.blocks.iter().map(|block| block.nodes.iter().all(ends)).collect();
            if now == ended {
                break;
            }
            ended = now;
        }
        ended.into_iter().all(|ended| ended)
    }

    fn indices(&self, block: &Block) -> Result<(), String> {
        for (at, node) in block.nodes.iter().enumerate() {
            for source in node.sources() {
                self.source(block, source, at).map_err(|what| format!("node {at}: {what}"))?;
            }
            let in_range = match &node.op {
                NodeOp::Task(task) => (*task as usize) < self.tasks.len(),
                NodeOp::Fused(tasks) => tasks.iter().all(|task| (task.task as usize) < self.tasks.len()),
                NodeOp::Relay => !node.inputs.is_empty() && node.outputs.len() == 1 && !node.attempt,
                NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => {
                    *body != 0 && self.has(*body)
                }
                NodeOp::Choice { arms } => arms.iter().all(|arm| arm.body != 0 && self.has(arm.body)),
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

    /// Bodies have the inputs and outputs of their nodes.
    fn bodies(&self, block: &Block) -> Result<(), String> {
        for (at, node) in block.nodes.iter().enumerate() {
            let gives = node.outputs.len() - usize::from(node.attempt);
            let fits = |body: u32, more: usize| {
                let body = &self.blocks[body as usize];
                let visible = body.outputs.iter().filter(|output| !output.hidden).count();
                body.inputs.len() == node.inputs.len() && visible == gives + more
            };
            let fits = match &node.op {
                NodeOp::Task(task) => {
                    let spec = &self.tasks[*task as usize];
                    spec.inputs.len() == node.inputs.len() && spec.outputs.len().max(1) == gives
                }
                NodeOp::Fused(_) | NodeOp::Relay => true,
                NodeOp::Each { body, .. } => {
                    fits(*body, 0) && self.blocks[*body as usize].inputs.iter().any(|input| input.varying)
                }
                NodeOp::Call { body } => fits(*body, 0),
                NodeOp::Loop { body, carried } => {
                    let inputs = &self.blocks[*body as usize].inputs;
                    let varies = |at: usize| carried.iter().any(|(_, input)| usize::from(*input) == at);
                    fits(*body, 1)
                        && inputs.iter().enumerate().all(|(at, input)| input.varying == varies(at))
                        && carried.iter().all(|(output, _)| usize::from(*output) <= gives)
                }
                NodeOp::Choice { arms } => {
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

/// Checks that no opening, commit or join is too wide, that every node leads to the end of the block, and that hidden
/// outputs stand last.
fn shape(block: &Block) -> Result<(), String> {
    let wiring = BlockWiring::of(block);
    ensure(wiring.opening_deliveries() <= FAN_OUT_MAX, || String::from("its opening is too wide"))?;
    ensure(wiring.end.of <= BITMAP_BITS_MAX, || String::from("its end waits for too much"))?;
    let mut waited_for = vec![false; block.nodes.len()];
    for at in (0..block.nodes.len()).rev() {
        ensure(wiring.deliveries(at as u32) <= FAN_OUT_MAX, || format!("node {at} is too wide"))?;
        let joins = wiring.joins(at as u32).unwrap_or_default();
        ensure(joins.of <= BITMAP_BITS_MAX, || format!("node {at} waits for too much"))?;
        let leads = |to: &Consumer| match to {
            Consumer::Node(node) => waited_for[*node as usize],
            Consumer::End => true,
        };
        waited_for[at] = wiring.targets(at as u32).iter().any(|target| leads(&target.to));
        ensure(waited_for[at], || format!("no node waits for node {at}"))?;
    }
    let hidden = block.outputs.iter().skip_while(|output| !output.hidden);
    ensure(hidden.clone().all(|output| output.hidden), || String::from("hidden outputs stand last"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BlockInput, BlockOutput, Port, Type, program::ProgramArm};

    /// Returns a program of two equal blocks of one node.
    fn program(from: Source, op: NodeOp) -> Program {
        let port = Port::new("p", Type::Int);
        let outputs = [port.clone()].into();
        let node = Node { path: [].into(), op, inputs: [Source::Input(0)].into(), outputs, attempt: false, gate: None };
        let block = Block {
            inputs: vec![BlockInput { port: port.clone(), varying: false }],
            outputs: vec![BlockOutput { port, from, hidden: false }],
            nodes: vec![node],
            digest: crate::Digest::default(),
        };
        Program { blocks: vec![block.clone(), block], tasks: vec![], constants: vec![] }
    }

    #[test]
    fn a_program_that_refers_to_what_is_not_there_or_never_ends_is_not_sound() {
        let first = Source::Node(0, 0);
        for from in [first, Source::Input(0), Source::None] {
            assert!(program(from, NodeOp::Relay).is_sound(), "{from:?}");
        }
        for from in [Source::Node(1, 0), Source::Node(0, 1), Source::Input(1), Source::Constant(0)] {
            assert!(!program(from, NodeOp::Relay).is_sound(), "{from:?}");
        }
        assert!(program(first, NodeOp::Call { body: 1 }).is_sound(), "a flow may call itself");
        let endless = NodeOp::Choice { arms: [ProgramArm { guard: None, body: 1 }].into() };
        for op in
            [NodeOp::Task(0), NodeOp::Fused([].into()), NodeOp::Call { body: 0 }, NodeOp::Call { body: 2 }, endless]
        {
            assert!(!program(first, op.clone()).is_sound(), "{op:?}");
        }
        assert!(!Program { blocks: vec![], ..program(first, NodeOp::Relay) }.is_sound());
    }
}
