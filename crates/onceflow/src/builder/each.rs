//! The same steps for every element of a list.

use super::{Builder, Handle, Part, VALUE, here, names, outputs, ports};
use crate::{
    port::{Port, Ports},
    value::Value,
};
use onceflow_core::model::{Type, graph::Kind};

/// What an each goes over: a list, or a tuple of up to three lists of one length.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list to go over",
    label = "neither a `Port<Vec<_>>` nor a tuple of two or three",
    note = "use `f.constant(vec![..])` for a fixed list"
)]
pub trait Lists {
    /// An element of each.
    type Elements: Ports;

    #[doc(hidden)]
    fn lists(self) -> Vec<(Handle, Type)>;
}

macro_rules! lists {
    ($([$($T:ident)*] $lists:ty => $elements:ty;)*) => {$(
        impl<$($T: Value),*> Lists for $lists {
            type Elements = $elements;

            fn lists(self) -> Vec<(Handle, Type)> {
                self.handles().into_iter().zip(<$lists as Ports>::types()).collect()
            }
        }
    )*};
}

lists! {
    [A] Port<Vec<A>> => Port<A>;
    [A B] (Port<Vec<A>>, Port<Vec<B>>) => (Port<A>, Port<B>);
    [A B C] (Port<Vec<A>>, Port<Vec<B>>, Port<Vec<C>>) => (Port<A>, Port<B>, Port<C>);
}

impl Builder {
    /// Adds the same steps for every element of a list, or of two or three lists taken together, which must then be of
    /// one length. Gives the results as lists, in the order of the elements.
    ///
    /// Elements run side by side, all at once unless [`at_most`](Builder::at_most) says how many. An each that is fed by
    /// another starts with the first element that is there.
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
    pub fn each<L: Lists, P: Ports>(
        &mut self,
        lists: L,
        body: impl FnOnce(&mut Builder, L::Elements) -> P,
    ) -> P::Lists {
        let origin = here();
        let inputs = ports("item", L::Elements::types());
        let over: Vec<_> = inputs.iter().map(|port| port.name.clone()).collect();
        let nested = self.nest(inputs, Vec::new(), &origin, |f, items| {
            outputs(VALUE, body(f, L::Elements::from_handles(&mut items.into_iter())))
        });
        let kind = Kind::Each { body: nested.graph, over: over.clone(), concurrency: self.at_most };
        let outputs = names(VALUE, P::types().len());
        let part = Part { kind, base: "each".into(), outputs, attempt: false, origin: origin.clone() };
        let module = self.add_part(part);
        for (input, (list, ty)) in over.iter().zip(lists.lists()) {
            let from = self.resolve(list, &ty);
            self.top().connect(from, module, input, &origin);
        }
        self.connect_captures(module, nested.captures, &origin);
        P::Lists::from_handles(&mut self.outputs_of(module).into_iter())
    }
}
