//! Options of a part that is about to be added: its name, and how many elements may be in flight. They apply to that
//! part alone, whatever else is added meanwhile. If no part is added with them, that is a mistake, and reported.

use super::{
    Builder, PortHandle, VALUE, attempted, here, outputs,
    state::{NewModule, names_of},
};
use crate::{
    arg::{Argument, constant},
    port::{Port, Ports},
    task::Call,
    value::Literal,
};
use onceflow_core::model::{SourceLocation, graph::ModuleKind};
use std::panic::Location;

/// A part that is about to be added; made by [`Builder::named`] and [`Builder::at_most`].
#[must_use = "a name is for the part that is added with it: `f.named(..).add(..)`"]
pub struct NextPart<'f> {
    pub(super) f: &'f Builder,
    options: PartOptions,
    at: &'static Location<'static>,
}

/// The options of a part.
#[derive(Default)]
pub(super) struct PartOptions {
    pub(super) name: Option<String>,
    pub(super) at_most: Option<u32>,
}

impl Drop for NextPart<'_> {
    fn drop(&mut self) {
        let PartOptions { name, at_most } = std::mem::take(&mut self.options);
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
        NextPart { f, options: PartOptions::default(), at: Location::caller() }
    }

    /// Takes the options, and marks them as used.
    pub(super) fn take(mut self) -> PartOptions {
        std::mem::take(&mut self.options)
    }

    /// As [`Builder::named`].
    pub fn named(mut self, name: &str) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// As [`Builder::at_most`].
    #[track_caller]
    pub fn at_most(mut self, elements: u32) -> Self {
        assert!(elements > 0, "an each with no element in flight would never end");
        self.options.at_most = Some(elements);
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
        let Argument::Constant(data, ty) = constant(value) else {
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
        origin: SourceLocation,
        body: impl FnOnce(&mut Builder) -> P,
    ) -> Vec<PortHandle> {
        let (f, options) = (self.f, self.take());
        let nested = f.nest("composite", Vec::new(), Vec::new(), &origin, |f, _| outputs(VALUE, body(f)));
        let part = NewModule {
            kind: ModuleKind::Composite(nested.graph),
            base: name.into(),
            outputs: names_of(VALUE, P::types().len()),
            attempt,
            origin: origin.clone(),
        };
        f.state().add_nested(part, options, Vec::new(), nested.captures, &origin)
    }
}
