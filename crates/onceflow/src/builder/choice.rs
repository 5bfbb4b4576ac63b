//! One of several ways on. The arms of a choice share its inputs, so a captured port has one name in all of them.

use super::{
    Builder, NextPart, PortHandle, VALUE, here,
    next::PartOptions,
    outputs,
    scope::ScopeSource,
    state::{NewModule, names_of},
};
use crate::port::{FromHandles, Port, Ports};
use onceflow_core::model::{Arm, SourceLocation, Type, graph::ModuleKind};
use std::marker::PhantomData;

/// A choice that is being described; [`otherwise`](Choice::otherwise) or [`or_none`](Choice::or_none) ends it.
#[must_use = "a choice is part of the flow only after `.otherwise(..)` or `.or_none()`"]
pub struct Choice<'f, P> {
    f: &'f Builder,
    options: PartOptions,
    arms: Vec<Arm>,
    inputs: Vec<(ScopeSource, String)>,
    origin: SourceLocation,
    gives: PhantomData<fn() -> P>,
}

impl Builder {
    /// Adds steps that run only if a condition holds. More conditions may follow, tried in order, of which the first
    /// that holds decides; and steps for the case that none does.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn is_large(order: u64) -> bool { order > 100 }
    /// # #[task] fn is_urgent(order: u64) -> bool { order > 10 }
    /// # #[task] fn by_ship(order: u64) -> String { String::new() }
    /// # #[task] fn by_plane(order: u64) -> String { String::new() }
    /// # #[task] fn by_post(order: u64) -> String { String::new() }
    /// # Flow::new("doc", ["order"], ["ticket"], |f, order: Port<u64>| {
    /// let (large, urgent) = (f.add(is_large(order)), f.add(is_urgent(order)));
    /// let ticket = f
    ///     .when(large, |f| f.add(by_ship(order)))
    ///     .or_when(urgent, |f| f.add(by_plane(order)))
    ///     .otherwise(|f| f.add(by_post(order)));
    /// # ticket
    /// # });
    /// ```
    #[track_caller]
    pub fn when<P: Ports>(&self, condition: Port<bool>, body: impl FnOnce(&mut Builder) -> P) -> Choice<'_, P> {
        self.next().when(condition, body)
    }
}

impl<'f> NextPart<'f> {
    /// As [`Builder::when`].
    #[track_caller]
    pub fn when<P: Ports>(self, condition: Port<bool>, body: impl FnOnce(&mut Builder) -> P) -> Choice<'f, P> {
        let (f, options, origin) = (self.f, self.take(), here());
        let choice = Choice { f, options, arms: Vec::new(), inputs: Vec::new(), origin, gives: PhantomData };
        choice.or_when(condition, body)
    }
}

impl<P: Ports> Choice<'_, P> {
    /// Steps for the case that no earlier condition holds, but this one does.
    #[track_caller]
    pub fn or_when(mut self, condition: Port<bool>, body: impl FnOnce(&mut Builder) -> P) -> Self {
        let guard = self.guard(condition.handle);
        self.arm(Some(guard), here(), body);
        self
    }

    /// Steps for the case that no condition holds. Gives what the arm that is taken gives.
    #[track_caller]
    pub fn otherwise(mut self, body: impl FnOnce(&mut Builder) -> P) -> P {
        self.arm(None, here(), body);
        P::from_handles(&mut self.finish().into_iter())
    }

    /// Ends the choice without a last arm: if no condition holds, nothing runs and the outputs are none.
    pub fn or_none(self) -> P::Options {
        P::Options::from_handles(&mut self.finish().into_iter())
    }

    /// The input of the choice that brings this condition.
    #[track_caller]
    fn guard(&mut self, condition: PortHandle) -> String {
        let mut state = self.f.state();
        let from = state.resolve(condition, &Type::Bool);
        if let Some((_, name)) = self.inputs.iter().find(|(known, _)| *known == from) {
            return name.clone();
        }
        let base = state.top().describe(from);
        let name = super::scope::unique(&base, |name| self.inputs.iter().any(|(_, taken)| taken == name));
        self.inputs.push((from, name.clone()));
        name
    }

    #[track_caller]
    fn arm(&mut self, guard: Option<String>, origin: SourceLocation, body: impl FnOnce(&mut Builder) -> P) {
        let base = guard.as_deref().unwrap_or("otherwise");
        let name = super::scope::unique(base, |name| self.arms.iter().any(|arm| arm.name == name));
        let inputs = std::mem::take(&mut self.inputs);
        let nested = self.f.nest("choice", Vec::new(), inputs, &origin, |f, _| outputs(VALUE, body(f)));
        self.inputs = nested.captures;
        self.arms.push(Arm { name, guard, body: nested.graph });
    }

    fn finish(self) -> Vec<PortHandle> {
        let Choice { f, options, arms, inputs, origin, .. } = self;
        let outputs = names_of(VALUE, P::types().len());
        let part = NewModule {
            kind: ModuleKind::Choice { arms },
            base: "choice".into(),
            outputs,
            attempt: false,
            origin: origin.clone(),
        };
        f.state().add_nested(part, options, Vec::new(), inputs, &origin)
    }
}
