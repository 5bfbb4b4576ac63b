//! Chains that part: copies, branches by content, elements of tuples, lists and maps.

use super::{
    chain::Chain,
    medium::{Buffers, Medium, Message, inline, one, to_port},
};
use onceflow_core::scope::{Distribution, Emitted, Feed, OpKind};
use std::{collections::BTreeMap, fmt::Display};

impl<'s, T: Message<M> + Clone, M: Medium> Chain<'s, T, M> {
    /// A copy of each message for every branch.
    pub fn fork_clone<const N: usize>(self) -> [Chain<'s, T, M>; N] {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("clone", OpKind::Clone, N);
        parts.code.copies[op.at()] = M::copy::<T>();
        drop(parts);
        self.then_ops(op)
    }

    /// A copy of each message for every branch, as many as are asked for.
    pub fn fork_clone_to(self, branches: usize) -> Vec<Chain<'s, T, M>> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("clone", OpKind::Clone, branches);
        parts.code.copies[op.at()] = M::copy::<T>();
        drop(parts);
        self.lead_to(op);
        (0..branches).map(|port| Chain::new(self.parts, Some(op), port)).collect()
    }
}

impl<'s, T: Message<M>, M: Medium> Chain<'s, T, M> {
    /// Each message takes the branch whose number the function gives: the variants of an enum.
    pub fn fork_by<const N: usize>(self, branch: impl Fn(&T) -> usize + Send + Sync + 'static) -> [Chain<'s, T, M>; N] {
        let kind = OpKind::Distribute(Distribution::Fork);
        let body = move |feed: Feed<M::Packet>, _: &dyn Buffers<M>| {
            let packet = one(feed);
            let branch = T::look(&packet, &branch)?;
            match u32::try_from(branch) {
                Ok(port) if branch < N => Ok(Emitted::One(port, packet)),
                _ => Err(format!("there is no branch {branch}")),
            }
        };
        let op = self.parts.borrow_mut().add_code("fork", kind, N, M::inline(body));
        self.then_ops(op)
    }
}

impl<'s, A: Message<M>, B: Message<M>, M: Medium> Chain<'s, Result<A, B>, M>
where
    Result<A, B>: Message<M>,
{
    /// Parts results from errors.
    pub fn fork_result(self) -> (Chain<'s, A, M>, Chain<'s, B, M>) {
        let kind = OpKind::Distribute(Distribution::Fork);
        let body = inline(|message: Result<A, B>| match message {
            Ok(result) => to_port::<_, M>(0, result),
            Err(error) => to_port::<_, M>(1, error),
        });
        let op = self.parts.borrow_mut().add_code("fork", kind, 2, body);
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }

    /// Lets results pass; errors are disposed of.
    pub fn dispose_on_err(self) -> Chain<'s, A, M> {
        self.filter_map(Result::ok)
    }

    /// Lets results pass; an error cancels the session.
    pub fn cancel_on_err<I: Message<M>, O: Message<M>>(self, scope: &'s super::ScopeBuilder<I, O, M>) -> Chain<'s, A, M>
    where
        B: Display,
    {
        let (result, error) = self.fork_result();
        error.connect(scope.cancel());
        result
    }
}

impl<'s, A: Message<M>, M: Medium> Chain<'s, Option<A>, M>
where
    Option<A>: Message<M>,
{
    /// Parts values from their absence.
    pub fn fork_option(self) -> (Chain<'s, A, M>, Chain<'s, (), M>)
    where
        (): Message<M>,
    {
        self.fork_absence(|| ())
    }

    /// Parts values from their absence, for which there is another message.
    fn fork_absence<B: Message<M>>(
        self,
        absent: impl Fn() -> B + Send + Sync + 'static,
    ) -> (Chain<'s, A, M>, Chain<'s, B, M>) {
        let kind = OpKind::Distribute(Distribution::Fork);
        let body = inline(move |message: Option<A>| match message {
            Some(value) => to_port::<_, M>(0, value),
            None => to_port::<_, M>(1, absent()),
        });
        let op = self.parts.borrow_mut().add_code("fork", kind, 2, body);
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }

    /// Lets values pass; their absence is disposed of.
    pub fn dispose_on_none(self) -> Chain<'s, A, M> {
        self.filter_map(|option| option)
    }

    /// Lets values pass; the absence of one cancels the session.
    pub fn cancel_on_none<I: Message<M>, O: Message<M>>(
        self,
        scope: &'s super::ScopeBuilder<I, O, M>,
    ) -> Chain<'s, A, M>
    where
        String: Message<M>,
    {
        let (value, absence) = self.fork_absence(|| String::from("nothing came"));
        absence.connect(scope.cancel());
        value
    }
}

impl<'s, A: Message<M>, B: Message<M>, M: Medium> Chain<'s, (A, B), M>
where
    (A, B): Message<M>,
{
    /// Parts the elements of a pair.
    pub fn unzip(self) -> (Chain<'s, A, M>, Chain<'s, B, M>) {
        let kind = OpKind::Distribute(Distribution::Unzip);
        let body = inline(|(a, b): (A, B)| Ok(Emitted::Many(vec![(0, a.pack()?), (1, b.pack()?)])));
        let op = self.parts.borrow_mut().add_code("unzip", kind, 2, body);
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }
}

impl<'s, L: IntoIterator + Message<M>, M: Medium> Chain<'s, L, M>
where
    L::Item: Message<M>,
{
    /// Each element becomes a message of its own.
    pub fn spread(self) -> Chain<'s, L::Item, M> {
        let kind = OpKind::Distribute(Distribution::Spread);
        let body = inline(|list: L| {
            let each = list.into_iter().map(|element| Ok((0, element.pack()?)));
            each.collect::<Result<_, String>>().map(Emitted::Many)
        });
        let op = self.parts.borrow_mut().add_code("spread", kind, 1, body);
        self.then_op(op)
    }
}

/// The first elements by a port each, then the rest.
fn split_parts<T: Message<M>, R: Message<M>, M: Medium>(
    found: impl Iterator<Item = (u32, T)>,
    rest: impl FnOnce() -> (usize, R),
) -> Result<Emitted<M::Packet>, String> {
    let mut parts = found.map(|(port, part)| Ok((port, part.pack()?))).collect::<Result<Vec<_>, String>>()?;
    let (port, rest) = rest();
    parts.push((u32::try_from(port).unwrap_or(u32::MAX), rest.pack()?));
    Ok(Emitted::Many(parts))
}

impl<'s, T: Message<M>, M: Medium> Chain<'s, Vec<T>, M>
where
    Vec<T>: Message<M>,
{
    /// Gives the first elements a branch each, and the rest another.
    pub fn split<const N: usize>(self) -> ([Chain<'s, T, M>; N], Chain<'s, Vec<T>, M>) {
        let kind = OpKind::Distribute(Distribution::Split);
        let body = inline(|list: Vec<T>| {
            let mut list = list.into_iter();
            let first: Vec<T> = list.by_ref().take(N).collect();
            split_parts::<_, _, M>((0..).zip(first), || (N, list.collect::<Vec<T>>()))
        });
        let op = self.parts.borrow_mut().add_code("split", kind, N + 1, body);
        self.lead_to(op);
        let parts = self.parts;
        (std::array::from_fn(|port| Chain::new(parts, Some(op), port)), Chain::new(parts, Some(op), N))
    }
}

impl<'s, K: Ord + Send + Sync + 'static, T: Message<M>, M: Medium> Chain<'s, BTreeMap<K, T>, M>
where
    BTreeMap<K, T>: Message<M>,
{
    /// Gives the values of these keys a branch each, and the rest of the map another.
    pub fn split_keys<const N: usize>(self, keys: [K; N]) -> ([Chain<'s, T, M>; N], Chain<'s, BTreeMap<K, T>, M>) {
        let kind = OpKind::Distribute(Distribution::Split);
        let body = inline(move |mut map: BTreeMap<K, T>| {
            let found = (0..).zip(&keys).filter_map(|(port, key)| map.remove(key).map(|value| (port, value)));
            let found: Vec<_> = found.collect();
            split_parts::<_, _, M>(found.into_iter(), || (N, map))
        });
        let op = self.parts.borrow_mut().add_code("split", kind, N + 1, body);
        self.lead_to(op);
        let parts = self.parts;
        (std::array::from_fn(|port| Chain::new(parts, Some(op), port)), Chain::new(parts, Some(op), N))
    }
}
