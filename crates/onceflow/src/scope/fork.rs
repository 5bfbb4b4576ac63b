//! Chains that part: copies, branches by content, elements of tuples, lists and maps.

use super::{
    builder::{one, value, value_ref},
    chain::Chain,
};
use onceflow_core::scope::{Distribution, Emitted, OpKind};
use onceflow_engine::scope::Packet;
use std::{collections::BTreeMap, fmt::Display, sync::Arc};

fn to_port<T: Send + 'static>(port: u32, message: T) -> Emitted<Packet> {
    Emitted::One(port, Box::new(message))
}

impl<'s, T: Clone + Send + 'static> Chain<'s, T> {
    /// A copy of each message for every branch.
    pub fn fork_clone<const N: usize>(self) -> [Chain<'s, T>; N] {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("clone", OpKind::Clone, N);
        parts.copies[op.at()] = Some(Arc::new(|packet| Box::new(value_ref::<T>(packet).clone())));
        drop(parts);
        self.then_ops(op)
    }

    /// A copy of each message for every branch, as many as are asked for.
    pub fn fork_clone_to(self, branches: usize) -> Vec<Chain<'s, T>> {
        let mut parts = self.parts.borrow_mut();
        let op = parts.add("clone", OpKind::Clone, branches);
        parts.copies[op.at()] = Some(Arc::new(|packet| Box::new(value_ref::<T>(packet).clone())));
        drop(parts);
        self.lead_to(op);
        (0..branches).map(|port| Chain::new(self.parts, Some(op), port)).collect()
    }
}

impl<'s, T: Send + 'static> Chain<'s, T> {
    /// Each message takes the branch whose number the function gives: the variants of an enum.
    pub fn fork_by<const N: usize>(self, branch: impl Fn(&T) -> usize + Send + Sync + 'static) -> [Chain<'s, T>; N] {
        let kind = OpKind::Distribute(Distribution::Fork);
        let op = self.parts.borrow_mut().add_blocking("fork", kind, N, move |feed, _| {
            let packet = one(feed);
            let branch = branch(value_ref::<T>(&packet));
            match u32::try_from(branch) {
                Ok(port) if branch < N => Ok(Emitted::One(port, packet)),
                _ => Err(format!("there is no branch {branch}")),
            }
        });
        self.then_ops(op)
    }
}

impl<'s, A: Send + 'static, B: Send + 'static> Chain<'s, Result<A, B>> {
    /// Parts results from errors.
    pub fn fork_result(self) -> (Chain<'s, A>, Chain<'s, B>) {
        let kind = OpKind::Distribute(Distribution::Fork);
        let op = self.parts.borrow_mut().add_blocking("fork", kind, 2, |feed, _| {
            Ok(match value::<Result<A, B>>(one(feed)) {
                Ok(result) => to_port(0, result),
                Err(error) => to_port(1, error),
            })
        });
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }

    /// Lets results pass; errors are disposed of.
    pub fn dispose_on_err(self) -> Chain<'s, A> {
        self.filter_map(Result::ok)
    }

    /// Lets results pass; an error cancels the session.
    pub fn cancel_on_err<I: Send + 'static, O: Send + 'static>(
        self,
        scope: &'s super::ScopeBuilder<I, O>,
    ) -> Chain<'s, A>
    where
        B: Display,
    {
        let (result, error) = self.fork_result();
        error.connect(scope.cancel());
        result
    }
}

impl<'s, A: Send + 'static> Chain<'s, Option<A>> {
    /// Parts values from their absence.
    pub fn fork_option(self) -> (Chain<'s, A>, Chain<'s, ()>) {
        self.map(|option| option.ok_or(())).fork_result()
    }

    /// Lets values pass; their absence is disposed of.
    pub fn dispose_on_none(self) -> Chain<'s, A> {
        self.filter_map(|option| option)
    }

    /// Lets values pass; the absence of one cancels the session.
    pub fn cancel_on_none<I: Send + 'static, O: Send + 'static>(
        self,
        scope: &'s super::ScopeBuilder<I, O>,
    ) -> Chain<'s, A> {
        self.map(|option| option.ok_or("nothing came")).cancel_on_err(scope)
    }
}

impl<'s, A: Send + 'static, B: Send + 'static> Chain<'s, (A, B)> {
    /// Parts the elements of a pair.
    pub fn unzip(self) -> (Chain<'s, A>, Chain<'s, B>) {
        let kind = OpKind::Distribute(Distribution::Unzip);
        let op = self.parts.borrow_mut().add_blocking("unzip", kind, 2, |feed, _| {
            let (a, b) = value::<(A, B)>(one(feed));
            Ok(Emitted::Many(vec![(0, Box::new(a) as Packet), (1, Box::new(b))]))
        });
        self.lead_to(op);
        (Chain::new(self.parts, Some(op), 0), Chain::new(self.parts, Some(op), 1))
    }
}

impl<'s, L: IntoIterator + Send + 'static> Chain<'s, L>
where
    L::Item: Send + 'static,
{
    /// Each element becomes a message of its own.
    pub fn spread(self) -> Chain<'s, L::Item> {
        let kind = OpKind::Distribute(Distribution::Spread);
        let op = self.parts.borrow_mut().add_blocking("spread", kind, 1, |feed, _| {
            let list = value::<L>(one(feed)).into_iter();
            Ok(Emitted::Many(list.map(|element| (0, Box::new(element) as Packet)).collect()))
        });
        self.then_op(op)
    }
}

impl<'s, T: Send + 'static> Chain<'s, Vec<T>> {
    /// Gives the first elements a branch each, and the rest another.
    pub fn split<const N: usize>(self) -> ([Chain<'s, T>; N], Chain<'s, Vec<T>>) {
        let kind = OpKind::Distribute(Distribution::Split);
        let op = self.parts.borrow_mut().add_blocking("split", kind, N + 1, |feed, _| {
            let mut list = value::<Vec<T>>(one(feed)).into_iter();
            let mut parts: Vec<(u32, Packet)> = (0..).zip(list.by_ref().take(N)).map(boxed).collect();
            parts.push((u32::try_from(N).unwrap_or(u32::MAX), Box::new(list.collect::<Vec<T>>())));
            Ok(Emitted::Many(parts))
        });
        self.lead_to(op);
        let parts = self.parts;
        (std::array::from_fn(|port| Chain::new(parts, Some(op), port)), Chain::new(parts, Some(op), N))
    }
}

fn boxed<T: Send + 'static>((port, element): (u32, T)) -> (u32, Packet) {
    (port, Box::new(element))
}

impl<'s, K: Ord + Send + Sync + 'static, T: Send + 'static> Chain<'s, BTreeMap<K, T>> {
    /// Gives the values of these keys a branch each, and the rest of the map another.
    pub fn split_keys<const N: usize>(self, keys: [K; N]) -> ([Chain<'s, T>; N], Chain<'s, BTreeMap<K, T>>) {
        let kind = OpKind::Distribute(Distribution::Split);
        let op = self.parts.borrow_mut().add_blocking("split", kind, N + 1, move |feed, _| {
            let mut map = value::<BTreeMap<K, T>>(one(feed));
            let found = (0..).zip(&keys).filter_map(|(port, key)| map.remove(key).map(|value| (port, value)));
            let mut parts: Vec<(u32, Packet)> = found.map(boxed).collect();
            parts.push((u32::try_from(N).unwrap_or(u32::MAX), Box::new(map)));
            Ok(Emitted::Many(parts))
        });
        self.lead_to(op);
        let parts = self.parts;
        (std::array::from_fn(|port| Chain::new(parts, Some(op), port)), Chain::new(parts, Some(op), N))
    }
}
