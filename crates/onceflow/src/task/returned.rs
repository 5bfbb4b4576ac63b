//! Return types of a task's function: a value, a tuple with one value per named output, or a `Result` of either.

use super::{Failure, failure, wrong};
use crate::{
    port::{Port, Ports},
    value::Value,
};
use onceflow_engine::task::Data;
use std::error::Error;

/// Gives `N` outputs: any value gives one, a tuple of two or more values gives as many as it has.
#[diagnostic::on_unimplemented(
    message = "this task names {N} outputs, but it returns `{Self}`",
    label = "not {N} values",
    note = "`#[task(outputs(a, b))]` goes with `-> (A, B)` or `-> Result<(A, B), E>`"
)]
pub trait Outputs<const N: usize> {
    /// The ports that adding the task to a flow gives.
    type Ports: Ports;

    #[doc(hidden)]
    fn outputs(self) -> Result<Vec<Data>, Failure>;
}

impl<T: Value> Outputs<1> for T {
    type Ports = Port<T>;

    fn outputs(self) -> Result<Vec<Data>, Failure> {
        Port::<T>::encode(self).map_err(|error| wrong("cannot write the outputs", &error))
    }
}

macro_rules! tuples {
    ($($count:literal: $($T:ident)*;)*) => {$(
        impl<$($T: Value),*> Outputs<$count> for ($($T,)*) {
            type Ports = ($(Port<$T>,)*);

            fn outputs(self) -> Result<Vec<Data>, Failure> {
                Self::Ports::encode(self).map_err(|error| wrong("cannot write the outputs", &error))
            }
        }
    )*};
}

tuples! {
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
    6: A B C D E F;
    7: A B C D E F G;
    8: A B C D E F G H;
    9: A B C D E F G H I;
    10: A B C D E F G H I J;
    11: A B C D E F G H I J K;
    12: A B C D E F G H I J K L;
    13: A B C D E F G H I J K L M;
    14: A B C D E F G H I J K L M N;
    15: A B C D E F G H I J K L M N O;
    16: A B C D E F G H I J K L M N O P;
}

/// A return type of a function with `N` outputs: the outputs, or a `Result` of them whose error is any that
/// `Box<dyn Error + Send + Sync>` can be made from (so also `anyhow::Error`, `String` and `&str`).
#[diagnostic::on_unimplemented(
    message = "a task with {N} output(s) cannot return `{Self}`",
    label = "neither {N} value(s) nor a `Result` of them",
    note = "`#[task(outputs(a, b))]` goes with `-> (A, B)` or `-> Result<(A, B), E>`",
    note = "`E` must be an error that `Box<dyn Error + Send + Sync>` can be made from, such as `anyhow::Error`"
)]
pub trait Returned<const N: usize> {
    /// The ports that adding the task to a flow gives.
    type Ports: Ports;

    #[doc(hidden)]
    fn finish(self) -> Result<Vec<Data>, Failure>;
}

impl<const N: usize, T: Outputs<N>> Returned<N> for T {
    type Ports = T::Ports;

    fn finish(self) -> Result<Vec<Data>, Failure> {
        self.outputs()
    }
}

impl<const N: usize, T: Outputs<N>, E: Into<Box<dyn Error + Send + Sync>>> Returned<N> for Result<T, E> {
    type Ports = T::Ports;

    fn finish(self) -> Result<Vec<Data>, Failure> {
        self.map_err(failure)?.outputs()
    }
}
