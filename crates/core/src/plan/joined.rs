//! Separates eaches that were joined into one node (`lower/pipeline.rs`): users see each of them as a step of its own,
//! with a reason of its own.

use super::{
    change::{KeyedBlock, code, where_from},
    explain::{Explanation, ExplanationLine, Fate, Reason},
};
use crate::model::{
    Block, InstancePath, Node, PathSegment, Program, Source,
    program::{NodeIndex, NodeOp, PortIndex, ROOT},
};
use std::collections::BTreeMap;

/// One of the eaches joined into a node: its path, and the nodes of the body that belong to it.
struct Part {
    path: Vec<PathSegment>,
    nodes: Vec<NodeIndex>,
}

/// Returns the eaches joined into a node of the root block, in the order of their bodies; empty if the node is not an
/// each.
fn parts(program: &Program, node: &Node) -> Vec<Part> {
    let NodeOp::Each { body, .. } = &node.op else { return vec![] };
    let mut parts: Vec<Part> = vec![Part { path: node.path.to_vec(), nodes: vec![] }];
    for (at, inner) in (0..).zip(&program.blocks[*body as usize].nodes) {
        let Some(end) = inner.path.iter().position(|segment| *segment == PathSegment::Element) else { continue };
        if inner.op == NodeOp::Relay {
            continue;
        }
        match parts.iter_mut().find(|part| part.path == inner.path[..end]) {
            Some(part) => part.nodes.push(at),
            None => parts.push(Part { path: inner.path[..end].to_vec(), nodes: vec![at] }),
        }
    }
    parts
}

/// Returns the addresses of the eaches joined into a node; empty if it is a single step.
pub(super) fn addresses(program: &Program, node: &Node) -> Vec<String> {
    let parts = parts(program, node);
    if parts.len() < 2 { vec![] } else { parts.iter().map(|part| InstancePath::root().address(&part.path)).collect() }
}

/// Returns the address of the step that gives an output of a node of the root block, as users see it.
pub fn producer_address(program: &Program, node: NodeIndex, port: PortIndex) -> String {
    let node = &program.blocks[ROOT as usize].nodes[node as usize];
    let parts = parts(program, node);
    if parts.len() > 1
        && let Some(output) = body(program, node).outputs.get(usize::from(port))
        && let Source::Node(from, _) = output.from
        && let Some(part) = parts.iter().find(|part| part.nodes.contains(&from))
    {
        return InstancePath::root().address(&part.path);
    }
    InstancePath::root().address(&node.path)
}

/// Returns the explanation with one line for each of the joined eaches. `keyed` has the program and keys that the
/// stored values were computed with, if there are any, and those of the current program.
pub fn separate_joined_eaches(
    explanation: Explanation,
    program: &Program,
    keyed: Option<(KeyedBlock<'_>, KeyedBlock<'_>)>,
) -> Explanation {
    let root = &program.blocks[ROOT as usize];
    // The usual case: no node is joined, and the lines, possibly half a million, stay as they are.
    if root.nodes.iter().all(|node| parts(program, node).len() < 2) {
        return explanation;
    }
    let mut lines = Vec::with_capacity(explanation.lines.len());
    for mut line in explanation.lines {
        let node = &root.nodes[line.node as usize];
        if let Reason::SourceReruns { address } = &mut line.reason {
            let is_it = |node: NodeIndex| InstancePath::root().address(&root.nodes[node as usize].path) == *address;
            let found = node.inputs.iter().find_map(|source| match source {
                Source::Node(from, port) if is_it(*from) => Some(producer_address(program, *from, *port)),
                _ => None,
            });
            *address = found.unwrap_or_else(|| std::mem::take(address));
        }
        let parts = parts(program, node);
        if parts.len() < 2 {
            lines.push(line);
            continue;
        }
        let mut told = Told { keyed, node, line: &line, reasons: Vec::new() };
        parts.iter().for_each(|part| told.part(&parts, part));
        let of = parts.iter().zip(told.reasons).map(|(part, reason)| ExplanationLine {
            address: InstancePath::root().address(&part.path),
            reason,
            ..line.clone()
        });
        lines.extend(of);
    }
    Explanation { lines }
}

/// Collects the reasons of the parts of a node.
struct Told<'a> {
    /// The program and keys before, and now.
    keyed: Option<(KeyedBlock<'a>, KeyedBlock<'a>)>,
    node: &'a Node,
    line: &'a ExplanationLine,
    reasons: Vec<Reason>,
}

impl Told<'_> {
    fn part(&mut self, parts: &[Part], part: &Part) {
        let reason = match (self.line.fate, &self.line.reason) {
            (Fate::Run, Reason::NoValue | Reason::New) | (Fate::Reused | Fate::Skipped, _) => self.line.reason.clone(),
            (Fate::Run, _) => self.why(parts, part),
        };
        self.reasons.push(reason);
    }

    /// Returns why a part of a changed node runs: its own code, an input that it reads, an earlier part; else its
    /// output was not kept.
    fn why(&self, parts: &[Part], part: &Part) -> Reason {
        let Some((old, new)) = self.keyed else { return Reason::NoValue };
        let body = body(new.program, self.node);
        let Some((was, of)) = find(old.program, &part.path) else { return Reason::New };
        let (from, to) = (version(old.program, was, &of), version(new.program, self.node, part));
        if from != to {
            return Reason::CodeChanged { from, to };
        }
        let before = read(old.program, was, &of);
        for (name, source) in read(new.program, self.node, part) {
            let Some(had) = before.get(&name) else { return Reason::InputChanged { port: name } };
            if old.keys.source(*had) == new.keys.source(source) {
                continue;
            }
            let (old_root, root) = (&old.program.blocks[ROOT as usize], &new.program.blocks[ROOT as usize]);
            let is_same = where_from(root, source) == where_from(old_root, *had);
            return match source {
                Source::Node(from, port) if is_same => {
                    Reason::SourceReruns { address: producer_address(new.program, from, port) }
                }
                _ => Reason::InputChanged { port: name },
            };
        }
        let reads = part.nodes.iter().flat_map(|at| body.nodes[*at as usize].sources());
        let earlier = reads.filter_map(|source| match source {
            Source::Node(from, _) => parts[..self.reasons.len()].iter().position(|part| part.nodes.contains(&from)),
            _ => None,
        });
        match earlier.min() {
            Some(at) => Reason::SourceReruns { address: InstancePath::root().address(&parts[at].path) },
            None => Reason::NoValue,
        }
    }
}

fn body<'a>(program: &'a Program, node: &Node) -> &'a Block {
    match &node.op {
        NodeOp::Each { body, .. } => &program.blocks[*body as usize],
        _ => unreachable!("only eaches are joined"),
    }
}

/// Finds the each at a path, in whichever node it is joined.
fn find<'a>(program: &'a Program, path: &[PathSegment]) -> Option<(&'a Node, Part)> {
    let nodes = program.blocks[ROOT as usize].nodes.iter();
    nodes.filter_map(|node| Some((node, parts(program, node).into_iter().find(|part| part.path == path)?))).next()
}

/// Returns the code of a part as a short digest that users can compare.
fn version(program: &Program, node: &Node, part: &Part) -> String {
    let body = body(program, node);
    let all: Vec<_> = part.nodes.iter().map(|at| code(program, &body.nodes[*at as usize])).collect();
    let digest = blake3::hash(all.join("\n").as_bytes());
    format!("each {}", &digest.to_hex()[..8])
}

/// Returns the sources that a part reads from outside its node, by the name of the input.
fn read(program: &Program, node: &Node, part: &Part) -> BTreeMap<String, Source> {
    let body = body(program, node);
    let sources = part.nodes.iter().flat_map(|at| body.nodes[*at as usize].sources());
    let input = |port: PortIndex| {
        let name = body.inputs[usize::from(port)].port.name.clone();
        (name, node.inputs[usize::from(port)])
    };
    let direct = sources.filter_map(|source| if let Source::Input(port) = source { Some(input(port)) } else { None });
    direct.collect()
}
