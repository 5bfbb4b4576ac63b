//! Drops nodes and ports that no requested output needs, port by port and through all containers.
//!
//! A task is needed for one of its outputs, and then needs the inputs that output depends on. An input that no needed
//! output depends on is none if its type is an option; otherwise it is needed all the same (kernel rule 25). Tasks
//! without outputs belong to "all outputs" (rule 18): they, and the containers with one inside, stay exactly if
//! everything is requested. A task *with* outputs that nothing reads is dropped, whatever its effect is: to run it,
//! request one of its outputs.

mod rewrite;

use crate::model::{
    Block, Node, Program, Source, TaskSpec, Type,
    program::{BlockIndex, NodeOp},
};
use std::collections::BTreeSet;

/// Prunes all blocks. All outputs that the root block still has are requested.
pub(super) fn prune(program: &mut Program, everything: bool) {
    let keep = if everything { with_done(program) } else { vec![BTreeSet::new(); program.blocks.len()] };
    let mut needs = Needs::nothing(program, keep);
    needs.outputs[0].fill(true);
    needs.inputs[0].fill(true);
    needs.spread(program);
    rewrite::rewrite(program, &needs);
}

/// The ports and nodes found to be needed so far. The set only grows.
struct Needs {
    /// Per block and output: it is needed.
    outputs: Vec<Vec<bool>>,
    /// Per block and input: a node or an output inside reads it.
    inputs: Vec<Vec<bool>>,
    /// Per block: its needed nodes.
    nodes: Vec<NodeNeeds>,
    /// Per block: the nodes that are needed although nothing reads them.
    keep: Vec<BTreeSet<usize>>,
    /// Per block: the blocks that contain a node that opens it.
    around: Vec<Vec<BlockIndex>>,
    /// Per block and input: it varies.
    varying: Vec<Vec<bool>>,
}

/// The nodes of a block that are needed so far, and their outputs.
struct NodeNeeds {
    /// Per node: it is needed, even if none of its outputs is.
    needed: Vec<bool>,
    /// Per node and one more: where its outputs begin.
    starts: Vec<u32>,
    outputs: Vec<bool>,
}

impl NodeNeeds {
    fn nothing(block: &Block) -> Self {
        let mut starts = Vec::with_capacity(block.nodes.len() + 1);
        let mut count = 0;
        starts.push(count);
        starts.extend(block.nodes.iter().map(|node| {
            count += node.outputs.len() as u32;
            count
        }));
        NodeNeeds { needed: vec![false; block.nodes.len()], starts, outputs: vec![false; count as usize] }
    }

    fn span(&self, node: usize) -> std::ops::Range<usize> {
        self.starts[node] as usize..self.starts[node + 1] as usize
    }

    /// Returns, per output of a node, whether it is needed; `None` if the node is not.
    fn of(&self, node: usize) -> Option<&[bool]> {
        self.needed[node].then(|| &self.outputs[self.span(node)])
    }

    fn need(&mut self, node: usize) {
        self.needed[node] = true;
    }

    fn need_output(&mut self, node: usize, port: usize) {
        let span = self.span(node);
        self.outputs[span][port] = true;
        self.needed[node] = true;
    }
}

/// Returns, per block, the tasks without outputs, and the containers with such a task inside.
fn with_done(program: &Program) -> Vec<BTreeSet<usize>> {
    let mut keep = vec![BTreeSet::new(); program.blocks.len()];
    loop {
        let is_kept = |node: &Node| match &node.op {
            NodeOp::Task(task) => program.tasks[*task as usize].outputs.is_empty(),
            op => bodies(op).iter().any(|body| !keep[*body as usize].is_empty()),
        };
        let nodes = |block: &Block| {
            let kept = block.nodes.iter().enumerate().filter(|(_, node)| is_kept(node));
            kept.map(|(at, _)| at).collect()
        };
        let next: Vec<_> = program.blocks.iter().map(nodes).collect();
        if next == keep {
            return keep;
        }
        keep = next;
    }
}

/// Returns the bodies of an operation.
pub(crate) fn bodies(op: &NodeOp) -> Vec<BlockIndex> {
    match op {
        NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => vec![],
        NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => vec![*body],
        NodeOp::Choice { arms } => arms.iter().map(|arm| arm.body).collect(),
    }
}

impl Needs {
    fn nothing(program: &Program, keep: Vec<BTreeSet<usize>>) -> Self {
        let mut around = vec![vec![]; program.blocks.len()];
        for (at, block) in program.blocks.iter().enumerate() {
            for body in block.nodes.iter().flat_map(|node| bodies(&node.op)) {
                around[body as usize].push(at as BlockIndex);
            }
        }
        let blocks = || program.blocks.iter();
        Needs {
            outputs: blocks().map(|block| vec![false; block.outputs.len()]).collect(),
            inputs: blocks().map(|block| vec![false; block.inputs.len()]).collect(),
            nodes: blocks().map(NodeNeeds::nothing).collect(),
            keep,
            around,
            varying: blocks().map(|block| block.inputs.iter().map(|input| input.varying).collect()).collect(),
        }
    }

    /// Propagates needs until nothing more becomes needed.
    fn spread(&mut self, program: &Program) {
        let mut changed: BTreeSet<_> = [0].into();
        // Innermost blocks first: their needs are then known to the blocks around them.
        while let Some(block) = changed.pop_last() {
            self.block(program, block, &mut changed);
        }
    }

    fn block(&mut self, program: &Program, index: BlockIndex, changed: &mut BTreeSet<BlockIndex>) {
        let (at, block) = (index as usize, &program.blocks[index as usize]);
        let before = self.inputs[at].clone();
        for (output, from) in block.outputs.iter().map(|output| output.from).enumerate() {
            if self.outputs[at][output] {
                self.source(at, from);
            }
        }
        self.keep[at].iter().for_each(|node| self.nodes[at].need(*node));
        for (number, node) in block.nodes.iter().enumerate().rev() {
            if !self.nodes[at].needed[number] {
                continue;
            }
            if !bodies(&node.op).is_empty() {
                let outputs = self.nodes[at].outputs[self.nodes[at].span(number)].to_vec();
                self.pass_down(node, &outputs, changed);
            }
            for (input, source) in node.inputs.iter().enumerate() {
                let reads = |outputs: &[bool]| self.reads(&program.tasks, node, outputs, input);
                if self.nodes[at].of(number).is_some_and(reads) {
                    self.source(at, *source);
                }
            }
        }
        if self.inputs[at] != before {
            changed.extend(&self.around[at]);
        }
    }

    fn source(&mut self, block: usize, source: Source) {
        match source {
            Source::Input(input) => self.inputs[block][usize::from(input)] = true,
            Source::Node(node, port) => self.nodes[block].need_output(node as usize, usize::from(port)),
            Source::Constant(_) | Source::None => {}
        }
    }

    /// Marks the outputs of a needed node as needed in its bodies, and visits the bodies in any case.
    fn pass_down(&mut self, node: &Node, outputs: &[bool], changed: &mut BTreeSet<BlockIndex>) {
        // The `error` output is known to be none only when all outputs are there, so it needs them all.
        let all = node.attempt && outputs.last() == Some(&true);
        for body in bodies(&node.op) {
            let at = body as usize;
            let before = self.outputs[at].clone();
            for (output, needed) in self.outputs[at].iter_mut().zip(outputs) {
                *output |= *needed || all;
            }
            if let NodeOp::Loop { carried, .. } = &node.op {
                if let Some(condition) = self.outputs[at].last_mut() {
                    *condition = true;
                }
                for (output, input) in carried {
                    let reads = self.inputs[at][usize::from(*input)];
                    self.outputs[at][usize::from(*output)] |= reads;
                }
            }
            let entered = self.nodes[at].needed.contains(&true) || self.keep[at].is_empty();
            if self.outputs[at] != before || !entered {
                changed.insert(body);
            }
        }
    }

    fn reads(&self, tasks: &[TaskSpec], node: &Node, outputs: &[bool], input: usize) -> bool {
        match &node.op {
            NodeOp::Task(task) => {
                let spec = &tasks[*task as usize];
                let must = !matches!(spec.inputs[input].ty, Type::Option(_)) || !outputs.contains(&true);
                must || (0..outputs.len()).any(|output| outputs[output] && spec.depends(output, input))
            }
            NodeOp::Fused(_) | NodeOp::Relay => true,
            NodeOp::Each { body, .. } => self.takes(*body, input),
            NodeOp::Loop { body, .. } | NodeOp::Call { body } => self.inputs[*body as usize][input],
            NodeOp::Choice { arms } => {
                let guards = arms.iter().any(|arm| arm.guard.is_some_and(|guard| usize::from(guard) == input));
                guards || arms.iter().any(|arm| self.inputs[arm.body as usize][input])
            }
        }
    }

    /// The each reads this input. Iterated lists give the number of elements, so they are needed even if no element is.
    fn takes(&self, body: BlockIndex, input: usize) -> bool {
        self.inputs[body as usize][input] || self.varying[body as usize][input]
    }
}
