//! The same steps for every element of a list.

use super::{
    Builder, NextPart, PortHandle, VALUE, here, outputs, ports,
    state::{NewModule, names_of},
};
use crate::{
    port::{FromHandles, Port, Ports},
    value::Value,
};
use onceflow_core::model::{Type, graph::ModuleKind};

/// The lists an each iterates over: a list, a tuple of up to six lists of one length, or the result of an each that
/// gave a [struct of ports](macro@crate::Ports).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list to go over",
    label = "neither a `Port<Vec<_>>` nor a tuple of up to six",
    note = "use `f.constant(vec![..])` for a fixed list"
)]
pub trait Lists {
    /// An element of each.
    type Elements: Ports;

    #[doc(hidden)]
    fn lists(self) -> Vec<(PortHandle, Type)>;
}

macro_rules! lists {
    ($([$($T:ident)*] $lists:ty => $elements:ty;)*) => {$(
        impl<$($T: Value),*> Lists for $lists {
            type Elements = $elements;

            fn lists(self) -> Vec<(PortHandle, Type)> {
                self.handles().into_iter().zip(<$lists as Ports>::types()).collect()
            }
        }
    )*};
}

lists! {
    [A] Port<Vec<A>> => Port<A>;
    [A B] (Port<Vec<A>>, Port<Vec<B>>) => (Port<A>, Port<B>);
    [A B C] (Port<Vec<A>>, Port<Vec<B>>, Port<Vec<C>>) => (Port<A>, Port<B>, Port<C>);
    [A B C D] (Port<Vec<A>>, Port<Vec<B>>, Port<Vec<C>>, Port<Vec<D>>) => (Port<A>, Port<B>, Port<C>, Port<D>);
    [A B C D E] (Port<Vec<A>>, Port<Vec<B>>, Port<Vec<C>>, Port<Vec<D>>, Port<Vec<E>>)
        => (Port<A>, Port<B>, Port<C>, Port<D>, Port<E>);
    [A B C D E F] (Port<Vec<A>>, Port<Vec<B>>, Port<Vec<C>>, Port<Vec<D>>, Port<Vec<E>>, Port<Vec<F>>)
        => (Port<A>, Port<B>, Port<C>, Port<D>, Port<E>, Port<F>);
}

impl Builder {
    /// Adds the same steps for every element of a list, or of several lists taken together, which must then be of one
    /// length. Gives the results as lists, in the order of the elements.
    ///
    /// Elements run side by side, all at once unless [`at_most`](Builder::at_most) says how many. An each that is fed
    /// by another starts with the first element that is there.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn scale(picture: String, width: u32) -> String { picture }
    /// # Flow::new("doc", ["pictures", "width"], ["small"], |f, (pictures, width): (Port<Vec<String>>, Port<u32>)| {
    /// let small = f.at_most(8).each(pictures, |f, picture| f.add(scale(picture, width)));
    /// # small
    /// # });
    /// ```
    #[track_caller]
    pub fn each<L: Lists, P: Ports>(&self, lists: L, body: impl FnOnce(&mut Builder, L::Elements) -> P) -> P::Lists {
        self.next().each(lists, body)
    }
}

impl NextPart<'_> {
    /// As [`Builder::each`].
    #[track_caller]
    pub fn each<L: Lists, P: Ports>(self, lists: L, body: impl FnOnce(&mut Builder, L::Elements) -> P) -> P::Lists {
        let (f, options, origin) = (self.f, self.take(), here());
        let inputs = ports("item", L::Elements::types());
        let over: Vec<_> = inputs.iter().map(|port| port.name.clone()).collect();
        let nested = f.nest("each", inputs, Vec::new(), &origin, |f, items| {
            outputs(VALUE, body(f, L::Elements::from_handles(&mut items.into_iter())))
        });
        let given = over.iter().zip(lists.lists()).map(|(input, (list, ty))| (input.clone(), list, ty)).collect();
        let kind = ModuleKind::Each { body: nested.graph, over, concurrency: options.at_most };
        let outputs = names_of(VALUE, P::types().len());
        let part = NewModule { kind, base: "each".into(), outputs, attempt: false, origin: origin.clone() };
        let handles = f.state().add_nested(part, options, given, nested.captures, &origin);
        P::Lists::from_handles(&mut handles.into_iter())
    }
}
