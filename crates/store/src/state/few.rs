//! A list that is mostly very short: the notes a batch takes on its way should not cost an allocation.

/// Some things, the first two in place.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: [Option<T>; 2],
    rest: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few { first: [None, None], rest: Vec::new() }
    }
}

impl<T> Few<T> {
    #[inline]
    pub(super) fn push(&mut self, one: T) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(one),
            None => self.rest.push(one),
        }
    }

    /// In the order they came.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().flatten().chain(&self.rest)
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.rest.last().or(self.first[1].as_ref()).or(self.first[0].as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_there_in_the_order_they_came() {
        let mut few = Few::default();
        for n in 0..5_usize {
            assert_eq!(few.iter().copied().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            assert_eq!(few.last().copied(), n.checked_sub(1));
            few.push(n);
        }
    }
}
