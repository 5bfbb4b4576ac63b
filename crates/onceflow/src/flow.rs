//! Flows: a graph with typed inputs and outputs, and all that is needed to run it.

mod needs;
mod reference;

pub use needs::FlowDraft;
pub(crate) use needs::{Callee, CalleeSource, Needs};
pub use reference::FlowRef;

use crate::{
    arg::Args,
    builder::{Builder, here},
    port::Ports,
    task::{Call, CallTarget, Tasks},
    value::Error,
};
use onceflow_core::{
    limits::GRAPH_MODULES_MAX,
    model::{self, CheckedFlow, Errors, Graph, Library},
};
use onceflow_engine::task::Data;
use std::{
    any::TypeId,
    collections::BTreeMap,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

/// A flow that takes `I` and gives `O`, each a [`Port`](crate::Port) or a tuple of them.
///
/// Written as a function with [`#[flow]`](macro@crate::flow), or right where it is needed:
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn add(a: u64, b: u64) -> u64 {
///     a + b
/// }
///
/// let flow = Flow::new("triple", ["number"], ["result"], |f, number: Port<u64>| {
///     let twice = f.add(add(number, number));
///     f.add(add(twice, number))
/// });
///
/// assert_eq!(flow.name(), "triple");
/// assert_eq!(flow.encode(7)?, [("number".to_string(), 7u64.encode()?)]);
/// # Ok::<(), onceflow::value::Error>(())
/// ```
///
/// A flow is a description and cheap to clone. It is checked once, when it is first started or by [`Flow::check`].
pub struct Flow<I, O> {
    name: String,
    needs: Arc<Needs>,
    /// The result of the first check without mistakes, and the modules that it allowed in one graph.
    checked: Arc<OnceLock<(usize, CheckedFlow)>>,
    ports: PhantomData<fn(I) -> O>,
}

impl<I: Ports, O: Ports> Flow<I, O> {
    /// Describes a flow: its name, the names of its inputs and of its outputs, and a closure that adds its parts.
    ///
    /// Panics if the closure uses ports of another flow, or returns a port from inside a nested part.
    #[track_caller]
    pub fn new(
        name: impl Into<String>,
        inputs: I::Names,
        outputs: O::Names,
        body: impl FnOnce(&mut Builder, I) -> O,
    ) -> Self {
        Flow::from_draft(FlowDraft::new(name, None, inputs, outputs, body))
    }

    /// A flow from its draft, with those it calls.
    #[doc(hidden)]
    pub fn from_draft(draft: FlowDraft) -> Self {
        let (name, needs) = draft.finish();
        Flow { name, needs: Arc::new(needs), checked: Arc::default(), ports: PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its graph, unchecked.
    pub fn graph(&self) -> &Graph {
        &self.needs.flows.flows[&self.name]
    }

    /// Its graph and those of the flows it can call, unchecked.
    pub fn library(&self) -> Arc<Library> {
        self.needs.flows.clone()
    }

    /// Checks the flow and those it can call, without running anything: for tests of a flow, which find all of its
    /// mistakes this way. Checked once; a flow that has no mistakes is not checked again when it is started.
    ///
    /// # Errors
    /// All mistakes, at once.
    pub fn check(&self) -> Result<CheckedFlow, Errors> {
        self.check_within(GRAPH_MODULES_MAX)
    }

    /// As [`Flow::check`], for graphs of up to `graph_modules_max` modules.
    pub(crate) fn check_within(&self, graph_modules_max: usize) -> Result<CheckedFlow, Errors> {
        if let Some((_, checked)) = self.checked.get().filter(|(most, _)| *most == graph_modules_max) {
            return Ok(checked.clone());
        }
        let checked = CheckedFlow::check_within(graph_modules_max, self.library(), self.name())?;
        // Of two checks at once, and of engines that allow graphs of different sizes, the first is kept.
        _ = self.checked.set((graph_modules_max, checked.clone()));
        Ok(checked)
    }

    /// The code of all tasks it can come to, those that undo others too.
    pub fn tasks(&self) -> &Tasks {
        &self.needs.tasks
    }

    /// The typed names of its outputs, in order: what to ask a run for.
    pub fn outputs(&self) -> O::Outputs {
        let names: Vec<_> = self.graph().outputs.iter().map(|port| port.name.clone()).collect();
        O::outputs(&names)
    }

    /// The typed names of its inputs, in order: what [`Start::input`](crate::Start::input) takes.
    pub fn inputs(&self) -> I::Inputs {
        let names: Vec<_> = self.graph().inputs.iter().map(|port| port.name.clone()).collect();
        I::inputs(&names)
    }

    /// Values for its inputs, by name, as the engine takes them.
    pub fn encode(&self, inputs: I::Values) -> Result<Vec<(String, Data)>, Error> {
        let names = self.graph().inputs.iter().map(|port| port.name.clone());
        Ok(names.zip(I::encode(inputs)?).collect())
    }

    /// The values of all its outputs, from what the engine gives. One that is missing is read as none.
    pub fn decode(&self, outputs: impl IntoIterator<Item = (String, Data)>) -> Result<O::Values, Error> {
        let mut outputs: BTreeMap<_, _> = outputs.into_iter().collect();
        let names = self.graph().outputs.iter();
        O::decode(&mut names.map(|port| outputs.remove(&port.name).unwrap_or(Data::None)))
    }

    /// This flow with arguments, for [`Builder::add`] in another.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn shout(text: String) -> String { text.to_uppercase() }
    /// let loud = Flow::new("loud", ["text"], ["text"], |f, text: Port<String>| f.add(shout(text)));
    /// let greet = Flow::new("greet", ["name"], ["greeting"], |f, name: Port<String>| f.add(loud.call(name)));
    /// assert_eq!(greet.library().flows.len(), 2);
    /// ```
    #[track_caller]
    pub fn call(&self, args: impl Args<I>) -> Call<O> {
        let callee = Callee::of(&self.name, self.graph(), CalleeSource::Finished(self.needs.clone()));
        Call::new(CallTarget::Flow(callee), args.all())
    }

    /// The same flow, with another that it calls by [`FlowRef`].
    #[track_caller]
    pub fn with<P: Ports, Q: Ports>(mut self, other: &Flow<P, Q>) -> Self {
        Arc::make_mut(&mut self.needs).merge(&other.needs);
        self.checked = Arc::default();
        self
    }
}

impl<I, O> Clone for Flow<I, O> {
    fn clone(&self) -> Self {
        Flow { name: self.name.clone(), needs: self.needs.clone(), checked: self.checked.clone(), ports: PhantomData }
    }
}

impl<I, O> std::fmt::Debug for Flow<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).field("flows", &self.needs.flows).finish()
    }
}

/// A call of a flow that [`#[flow]`](macro@crate::flow) describes: it is built when it is needed, once, so it may call
/// itself.
#[doc(hidden)]
#[track_caller]
pub fn call_described<O: Ports>(
    id: TypeId,
    name: &str,
    inputs: Vec<model::Port>,
    outputs: &O::Names,
    draft: fn() -> FlowDraft,
    given: Vec<crate::arg::Argument>,
) -> Call<O> {
    let outputs = named::<O>(outputs);
    let callee = Callee { name: name.into(), inputs, outputs, from: CalleeSource::Described(id, draft) };
    Call::new(CallTarget::Flow(callee), given)
}

/// The inputs or outputs of a flow, by name.
#[doc(hidden)]
pub fn named<P: Ports>(names: &P::Names) -> Vec<model::Port> {
    P::names(names).into_iter().zip(P::types()).map(|(name, ty)| model::Port::new(name, ty)).collect()
}

impl FlowDraft {
    /// Describes a flow, without those it calls.
    #[doc(hidden)]
    #[track_caller]
    pub fn new<I: Ports, O: Ports>(
        name: impl Into<String>,
        id: Option<TypeId>,
        inputs: I::Names,
        outputs: O::Names,
        body: impl FnOnce(&mut Builder, I) -> O,
    ) -> Self {
        let (graph, needs) = Builder::new().flow(named::<I>(&inputs), here(), |f, handles| {
            let given = body(f, I::from_handles(&mut handles.into_iter()));
            named::<O>(&outputs).into_iter().zip(given.handles()).collect()
        });
        FlowDraft { name: name.into(), id, graph, needs }
    }
}
