//! Finds which step of a program reads from which: every piece of user code, with all containers around it, and the
//! pieces and inputs that feed it, however many containers, relays and helpers lie in between.

use super::scene::is_step;
use crate::words;
use onceflow_core::model::{
    FusedSource, FusedTask, InstancePath, PathSegment, Program,
    program::{BlockIndex, NodeIndex, NodeOp, ROOT, Source},
};
use std::collections::{BTreeMap, BTreeSet};

/// A piece of user code, as one address with `*` for numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) address: String,
    /// The task, unless it is a flow that calls itself.
    pub(super) task: Option<u32>,
    /// The addresses of the eaches around it, as the program has them, the innermost last.
    pub(super) eaches: Vec<String>,
    /// The leaf is in a choice, so it may not run.
    pub(super) in_choice: bool,
    /// Its failure is an output.
    pub(super) attempt: bool,
}

/// The source of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feed {
    Leaf(usize),
    Input(u16),
}

/// Blocks as they are opened from the root, each once.
struct Scope {
    block: BlockIndex,
    place: InstancePath,
    /// The node that opens it, and the scope that is in.
    up: Option<(usize, NodeIndex)>,
    guard: Option<u16>,
    eaches: Vec<String>,
    in_choice: bool,
}

/// Readers and their sources.
pub(super) struct Trace<'a> {
    program: &'a Program,
    scopes: Vec<Scope>,
    below: BTreeMap<(usize, NodeIndex), Vec<usize>>,
    pub(super) leaves: Vec<Leaf>,
    /// The leaves of a node: several if it is fused.
    at: BTreeMap<(usize, NodeIndex), Vec<usize>>,
    /// The address of a leaf.
    of: Vec<(usize, NodeIndex)>,
    /// Leaves that are not drawn, because they are helpers: their readers count as readers of what they read.
    clear: Vec<bool>,
}

impl<'a> Trace<'a> {
    pub(super) fn of(program: &'a Program) -> Self {
        let mut trace = Trace {
            program,
            scopes: vec![],
            below: BTreeMap::new(),
            leaves: vec![],
            at: BTreeMap::new(),
            of: vec![],
            clear: vec![],
        };
        let root =
            Scope { block: ROOT, place: InstancePath::root(), up: None, guard: None, eaches: vec![], in_choice: false };
        trace.enter(root, &mut BTreeSet::new());
        let steps = trace.leaves.iter().filter(|leaf| is_step(&leaf.address));
        let known: BTreeSet<_> = steps.map(|leaf| words::step(&leaf.address)).collect();
        let is_clear = |leaf: &Leaf| !known.contains(&words::step(&leaf.address));
        trace.clear = trace.leaves.iter().map(is_clear).collect();
        trace
    }

    /// A leaf is shown to people.
    pub(super) fn is_seen(&self, leaf: usize) -> bool {
        !self.clear[leaf]
    }

    fn enter(&mut self, scope: Scope, around: &mut BTreeSet<BlockIndex>) -> usize {
        let (at, block) = (self.scopes.len(), scope.block);
        self.scopes.push(scope);
        around.insert(block);
        for node in 0..self.program.blocks[block as usize].nodes.len() {
            self.node(at, node as NodeIndex, around);
        }
        around.remove(&block);
        at
    }

    fn node(&mut self, scope: usize, index: NodeIndex, around: &mut BTreeSet<BlockIndex>) {
        let program = self.program;
        let node = &program.blocks[self.scopes[scope].block as usize].nodes[index as usize];
        let place = self.scopes[scope].place.clone();
        let address = place.address(&node.path);
        let bodies: Vec<(BlockIndex, Option<u16>)> = match &node.op {
            NodeOp::Relay => return,
            NodeOp::Task(task) => return self.leaf(scope, index, &node.path, Some(*task), node.attempt),
            NodeOp::Fused(tasks) => {
                for fused in tasks {
                    self.leaf(scope, index, &fused.path, Some(fused.task), node.attempt);
                }
                return;
            }
            NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => vec![(*body, None)],
            NodeOp::Choice { arms } => arms.iter().map(|arm| (arm.body, arm.guard)).collect(),
        };
        if bodies.iter().any(|(body, _)| around.contains(body)) {
            return self.leaf(scope, index, &node.path, None, node.attempt);
        }
        let mut eaches = self.scopes[scope].eaches.clone();
        if let NodeOp::Each { .. } = node.op {
            eaches.push(address);
        }
        let in_choice = self.scopes[scope].in_choice || matches!(node.op, NodeOp::Choice { .. });
        let place = if let NodeOp::Call { .. } = node.op { place.called(node) } else { place };
        for (block, guard) in bodies {
            let inside = Scope {
                block,
                place: place.clone(),
                up: Some((scope, index)),
                guard,
                eaches: eaches.clone(),
                in_choice,
            };
            let entered = self.enter(inside, around);
            self.below.entry((scope, index)).or_default().push(entered);
        }
    }

    fn leaf(&mut self, scope: usize, node: NodeIndex, path: &[PathSegment], task: Option<u32>, attempt: bool) {
        let Scope { place, eaches, in_choice, .. } = &self.scopes[scope];
        let leaf = Leaf { address: place.address(path), task, eaches: eaches.clone(), in_choice: *in_choice, attempt };
        self.at.entry((scope, node)).or_default().push(self.leaves.len());
        self.leaves.push(leaf);
        self.of.push((scope, node));
    }

    /// The sources of a leaf.
    pub(super) fn feeds(&self, leaf: usize) -> BTreeSet<Feed> {
        let mut walk = Walk { trace: self, found: BTreeSet::new(), seen: BTreeSet::new() };
        walk.leaf(leaf);
        walk.found.remove(&Feed::Leaf(leaf));
        self.lists(leaf, &mut walk);
        walk.found
    }

    /// Adds the lists whose elements a leaf runs for, though it may read none of them. A leaf that reads from another
    /// inside the same each comes after that one anyway.
    fn lists(&self, leaf: usize, walk: &mut Walk<'_, 'a>) {
        let mut scope = self.of[leaf].0;
        while let Some((up, index)) = self.scopes[scope].up {
            let node = &self.program.blocks[self.scopes[up].block as usize].nodes[index as usize];
            let is_inside = |feed: &Feed| matches!(feed, Feed::Leaf(other) if self.is_within(self.of[*other].0, scope));
            if let NodeOp::Each { body, .. } = node.op
                && !walk.found.iter().any(is_inside)
            {
                let inputs = &self.program.blocks[body as usize].inputs;
                let lists = node.inputs.iter().zip(inputs).filter(|(_, input)| input.varying);
                lists.for_each(|(source, _)| walk.source(up, *source));
            }
            scope = up;
        }
    }

    /// A scope is the other, or inside it.
    fn is_within(&self, mut scope: usize, around: usize) -> bool {
        loop {
            if scope == around {
                return true;
            }
            match self.scopes[scope].up {
                Some((up, _)) => scope = up,
                None => return false,
            }
        }
    }

    /// The sources of the flow's outputs, by name.
    pub(super) fn outputs(&self) -> Vec<(String, BTreeSet<Feed>)> {
        let outputs = self.program.blocks[ROOT as usize].outputs.iter().filter(|output| !output.hidden);
        let one = |output: &onceflow_core::model::BlockOutput| {
            let mut walk = Walk { trace: self, found: BTreeSet::new(), seen: BTreeSet::new() };
            walk.source(0, output.from);
            (output.port.name.clone(), walk.found)
        };
        outputs.map(one).collect()
    }
}

/// One walk against the connections.
struct Walk<'t, 'a> {
    trace: &'t Trace<'a>,
    found: BTreeSet<Feed>,
    seen: BTreeSet<(usize, Source)>,
}

impl<'a> Walk<'_, 'a> {
    /// Visits all that a leaf reads, and the sources that decide whether it runs.
    fn leaf(&mut self, leaf: usize) {
        let (scope, node) = self.trace.of[leaf];
        match self.fused(scope, node) {
            Some(tasks) => self.fused_leaf(leaf, tasks),
            None => self.node(scope, node),
        }
        let mut scope = scope;
        while let Some((up, node)) = self.trace.scopes[scope].up {
            if let Some(guard) = self.trace.scopes[scope].guard {
                let block = self.trace.scopes[up].block as usize;
                let guard = self.trace.program.blocks[block].nodes[node as usize].inputs[usize::from(guard)];
                self.source(up, guard);
            }
            scope = up;
        }
    }

    /// Returns the tasks of a fused node.
    fn fused(&self, scope: usize, node: NodeIndex) -> Option<&'a [FusedTask]> {
        let block = self.trace.scopes[scope].block as usize;
        match &self.trace.program.blocks[block].nodes[node as usize].op {
            NodeOp::Fused(tasks) => Some(tasks),
            _ => None,
        }
    }

    /// Visits the inputs of one task of a fused node.
    fn fused_leaf(&mut self, leaf: usize, tasks: &[FusedTask]) {
        let (scope, node) = self.trace.of[leaf];
        let siblings = &self.trace.at[&(scope, node)];
        let block = self.trace.scopes[scope].block as usize;
        let inputs = &self.trace.program.blocks[block].nodes[node as usize].inputs;
        for source in &tasks[leaf - siblings[0]].inputs {
            match source {
                FusedSource::Input(port) => self.source(scope, inputs[usize::from(*port)]),
                FusedSource::Task(at, _) => self.reads(siblings[usize::from(*at)]),
            }
        }
    }

    /// Adds a leaf that is read; for one that is not drawn, the leaves that it reads.
    fn reads(&mut self, leaf: usize) {
        match self.trace.clear[leaf] {
            true => self.leaf(leaf),
            false => drop(self.found.insert(Feed::Leaf(leaf))),
        }
    }

    fn node(&mut self, scope: usize, node: NodeIndex) {
        let block = self.trace.scopes[scope].block as usize;
        for source in self.trace.program.blocks[block].nodes[node as usize].sources() {
            self.source(scope, source);
        }
    }

    fn source(&mut self, scope: usize, source: Source) {
        if !self.seen.insert((scope, source)) {
            return;
        }
        let trace = self.trace;
        match source {
            Source::Constant(_) | Source::None => {}
            Source::Input(port) => match trace.scopes[scope].up {
                None => drop(self.found.insert(Feed::Input(port))),
                Some((up, node)) => {
                    let block = trace.scopes[up].block as usize;
                    let inputs = &trace.program.blocks[block].nodes[node as usize].inputs;
                    if let Some(source) = inputs.get(usize::from(port)) {
                        self.source(up, *source);
                    }
                }
            },
            Source::Node(node, port) => {
                if let Some(leaves) = trace.at.get(&(scope, node)) {
                    let gives = |at: usize| match self.fused(scope, node) {
                        Some(tasks) => tasks[at].outputs.contains(&Some(port)),
                        None => true,
                    };
                    let giving: Vec<_> = (0..leaves.len()).filter(|at| gives(*at)).map(|at| leaves[at]).collect();
                    giving.into_iter().for_each(|leaf| self.reads(leaf));
                } else if let Some(bodies) = trace.below.get(&(scope, node)) {
                    for body in bodies {
                        self.given(*body, port);
                    }
                } else {
                    self.node(scope, node);
                }
            }
        }
    }

    /// The sources of a body's output port; the failure port of an attempt has all of them.
    fn given(&mut self, scope: usize, port: u16) {
        let outputs = &self.trace.program.blocks[self.trace.scopes[scope].block as usize].outputs;
        match outputs.get(usize::from(port)).filter(|output| !output.hidden) {
            Some(output) => self.source(scope, output.from),
            None => outputs.iter().for_each(|output| self.source(scope, output.from)),
        }
    }
}
