//! Lists of numbers, one for each of many rows, stored in two vectors: eight bytes for a row with one number, where a
//! vector of vectors takes over seventy and an allocation.

/// Lists of numbers by row; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adjacency {
    /// Per row and one more: where its numbers begin.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Adjacency {
    /// Sorts pairs (row, number) into rows; the numbers of a row keep their order. `pairs` is walked twice.
    pub(crate) fn new(rows: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_u32; rows + 1];
        let mut count = 0_usize;
        for (row, _) in pairs.clone() {
            starts[row as usize + 1] += 1;
            count += 1;
        }
        assert!(u32::try_from(count).is_ok(), "{count} edges do not fit a list of four billion");
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        // Each start advances as its row is filled, to where the next row begins.
        let mut numbers = vec![0; count];
        for (row, number) in pairs {
            let at = &mut starts[row as usize];
            numbers[*at as usize] = number;
            *at += 1;
        }
        starts.rotate_right(1);
        starts[0] = 0;
        assert_eq!(starts[rows] as usize, numbers.len(), "pairs changed between two walks");
        Adjacency { starts, numbers }
    }

    /// Returns the numbers of a row.
    pub(crate) fn row(&self, row: usize) -> &[u32] {
        &self.numbers[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }
}

/// Returns all rows, each after those that lead to it, otherwise ascending; without rows on a cycle or reachable from
/// one.
pub(crate) fn topological(edges: &Adjacency) -> Vec<u32> {
    use std::{cmp::Reverse, collections::BinaryHeap};
    let mut missing = vec![0_u32; edges.rows()];
    for to in &edges.numbers {
        missing[*to as usize] += 1;
    }
    let free = (0..).zip(&missing).filter(|(_, missing)| **missing == 0);
    let mut ready: BinaryHeap<Reverse<u32>> = free.map(|(node, _)| Reverse(node)).collect();
    let mut order = Vec::with_capacity(edges.rows());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for to in edges.row(node as usize) {
            missing[*to as usize] -= 1;
            if missing[*to as usize] == 0 {
                ready.push(Reverse(*to));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_row_keep_their_order() {
        let pairs = [(2, 7), (0, 1), (2, 5), (2, 6)];
        let rows = Adjacency::new(4, pairs.iter().copied());
        let all: Vec<_> = (0..rows.rows()).map(|row| rows.row(row)).collect();
        assert_eq!(all, [&[1][..], &[], &[7, 5, 6], &[]]);
    }

    #[test]
    fn topological_order_leaves_out_cycles_and_is_otherwise_ascending() {
        let order = |rows, pairs: &[(u32, u32)]| topological(&Adjacency::new(rows, pairs.iter().copied()));
        assert_eq!(order(4, &[(3, 0), (0, 1)]), [2, 3, 0, 1]);
        assert_eq!(order(4, &[(1, 2), (2, 1), (2, 3)]), [0]);
        assert_eq!(order(0, &[]), []);
    }
}
