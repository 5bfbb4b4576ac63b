//! Describes a flow, part by part: what `f` is. Steps get names and places; ports of the outside become inputs of the
//! nested parts that use them (see `scope`).

mod choice;
mod each;
mod repeat;
mod scope;

pub use choice::Choice;
pub use each::Lists;
pub use scope::Handle;

use crate::{
    arg::{Given, constant},
    flow::Needs,
    port::{Port, Ports},
    task::{Call, Target},
    value::Literal,
};
use onceflow_core::{
    model::{self, Graph, Origin, graph::ERROR, graph::Kind},
    payload::Payload,
};
use onceflow_engine::task::Data;
use scope::{Scope, Source};
use std::{
    panic::Location,
    sync::atomic::{AtomicU64, Ordering},
};

/// The output of a part that has one and gives it no name.
pub(crate) const VALUE: &str = "value";

/// Describes a flow. [`Flow::new`](crate::Flow::new) and [`#[flow]`](macro@crate::flow) hand it out, as `f`; the
/// closures of nested parts get one, too.
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
///     let counts = f.each(texts, |f, text| f.add(count(text)));
///     f.named("total").add(sum(counts))
/// });
/// # assert_eq!(flow.graph().modules.len(), 2);
/// ```
pub struct Builder {
    flow: u64,
    scopes: Vec<Scope>,
    scopes_ever: u32,
    needs: Needs,
    name: Option<String>,
    at_most: Option<u32>,
}

/// How a part is to be added.
struct Part {
    kind: Kind,
    /// Where its name comes from, unless it was given one.
    base: String,
    outputs: Vec<String>,
    attempt: bool,
    origin: Origin,
}

impl Builder {
    /// Adds a task, or a call of another flow, and gives its outputs.
    #[track_caller]
    pub fn add<P: Ports>(&mut self, call: Call<P>) -> P {
        P::from_handles(&mut self.add_call(call, false).into_iter())
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
    pub fn attempt<P: Ports>(&mut self, call: Call<P>) -> (P::Options, Port<Option<String>>) {
        let handles = self.add_call(call, true);
        attempted(handles)
    }

    /// Adds a nested graph, so that a large flow can be read part by part. Costs nothing when it runs.
    #[track_caller]
    pub fn composite<P: Ports>(&mut self, name: &str, body: impl FnOnce(&mut Builder) -> P) -> P {
        P::from_handles(&mut self.add_composite(name, false, here(), body).into_iter())
    }

    /// Adds a nested graph whose failure does not fail the run, as in [`attempt`](Builder::attempt).
    #[track_caller]
    pub fn attempt_composite<P: Ports>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> (P::Options, Port<Option<String>>) {
        let handles = self.add_composite(name, true, here(), body);
        attempted(handles)
    }

    /// A fixed value. Where it is given to an input only once, give the value itself: `scale(picture, 2)`.
    #[track_caller]
    pub fn constant<T: Literal>(&mut self, value: T) -> Port<T> {
        let Given::Constant(data, ty) = constant(value) else {
            panic!("none is no constant: leave the input out by giving it `None`")
        };
        Port::new(self.add_constant(&data, ty, "constant", here()))
    }

    /// The next part that is added is called this. Names are unique among the parts of one graph.
    pub fn named(&mut self, name: &str) -> &mut Self {
        self.name = Some(name.into());
        self
    }

    /// The next [`each`](Builder::each) has at most this many elements in flight, at least one.
    #[track_caller]
    pub fn at_most(&mut self, elements: u32) -> &mut Self {
        assert!(elements > 0, "an each with no element in flight would never end");
        self.at_most = Some(elements);
        self
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        static FLOWS: AtomicU64 = AtomicU64::new(0);
        let flow = FLOWS.fetch_add(1, Ordering::Relaxed);
        Builder { flow, scopes: Vec::new(), scopes_ever: 0, needs: Needs::default(), name: None, at_most: None }
    }

    /// A whole flow: its graph, and what that needs.
    pub(crate) fn flow(
        mut self,
        inputs: Vec<model::Port>,
        origin: Origin,
        body: impl FnOnce(&mut Self, Vec<Handle>) -> Vec<(model::Port, Handle)>,
    ) -> (Graph, Needs) {
        let nested = self.nest(inputs, Vec::new(), &origin, body);
        (nested.graph, self.needs)
    }

    #[track_caller]
    fn add_call<P: Ports>(&mut self, call: Call<P>, attempt: bool) -> Vec<Handle> {
        let Call { target, given, origin, .. } = call;
        let (kind, base, inputs, outputs) = match target {
            Target::Task(task) => {
                let spec = task.spec.clone();
                self.needs.task(task);
                let (inputs, outputs) = (spec.inputs.clone(), spec.outputs.clone());
                (Kind::Task(spec.clone()), spec.name, inputs, outputs)
            }
            Target::Flow(callee) => {
                let (name, inputs, outputs) = (callee.name.clone(), callee.inputs.clone(), callee.outputs.clone());
                self.needs.flow(callee);
                (Kind::Call { flow: name.clone() }, name, inputs, outputs)
            }
        };
        let outputs = outputs.into_iter().map(|port| port.name).collect();
        let module = self.add_part(Part { kind, base, outputs, attempt, origin: origin.clone() });
        for (port, given) in inputs.into_iter().zip(given) {
            self.give(module, &port.name, given, &origin);
        }
        self.outputs_of(module)
    }

    /// Connects an input of a module to what was given to it.
    #[track_caller]
    fn give(&mut self, module: u32, input: &str, given: Given, origin: &Origin) {
        let from = match given {
            Given::Nothing => return,
            Given::Port(handle, ty) => self.resolve(handle, &ty),
            Given::Constant(data, ty) => {
                let base = format!("{}_{input}", self.top().module_name(module));
                self.add_constant(&data, ty, &base, origin.clone()).source()
            }
        };
        self.top().connect(from, module, input, origin);
    }

    fn add_constant(&mut self, data: &Data, ty: model::Type, base: &str, origin: Origin) -> Handle {
        let kind = Kind::Constant(model::Port::new(VALUE, ty), payload(data));
        let part = Part { kind, base: base.into(), outputs: vec![VALUE.into()], attempt: false, origin };
        let module = self.add_part(part);
        self.outputs_of(module)[0]
    }

    fn add_composite<P: Ports>(
        &mut self,
        name: &str,
        attempt: bool,
        origin: Origin,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> Vec<Handle> {
        let name = self.name.take().unwrap_or_else(|| name.into());
        let nested = self.nest(Vec::new(), Vec::new(), &origin, |f, _| outputs(VALUE, body(f)));
        let kind = Kind::Composite(nested.graph);
        let outputs = names(VALUE, P::types().len());
        let module = self.add_part(Part { kind, base: name, outputs, attempt, origin: origin.clone() });
        self.connect_captures(module, nested.captures, &origin);
        self.outputs_of(module)
    }

    /// Adds a module to the innermost graph, under a name that none of its siblings has.
    fn add_part(&mut self, part: Part) -> u32 {
        let Part { kind, base, mut outputs, attempt, origin } = part;
        if attempt {
            outputs.push(ERROR.into());
        }
        assert!(
            self.at_most.take().is_none() || matches!(kind, Kind::Each { .. }),
            "{}:{}: `at_most` is about elements; only an each has some",
            origin.file,
            origin.line
        );
        let name = self.name.take();
        self.top().add(model::Module { name: base, kind, origin: Some(origin), attempt }, name, outputs)
    }

    /// Connects the ports that a nested part has captured.
    fn connect_captures(&mut self, module: u32, captures: Vec<(Source, String)>, origin: &Origin) {
        for (from, input) in captures {
            self.top().connect(from, module, &input, origin);
        }
    }

    fn outputs_of(&mut self, module: u32) -> Vec<Handle> {
        let (flow, top) = (self.flow, self.top());
        top.outputs_of(module).map(|source| Handle::new(flow, top.id(), source)).collect()
    }
}

/// The last output of a module with `attempt` is its error.
fn attempted<P: Ports>(handles: Vec<Handle>) -> (P, Port<Option<String>>) {
    let mut handles = handles.into_iter();
    (P::from_handles(&mut handles), Port::from_handles(&mut handles))
}

/// The place in the user's code that is being served.
#[track_caller]
pub(crate) fn here() -> Origin {
    let place = Location::caller();
    Origin { file: place.file().into(), line: place.line(), column: place.column() }
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

/// What a nested graph gives, with names as above.
fn outputs<P: Ports>(base: &str, given: P) -> Vec<(model::Port, Handle)> {
    ports(base, P::types()).into_iter().zip(given.handles()).collect()
}

/// A constant as the kernel holds it. Files are no constants, [`Literal`] sees to that.
fn payload(data: &Data) -> Payload {
    match data {
        Data::Bytes(bytes) => Payload::inline(bytes),
        Data::List(elements) => {
            let element = |data: &Data| (*data != Data::None).then(|| payload(data));
            Payload::List(elements.iter().map(element).collect())
        }
        Data::None => Payload::inline(crate::value::NIL),
        Data::File(file) => panic!("the file {} is no constant", file.name),
    }
}
