//! Finds contradictions within a list of changes without reading the store. Runs in debug builds: a mistake here is a bug
//! in the code that made the list.

use crate::values::{Content, EdgeName, Element, ValueChange, ValueId, limits};
use onceflow_core::Name;
use std::collections::BTreeSet;

/// # Panics
/// If the changes contradict each other or exceed a limit.
pub(super) fn check(changes: &[ValueChange]) {
    let mut seen = Seen { later: changes.iter().filter_map(put_by).collect(), ..Seen::default() };
    changes.iter().for_each(|change| seen.change(change));
}

/// The new value that a change puts.
fn put_by(change: &ValueChange) -> Option<ValueId> {
    match change {
        ValueChange::Put { id, .. } => Some(id.clone()),
        _ => None,
    }
}

/// The values, edges and prefixes of the changes so far, and the values that are put later.
#[derive(Default)]
struct Seen<'a> {
    later: BTreeSet<ValueId>,
    put: BTreeSet<ValueId>,
    edges: BTreeSet<EdgeName>,
    closed: BTreeSet<&'a Name>,
}

impl<'a> Seen<'a> {
    fn change(&mut self, change: &'a ValueChange) {
        match change {
            ValueChange::Put { value, .. } => {
                value.refs.iter().for_each(|id| self.target(id));
                if let Content::Gathered { prefix, .. } = &value.content {
                    self.close(prefix);
                }
            }
            ValueChange::RequireValue { .. } => {}
            ValueChange::ReleaseHold { edge } => self.edge(edge, true),
            ValueChange::Move { edge, .. } => panic!("edge {edge} can only be moved by an update"),
            ValueChange::Set { edge, to, deadline } => {
                self.target(to);
                self.edge(edge, deadline.is_some());
            }
            ValueChange::Clear { edge, deadline, .. } => self.edge(edge, deadline.is_some()),
            ValueChange::Element { prefix, index, element } => {
                let edge = EdgeName::Element { prefix: prefix.clone(), index: *index };
                self.edge(&edge, false);
                match element {
                    Element::Ref(id) => self.target(id),
                    Element::Described { to, .. } => self.target(to),
                    Element::Inline(bytes) => {
                        assert!(bytes.len() <= limits::ELEMENT_BYTES_MAX, "element {edge} is over ELEMENT_BYTES_MAX");
                    }
                }
            }
            ValueChange::Release { prefix } => self.close(prefix),
        }
        self.put(change);
    }

    fn close(&mut self, prefix: &'a Name) {
        assert!(self.closed.insert(prefix), "{prefix:?} is gathered or released twice");
    }

    fn put(&mut self, change: &ValueChange) {
        let Some(id) = put_by(change) else { return };
        let is_new = self.put.insert(id.clone());
        // Two uploads of the same bytes are one blob.
        assert!(is_new || id.is_blob(), "value {id} is put twice");
        self.later.remove(&id);
    }

    /// A value that refers to a later one could be made to refer to itself.
    fn target(&self, id: &ValueId) {
        assert!(!self.later.contains(id), "value {id} is referred to before it is put");
        assert!(ValueId::checked(id.as_bytes()).is_some(), "an id is empty or over limits::ID_BYTES_MAX");
    }

    fn edge(&mut self, edge: &EdgeName, is_lease: bool) {
        assert!(self.edges.insert(edge.clone()), "edge {edge} occurs twice in one batch");
        assert!(edge.name().as_bytes().len() <= limits::ID_BYTES_MAX, "the name of {edge} is over ID_BYTES_MAX");
        if let EdgeName::Element { prefix, .. } = edge {
            assert!(!self.closed.contains(prefix), "element {edge} comes after its list");
            assert!(!is_lease, "element {edge} cannot be a lease: its list owns it");
        }
    }
}
