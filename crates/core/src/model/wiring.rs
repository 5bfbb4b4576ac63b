//! The wiring of a program: which consumer waits for which sources. The engine reads it at every commit, so it is
//! computed once, when the program is loaded.
//!
//! A consumer, that is a node or the end of its block, waits for its *delivering sources*: the distinct nodes that feed
//! it, and the opening of the block if that brings it a varying input. Each is one bit of the consumer's join. Values
//! that the frame holds (inputs that do not vary, constants, none) are read from there and not waited for.

use super::program::{Block, BlockIndex, Node, NodeIndex, PortIndex, Program, Source};

/// The wiring of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// By [`BlockIndex`].
    pub blocks: Vec<BlockWiring>,
}

/// The wiring of a block. Flat, because a block may have a million nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockWiring {
    /// Per node: the deliveries it waits for.
    joins: Vec<Joins>,
    /// Per node and one more: where its deliveries begin.
    starts: Vec<u32>,
    deliveries: Vec<Delivery>,
    /// The deliveries the block waits for before it ends.
    pub end: Joins,
    /// The deliveries and nodes that the opening of an instance triggers.
    pub opening: Opening,
}

/// The join of a consumer: how many sources it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joins {
    /// The number of delivering sources. With 0 the opening itself enables the consumer.
    pub of: u32,
}

/// A delivery from one source to one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The consumer.
    pub to: Consumer,
    /// The index of this source among the consumer's delivering sources, below its `joins.of`. The opening, if it is
    /// one of them, is 0; nodes follow in their order.
    pub bit: u32,
    /// Pairs of the node's output (for the opening: the block's input) and the consumer's input (for the end: the
    /// block's output). Empty for a consumer that only waits: see [`Node::gate`].
    pub ports: PortPairs,
}

/// Pairs of ports. Nearly every delivery has one pair, so one pair needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortPairs {
    /// One pair.
    One([(PortIndex, PortIndex); 1]),
    /// Any number of pairs.
    Several(Box<[(PortIndex, PortIndex)]>),
}

impl std::ops::Deref for PortPairs {
    type Target = [(PortIndex, PortIndex)];

    fn deref(&self) -> &Self::Target {
        match self {
            PortPairs::One(pair) => pair,
            PortPairs::Several(pairs) => pairs,
        }
    }
}

impl FromIterator<(PortIndex, PortIndex)> for PortPairs {
    fn from_iter<I: IntoIterator<Item = (PortIndex, PortIndex)>>(pairs: I) -> Self {
        let mut pairs = pairs.into_iter();
        match (pairs.next(), pairs.next()) {
            (Some(pair), None) => PortPairs::One([pair]),
            (first, second) => PortPairs::Several(first.into_iter().chain(second).chain(pairs).collect()),
        }
    }
}

/// The consumer of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumer {
    /// A node of the same block.
    Node(NodeIndex),
    /// The end of the block: its outputs.
    End,
}

/// The deliveries and nodes that the opening of an instance triggers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// The deliveries of varying inputs: every consumer once, nodes ascending, the end last.
    pub targets: Vec<Delivery>,
    /// The nodes that wait for nothing, ascending.
    pub enabled: Vec<NodeIndex>,
    /// The end waits for nothing.
    pub end_enabled: bool,
}

/// A delivering source. The order is that of the bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Producer {
    Opening,
    Node(NodeIndex),
}

impl Wiring {
    /// Computes the wiring of `program`.
    pub fn of(program: &Program) -> Self {
        Wiring { blocks: program.blocks.iter().map(BlockWiring::of).collect() }
    }

    /// Returns the wiring of one block.
    pub fn block(&self, block: BlockIndex) -> &BlockWiring {
        &self.blocks[block as usize]
    }
}

/// One delivering source of a consumer, with the ports it connects; without ports, the consumer only waits for it.
type Bring = (Producer, Option<(PortIndex, PortIndex)>);

impl BlockWiring {
    /// Computes the wiring of `block`.
    pub fn of(block: &Block) -> Self {
        let count = block.nodes.len();
        let mut wiring = BlockWiring {
            joins: Vec::with_capacity(count),
            starts: vec![0; count + 1],
            deliveries: vec![],
            end: Joins::default(),
            opening: Opening::default(),
        };
        // Two passes over all consumers: the first counts the deliveries of every node, the second writes them.
        let mut brought = Vec::new();
        for at in 0..count as NodeIndex {
            let of = wiring.count(brought_to_node(block, at, &mut brought));
            wiring.joins.push(Joins { of });
            if of == 0 {
                wiring.opening.enabled.push(at);
            }
        }
        let of = wiring.count(brought_to_end(block, &mut brought));
        wiring.end = Joins { of };
        wiring.opening.end_enabled = of == 0;
        for node in 0..count {
            wiring.starts[node + 1] += wiring.starts[node];
        }
        let nothing = Delivery { to: Consumer::End, bit: 0, ports: PortPairs::One([(0, 0)]) };
        wiring.deliveries = vec![nothing; wiring.starts[count] as usize];
        for at in 0..count as NodeIndex {
            wiring.deliver(Consumer::Node(at), brought_to_node(block, at, &mut brought));
        }
        wiring.deliver(Consumer::End, brought_to_end(block, &mut brought));
        // The second pass has advanced each start to the end of its span, where the next one was.
        wiring.starts.rotate_right(1);
        wiring.starts[0] = 0;
        assert_eq!(wiring.starts[count] as usize, wiring.deliveries.len(), "as much is delivered as was counted");
        wiring
    }

    /// Counts the deliveries to one consumer, per producing node, and returns the number of its sources.
    fn count(&mut self, brought: &[Bring]) -> u32 {
        let mut of = 0;
        for from in brought.chunk_by(|one, other| one.0 == other.0) {
            of += 1;
            if let Producer::Node(node) = from[0].0 {
                self.starts[node as usize + 1] += 1;
            }
        }
        of
    }

    fn deliver(&mut self, to: Consumer, brought: &[Bring]) {
        for (bit, from) in (0..).zip(brought.chunk_by(|one, other| one.0 == other.0)) {
            let ports = from.iter().filter_map(|(_, pair)| *pair).collect();
            let delivery = Delivery { to, bit, ports };
            match from[0].0 {
                Producer::Opening => self.opening.targets.push(delivery),
                Producer::Node(node) => {
                    let at = &mut self.starts[node as usize];
                    self.deliveries[*at as usize] = delivery;
                    *at += 1;
                }
            }
        }
    }

    /// Returns the join of a node; `None` if there is no such node.
    pub fn joins(&self, node: NodeIndex) -> Option<Joins> {
        self.joins.get(node as usize).copied()
    }

    /// Returns the deliveries of a node's commit: every consumer once, nodes ascending, the end last.
    pub fn targets(&self, node: NodeIndex) -> &[Delivery] {
        &self.deliveries[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// Returns the deliveries of all nodes and of the opening.
    pub fn all_targets(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().chain(&self.opening.targets)
    }

    /// Returns the number of (consumer, port) pairs that the commit of `node` delivers to.
    pub fn deliveries(&self, node: NodeIndex) -> usize {
        deliveries(self.targets(node))
    }

    /// Returns the number of (consumer, port) pairs an opening delivers to, plus the nodes it enables.
    pub fn opening_deliveries(&self) -> usize {
        deliveries(&self.opening.targets) + self.opening.enabled.len()
    }
}

/// Collects the deliveries to a node, ordered by source and then by input.
fn brought_to_node<'b>(block: &Block, at: NodeIndex, brought: &'b mut Vec<Bring>) -> &'b [Bring] {
    let node = &block.nodes[at as usize];
    let gate = node.gate.and_then(|source| producer(block, source)).map(|(from, _)| (from, None));
    collect(block, node.inputs.iter().copied(), gate, brought)
}

fn brought_to_end<'b>(block: &Block, brought: &'b mut Vec<Bring>) -> &'b [Bring] {
    collect(block, block.outputs.iter().map(|output| output.from), None, brought)
}

fn collect<'b>(
    block: &Block,
    sources: impl Iterator<Item = Source>,
    gate: Option<Bring>,
    brought: &'b mut Vec<Bring>,
) -> &'b [Bring] {
    brought.clear();
    for (input, source) in (0..).zip(sources) {
        brought.extend(producer(block, source).map(|(from, output)| (from, Some((output, input)))));
    }
    brought.extend(gate);
    // Stable: the inputs of a consumer keep their order.
    brought.sort_by_key(|(from, _)| *from);
    brought
}

/// Counts the ports delivered to. A target that only waits counts as one.
fn deliveries(targets: &[Delivery]) -> usize {
    targets.iter().map(|target| target.ports.len().max(1)).sum()
}

/// Returns the producer that delivers this source, and its port; `None` if the frame holds the value.
fn producer(block: &Block, source: Source) -> Option<(Producer, PortIndex)> {
    match source {
        Source::Node(node, port) => Some((Producer::Node(node), port)),
        Source::Input(input) if block.inputs[usize::from(input)].varying => Some((Producer::Opening, input)),
        Source::Input(_) | Source::Constant(_) | Source::None => None,
    }
}

impl Node {
    /// Returns all sources the node reads or waits for: its inputs, and its gate.
    pub fn sources(&self) -> impl Iterator<Item = Source> {
        self.inputs.iter().copied().chain(self.gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BlockInput, BlockOutput, Port, Type, program::NodeOp};

    fn node(inputs: Vec<Source>, outputs: usize) -> Node {
        let outputs = (0..outputs).map(|at| Port::new(format!("o{at}"), Type::Int)).collect();
        Node { path: [].into(), op: NodeOp::Relay, inputs: inputs.into(), outputs, attempt: false, gate: None }
    }

    fn pairs(pairs: &[(PortIndex, PortIndex)]) -> PortPairs {
        pairs.iter().copied().collect()
    }

    fn input(varying: bool) -> BlockInput {
        BlockInput { port: Port::new("x", Type::Int), varying }
    }

    fn output(from: Source) -> BlockOutput {
        BlockOutput { port: Port::new("p", Type::Int), from, hidden: false }
    }

    fn block(inputs: Vec<BlockInput>, nodes: Vec<Node>, outputs: Vec<Source>) -> Block {
        Block { inputs, nodes, outputs: outputs.into_iter().map(output).collect(), digest: crate::Digest::default() }
    }

    #[test]
    fn several_ports_from_one_source_are_one_bit() {
        let nodes = vec![
            node(vec![Source::Input(0)], 2),
            node(vec![Source::Node(0, 1), Source::Input(0), Source::Constant(0), Source::Node(0, 0)], 1),
        ];
        let wiring = BlockWiring::of(&block(vec![input(true)], nodes, vec![Source::Node(1, 0), Source::Node(0, 0)]));
        assert_eq!(wiring.joins(1), Some(Joins { of: 2 }));
        assert_eq!(
            wiring.targets(0),
            [
                Delivery { to: Consumer::Node(1), bit: 1, ports: pairs(&[(1, 0), (0, 3)]) },
                Delivery { to: Consumer::End, bit: 0, ports: pairs(&[(0, 1)]) }
            ]
        );
        assert_eq!(
            wiring.opening.targets,
            [
                Delivery { to: Consumer::Node(0), bit: 0, ports: pairs(&[(0, 0)]) },
                Delivery { to: Consumer::Node(1), bit: 0, ports: pairs(&[(0, 1)]) }
            ]
        );
        assert_eq!((wiring.end, wiring.opening.enabled.len()), (Joins { of: 2 }, 0));
        assert_eq!((wiring.deliveries(0), wiring.opening_deliveries()), (3, 2));
    }

    #[test]
    fn inputs_held_by_the_frame_are_not_waited_for() {
        let nodes = vec![node(vec![Source::Input(0), Source::None], 1)];
        let wiring = BlockWiring::of(&block(vec![input(false)], nodes, vec![Source::Input(0), Source::Constant(3)]));
        assert_eq!(wiring.opening, Opening { targets: vec![], enabled: vec![0], end_enabled: true });
    }

    #[test]
    fn a_gate_is_waited_for_and_brings_nothing() {
        let mut gated = node(vec![Source::Constant(0)], 1);
        gated.gate = Some(Source::Node(0, 0));
        let wiring = BlockWiring::of(&block(vec![], vec![node(vec![], 1), gated], vec![Source::Node(1, 0)]));
        assert_eq!(wiring.targets(0), [Delivery { to: Consumer::Node(1), bit: 0, ports: pairs(&[]) }]);
        assert_eq!(wiring.joins(1), Some(Joins { of: 1 }));
        assert_eq!((wiring.deliveries(0), wiring.opening.enabled), (1, vec![0]));
    }
}
