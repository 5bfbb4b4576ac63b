//! Decides whether a stored value is still valid: its *provenance key* covers everything it was computed from.
//!
//! The key of an output is a digest of the code that computed it (a task's name and version, or a container's body) and
//! of the keys of the inputs it depends on, and so on up to the content of the block's inputs and of constants. So keys
//! are computed forward, and validity is transitive: a value whose source is no longer valid has another key, even if
//! the old source is still stored and fits it.
//!
//! Not in a key: paths, retries, timeouts, resources, classes, concurrency, relays, gates, and whether tasks are fused.
//! Cost: linear in nodes, ports and connections.

use crate::{
    digest::Digest,
    model::{
        Block, FusedSource, Node, PathSegment, Port, Program, Source, Type,
        program::{BlockIndex, NodeIndex, NodeOp, PortIndex},
        task::DONE,
    },
};
use std::collections::BTreeMap;

/// Identifies everything a value was computed from. Equal keys mean equal values (unless the code is not
/// deterministic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProvenanceKey(pub Digest);

/// The keys of all outputs of the nodes of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceKeys {
    /// Per node and one more: where its outputs begin.
    from: Vec<u32>,
    outputs: Vec<ProvenanceKey>,
    inputs: Vec<ProvenanceKey>,
    constants: Vec<ProvenanceKey>,
}

impl ProvenanceKeys {
    /// Computes the keys of `block`, given the digests of its inputs; `None` is an input without a value.
    pub fn new(program: &Program, block: BlockIndex, inputs: &[Option<Digest>]) -> Self {
        let block = &program.blocks[block as usize];
        assert_eq!(block.inputs.len(), inputs.len(), "every input of the block has a digest or is none");
        let mut keys = ProvenanceKeys {
            from: vec![0],
            outputs: Vec::new(),
            inputs: inputs.iter().copied().map(content).collect(),
            constants: program.constants.iter().map(|constant| content(Some(constant.digest()))).collect(),
        };
        for node in &block.nodes {
            let sources: Vec<_> = node.inputs.iter().map(|source| keys.source(*source)).collect();
            keys.outputs.extend(node_keys(program, node, &sources));
            keys.from.push(keys.outputs.len() as u32);
        }
        keys
    }

    /// Returns the key of one output.
    pub fn output(&self, node: NodeIndex, port: PortIndex) -> ProvenanceKey {
        self.outputs[self.from[node as usize] as usize + usize::from(port)]
    }

    /// Returns the key of a port's source.
    pub fn source(&self, source: Source) -> ProvenanceKey {
        match source {
            Source::Input(input) => self.inputs[usize::from(input)],
            Source::Node(node, port) => self.output(node, port),
            Source::Constant(constant) => self.constants[constant as usize],
            Source::None => content(None),
        }
    }
}

/// Hashes parts so that no two different lists of parts give the same digest.
struct Parts(blake3::Hasher);

impl Parts {
    fn new(what: &str) -> Self {
        let mut parts = Parts(blake3::Hasher::new_derive_key("onceflow provenance"));
        parts.text(what);
        parts
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn key(&mut self, key: ProvenanceKey) {
        self.0.update(key.0.as_bytes());
    }

    fn ty(&mut self, ty: &Type) {
        match ty {
            Type::List(of) | Type::Option(of) => {
                self.text(if matches!(ty, Type::List(_)) { "list" } else { "option" });
                self.ty(of);
            }
            Type::Record(fields) => {
                self.text("record");
                self.number(fields.len() as u64);
                for (name, ty) in fields {
                    self.text(name);
                    self.ty(ty);
                }
            }
            Type::Named(name) => {
                self.text("named");
                self.text(name);
            }
            plain => self.text(&plain.to_string()),
        }
    }

    fn finish(self) -> ProvenanceKey {
        ProvenanceKey(self.0.finalize().into())
    }
}

/// Returns the key of content that was not computed: a constant and an input with equal content have the same key.
fn content(digest: Option<Digest>) -> ProvenanceKey {
    let mut parts = Parts::new(if digest.is_some() { "content" } else { "none" });
    digest.iter().for_each(|digest| parts.key(ProvenanceKey(*digest)));
    parts.finish()
}

/// Returns the keys of a node's outputs, from those of its inputs.
fn node_keys(program: &Program, node: &Node, sources: &[ProvenanceKey]) -> Vec<ProvenanceKey> {
    match &node.op {
        NodeOp::Task(task) => task_keys(program, *task, node.attempt, &node.outputs, sources),
        NodeOp::Fused(tasks) => {
            let mut inner: Vec<Vec<ProvenanceKey>> = Vec::with_capacity(tasks.len());
            let mut keys = vec![content(None); node.outputs.len()];
            for task in tasks {
                let source = |source: &FusedSource| match source {
                    FusedSource::Input(input) => sources[usize::from(*input)],
                    FusedSource::Task(task, port) => inner[usize::from(*task)][usize::from(*port)],
                };
                let sources: Vec<_> = task.inputs.iter().map(source).collect();
                let done = [Port::new(DONE, Type::Unit)];
                let outputs = &program.tasks[task.task as usize].outputs;
                let outputs = if outputs.is_empty() { &done } else { outputs.as_slice() };
                let these = task_keys(program, task.task, false, outputs, &sources);
                for (key, output) in these.iter().zip(&task.outputs) {
                    output.iter().for_each(|output| keys[usize::from(*output)] = *key);
                }
                inner.push(these);
            }
            keys
        }
        NodeOp::Relay => vec![sources[0]; node.outputs.len()],
        NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Choice { .. } | NodeOp::Call { .. } => {
            let key = |(at, port): (usize, &Port)| {
                let mut parts = container(program, &node.op);
                parts.number(u64::from(node.attempt));
                parts.number(at as u64);
                parts.ty(&port.ty);
                sources.iter().for_each(|source| parts.key(*source));
                parts.finish()
            };
            node.outputs.iter().enumerate().map(key).collect()
        }
    }
}

fn task_keys(
    program: &Program,
    task: u32,
    attempt: bool,
    outputs: &[Port],
    sources: &[ProvenanceKey],
) -> Vec<ProvenanceKey> {
    let task = &program.tasks[task as usize];
    let key = |(at, port): (usize, &Port)| {
        let mut parts = Parts::new("task");
        parts.text(&task.name);
        parts.text(&task.version);
        parts.number(u64::from(attempt));
        parts.text(&port.name);
        parts.ty(&port.ty);
        for (input, source) in sources.iter().enumerate().filter(|(input, _)| task.depends(at, *input)) {
            parts.text(&task.inputs[input].name);
            parts.key(*source);
        }
        parts.finish()
    };
    outputs.iter().enumerate().map(key).collect()
}

/// Starts the key of a container: its kind and its bodies, without its inputs.
fn container(program: &Program, op: &NodeOp) -> Parts {
    let body = |parts: &mut Parts, body: BlockIndex| {
        let block = &program.blocks[body as usize];
        parts.key(ProvenanceKey(block.digest));
        block.inputs.iter().for_each(|input| parts.number(u64::from(input.varying)));
    };
    match op {
        NodeOp::Each { body: at, .. } => {
            let mut parts = Parts::new("each");
            body(&mut parts, *at);
            parts
        }
        NodeOp::Loop { body: at, carried } => {
            let mut parts = Parts::new("loop");
            body(&mut parts, *at);
            parts.number(carried.len() as u64);
            for (output, input) in carried {
                parts.number(u64::from(*output) << 16 | u64::from(*input));
            }
            parts
        }
        NodeOp::Choice { arms } => {
            let mut parts = Parts::new("choice");
            for arm in arms {
                parts.number(arm.guard.map_or(u64::MAX, u64::from));
                body(&mut parts, arm.body);
            }
            parts
        }
        NodeOp::Call { body: at } => {
            let mut parts = Parts::new("call");
            body(&mut parts, *at);
            parts
        }
        NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => unreachable!("not a container"),
    }
}

/// Returns the address of an output: the path of the node that gives it (inside a fused step, of the task) and its
/// name.
pub fn output_address(node: &Node, port: PortIndex) -> (&[PathSegment], &str) {
    let inside = match &node.op {
        NodeOp::Fused(tasks) => tasks.iter().find(|task| task.outputs.contains(&Some(port))).map(|task| &task.path),
        _ => None,
    };
    (inside.unwrap_or(&node.path), &node.outputs[usize::from(port)].name)
}

/// Returns the outputs of the new block whose old value is still valid, with their old indices: same address, same key.
pub fn still_valid(
    (old, old_keys): (&Block, &ProvenanceKeys),
    (new, new_keys): (&Block, &ProvenanceKeys),
) -> BTreeMap<(NodeIndex, PortIndex), (NodeIndex, PortIndex)> {
    let before: BTreeMap<_, _> = outputs(old).map(|(node, port)| (address(old, node, port), (node, port))).collect();
    outputs(new)
        .filter_map(|(node, port)| {
            let (was, port_was) = *before.get(&address(new, node, port))?;
            (old_keys.output(was, port_was) == new_keys.output(node, port)).then_some(((node, port), (was, port_was)))
        })
        .collect()
}

fn outputs(block: &Block) -> impl Iterator<Item = (NodeIndex, PortIndex)> {
    let nodes = (0..).zip(&block.nodes);
    nodes.flat_map(|(at, node)| (0..node.outputs.len() as PortIndex).map(move |port| (at, port)))
}

fn address(block: &Block, node: NodeIndex, port: PortIndex) -> (&[PathSegment], &str) {
    output_address(&block.nodes[node as usize], port)
}
