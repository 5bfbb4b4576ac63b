//! Strongly connected components of a small directed graph, to find its cycles.

/// Returns the components, each ascending, in an order where a component stands after those it leads to. Nodes are
/// indices; `edges[a]` are those `a` leads to. Not recursive, so a chain of a hundred thousand nodes is fine.
pub(crate) fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let count = edges.len();
    let (seen, low, is_open) = (vec![None; count], vec![0; count], vec![false; count]);
    let mut search = Search { edges, seen, low, is_open, ..Search::default() };
    for node in 0..edges.len() {
        if search.seen[node].is_none() {
            search.from(node);
        }
    }
    search.found
}

/// The component has a cycle: more than one node, or one that leads to itself.
pub(crate) fn is_cycle(edges: &[Vec<usize>], component: &[usize]) -> bool {
    component.len() > 1 || component.iter().any(|node| edges[*node].contains(node))
}

/// Returns a shortest cycle through the first node of a component that has one.
pub(crate) fn cycle(edges: &[Vec<usize>], component: &[usize]) -> Vec<usize> {
    let start = component[0];
    let mut before = std::collections::BTreeMap::new();
    let mut todo = std::collections::VecDeque::from([start]);
    while let Some(node) = todo.pop_front() {
        for next in edges[node].iter().copied().filter(|next| component.binary_search(next).is_ok()) {
            if next == start {
                let back = std::iter::successors(Some(node), |node| before.get(node).copied());
                let mut cycle: Vec<usize> = back.collect();
                cycle.reverse();
                return cycle;
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = before.entry(next) {
                entry.insert(node);
                todo.push_back(next);
            }
        }
    }
    component.to_vec()
}

#[derive(Default)]
struct Search<'a> {
    edges: &'a [Vec<usize>],
    /// Per node: its number in the order of first visits.
    seen: Vec<Option<usize>>,
    /// Per node: the earliest visited node known to be reachable from it and still open.
    low: Vec<usize>,
    clock: usize,
    open: Vec<usize>,
    is_open: Vec<bool>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn enter(&mut self, node: usize) {
        self.seen[node] = Some(self.clock);
        self.low[node] = self.clock;
        self.clock += 1;
        self.open.push(node);
        self.is_open[node] = true;
    }

    fn from(&mut self, start: usize) {
        let mut trail = vec![(start, 0)];
        self.enter(start);
        while let Some((node, edge)) = trail.last_mut() {
            let (at, next) = (*node, self.edges[*node].get(*edge).copied());
            *edge += 1;
            match next {
                Some(next) if self.seen[next].is_none() => {
                    self.enter(next);
                    trail.push((next, 0));
                }
                Some(next) if self.is_open[next] => {
                    self.low[at] = self.low[at].min(self.seen[next].unwrap_or(usize::MAX));
                }
                Some(_) => {}
                None => {
                    trail.pop();
                    if let Some((parent, _)) = trail.last() {
                        self.low[*parent] = self.low[*parent].min(self.low[at]);
                    }
                    self.leave(at);
                }
            }
        }
    }

    fn leave(&mut self, node: usize) {
        if Some(self.low[node]) != self.seen[node] {
            return;
        }
        let from =
            self.open.iter().rposition(|open| *open == node).expect("a node is open until its component is found");
        let mut component = self.open.split_off(from);
        for member in &component {
            self.is_open[*member] = false;
        }
        component.sort_unstable();
        self.found.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_the_cycles_and_the_rest() {
        let edges = vec![vec![1], vec![2], vec![0, 3], vec![], vec![4]];
        let found = components(&edges);
        assert_eq!(found, [vec![3], vec![0, 1, 2], vec![4]]);
        let cycles: Vec<_> = found.iter().filter(|component| is_cycle(&edges, component)).collect();
        assert_eq!(cycles, [&vec![0, 1, 2], &vec![4]]);
        assert_eq!(cycle(&edges, &found[1]), [0, 1, 2]);
        assert_eq!(cycle(&edges, &found[2]), [4]);
    }

    #[test]
    fn a_long_chain_needs_no_long_stack() {
        let edges: Vec<_> = (1..=200_000).map(|next| if next < 200_000 { vec![next] } else { vec![] }).collect();
        assert_eq!(components(&edges).len(), 200_000);
    }
}
