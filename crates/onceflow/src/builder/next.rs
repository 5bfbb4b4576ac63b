//! What is said about a part before it is added: its name, and how many elements may be in flight. It belongs to that part
//! alone, whatever else is added meanwhile, and to nothing if nothing is added: that is a mistake, and told.

use super::{
    Builder, Handle, VALUE, attempted, here, outputs,
    state::{Part, names_of},
};
use crate::{
    arg::{Given, constant},
    port::{Port, Ports},
    task::Call,
    value::Literal,
};
use onceflow_core::model::{Origin, graph::Kind};
use std::panic::Location;

/// A part that is about to be added; made by [`Builder::named`] and [`Builder::at_most`].
#[must_use = "a name is for the part that is added with it: `f.named(..).add(..)`"]
pub struct NextPart<'f> {
    pub(super) f: &'f Builder,
    said: Said,
    at: &'static Location<'static>,
}

/// What was said about a part.
#[derive(Default)]
pub(super) struct Said {
    pub(super) name: Option<String>,
    pub(super) at_most: Option<u32>,
}

impl Drop for NextPart<'_> {
    fn drop(&mut self) {
        let Said { name, at_most } = std::mem::take(&mut self.said);
        if std::thread::panicking() {
            return;
        }
        let at = self.at;
        if let Some(name) = name {
            panic!("{at}: nothing is called `{name}`: add a part with it, `f.named(\"{name}\").add(..)`");
        }
        if let Some(most) = at_most {
            panic!("{at}: nothing has at most {most} elements: add an each with it, `f.at_most({most}).each(..)`");
        }
    }
}

impl<'f> NextPart<'f> {
    #[track_caller]
    pub(super) fn new(f: &'f Builder) -> Self {
        NextPart { f, said: Said::default(), at: Location::caller() }
    }

    /// What was said, which is used now.
    pub(super) fn take(mut self) -> Said {
        std::mem::take(&mut self.said)
    }

    /// As [`Builder::named`].
    pub fn named(mut self, name: &str) -> Self {
        self.said.name = Some(name.into());
        self
    }

    /// As [`Builder::at_most`].
    #[track_caller]
    pub fn at_most(mut self, elements: u32) -> Self {
        assert!(elements > 0, "an each with no element in flight would never end");
        self.said.at_most = Some(elements);
        self
    }

    /// As [`Builder::add`].
    #[expect(clippy::should_implement_trait, reason = "it is what `Builder::add` is called")]
    #[track_caller]
    pub fn add<P: Ports>(self, call: Call<P>) -> P {
        let f = self.f;
        let handles = f.state().add_call(call, self.take(), false);
        P::from_handles(&mut handles.into_iter())
    }

    /// As [`Builder::attempt`].
    #[track_caller]
    pub fn attempt<P: Ports>(self, call: Call<P>) -> (P::Options, Port<Option<String>>) {
        let f = self.f;
        let handles = f.state().add_call(call, self.take(), true);
        attempted(handles)
    }

    /// As [`Builder::composite`].
    #[track_caller]
    pub fn composite<P: Ports>(self, name: &str, body: impl FnOnce(&mut Builder) -> P) -> P {
        P::from_handles(&mut self.add_composite(name, false, here(), body).into_iter())
    }

    /// As [`Builder::attempt_composite`].
    #[track_caller]
    pub fn attempt_composite<P: Ports>(
        self,
        name: &str,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> (P::Options, Port<Option<String>>) {
        attempted(self.add_composite(name, true, here(), body))
    }

    /// As [`Builder::constant`].
    #[track_caller]
    pub fn constant<T: Literal>(self, value: T) -> Port<T> {
        let Given::Constant(data, ty) = constant(value) else {
            panic!("none is no constant: leave the input out by giving it `None`")
        };
        let f = self.f;
        let handle = f.state().add_constant(&data, ty, "constant", self.take(), here());
        Port::new(handle)
    }

    #[track_caller]
    fn add_composite<P: Ports>(
        self,
        name: &str,
        attempt: bool,
        origin: Origin,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> Vec<Handle> {
        let (f, said) = (self.f, self.take());
        let nested = f.nest("composite", Vec::new(), Vec::new(), &origin, |f, _| outputs(VALUE, body(f)));
        let part = Part {
            kind: Kind::Composite(nested.graph),
            base: name.into(),
            outputs: names_of(VALUE, P::types().len()),
            attempt,
            origin: origin.clone(),
        };
        f.state().add_nested(part, said, Vec::new(), nested.captures, &origin)
    }
}
