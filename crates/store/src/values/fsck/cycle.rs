//! Finds cycles. There can be none, since a value refers only to values stored before it; so a cycle means that
//! rows were changed by something else. Walks without recursion: a chain may be a million long.

/// For every cycle, a node that closes it: one of whose successors leads back to it. `next[n]` are the successors
/// of `n`.
pub(super) fn closing(next: &[Vec<usize>]) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::No; next.len()];
    let mut closing = Vec::new();
    for start in 0..next.len() {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::OnPath;
        let mut path = vec![(start, next[start].iter())];
        while let Some((node, rest)) = path.last_mut() {
            match rest.next() {
                None => {
                    seen[*node] = Seen::Done;
                    path.pop();
                }
                Some(&to) => match seen[to] {
                    Seen::Done => {}
                    Seen::OnPath => closing.push(*node),
                    Seen::No => {
                        seen[to] = Seen::OnPath;
                        path.push((to, next[to].iter()));
                    }
                },
            }
        }
    }
    closing.sort_unstable();
    closing.dedup();
    closing
}

#[cfg(test)]
mod tests {
    use super::closing;

    #[test]
    fn a_cycle_is_closed_by_one_of_its_nodes() {
        assert_eq!(closing(&[vec![0]]), [0]);
        assert_eq!(closing(&[vec![1], vec![2], vec![0]]), [2]);
        assert_eq!(closing(&[vec![1, 2], vec![0], vec![0]]), [1, 2]);
    }

    #[test]
    fn a_diamond_and_a_long_chain_have_none() {
        assert!(closing(&[vec![1, 2], vec![3], vec![3], vec![]]).is_empty());
        let chain: Vec<_> = (0..1_000_000).map(|n| if n == 0 { vec![] } else { vec![n - 1] }).collect();
        assert!(closing(&chain).is_empty());
    }
}
