//! The largest records of a window.

use super::{Combine, Laws};
use crate::data::StreamData;
use std::{cmp::Reverse, marker::PhantomData};

/// The `n` largest records, the largest first. Equal records count each.
#[derive(Debug)]
pub struct TopN<T> {
    n: usize,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Clone for TopN<T> {
    fn clone(&self) -> Self {
        TopN::new(self.n)
    }
}

impl<T> TopN<T> {
    /// Creates the combine for `n` records.
    pub const fn new(n: usize) -> Self {
        TopN { n, of: PhantomData }
    }
}

impl<T: StreamData + Ord> Combine for TopN<T> {
    type In = T;
    /// In order, the largest first.
    type Acc = Vec<T>;
    type Out = Vec<T>;

    fn identity(&self) -> Vec<T> {
        Vec::new()
    }

    fn add(&self, acc: &mut Vec<T>, record: T) {
        if acc.len() == self.n && acc.last().is_none_or(|least| record <= *least) {
            return;
        }
        let at = acc.partition_point(|other| *other >= record);
        acc.insert(at, record);
        acc.truncate(self.n);
    }

    fn merge(&self, acc: &mut Vec<T>, other: Vec<T>) {
        acc.extend(other);
        acc.sort_by(|a, b| Reverse(a).cmp(&Reverse(b)));
        acc.truncate(self.n);
    }

    fn result(&self, acc: Vec<T>) -> Vec<T> {
        acc
    }

    fn laws(&self) -> Laws {
        Laws::ALL
    }

    fn state(&self) -> String {
        format!("the largest {}", self.n)
    }
}
