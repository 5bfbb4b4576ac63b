//! The same steps again and again, on a state that they carry on.

use super::{Builder, NextPart, here, outputs, ports, state::NewModule};
use crate::port::{Port, Ports};
use onceflow_core::model::{self, Type, graph::ModuleKind};

/// The name of the state, inside and outside.
const STATE: &str = "state";
/// The output that is true if another round follows.
const CONDITION: &str = "again";

impl Builder {
    /// Repeats steps, at least once. The closure is given the state and returns the next one, and a port that says
    /// whether to go on. Gives the last state. A loop of a billion rounds holds no more than one of ten.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// #[task(effect = pure)]
    /// fn add(a: u64, b: u64) -> u64 {
    ///     a + b
    /// }
    ///
    /// #[task(effect = pure)]
    /// fn less(a: u64, than: u64) -> bool {
    ///     a < than
    /// }
    ///
    /// // The first Fibonacci number that is not below the limit.
    /// Flow::new("fibonacci", ["limit"], ["number"], |f, limit: Port<u64>| {
    ///     let (zero, one) = (f.constant(0), f.constant(1));
    ///     let (_, last) = f.repeat((zero, one), |f, (a, b)| {
    ///         let next = f.add(add(a, b));
    ///         let again = f.add(less(next, limit));
    ///         ((b, next), again)
    ///     });
    ///     last
    /// });
    /// ```
    #[track_caller]
    pub fn repeat<P: Ports>(&self, state: P, body: impl FnOnce(&mut Builder, P) -> (P, Port<bool>)) -> P {
        self.next().repeat(state, body)
    }
}

impl NextPart<'_> {
    /// As [`Builder::repeat`].
    #[track_caller]
    pub fn repeat<P: Ports>(self, state: P, body: impl FnOnce(&mut Builder, P) -> (P, Port<bool>)) -> P {
        let (f, options, origin) = (self.f, self.take(), here());
        let inputs = ports(STATE, P::types());
        let names: Vec<_> = inputs.iter().map(|port| port.name.clone()).collect();
        let nested = f.nest("repeat", inputs.clone(), Vec::new(), &origin, |f, state| {
            let (next, again) = body(f, P::from_handles(&mut state.into_iter()));
            let mut outputs = outputs(STATE, next);
            outputs.push((model::Port::new(CONDITION, Type::Bool), again.handle));
            outputs
        });
        let carried = names.iter().map(|name| (name.clone(), name.clone())).collect();
        let kind = ModuleKind::Loop { body: nested.graph, carried, condition: CONDITION.into() };
        let part =
            NewModule { kind, base: "repeat".into(), outputs: names.into(), attempt: false, origin: origin.clone() };
        let given = inputs.into_iter().zip(state.handles()).map(|(port, first)| (port.name, first, port.ty)).collect();
        let handles = f.state().add_nested(part, options, given, nested.captures, &origin);
        P::from_handles(&mut handles.into_iter())
    }
}
