//! A combine of the user's, from four functions.

use super::{Combine, Laws};
use crate::data::StreamData;
use std::{marker::PhantomData, sync::Arc};

/// A combine made of functions. Without [`Custom::laws`] it declares none, and is not lifted.
pub struct Custom<In, Acc, Out> {
    functions: Arc<Functions<In, Acc, Out>>,
    laws: Laws,
}

struct Functions<In, Acc, Out> {
    identity: Box<dyn Fn() -> Acc + Send + Sync>,
    add: Box<dyn Fn(&mut Acc, In) + Send + Sync>,
    merge: Box<dyn Fn(&mut Acc, Acc) + Send + Sync>,
    result: Box<dyn Fn(Acc) -> Out + Send + Sync>,
    of: PhantomData<fn(In) -> Out>,
}

impl<In, Acc, Out> Clone for Custom<In, Acc, Out> {
    fn clone(&self) -> Self {
        Custom { functions: self.functions.clone(), laws: self.laws }
    }
}

impl<In, Acc, Out> Custom<In, Acc, Out> {
    /// Creates a combine from its functions: the value of no records, adding a record, adding a partial value, and the
    /// result of a value.
    pub fn new(
        identity: impl Fn() -> Acc + Send + Sync + 'static,
        add: impl Fn(&mut Acc, In) + Send + Sync + 'static,
        merge: impl Fn(&mut Acc, Acc) + Send + Sync + 'static,
        result: impl Fn(Acc) -> Out + Send + Sync + 'static,
    ) -> Self {
        let functions = Functions {
            identity: Box::new(identity),
            add: Box::new(add),
            merge: Box::new(merge),
            result: Box::new(result),
            of: PhantomData,
        };
        Custom { functions: Arc::new(functions), laws: Laws::NONE }
    }

    /// Declares laws. A law that does not hold gives results that depend on how records met in bundles.
    #[must_use]
    pub fn laws(self, laws: Laws) -> Self {
        Custom { laws, ..self }
    }
}

impl<In: StreamData, Acc: StreamData, Out: StreamData> Combine for Custom<In, Acc, Out> {
    type In = In;
    type Acc = Acc;
    type Out = Out;

    fn identity(&self) -> Acc {
        (self.functions.identity)()
    }

    fn add(&self, acc: &mut Acc, record: In) {
        (self.functions.add)(acc, record);
    }

    fn merge(&self, acc: &mut Acc, other: Acc) {
        (self.functions.merge)(acc, other);
    }

    fn result(&self, acc: Acc) -> Out {
        (self.functions.result)(acc)
    }

    fn laws(&self) -> Laws {
        self.laws
    }
}
