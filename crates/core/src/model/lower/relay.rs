//! Bounds the width of everything: no commit, and no opening of a block, brings something to more than
//! [`FAN_OUT_MAX`] ports. What is wider goes through relays, a tree of them if need be. Here also the nodes that nobody
//! reads become hidden outputs, so that a block does not end before they have.

use crate::{
    limits::{FAN_OUT_MAX, HIDDEN_OUTPUTS_MAX},
    model::{
        Block, BlockOutput, InstancePath, Node, PathSegment, Port, Program, Source, Type,
        program::{NodeIndex, NodeOp, PortIndex},
    },
    payload::Payload,
};

/// Bounds all blocks.
pub(super) fn relay(program: &mut Program) {
    program.constants.push(Payload::unit());
    let unit = Source::Constant(program.constants.len() as u32 - 1);
    for block in &mut program.blocks {
        hide(block);
        Wide { unit, count: 0, block }.narrow();
    }
}

/// Gives a hidden output to every node that nobody reads.
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

/// The path of a sibling.
fn beside(path: &[PathSegment], name: &str) -> Vec<PathSegment> {
    let around = &path[..path.len().saturating_sub(1)];
    around.iter().cloned().chain([PathSegment::Name(name.to_owned())]).collect()
}

fn relay_node(path: Vec<PathSegment>, ty: Type, inputs: Vec<Source>) -> Node {
    Node { path, op: NodeOp::Relay, inputs, outputs: [Port::new("value", ty)].into(), attempt: false, gate: None }
}

/// Something that is brought.
#[derive(Clone, Copy)]
enum Slot {
    Input(NodeIndex, PortIndex),
    Output(PortIndex),
    Gate(NodeIndex),
}

/// A source and all it is brought to. `None` is the opening as such, which enables what waits for nothing.
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
        let (opening, nodes) = self.fans();
        self.fit(opening);
        nodes.into_iter().for_each(|fans| self.fit(fans));
    }

    /// What the opening brings, and what each node does.
    fn fans(&self) -> (Vec<Fan>, Vec<Vec<Fan>>) {
        let fan = |source| Fan { source, slots: vec![] };
        let inputs = (0..self.block.inputs.len()).map(|at| fan(Some(Source::Input(at as PortIndex))));
        let mut opening: Vec<_> = inputs.chain([fan(None)]).collect();
        let of_node = |(at, node): (usize, &Node)| {
            let ports = 0..node.outputs.len() as PortIndex;
            ports.map(|port| fan(Some(Source::Node(at as NodeIndex, port)))).collect()
        };
        let mut nodes: Vec<Vec<_>> = self.block.nodes.iter().enumerate().map(of_node).collect();
        // Whether somebody brings it.
        let mut put = |source: Source, slot: Slot| {
            let fan = match source {
                Source::Node(node, port) => &mut nodes[node as usize][usize::from(port)],
                Source::Input(input) if self.block.inputs[usize::from(input)].varying => {
                    &mut opening[usize::from(input)]
                }
                Source::Input(_) | Source::Constant(_) | Source::None => return false,
            };
            fan.slots.push(slot);
            true
        };
        let mut waits_for_nothing = vec![];
        for (at, node) in self.block.nodes.iter().enumerate() {
            let mut delivered = false;
            for (port, source) in node.inputs.iter().enumerate() {
                delivered |= put(*source, Slot::Input(at as NodeIndex, port as PortIndex));
            }
            if !delivered {
                waits_for_nothing.push(Slot::Gate(at as NodeIndex));
            }
        }
        for (port, output) in self.block.outputs.iter().enumerate() {
            put(output.from, Slot::Output(port as PortIndex));
        }
        opening.last_mut().expect("the opening as such").slots = waits_for_nothing;
        (opening, nodes)
    }

    /// Puts relays between until all fans together fit into one batch.
    fn fit(&mut self, mut fans: Vec<Fan>) {
        while fans.iter().map(|fan| fan.slots.len()).sum::<usize>() > FAN_OUT_MAX {
            let widest = fans.iter_mut().max_by_key(|fan| fan.slots.len()).expect("the sum is not zero");
            assert!(widest.slots.len() > 1, "more ports than a module may have");
            let slots = std::mem::take(&mut widest.slots);
            widest.slots = slots.chunks(FAN_OUT_MAX).map(|chunk| self.insert(widest.source, chunk)).collect();
        }
    }

    /// A relay between a source and some of what it is brought to.
    fn insert(&mut self, source: Option<Source>, slots: &[Slot]) -> Slot {
        let relay = self.block.nodes.len() as NodeIndex;
        let path = beside(self.path(slots[0]), &format!("~relay{}", self.count));
        self.count += 1;
        let ty = source.map_or(Type::Unit, |source| self.ty(source));
        self.block.nodes.push(relay_node(path, ty, vec![source.unwrap_or(self.unit)]));
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
