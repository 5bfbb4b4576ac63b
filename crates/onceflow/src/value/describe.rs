//! Finds the kernel's type for a derived type: a record, if the types of all fields are known; else its name.

use super::Value;
use onceflow_core::model::Type;
use std::{cell::RefCell, marker::PhantomData};

thread_local! {
    /// The types being described right now, so that a type that contains itself is met by its name.
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// A record of these fields, or the bare name if a field's type is unknown or the description is already under way.
pub fn described(name: &'static str, fields: impl FnOnce() -> Vec<(&'static str, Option<Type>)>) -> Type {
    if OPEN.with_borrow(|open| open.contains(&name)) {
        return Type::Named(name.into());
    }
    OPEN.with_borrow_mut(|open| open.push(name));
    let fields = fields();
    OPEN.with_borrow_mut(Vec::pop);
    let record = fields.into_iter().map(|(name, ty)| Some((name.into(), ty?))).collect::<Option<_>>();
    record.map_or_else(|| Type::Named(name.into()), Type::Record)
}

/// A type known by its name and those it is made for: `Page<int>`.
pub fn named(name: &str, of: &[Type]) -> Type {
    if of.is_empty() {
        return Type::Named(name.into());
    }
    let of: Vec<_> = of.iter().map(ToString::to_string).collect();
    Type::Named(format!("{name}<{}>", of.join(", ")))
}

/// Answers what a field's type is called. The method of this type is there only for values; for all other types the
/// one of [`UnknownType`] is found instead.
pub struct TypeOf<T>(PhantomData<T>);

impl<T> TypeOf<T> {
    /// Asks about `T`.
    #[expect(clippy::new_without_default, reason = "only derived code calls it")]
    pub fn new() -> Self {
        TypeOf(PhantomData)
    }
}

impl<T: Value> TypeOf<T> {
    /// The kernel's type for `T`.
    pub fn ty(&self) -> Option<Type> {
        Some(T::ty())
    }
}

/// The answer for types that are no values.
pub trait UnknownType {
    /// Returns `None`: the type has no kernel type.
    fn ty(&self) -> Option<Type> {
        None
    }
}

impl<T> UnknownType for TypeOf<T> {}
