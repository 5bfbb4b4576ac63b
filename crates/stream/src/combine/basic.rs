//! Count, sum, smallest, largest, mean.

use super::{Combine, Laws};
use crate::data::StreamData;
use std::marker::PhantomData;

macro_rules! unit_combine {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T>(PhantomData<fn(T) -> T>);

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                $name(PhantomData)
            }
        }

        impl<T> Default for $name<T> {
            fn default() -> Self {
                $name(PhantomData)
            }
        }

        impl<T> $name<T> {
            /// Creates the combine.
            pub fn new() -> Self {
                Self::default()
            }
        }
    };
}

unit_combine! {
    /// The number of records.
    Count
}
unit_combine! {
    /// The sum of the records. Integers wrap around; sums of floating-point numbers depend on the order and are not lifted.
    Sum
}
unit_combine! {
    /// The smallest record; `None` of no records.
    Min
}
unit_combine! {
    /// The largest record; `None` of no records.
    Max
}

impl<T: StreamData> Combine for Count<T> {
    type In = T;
    type Acc = u64;
    type Out = u64;

    fn identity(&self) -> u64 {
        0
    }

    fn add(&self, acc: &mut u64, _: T) {
        *acc += 1;
    }

    fn merge(&self, acc: &mut u64, other: u64) {
        *acc += other;
    }

    fn result(&self, acc: u64) -> u64 {
        acc
    }

    fn laws(&self) -> Laws {
        Laws::ALL
    }
}

/// A number that can be summed.
pub trait Summable: StreamData {
    /// The sum of no numbers.
    const ZERO: Self;
    /// The laws of its addition.
    const LAWS: Laws;
    /// Returns the sum of two numbers.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

macro_rules! summable {
    ($($integer:ty),*) => { $(
        impl Summable for $integer {
            const ZERO: Self = 0;
            const LAWS: Laws = Laws::ALL;
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )* };
}
summable!(u32, u64, u128, usize, i32, i64, i128);

impl Summable for f64 {
    const ZERO: Self = 0.0;
    const LAWS: Laws = Laws::NONE;
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl<T: Summable> Combine for Sum<T> {
    type In = T;
    type Acc = T;
    type Out = T;

    fn identity(&self) -> T {
        T::ZERO
    }

    fn add(&self, acc: &mut T, record: T) {
        *acc = acc.clone().plus(record);
    }

    fn merge(&self, acc: &mut T, other: T) {
        self.add(acc, other);
    }

    fn result(&self, acc: T) -> T {
        acc
    }

    fn laws(&self) -> Laws {
        T::LAWS
    }
}

macro_rules! extreme {
    ($name:ident, $better:tt) => {
        impl<T: StreamData + Ord> Combine for $name<T> {
            type In = T;
            type Acc = Option<T>;
            type Out = Option<T>;

            fn identity(&self) -> Option<T> {
                None
            }

            fn add(&self, acc: &mut Option<T>, record: T) {
                if acc.as_ref().is_none_or(|best| record $better *best) {
                    *acc = Some(record);
                }
            }

            fn merge(&self, acc: &mut Option<T>, other: Option<T>) {
                if let Some(record) = other {
                    self.add(acc, record);
                }
            }

            fn result(&self, acc: Option<T>) -> Option<T> {
                acc
            }

            fn laws(&self) -> Laws {
                Laws::ALL
            }
        }
    };
}
extreme!(Min, <);
extreme!(Max, >);

/// The mean of the records; `None` of no records. Not lifted: it sums floating-point numbers.
#[derive(Clone, Copy, Debug)]
pub struct Mean;

impl Combine for Mean {
    type In = f64;
    type Acc = (f64, u64);
    type Out = Option<f64>;

    fn identity(&self) -> (f64, u64) {
        (0.0, 0)
    }

    fn add(&self, acc: &mut (f64, u64), record: f64) {
        *acc = (acc.0 + record, acc.1 + 1);
    }

    fn merge(&self, acc: &mut (f64, u64), other: (f64, u64)) {
        *acc = (acc.0 + other.0, acc.1 + other.1);
    }

    fn result(&self, (sum, count): (f64, u64)) -> Option<f64> {
        (count > 0).then(|| sum / count as f64)
    }

    fn laws(&self) -> Laws {
        Laws::NONE
    }
}
