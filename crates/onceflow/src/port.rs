//! Typed handles of ports, alone and in tuples: what a builder gives, and what keeps a wrong connection from compiling.

use crate::{
    builder::PortHandle,
    value::{Error, Value},
};
use onceflow_core::model::Type;
use onceflow_engine::task::Data;
use std::{fmt, marker::PhantomData};

/// Where a value of type `T` will come from: an input of the flow, or an output of a step in it.
///
/// A port is a small copy; use it as often as you like, also inside the closures of nested parts: there it becomes
/// one of their inputs by itself. It means something only in the flow it was made in, and no further out than where
/// it was made; a builder panics when it is given one from elsewhere.
pub struct Port<T> {
    pub(crate) handle: PortHandle,
    of: PhantomData<fn() -> T>,
}

impl<T> Port<T> {
    pub(crate) fn new(handle: PortHandle) -> Self {
        Port { handle, of: PhantomData }
    }
}

impl<T: Value> Port<Option<Option<T>>> {
    /// The same value. Between tasks there is only one kind of nothing, so one option is enough to say it.
    pub fn flatten(self) -> Port<Option<T>> {
        Port::new(self.handle)
    }
}

impl<T> Clone for Port<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Port<T> {}

impl<T> fmt::Debug for Port<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port<{}>({:?})", std::any::type_name::<T>(), self.handle)
    }
}

/// The name and type of one output of a flow: what to ask a run for.
pub struct Output<T> {
    name: String,
    of: PhantomData<fn() -> T>,
}

impl<T: Value> Output<T> {
    fn new(name: &str) -> Self {
        Output { name: name.into(), of: PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Decodes the value that a run gave.
    pub fn decode(&self, data: Data) -> Result<T, Error> {
        T::decode(data)
    }
}

impl<T> Clone for Output<T> {
    fn clone(&self) -> Self {
        Output { name: self.name.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output<{}>({})", std::any::type_name::<T>(), self.name)
    }
}

/// The name and type of one input of a flow: what a start may be given instead.
pub struct Input<T> {
    name: String,
    of: PhantomData<fn(T)>,
}

impl<T: Value> Input<T> {
    fn new(name: &str) -> Self {
        Input { name: name.into(), of: PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> Clone for Input<T> {
    fn clone(&self) -> Self {
        Input { name: self.name.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Input<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input<{}>({})", std::any::type_name::<T>(), self.name)
    }
}

/// Ports that a builder can make of the outputs of a part.
pub trait FromHandles: Copy + 'static {
    #[doc(hidden)]
    fn from_handles(handles: &mut dyn Iterator<Item = PortHandle>) -> Self;
}

/// One port, a tuple of up to sixteen, or a struct of as many as you like ([`#[derive(Ports)]`](macro@crate::Ports)):
/// what flows, and the closures that describe parts of them, take and give.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a port nor a tuple of ports",
    label = "not ports",
    note = "use `f.constant(value)` for a fixed value, and `f.add(task(..))` for the result of a task"
)]
pub trait Ports: FromHandles {
    /// The values that go through.
    type Values;
    /// One name for each: an array of them, or [`FieldNames`] for a struct.
    type Names;
    /// A list of each: what an each gives.
    type Lists: FromHandles;
    /// An option of each: what a choice without a last resort gives.
    type Options: FromHandles;
    /// A typed name for each, where they are outputs.
    type Outputs;
    /// A typed name for each, where they are inputs.
    type Inputs;

    #[doc(hidden)]
    fn types() -> Vec<Type>;
    #[doc(hidden)]
    fn names(names: &Self::Names) -> Vec<&'static str>;
    #[doc(hidden)]
    fn handles(self) -> Vec<PortHandle>;
    #[doc(hidden)]
    fn outputs(names: &[String]) -> Self::Outputs;
    #[doc(hidden)]
    fn inputs(names: &[String]) -> Self::Inputs;
    #[doc(hidden)]
    fn encode(values: Self::Values) -> Result<Vec<Data>, Error>;
    #[doc(hidden)]
    fn decode(data: &mut dyn Iterator<Item = Data>) -> Result<Self::Values, Error>;
}

/// The names of the fields of a [struct of ports](macro@crate::Ports), where names are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldNames;

/// Ports that have names of their own: the fields of a struct, or `value` for a single one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no names of its own",
    note = "name what the flow gives: `#[flow(outputs(a, b))]`"
)]
pub trait OwnNames: Ports {
    #[doc(hidden)]
    fn own_names() -> Self::Names;
}

impl<T: Value> OwnNames for Port<T> {
    fn own_names() -> [&'static str; 1] {
        [crate::builder::VALUE]
    }
}

/// As many as [`Ports::types`] says, always.
const COUNTED: &str = "as many as there are types";

impl<T: Value> FromHandles for Port<T> {
    fn from_handles(handles: &mut dyn Iterator<Item = PortHandle>) -> Self {
        Port::new(handles.next().expect(COUNTED))
    }
}

impl<T: Value> Ports for Port<T> {
    type Values = T;
    type Names = [&'static str; 1];
    type Lists = Port<Vec<T>>;
    type Options = Port<Option<T>>;
    type Outputs = Output<T>;
    type Inputs = Input<T>;

    fn types() -> Vec<Type> {
        vec![T::ty()]
    }

    fn names(names: &[&'static str; 1]) -> Vec<&'static str> {
        names.to_vec()
    }

    fn handles(self) -> Vec<PortHandle> {
        vec![self.handle]
    }

    fn outputs(names: &[String]) -> Output<T> {
        Output::new(&names[0])
    }

    fn inputs(names: &[String]) -> Input<T> {
        Input::new(&names[0])
    }

    fn encode(value: T) -> Result<Vec<Data>, Error> {
        Ok(vec![value.encode()?])
    }

    fn decode(data: &mut dyn Iterator<Item = Data>) -> Result<T, Error> {
        T::decode(data.next().unwrap_or(Data::None))
    }
}

macro_rules! tuples {
    ($($count:literal: $($T:ident $at:tt)*;)*) => {$(
        impl<$($T: Value),*> FromHandles for ($(Port<$T>,)*) {
            #[allow(unused_variables, clippy::unused_unit)]
            fn from_handles(handles: &mut dyn Iterator<Item = PortHandle>) -> Self {
                ($(Port::<$T>::from_handles(handles),)*)
            }
        }

        impl<$($T: Value),*> Ports for ($(Port<$T>,)*) {
            type Values = ($($T,)*);
            type Names = [&'static str; $count];
            type Lists = ($(Port<Vec<$T>>,)*);
            type Options = ($(Port<Option<$T>>,)*);
            type Outputs = ($(Output<$T>,)*);
            type Inputs = ($(Input<$T>,)*);

            fn types() -> Vec<Type> {
                vec![$($T::ty()),*]
            }

            fn names(names: &Self::Names) -> Vec<&'static str> {
                names.to_vec()
            }

            fn handles(self) -> Vec<PortHandle> {
                vec![$(self.$at.handle),*]
            }

            #[allow(unused_variables, clippy::unused_unit)]
            fn outputs(names: &[String]) -> Self::Outputs {
                ($(Output::<$T>::new(&names[$at]),)*)
            }

            #[allow(unused_variables, clippy::unused_unit)]
            fn inputs(names: &[String]) -> Self::Inputs {
                ($(Input::<$T>::new(&names[$at]),)*)
            }

            #[allow(unused_variables)]
            fn encode(values: Self::Values) -> Result<Vec<Data>, Error> {
                Ok(vec![$(values.$at.encode()?),*])
            }

            #[allow(unused_variables)]
            fn decode(data: &mut dyn Iterator<Item = Data>) -> Result<Self::Values, Error> {
                Ok(($(Port::<$T>::decode(data)?,)*))
            }
        }
    )*};
}

tuples! {
    0: ;
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
    7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    9: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    10: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    11: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    12: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
    13: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12;
    14: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13;
    15: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14;
    16: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14 P 15;
}
