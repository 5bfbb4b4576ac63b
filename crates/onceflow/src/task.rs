//! Tasks as `#[task]` makes them from functions, and the conversion of their results and errors for the engine.

mod error;
mod open;
mod returned;
mod state;

pub use error::{Marked, failure, fatal, not_done};
pub use onceflow_engine::Need;
pub use onceflow_engine::task::{Attempt, Body, Data, EndOpenWork, Failure, FileData, OpenWork, Step, Tasks, Tx};
pub use open::OpenStep;
pub use returned::{Outputs, Returned};
pub use state::{State, state};

use crate::{
    arg::Argument,
    builder::{VALUE, here},
    flow::Callee,
    port::Ports,
    value::{self, Value},
};
use onceflow_core::model::{self, SourceLocation, TaskSpec, Type, task::DONE};
use std::{any::TypeId, marker::PhantomData, sync::Arc};

/// A task, as [`#[task]`](macro@crate::task) makes it. Not implemented by hand.
///
/// The attribute turns `fn count(text: String) -> u64` into a function `count` that takes ports or plain values, for
/// use in flows, and into a type `count` that implements this trait. The function as you wrote it is `count::run`:
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(version = "2", effect = pure)]
/// fn count(text: String) -> u64 {
///     text.split_whitespace().count() as u64
/// }
///
/// assert_eq!(count::run("so many words".into()), 3);
/// assert_eq!(count::spec().version, "2");
/// ```
pub trait Task: 'static {
    /// The types of its inputs, as a tuple.
    type Inputs;
    /// The ports that adding it to a flow gives.
    type Ports: Ports;

    /// The kernel's description of it.
    fn spec() -> TaskSpec;

    /// Starts an attempt. A panic is not caught here.
    fn start(step: Step, inputs: Vec<Data>) -> Attempt;

    /// The [`State`] it takes.
    fn needs() -> Vec<Need> {
        Vec::new()
    }

    /// It takes an [`OpenStep`].
    fn opens_work() -> bool {
        false
    }

    /// The task that undoes it.
    fn undo() -> Option<Definition> {
        None
    }
}

/// A task as a value: the kernel's description of it, and its code.
pub struct Definition {
    pub(crate) id: TypeId,
    pub(crate) spec: TaskSpec,
    pub(crate) body: Arc<dyn Body>,
    pub(crate) undo: fn() -> Option<Definition>,
}

impl Definition {
    /// The definition of a task.
    pub fn of<T: Task>() -> Self {
        Definition { id: TypeId::of::<T>(), spec: T::spec(), body: Arc::new(Code::<T>(PhantomData)), undo: T::undo }
    }

    /// The definition of the task that undoes `T`. It gets the same inputs, so it must take the same.
    pub fn undoing<T: Task, U: Task<Inputs = T::Inputs>>() -> Self {
        Definition::of::<U>()
    }

    /// The kernel's description of it.
    pub fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    /// Its code.
    pub fn body(&self) -> &Arc<dyn Body> {
        &self.body
    }
}

/// The code of a task, as the engine wants it.
struct Code<T>(PhantomData<fn() -> T>);

impl<T: Task> Body for Code<T> {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        T::start(step, inputs)
    }

    fn needs(&self) -> Vec<Need> {
        T::needs()
    }

    fn opens_work(&self) -> bool {
        T::opens_work()
    }
}

/// A task or a flow with its arguments: not part of a flow until it is given to [`Builder::add`](crate::Builder::add).
#[must_use = "a call does nothing until `f.add(..)` puts it into a flow"]
pub struct Call<P> {
    pub(crate) target: CallTarget,
    pub(crate) given: Vec<Argument>,
    pub(crate) origin: SourceLocation,
    ports: PhantomData<fn() -> P>,
}

/// The task or flow that is called.
pub(crate) enum CallTarget {
    /// The task's type and the function that defines it, called only for the first step of the task.
    Task(TypeId, fn() -> Definition),
    Flow(Callee),
}

impl<P: Ports> Call<P> {
    #[track_caller]
    pub(crate) fn new(target: CallTarget, given: Vec<Argument>) -> Self {
        Call { target, given, origin: here(), ports: PhantomData }
    }
}

/// A task with its arguments; what the function that `#[task]` makes consists of.
#[doc(hidden)]
#[track_caller]
pub fn call<T: Task>(given: Vec<Argument>) -> Call<T::Ports> {
    Call::new(CallTarget::Task(TypeId::of::<T>(), Definition::of::<T>), given)
}

/// The outputs of a task, under these names; a single one may do without.
#[doc(hidden)]
pub fn outputs<P: Ports>(names: &[&str]) -> Vec<model::Port> {
    let types = P::types();
    let name = match (names, &types[..]) {
        ([], [Type::Unit]) => DONE,
        ([], _) => VALUE,
        _ => return names.iter().zip(types).map(|(name, ty)| model::Port::new(*name, ty)).collect(),
    };
    types.into_iter().map(|ty| model::Port::new(name, ty)).collect()
}

/// Reads one input of a body. Input that does not fit its type will not fit it next time either.
#[doc(hidden)]
pub fn input<T: Value>(name: &str, inputs: &mut dyn Iterator<Item = Data>) -> Result<T, Failure> {
    T::decode(inputs.next().unwrap_or(Data::None))
        .map_err(|error| wrong(&format!("cannot read input `{name}`"), &error))
}

/// The rows of the flow, for a body that asks for them.
#[doc(hidden)]
pub fn tx(step: &Step) -> Result<Tx, Failure> {
    step.tx().cloned().ok_or_else(|| Failure::new("a step that is not transactional has no `Tx`").finally())
}

/// A value that cannot be read or written is a failure that stays.
fn wrong(what: &str, error: &value::Error) -> Failure {
    let mut failure = Failure::from_error(error).finally();
    failure.causes.insert(0, what.into());
    failure
}
