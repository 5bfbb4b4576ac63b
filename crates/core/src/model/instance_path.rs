//! Addresses: the names by which users see the nodes of a running program, `/align[3]/sort`, `/refine@7/solve`.
//!
//! A node's path has all of its address but the element and iteration numbers, and the address of the call around it.
//! Those are the [`InstancePath`] of an instance.

use super::program::{BlockIndex, Node, NodeIndex, PathSegment, Program};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A module of this name adds nothing to an address, so it has the address of the module around it: the module that
/// does the work of a step that is also an each or a choice.
pub const NAMELESS: &str = "-";

/// The position of an instance of a block, as far as addresses need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstancePath {
    /// The address of the nearest call around it; empty at the root.
    pub call: String,
    /// The elements and iterations since then, outermost first.
    pub numbers: Vec<u64>,
}

impl InstancePath {
    /// Returns the path of the root instance of a run.
    pub fn root() -> Self {
        InstancePath::default()
    }

    /// Returns the path of the instance for one element of an each, or one iteration of a loop, whose node is in this
    /// instance.
    pub fn numbered(&self, number: u64) -> Self {
        let numbers = self.numbers.iter().copied().chain([number]).collect();
        InstancePath { call: self.call.clone(), numbers }
    }

    /// Returns the path of the instance that the call node `node` of this instance opens. (An arm of a choice has the
    /// path of the instance its choice is in.)
    pub fn called(&self, node: &Node) -> Self {
        InstancePath { call: self.address(&node.path), numbers: Vec::new() }
    }

    /// Returns the address of a node with this path in this instance. Unknown numbers print as `*`.
    pub fn address(&self, path: &[PathSegment]) -> String {
        let mut address = self.call.clone();
        let mut numbers = self.numbers.iter();
        let mut next = || numbers.next().map_or_else(|| String::from("*"), u64::to_string);
        for segment in path {
            let written = match segment {
                PathSegment::Name(name) if **name == *NAMELESS => Ok(()),
                PathSegment::Name(name) => write!(address, "/{name}"),
                PathSegment::Element => write!(address, "[{}]", next()),
                PathSegment::Iteration => write!(address, "@{}", next()),
            };
            written.expect("writing to a string cannot fail");
        }
        if address.is_empty() {
            address.push('/');
        }
        address
    }
}

impl Program {
    /// Returns the address of a node of the instance at `place`.
    pub fn address(&self, block: BlockIndex, node: NodeIndex, place: &InstancePath) -> String {
        place.address(&self.blocks[block as usize].nodes[node as usize].path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_takes_its_numbers_from_the_outside_in() {
        let name = |name: &str| PathSegment::Name(name.into());
        let path = [name("align"), PathSegment::Element, name("refine"), PathSegment::Iteration, name("solve")];
        let place = InstancePath::root().numbered(3).numbered(7);
        assert_eq!(place.address(&path), "/align[3]/refine@7/solve");
        assert_eq!(InstancePath::root().address(&path), "/align[*]/refine@*/solve");
        let below = InstancePath { call: place.address(&path), numbers: vec![0] };
        assert_eq!(below.address(&path[..2]), "/align[3]/refine@7/solve/align[0]");
        assert_eq!(InstancePath::root().address(&[]), "/");
        assert_eq!(place.address(&[name("align"), PathSegment::Element, name(NAMELESS)]), "/align[3]");
    }
}
