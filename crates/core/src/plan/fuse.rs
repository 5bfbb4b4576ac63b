//! Merges neighbouring steps that need no checkpoint between them into one step with one commit.
//!
//! A producer joins its consumer if both are `pure` tasks (or fused already), every reader of every output of the
//! producer is that consumer, they request the same class, retry, timeout and resources, and neither has a compensation
//! or stands under `attempt`. Other inputs of the consumer do not matter. Steps are never merged across the border of a
//! block (kernel rule 29). The values computed are the same, and so are their provenance keys; block digests stay.

use crate::{
    adjacency::Adjacency,
    limits::CLAIM_ROWS_MAX,
    model::{
        Block, Effect, FusedSource, FusedTask, Node, Program, Source, TaskSpec,
        program::{NodeIndex, NodeOp, PortIndex},
    },
};
use std::borrow::Cow;

/// The most tasks in one step, and so the most tasks whose work is lost when a worker dies in it.
pub const FUSED_TASKS_MAX: usize = 64;

/// Switches merging of steps. Part of the plan's generation; off under `keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fusion {
    /// Merge steps where the rules allow it.
    #[default]
    On,
    /// Leave every step its own checkpoint.
    Off,
}

/// Merges steps in every block. Deterministic: the same program gives the same result. Linear in nodes and connections,
/// up to the bound on tasks in one step.
pub fn fuse(program: &Program, fusion: Fusion) -> Cow<'_, Program> {
    if fusion == Fusion::Off {
        return Cow::Borrowed(program);
    }
    let blocks: Vec<_> = program.blocks.iter().map(|block| fuse_block(&program.tasks, block)).collect();
    if blocks.iter().all(Option::is_none) {
        return Cow::Borrowed(program);
    }
    let fused = blocks.into_iter().zip(&program.blocks).map(|(fused, block)| fused.unwrap_or_else(|| block.clone()));
    Cow::Owned(Program { blocks: fused.collect(), tasks: program.tasks.clone(), constants: program.constants.clone() })
}

/// Returns the block with merged steps; `None` if there are none to merge.
fn fuse_block(tasks: &[TaskSpec], block: &Block) -> Option<Block> {
    let (readers, outside) = readers(block);
    let nodes = Cow::Borrowed(&block.nodes[..]);
    let into = (0..nodes.len() as NodeIndex).collect();
    let mut merging = Merging { tasks, readers, outside, nodes, into };
    for consumer in 0..merging.nodes.len() as NodeIndex {
        while let Some(producer) = merging.producer_for(consumer) {
            merging.merge(producer, consumer);
        }
    }
    let Merging { into, nodes: Cow::Owned(nodes), .. } = merging else { return None };
    let is_left = |at: &usize| into[*at] == *at as NodeIndex;
    let mut new_index = vec![0; nodes.len()];
    (0..nodes.len()).filter(is_left).zip(0..).for_each(|(at, new)| new_index[at] = new);
    let renumber = |source: &mut Source| {
        if let Source::Node(node, _) = source {
            *node = new_index[*node as usize];
        }
    };
    let mut nodes: Vec<_> = nodes.into_iter().enumerate().filter(|(at, _)| is_left(at)).map(|(_, node)| node).collect();
    nodes.shrink_to_fit();
    nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.gate)).for_each(renumber);
    let mut outputs = block.outputs.clone();
    outputs.iter_mut().for_each(|output| renumber(&mut output.from));
    Some(Block { inputs: block.inputs.clone(), outputs, nodes, digest: block.digest })
}

/// Returns per node its readers, ascending; and per node whether the end of the block reads it or another node's gate
/// waits for it.
fn readers(block: &Block) -> (Adjacency, Vec<bool>) {
    let read = (0..).zip(&block.nodes).flat_map(|(at, node)| {
        node.inputs.iter().filter_map(move |source| match source {
            Source::Node(from, _) => Some((*from, at)),
            Source::Input(_) | Source::Constant(_) | Source::None => None,
        })
    });
    let readers = Adjacency::new(block.nodes.len(), read);
    let mut outside = vec![false; block.nodes.len()];
    let sources = block.outputs.iter().map(|output| output.from).chain(block.nodes.iter().filter_map(|node| node.gate));
    for source in sources {
        if let Source::Node(from, _) = source {
            outside[from as usize] = true;
        }
    }
    (readers, outside)
}

struct Merging<'t> {
    tasks: &'t [TaskSpec],
    readers: Adjacency,
    outside: Vec<bool>,
    /// The block's nodes; cloned when the first steps are merged.
    nodes: Cow<'t, [Node]>,
    /// Per node the node it was merged into; itself at first.
    into: Vec<NodeIndex>,
}

impl Merging<'_> {
    /// Returns the last node before `consumer` that can be merged into it.
    fn producer_for(&self, consumer: NodeIndex) -> Option<NodeIndex> {
        let to = &self.nodes[consumer as usize];
        let spec = self.spec(to)?;
        let producers = to.inputs.iter().filter_map(|source| match source {
            Source::Node(node, _) => Some(*node),
            Source::Input(_) | Source::Constant(_) | Source::None => None,
        });
        producers.filter(|producer| self.can_join(*producer, consumer, spec)).max()
    }

    fn can_join(&self, producer: NodeIndex, consumer: NodeIndex, spec: &TaskSpec) -> bool {
        let (from, to) = (&self.nodes[producer as usize], &self.nodes[consumer as usize]);
        let readers = self.readers.row(producer as usize);
        !self.outside[producer as usize]
            && readers.iter().all(|reader| self.root(*reader) == consumer)
            && self.spec(from).is_some_and(|other| alike(spec, other))
            && tasks_in(from) + tasks_in(to) <= FUSED_TASKS_MAX
            && from.inputs.len() + to.inputs.len() <= CLAIM_ROWS_MAX
            && (from.gate.is_none() || to.gate.is_none() || from.gate == to.gate)
    }

    /// Returns the node that `node` has been merged into so far.
    fn root(&self, mut node: NodeIndex) -> NodeIndex {
        while self.into[node as usize] != node {
            node = self.into[node as usize];
        }
        node
    }

    /// Returns the task spec of a node that may be fused, `None` for any other; all tasks of a fused node are alike.
    fn spec(&self, node: &Node) -> Option<&TaskSpec> {
        let task = match &node.op {
            NodeOp::Task(task) => *task,
            NodeOp::Fused(tasks) => tasks.first()?.task,
            _ => return None,
        };
        let spec = &self.tasks[task as usize];
        (spec.effect == Effect::Pure && spec.compensation.is_none() && !node.attempt).then_some(spec)
    }

    fn merge(&mut self, producer: NodeIndex, consumer: NodeIndex) {
        // The producer's tasks are moved, not copied: a chain is merged one by one, and repeated copies of all earlier
        // tasks would add up.
        let nodes = self.nodes.to_mut();
        let mut tasks = take_tasks(&mut nodes[producer as usize]);
        let from = &mut nodes[producer as usize];
        let (from_inputs, from_gate) = (std::mem::take(&mut from.inputs), from.gate);
        let gave = outputs_of(&tasks, from.outputs.len());
        let mut inputs = Vec::new();
        for task in &mut tasks {
            task.inputs.iter_mut().for_each(|input| *input = outer(*input, &from_inputs, &mut inputs));
            task.outputs.fill(None);
        }
        let before = tasks.len() as u16;
        let to = &mut nodes[consumer as usize];
        for mut task in take_tasks(to) {
            for input in &mut task.inputs {
                *input = match *input {
                    FusedSource::Task(task, port) => FusedSource::Task(task + before, port),
                    FusedSource::Input(at) => match to.inputs[usize::from(at)] {
                        Source::Node(node, port) if node == producer => {
                            let (task, port) = gave[usize::from(port)];
                            FusedSource::Task(task, port)
                        }
                        _ => outer(*input, &to.inputs, &mut inputs),
                    },
                };
            }
            tasks.push(task);
        }
        to.gate = to.gate.or(from_gate);
        to.inputs = inputs.into();
        to.op = NodeOp::Fused(tasks.into());
        self.into[producer as usize] = consumer;
    }
}

/// Maps an input from outside to an input of the merged step; equal sources share one input.
fn outer(input: FusedSource, sources: &[Source], inputs: &mut Vec<Source>) -> FusedSource {
    let FusedSource::Input(at) = input else { return input };
    let source = sources[usize::from(at)];
    let known = inputs.iter().position(|known| *known == source).unwrap_or_else(|| {
        inputs.push(source);
        inputs.len() - 1
    });
    FusedSource::Input(known as PortIndex)
}

fn tasks_in(node: &Node) -> usize {
    if let NodeOp::Fused(tasks) = &node.op { tasks.len() } else { 1 }
}

/// Takes the tasks out of a node that is about to be replaced.
fn take_tasks(node: &mut Node) -> Vec<FusedTask> {
    match std::mem::replace(&mut node.op, NodeOp::Relay) {
        NodeOp::Fused(tasks) => tasks.into_vec(),
        NodeOp::Task(task) => vec![FusedTask {
            task,
            path: node.path.clone(),
            inputs: (0..node.inputs.len() as PortIndex).map(FusedSource::Input).collect(),
            outputs: (0..node.outputs.len() as PortIndex).map(Some).collect(),
        }],
        _ => unreachable!("only tasks are merged"),
    }
}

/// Returns, per output of a node of these tasks, the task that gives it and the task's output.
fn outputs_of(tasks: &[FusedTask], outputs: usize) -> Vec<(u16, PortIndex)> {
    let mut found = vec![(0, 0); outputs];
    for (at, task) in (0..).zip(tasks) {
        for (port, output) in (0..).zip(&task.outputs) {
            output.iter().for_each(|output| found[usize::from(*output)] = (at, port));
        }
    }
    found
}

/// The two tasks have the same class, retry, timeout and resources, so they may run in one step.
fn alike(one: &TaskSpec, other: &TaskSpec) -> bool {
    one.class == other.class
        && one.retry == other.retry
        && one.timeout_ms == other.timeout_ms
        && one.resources == other.resources
}
