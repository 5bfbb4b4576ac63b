//! Describes a flow, part by part: what `f` is. Steps get names and places; ports of the outside become inputs of the
//! nested parts that use them (see `scope`). The builders of one flow share one state, so that a call may stand
//! inside another: `f.add(a(f.add(b(x))))`.

mod choice;
mod each;
mod next;
mod repeat;
mod scope;
mod state;

pub use choice::Choice;
pub use each::Lists;
pub use next::NextPart;
pub use scope::PortHandle;

use crate::{
    flow::Needs,
    port::{FromHandles, Port, Ports},
    task::Call,
    value::Literal,
};
use onceflow_core::model::{self, Graph, SourceLocation};
use scope::Nested;
use state::BuilderState;
use std::{
    cell::{RefCell, RefMut},
    panic::Location,
    rc::Rc,
    sync::Arc,
};

/// The output of a part that has one and gives it no name.
pub(crate) const VALUE: &str = "value";

/// Describes a flow. [`Flow::new`](crate::Flow::new) and [`#[flow]`](macro@crate::flow) hand it out, as `f`; the
/// closures of nested parts get one, too. What is added belongs to the innermost closure that is at work.
///
/// Steps are named after their tasks (`count`, `count_2`); [`named`](Builder::named) says otherwise.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn count(text: String) -> u64 {
///     text.split_whitespace().count() as u64
/// }
///
/// #[task(effect = pure)]
/// fn sum(numbers: Vec<u64>) -> u64 {
///     numbers.iter().sum()
/// }
///
/// let flow = Flow::new("word-count", ["texts"], ["total"], |f, texts: Port<Vec<String>>| {
///     f.named("total").add(sum(f.each(texts, |f, text| f.add(count(text)))))
/// });
/// # assert_eq!(flow.graph().modules.len(), 2);
/// ```
pub struct Builder {
    state: Rc<RefCell<BuilderState>>,
}

impl Builder {
    /// Adds a task, or a call of another flow, and gives its outputs.
    #[track_caller]
    pub fn add<P: Ports>(&self, call: Call<P>) -> P {
        self.next().add(call)
    }

    /// Adds a task, or a call of another flow, whose failure does not fail the run. Gives its outputs, none of them if
    /// it fails for good, and what went wrong, if something did.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn fetch(url: String) -> Result<String, String> { Ok(url) }
    /// # #[task] fn page_or_apology(page: Option<String>, error: Option<String>) -> String { page.or(error).unwrap_or_default() }
    /// # Flow::new("doc", ["url"], ["page"], |f, url: Port<String>| {
    /// let (page, error) = f.attempt(fetch(url));
    /// f.add(page_or_apology(page, error))
    /// # });
    /// ```
    #[track_caller]
    pub fn attempt<P: Ports>(&self, call: Call<P>) -> (P::Options, Port<Option<String>>) {
        self.next().attempt(call)
    }

    /// Adds a nested graph, so that a large flow can be read part by part. Costs nothing when it runs.
    #[track_caller]
    pub fn composite<P: Ports>(&self, name: &str, body: impl FnOnce(&mut Builder) -> P) -> P {
        self.next().composite(name, body)
    }

    /// Adds a nested graph whose failure does not fail the run, as in [`attempt`](Builder::attempt).
    #[track_caller]
    pub fn attempt_composite<P: Ports>(
        &self,
        name: &str,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> (P::Options, Port<Option<String>>) {
        self.next().attempt_composite(name, body)
    }

    /// A fixed value. Where it is given to an input only once, give the value itself: `scale(picture, 2)`.
    #[track_caller]
    pub fn constant<T: Literal>(&self, value: T) -> Port<T> {
        self.next().constant(value)
    }

    /// The part that is added with this is called so: `f.named("total").add(..)`. Names are unique among the parts of
    /// one graph.
    ///
    /// # Panics
    /// If nothing is added with it.
    #[track_caller]
    pub fn named(&self, name: &str) -> NextPart<'_> {
        self.next().named(name)
    }

    /// The [`each`](Builder::each) that is added with this has at most so many elements in flight, at least one.
    ///
    /// # Panics
    /// If it is zero, or if nothing is added with it.
    #[track_caller]
    pub fn at_most(&self, elements: u32) -> NextPart<'_> {
        self.next().at_most(elements)
    }

    #[track_caller]
    fn next(&self) -> NextPart<'_> {
        NextPart::new(self)
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder { state: Rc::new(RefCell::new(BuilderState::new())) }
    }

    /// Builds a whole flow: its graph, and the tasks and flows that it needs.
    #[track_caller]
    pub(crate) fn flow(
        self,
        inputs: Vec<model::Port>,
        origin: SourceLocation,
        body: impl FnOnce(&mut Self, Vec<PortHandle>) -> Vec<(model::Port, PortHandle)>,
    ) -> (Graph, Needs) {
        let nested = self.nest("flow", inputs, Vec::new(), &origin, body);
        (nested.graph, std::mem::take(&mut self.state().needs))
    }

    /// Borrows the shared state. Must not be held while a closure of the user's runs.
    fn state(&self) -> RefMut<'_, BuilderState> {
        self.state.borrow_mut()
    }

    /// Describes a nested graph. `captures` are names that captured ports have already, because the graph is one of
    /// several that share them.
    #[track_caller]
    fn nest(
        &self,
        what: &'static str,
        inputs: Vec<model::Port>,
        captures: Vec<(scope::ScopeSource, String)>,
        origin: &SourceLocation,
        body: impl FnOnce(&mut Self, Vec<PortHandle>) -> Vec<(model::Port, PortHandle)>,
    ) -> Nested {
        let handles = self.state().open(inputs, captures);
        let given = body(&mut Builder { state: self.state.clone() }, handles);
        self.state().close(what, given, origin)
    }
}

/// The last output of a module with `attempt` is its error.
fn attempted<P: FromHandles>(handles: Vec<PortHandle>) -> (P, Port<Option<String>>) {
    let mut handles = handles.into_iter();
    (P::from_handles(&mut handles), Port::from_handles(&mut handles))
}

/// Returns the place in the user's code that made the current call.
#[track_caller]
pub(crate) fn here() -> SourceLocation {
    let place = Location::caller();
    SourceLocation { file: shared_name(place.file()), line: place.line(), column: place.column() }
}

/// The name of a file, shared by all that was written there one after the other.
fn shared_name(file: &'static str) -> Arc<str> {
    thread_local! {
        static LAST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some(known) if **known == *file => known.clone(),
        _ => last.insert(file.into()).clone(),
    })
}

/// Names for ports that have none: `value`, or `value_1`, `value_2` and so on.
fn names(base: &str, count: usize) -> Vec<String> {
    match count {
        1 => vec![base.into()],
        _ => (1..=count).map(|at| format!("{base}_{at}")).collect(),
    }
}

/// Ports of these types, with names as above.
fn ports(base: &str, types: Vec<model::Type>) -> Vec<model::Port> {
    let names = names(base, types.len());
    names.into_iter().zip(types).map(|(name, ty)| model::Port::new(name, ty)).collect()
}

/// Returns the outputs of a nested graph, with names as above.
fn outputs<P: Ports>(base: &str, given: P) -> Vec<(model::Port, PortHandle)> {
    ports(base, P::types()).into_iter().zip(given.handles()).collect()
}
