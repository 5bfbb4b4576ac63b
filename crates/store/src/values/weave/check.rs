//! What can be seen to be wrong in a weave without looking at the store. Asked in debug builds: a mistake here is one in
//! the code that made the weave.

use super::Weave;
use crate::values::{
    Element,
    id::{EdgeName, ValueId},
    limits,
};
use onceflow_core::Name;
use std::collections::BTreeSet;

/// # Panics
/// If the changes cannot be meant.
pub(super) fn check(changes: &[Weave]) {
    let mut seen = Seen { later: changes.iter().filter_map(put_by).collect(), ..Seen::default() };
    changes.iter().for_each(|change| seen.change(change));
}

/// The new value that a change puts.
fn put_by(change: &Weave) -> Option<ValueId> {
    match change {
        Weave::Put { id, .. } | Weave::Gather { id, .. } => Some(id.clone()),
        Weave::Blob(upload) => Some(upload.id()),
        Weave::There { .. } | Weave::Let { .. } => None,
        Weave::Set { .. } | Weave::Clear { .. } | Weave::Element { .. } | Weave::Release { .. } => None,
    }
}

/// What stood in the changes so far, and what is still to come.
#[derive(Default)]
struct Seen<'a> {
    later: BTreeSet<ValueId>,
    put: BTreeSet<ValueId>,
    edges: BTreeSet<EdgeName>,
    closed: BTreeSet<&'a Name>,
}

impl<'a> Seen<'a> {
    fn change(&mut self, change: &'a Weave) {
        match change {
            Weave::Put { value, .. } => value.refs.iter().for_each(|id| self.target(id)),
            Weave::Blob(_) | Weave::There { .. } => {}
            Weave::Let { edge } => self.edge(edge, true),
            Weave::Set { edge, to, deadline } => {
                self.target(to);
                self.edge(edge, deadline.is_some());
            }
            Weave::Clear { edge, deadline, .. } => self.edge(edge, deadline.is_some()),
            Weave::Element { prefix, index, element } => {
                let edge = EdgeName::Element { prefix: prefix.clone(), index: *index };
                self.edge(&edge, false);
                match element {
                    Element::Ref(id) => self.target(id),
                    Element::Inline(bytes) => {
                        assert!(bytes.len() <= limits::ELEMENT_BYTES_MAX, "element {edge} is over ELEMENT_BYTES_MAX");
                    }
                }
            }
            Weave::Gather { prefix, .. } | Weave::Release { prefix } => {
                assert!(self.closed.insert(prefix), "{prefix:?} is gathered or released twice");
            }
        }
        self.put(change);
    }

    fn put(&mut self, change: &Weave) {
        let Some(id) = put_by(change) else { return };
        let is_new = self.put.insert(id.clone());
        // Two uploads of the same bytes are one blob.
        assert!(is_new || matches!(change, Weave::Blob(_)), "value {id} is put twice");
        self.later.remove(&id);
    }

    /// What refers to something later could be made to refer to itself.
    fn target(&self, id: &ValueId) {
        assert!(!self.later.contains(id), "value {id} is referred to before it is put");
        assert!(ValueId::checked(id.as_bytes()).is_some(), "an id is empty or over limits::ID_BYTES_MAX");
    }

    fn edge(&mut self, edge: &EdgeName, is_lease: bool) {
        assert!(self.edges.insert(edge.clone()), "edge {edge} stands twice in one weave");
        assert!(edge.given().as_bytes().len() <= limits::ID_BYTES_MAX, "the name of {edge} is over ID_BYTES_MAX");
        if let EdgeName::Element { prefix, .. } = edge {
            assert!(!self.closed.contains(prefix), "element {edge} comes after its list");
            assert!(!is_lease, "element {edge} cannot be a lease: its list owns it");
        }
    }
}
