//! Arguments for an input: a port of its type, or a plain value, which becomes a constant of the flow.

use crate::{
    builder::PortHandle,
    port::{Port, Ports},
    value::{Literal, Value},
};
use onceflow_core::model::Type;
use onceflow_engine::task::Data;

/// Can be given to an input of type `T`.
///
/// A `Port<T>` can, and a plain `T` (a `&str` where text is wanted). An input that is an option takes what its inner
/// type takes, too, and `None`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given to an input of type `{T}`",
    label = "does not fit `{T}`",
    note = "an input takes a `Port` of its own type, or a plain value of it",
    note = "a file or directory is never a plain value of a flow: make it an input of the flow"
)]
pub trait Arg<T> {
    #[doc(hidden)]
    fn given(self) -> Argument;
}

/// An argument that was given to an input.
#[doc(hidden)]
#[derive(Debug)]
pub enum Argument {
    Port(PortHandle, Type),
    Constant(Data, Type),
    Nothing,
}

impl<T: Value> Arg<T> for Port<T> {
    fn given(self) -> Argument {
        Argument::Port(self.handle, T::ty())
    }
}

impl<T: Value> Arg<Option<T>> for Port<T> {
    fn given(self) -> Argument {
        Argument::Port(self.handle, T::ty())
    }
}

impl<T: Literal> Arg<T> for T {
    fn given(self) -> Argument {
        constant(self)
    }
}

impl<T: Literal> Arg<Option<T>> for T {
    fn given(self) -> Argument {
        constant(self)
    }
}

impl Arg<String> for &str {
    fn given(self) -> Argument {
        constant(String::from(self))
    }
}

impl Arg<Option<String>> for &str {
    fn given(self) -> Argument {
        constant(String::from(self))
    }
}

/// A constant. That a value cannot be written at all is a mistake in its `Serialize`, not in the flow.
pub(crate) fn constant<T: Literal>(value: T) -> Argument {
    match value.encode() {
        Ok(Data::None) => Argument::Nothing,
        Ok(data) => Argument::Constant(data, T::ty()),
        Err(error) => panic!("a constant cannot be written: {error}"),
    }
}

/// Can be given to the inputs `P`: one argument for one port, a tuple of them for a tuple.
#[diagnostic::on_unimplemented(
    message = "these inputs are `{P}`, but `{Self}` was given",
    label = "does not fit `{P}`",
    note = "give one argument for each port, as a tuple if there are several: ports of their types, or plain values"
)]
pub trait Args<P: Ports> {
    #[doc(hidden)]
    fn all(self) -> Vec<Argument>;
}

impl<T: Value, X: Arg<T>> Args<Port<T>> for X {
    fn all(self) -> Vec<Argument> {
        vec![self.given()]
    }
}

impl Args<()> for () {
    fn all(self) -> Vec<Argument> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($($T:ident $X:ident $at:tt)*;)*) => {$(
        impl<$($T: Value, $X: Arg<$T>),*> Args<($(Port<$T>,)*)> for ($($X,)*) {
            fn all(self) -> Vec<Argument> {
                vec![$(self.$at.given()),*]
            }
        }
    )*};
}

tuples! {
    A XA 0;
    A XA 0 B XB 1;
    A XA 0 B XB 1 C XC 2;
    A XA 0 B XB 1 C XC 2 D XD 3;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10 L XL 11;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10 L XL 11 M XM 12;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10 L XL 11 M XM 12 N XN 13;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10 L XL 11 M XM 12 N XN 13 O XO 14;
    A XA 0 B XB 1 C XC 2 D XD 3 E XE 4 F XF 5 G XG 6 H XH 7 I XI 8 J XJ 9 K XK 10 L XL 11 M XM 12 N XN 13 O XO 14 P XP 15;
}
