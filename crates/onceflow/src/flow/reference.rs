//! A flow known by its name and its ports only, so that flows can call each other, and themselves.

use super::{Callee, CalleeSource, Ports, named};
use crate::{
    arg::Args,
    task::{Call, CallTarget},
};
use onceflow_core::model;
use std::marker::PhantomData;

/// A flow by name. The flow itself is the one that calls it, or is added with [`Flow::with`](super::Flow::with); flows
/// that [`#[flow]`](macro@crate::flow) describes need none of this, they just call each other.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn less(n: u64) -> u64 {
///     n.saturating_sub(1)
/// }
///
/// #[task(effect = pure)]
/// fn is_zero(n: u64) -> bool {
///     n == 0
/// }
///
/// let this = FlowRef::<Port<u64>, Port<u64>>::new("countdown", ["n"], ["zero"]);
/// let countdown = Flow::new("countdown", ["n"], ["zero"], |f, n: Port<u64>| {
///     let done = f.add(is_zero(n));
///     f.when(done, |_| n).otherwise(|f| {
///         let n = f.add(less(n));
///         f.add(this.call(n))
///     })
/// });
/// # assert_eq!(countdown.library().flows.len(), 1);
/// ```
pub struct FlowRef<I, O> {
    name: String,
    inputs: Vec<model::Port>,
    outputs: Vec<model::Port>,
    ports: PhantomData<fn(I) -> O>,
}

impl<I: Ports, O: Ports> FlowRef<I, O> {
    /// The flow of this name, with these inputs and outputs.
    pub fn new(name: impl Into<String>, inputs: I::Names, outputs: O::Names) -> Self {
        FlowRef { name: name.into(), inputs: named::<I>(&inputs), outputs: named::<O>(&outputs), ports: PhantomData }
    }

    /// That flow with arguments, for [`Builder::add`](crate::Builder::add).
    #[track_caller]
    pub fn call(&self, args: impl Args<I>) -> Call<O> {
        let (inputs, outputs) = (self.inputs.clone(), self.outputs.clone());
        let callee = Callee { name: self.name.clone(), inputs, outputs, from: CalleeSource::Elsewhere };
        Call::new(CallTarget::Flow(callee), args.all())
    }
}

impl<I, O> std::fmt::Debug for FlowRef<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlowRef({})", self.name)
    }
}
