//! The needs of a flow: the graphs of the flows it can call, and the code of the tasks in them. Two tasks, or two
//! flows, of one name are refused here, before one silently stands in for the other.

use crate::task::{Definition, Tasks};
use onceflow_core::model::{Graph, Library, Port};
use std::{any::TypeId, borrow::Cow, collections::BTreeMap, sync::Arc};

/// Collected while flows are described.
#[derive(Clone, Default)]
pub(crate) struct Needs {
    pub(crate) tasks: Tasks,
    task_ids: BTreeMap<String, TypeId>,
    pub(crate) flows: Arc<Library>,
    /// Flows that are called but not built yet.
    described: BTreeMap<String, Described>,
}

/// Which flow it is, and what builds it.
type Described = (TypeId, fn() -> FlowDraft);

/// A flow with what it needs itself, but not yet what the flows it calls need.
#[doc(hidden)]
pub struct FlowDraft {
    pub(super) name: String,
    pub(super) id: Option<TypeId>,
    pub(super) graph: Graph,
    pub(super) needs: Needs,
}

/// A flow that is called.
pub(crate) struct Callee {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    pub(crate) from: CalleeSource,
}

/// Where the flow that is called comes from.
pub(crate) enum CalleeSource {
    /// It is there, with all it needs.
    Finished(Arc<Needs>),
    /// It will be built when the flow around it is.
    Described(TypeId, fn() -> FlowDraft),
    /// The flow is added with [`Flow::with`](super::Flow::with), or is the caller itself.
    Elsewhere,
}

impl Callee {
    pub(crate) fn of(name: &str, graph: &Graph, from: CalleeSource) -> Self {
        Callee { name: name.into(), inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), from }
    }
}

impl Needs {
    /// A task, the one that undoes it, and so on.
    #[track_caller]
    pub(crate) fn task(&mut self, task: Definition) {
        let Definition { id, spec, body, undo } = task;
        if self.claim(&spec.name, id) {
            self.tasks.add(spec, body);
            if let Some(undo) = undo() {
                self.task(undo);
            }
        }
    }

    /// A flow that is called.
    #[track_caller]
    pub(crate) fn flow(&mut self, callee: Callee) {
        match callee.from {
            CalleeSource::Finished(needs) => self.merge(&needs),
            CalleeSource::Described(id, draft) => self.describe(callee.name, id, draft),
            CalleeSource::Elsewhere => {}
        }
    }

    /// All that another flow needs.
    #[track_caller]
    pub(crate) fn merge(&mut self, other: &Needs) {
        for (name, id) in &other.task_ids {
            self.claim(name, *id);
        }
        // Two that differ under one name were refused just now, whatever their versions.
        if let Err(conflict) = self.tasks.extend(&other.tasks) {
            panic!("{conflict}");
        }
        for (name, graph) in &other.flows.flows {
            self.put(name, Cow::Borrowed(graph));
        }
        for (name, (id, draft)) in &other.described {
            self.describe(name.clone(), *id, *draft);
        }
    }

    /// This is the first time that the task is met.
    #[track_caller]
    fn claim(&mut self, name: &str, id: TypeId) -> bool {
        let known = self.task_ids.insert(name.into(), id);
        assert!(
            known.is_none_or(|known| known == id),
            "two tasks are called `{name}`: give one another name with `#[task(name = \"..\")]`"
        );
        known.is_none()
    }

    #[track_caller]
    fn put(&mut self, name: &str, graph: Cow<'_, Graph>) {
        let known = self.flows.flows.get(name);
        assert!(known.is_none_or(|known| *known == *graph), "two flows are called `{name}`: give one another name");
        if known.is_none() {
            Arc::make_mut(&mut self.flows).flows.insert(name.into(), graph.into_owned());
        }
    }

    #[track_caller]
    fn describe(&mut self, name: String, id: TypeId, draft: fn() -> FlowDraft) {
        let known = self.described.get(&name);
        assert!(known.is_none_or(|(known, _)| *known == id), "two flows are called `{name}`: give one another name");
        self.described.insert(name, (id, draft));
    }
}

impl FlowDraft {
    /// Builds the flows that are called, until none is missing.
    #[track_caller]
    pub(super) fn finish(self) -> (String, Needs) {
        let mut built: BTreeMap<String, TypeId> = self.id.map(|id| (self.name.clone(), id)).into_iter().collect();
        let mut needs = self.needs;
        needs.put(&self.name, Cow::Owned(self.graph));
        let missing = |needs: &Needs, built: &BTreeMap<String, TypeId>| {
            let mut called = needs.described.iter();
            called.find(|(name, (id, _))| built.get(*name) != Some(id)).map(|(name, called)| (name.clone(), *called))
        };
        while let Some((name, (id, draft))) = missing(&needs, &built) {
            let draft = draft();
            needs.merge(&draft.needs);
            needs.put(&name, Cow::Owned(draft.graph));
            built.insert(name, id);
        }
        (self.name, needs)
    }
}
