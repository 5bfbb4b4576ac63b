//! Bounds the width of deliveries: no commit, and no opening of a block, delivers to more than [`FAN_OUT_MAX`] ports.
//! Wider deliveries go through relays, a tree of them if need be. Also turns nodes without readers into hidden outputs,
//! so that a block does not end before they have committed.

use crate::{
    limits::{FAN_OUT_MAX, HIDDEN_OUTPUTS_MAX},
    model::{
        Block, BlockOutput, InstancePath, Node, PathSegment, Port, Program, Source, Type,
        program::{NodeIndex, NodeOp, PortIndex},
    },
    payload::Payload,
};
use std::sync::Arc;

/// Inserts relays in all blocks.
pub(super) fn relay(program: &mut Program) {
    program.constants.push(Payload::unit());
    let unit = Source::Constant(program.constants.len() as u32 - 1);
    for block in &mut program.blocks {
        hide(block);
        Wide { unit, count: 0, block }.narrow();
    }
}

/// Adds a hidden output for every node without readers.
fn hide(block: &mut Block) {
    let mut read = vec![false; block.nodes.len()];
    let sources = block.nodes.iter().flat_map(Node::sources).chain(block.outputs.iter().map(|output| output.from));
    for source in sources {
        if let Source::Node(node, _) = source {
            read[node as usize] = true;
        }
    }
    let mut unread: Vec<_> = (0..block.nodes.len() as NodeIndex).filter(|node| !read[*node as usize]).collect();
    let mut joins = 0;
    while unread.len() > HIDDEN_OUTPUTS_MAX {
        let joined = unread.chunks(FAN_OUT_MAX).map(|chunk| {
            let path = beside(&block.nodes[chunk[0] as usize].path, &format!("~join{joins}"));
            let ty = block.nodes[chunk[0] as usize].outputs[0].ty.clone();
            let node = relay_node(path, ty, chunk.iter().map(|node| Source::Node(*node, 0)).collect());
            block.nodes.push(node);
            joins += 1;
            block.nodes.len() as NodeIndex - 1
        });
        unread = joined.collect();
    }
    for node in unread {
        let (path, ty) = (&block.nodes[node as usize].path, block.nodes[node as usize].outputs[0].ty.clone());
        let port = Port::new(format!("done:{}", InstancePath::root().address(path)), ty);
        block.outputs.push(BlockOutput { port, from: Source::Node(node, 0), hidden: true });
    }
}

/// Returns the path of a sibling.
fn beside(path: &[PathSegment], name: &str) -> Arc<[PathSegment]> {
    let around = &path[..path.len().saturating_sub(1)];
    around.iter().cloned().chain([PathSegment::Name(name.into())]).collect()
}

fn relay_node(path: Arc<[PathSegment]>, ty: Type, inputs: Box<[Source]>) -> Node {
    Node { path, op: NodeOp::Relay, inputs, outputs: [Port::new("value", ty)].into(), attempt: false, gate: None }
}

/// The destination of a delivery.
#[derive(Clone, Copy)]
enum Slot {
    Input(NodeIndex, PortIndex),
    Output(PortIndex),
    Gate(NodeIndex),
}

/// The source of a delivery: the opening of the block, or a node when it commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Producer {
    Opening,
    Node(NodeIndex),
}

/// A source and all destinations it is delivered to. `None` is the opening itself, which enables the nodes that wait
/// for nothing.
struct Fan {
    source: Option<Source>,
    slots: Vec<Slot>,
}

/// A block that may be too wide.
struct Wide<'a> {
    unit: Source,
    count: usize,
    block: &'a mut Block,
}

impl Wide<'_> {
    fn narrow(&mut self) {
        let wide = self.wide();
        let fans = self.fans(&wide);
        fans.into_iter().for_each(|fans| self.fit(fans));
    }

    /// Returns the producers that deliver to more ports than one batch can, the opening first.
    fn wide(&self) -> Vec<Producer> {
        let (mut opening, mut nodes) = (0_usize, vec![0_u32; self.block.nodes.len()]);
        self.each_slot(|producer, _, _| match producer {
            Producer::Opening => opening += 1,
            Producer::Node(node) => nodes[node as usize] += 1,
        });
        let wide = (0..).zip(nodes).filter(|(_, slots)| *slots as usize > FAN_OUT_MAX);
        let opening = (opening > FAN_OUT_MAX).then_some(Producer::Opening);
        opening.into_iter().chain(wide.map(|(node, _)| Producer::Node(node))).collect()
    }

    /// Calls `then` for every delivery, with its producer and its source; `None` is the opening itself.
    fn each_slot(&self, mut then: impl FnMut(Producer, Option<Source>, Slot)) {
        let mut put = |source: Source, slot: Slot| {
            let producer = match source {
                Source::Node(node, _) => Producer::Node(node),
                Source::Input(input) if self.block.inputs[usize::from(input)].varying => Producer::Opening,
                Source::Input(_) | Source::Constant(_) | Source::None => return false,
            };
            then(producer, Some(source), slot);
            true
        };
        let mut waits_for_nothing = vec![];
        for (at, node) in (0..).zip(&self.block.nodes) {
            let mut delivered = false;
            for (port, source) in (0..).zip(&node.inputs) {
                delivered |= put(*source, Slot::Input(at, port));
            }
            if !delivered {
                waits_for_nothing.push(at);
            }
        }
        for (port, output) in (0..).zip(&self.block.outputs) {
            put(output.from, Slot::Output(port));
        }
        waits_for_nothing.into_iter().for_each(|at| then(Producer::Opening, None, Slot::Gate(at)));
    }

    /// Returns the deliveries of each producer, by source: for the opening all inputs and then the opening itself, for
    /// a node all its outputs.
    fn fans(&self, of: &[Producer]) -> Vec<Vec<Fan>> {
        let fan = |source| Fan { source, slots: vec![] };
        let empty = |producer: &Producer| -> Vec<Fan> {
            match *producer {
                Producer::Opening => {
                    let inputs = (0..self.block.inputs.len()).map(|at| fan(Some(Source::Input(at as PortIndex))));
                    inputs.chain([fan(None)]).collect()
                }
                Producer::Node(node) => {
                    let ports = 0..self.block.nodes[node as usize].outputs.len() as PortIndex;
                    ports.map(|port| fan(Some(Source::Node(node, port)))).collect()
                }
            }
        };
        let mut fans: Vec<Vec<Fan>> = of.iter().map(empty).collect();
        if fans.is_empty() {
            return fans;
        }
        self.each_slot(|producer, source, slot| {
            if let Ok(at) = of.binary_search(&producer) {
                let fans = &mut fans[at];
                let port = match source {
                    Some(Source::Input(port) | Source::Node(_, port)) => usize::from(port),
                    Some(Source::Constant(_) | Source::None) | None => fans.len() - 1,
                };
                fans[port].slots.push(slot);
            }
        });
        fans
    }

    /// Inserts relays until all fans together fit into one batch.
    fn fit(&mut self, mut fans: Vec<Fan>) {
        while fans.iter().map(|fan| fan.slots.len()).sum::<usize>() > FAN_OUT_MAX {
            let widest = fans.iter_mut().max_by_key(|fan| fan.slots.len()).expect("the sum is not zero");
            assert!(widest.slots.len() > 1, "more ports than a module may have");
            let slots = std::mem::take(&mut widest.slots);
            widest.slots = slots.chunks(FAN_OUT_MAX).map(|chunk| self.insert(widest.source, chunk)).collect();
        }
    }

    /// Inserts a relay between a source and some of its destinations, and returns the relay's own destination slot.
    fn insert(&mut self, source: Option<Source>, slots: &[Slot]) -> Slot {
        let relay = self.block.nodes.len() as NodeIndex;
        let path = beside(self.path(slots[0]), &format!("~relay{}", self.count));
        self.count += 1;
        let ty = source.map_or(Type::Unit, |source| self.ty(source));
        self.block.nodes.push(relay_node(path, ty, [source.unwrap_or(self.unit)].into()));
        for slot in slots {
            let from = Source::Node(relay, 0);
            match *slot {
                Slot::Input(node, port) => self.block.nodes[node as usize].inputs[usize::from(port)] = from,
                Slot::Output(port) => self.block.outputs[usize::from(port)].from = from,
                Slot::Gate(node) => self.block.nodes[node as usize].gate = Some(from),
            }
        }
        if source.is_none() { Slot::Gate(relay) } else { Slot::Input(relay, 0) }
    }

    fn path(&self, slot: Slot) -> &[PathSegment] {
        match slot {
            Slot::Input(node, _) | Slot::Gate(node) => &self.block.nodes[node as usize].path,
            Slot::Output(_) => &[],
        }
    }

    fn ty(&self, source: Source) -> Type {
        match source {
            Source::Input(input) => self.block.inputs[usize::from(input)].port.ty.clone(),
            Source::Node(node, port) => self.block.nodes[node as usize].outputs[usize::from(port)].ty.clone(),
            Source::Constant(_) | Source::None => Type::Unit,
        }
    }
}
