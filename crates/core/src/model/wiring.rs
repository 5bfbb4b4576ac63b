//! Who waits for whom: what the engine asks of a program at every commit, computed once when the program is loaded.
//!
//! A consumer, that is a node or the end of its block, waits for its *delivering sources*: the distinct nodes that feed
//! it, and the opening of the block if that brings it a varying input. Each is one bit of the consumer's join. What a
//! frame holds (inputs that do not vary, constants, none) is read from there and is not waited for.

use super::program::{Block, BlockIndex, Node, NodeIndex, PortIndex, Program, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The wiring of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// By [`BlockIndex`].
    pub blocks: Vec<BlockWiring>,
}

/// The wiring of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockWiring {
    /// By [`NodeIndex`].
    pub nodes: Vec<NodeWiring>,
    /// What must arrive before the block ends.
    pub end: Joins,
    /// What happens when an instance opens.
    pub opening: Opening,
}

/// The wiring of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWiring {
    /// What must arrive here.
    pub joins: Joins,
    /// Who gets something when this node commits: every consumer once, nodes ascending, the end last.
    pub targets: Vec<Delivery>,
}

/// What a consumer waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joins {
    /// Delivering sources. With 0 the opening itself enables the consumer.
    pub of: u32,
}

/// What one source brings to one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who gets it.
    pub to: Consumer,
    /// Which of the consumer's delivering sources this is, below its `joins.of`. The opening, if it is one, is 0; nodes
    /// follow in their order.
    pub bit: u32,
    /// My output (for the opening: the block's input), and the consumer's input (for the end: the block's output). Empty
    /// for one that only waits: see [`Node::gate`].
    pub ports: Vec<(PortIndex, PortIndex)>,
}

/// Who gets something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumer {
    /// A node of the same block.
    Node(NodeIndex),
    /// The end of the block: its outputs.
    End,
}

/// What happens when an instance opens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Who gets varying inputs: every consumer once, nodes ascending, the end last.
    pub targets: Vec<Delivery>,
    /// The nodes that wait for nothing, ascending.
    pub enabled: Vec<NodeIndex>,
    /// Whether the end waits for nothing.
    pub end_enabled: bool,
}

/// What delivers. The order is that of the bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Producer {
    Opening,
    Node(NodeIndex),
}

impl Wiring {
    /// The wiring of `program`.
    pub fn of(program: &Program) -> Self {
        Wiring { blocks: program.blocks.iter().map(BlockWiring::of).collect() }
    }

    /// The wiring of one block.
    pub fn block(&self, block: BlockIndex) -> &BlockWiring {
        &self.blocks[block as usize]
    }
}

impl BlockWiring {
    /// The wiring of `block`.
    pub fn of(block: &Block) -> Self {
        let mut wiring = BlockWiring {
            nodes: vec![NodeWiring::default(); block.nodes.len()],
            end: Joins::default(),
            opening: Opening::default(),
        };
        for (at, node) in block.nodes.iter().enumerate() {
            let at = at as NodeIndex;
            let gate = node.gate.iter().filter_map(|source| producer(block, *source)).map(|(from, _)| from);
            let of = wiring.connect(block, Consumer::Node(at), &node.inputs, gate.collect());
            wiring.nodes[at as usize].joins = Joins { of };
            if of == 0 {
                wiring.opening.enabled.push(at);
            }
        }
        let outputs: Vec<_> = block.outputs.iter().map(|output| output.from).collect();
        let of = wiring.connect(block, Consumer::End, &outputs, BTreeSet::new());
        wiring.end = Joins { of };
        wiring.opening.end_enabled = of == 0;
        wiring
    }

    /// Tells all that feed `to`, and says how many they are.
    fn connect(&mut self, block: &Block, to: Consumer, inputs: &[Source], gates: BTreeSet<Producer>) -> u32 {
        let mut from: BTreeMap<_, Vec<_>> = gates.into_iter().map(|gate| (gate, Vec::new())).collect();
        for (input, source) in inputs.iter().enumerate() {
            if let Some((producer, output)) = producer(block, *source) {
                from.entry(producer).or_default().push((output, input as PortIndex));
            }
        }
        let of = from.len() as u32;
        for (bit, (producer, ports)) in from.into_iter().enumerate() {
            let target = Delivery { to, bit: bit as u32, ports };
            match producer {
                Producer::Opening => self.opening.targets.push(target),
                Producer::Node(node) => self.nodes[node as usize].targets.push(target),
            }
        }
        of
    }

    /// The (consumer, port) pairs that the commit of `node` brings something to.
    pub fn deliveries(&self, node: NodeIndex) -> usize {
        deliveries(&self.nodes[node as usize].targets)
    }

    /// The (consumer, port) pairs an opening brings something to, and the nodes it enables.
    pub fn opening_deliveries(&self) -> usize {
        deliveries(&self.opening.targets) + self.opening.enabled.len()
    }
}

/// A target that only waits is a delivery too.
fn deliveries(targets: &[Delivery]) -> usize {
    targets.iter().map(|target| target.ports.len().max(1)).sum()
}

/// Who delivers from this source, and at which port; `None` if it is held by the frame.
fn producer(block: &Block, source: Source) -> Option<(Producer, PortIndex)> {
    match source {
        Source::Node(node, port) => Some((Producer::Node(node), port)),
        Source::Input(input) if block.inputs[usize::from(input)].varying => Some((Producer::Opening, input)),
        Source::Input(_) | Source::Constant(_) | Source::None => None,
    }
}

impl Node {
    /// All it waits for or reads: its inputs, and its gate.
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
        Node { path: vec![], op: NodeOp::Relay, inputs, outputs, attempt: false, gate: None }
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
        assert_eq!(wiring.nodes[1].joins, Joins { of: 2 });
        assert_eq!(
            wiring.nodes[0].targets,
            [
                Delivery { to: Consumer::Node(1), bit: 1, ports: vec![(1, 0), (0, 3)] },
                Delivery { to: Consumer::End, bit: 0, ports: vec![(0, 1)] }
            ]
        );
        assert_eq!(
            wiring.opening.targets,
            [
                Delivery { to: Consumer::Node(0), bit: 0, ports: vec![(0, 0)] },
                Delivery { to: Consumer::Node(1), bit: 0, ports: vec![(0, 1)] }
            ]
        );
        assert_eq!((wiring.end, wiring.opening.enabled.len()), (Joins { of: 2 }, 0));
        assert_eq!((wiring.deliveries(0), wiring.opening_deliveries()), (3, 2));
    }

    #[test]
    fn what_the_frame_holds_is_not_waited_for() {
        let nodes = vec![node(vec![Source::Input(0), Source::None], 1)];
        let wiring = BlockWiring::of(&block(vec![input(false)], nodes, vec![Source::Input(0), Source::Constant(3)]));
        assert_eq!(wiring.opening, Opening { targets: vec![], enabled: vec![0], end_enabled: true });
    }

    #[test]
    fn a_gate_is_waited_for_and_brings_nothing() {
        let mut gated = node(vec![Source::Constant(0)], 1);
        gated.gate = Some(Source::Node(0, 0));
        let wiring = BlockWiring::of(&block(vec![], vec![node(vec![], 1), gated], vec![Source::Node(1, 0)]));
        assert_eq!(wiring.nodes[0].targets, [Delivery { to: Consumer::Node(1), bit: 0, ports: vec![] }]);
        assert_eq!(wiring.nodes[1].joins, Joins { of: 1 });
        assert_eq!((wiring.deliveries(0), wiring.opening.enabled), (1, vec![0]));
    }
}
