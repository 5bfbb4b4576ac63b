//! Assigns layers: every item is in a later one than all that feed it. An arrow over several layers passes a slot in
//! each.

/// The most slots for long arrows: beyond, arrows go straight.
const PASSES_MAX: usize = 20_000;

/// Items, then slots for long arrows, in layers.
pub(super) struct Layered {
    /// The slots of each layer, in order.
    pub(super) layers: Vec<Vec<usize>>,
    layer: Vec<usize>,
    /// Slots that each edge passes, with its ends.
    ways: Vec<Vec<usize>>,
    /// Neighbours of each slot in the layer before and the layer after.
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
    items: usize,
}

impl Layered {
    /// Returns the number of slots: items, and those for long arrows.
    pub(super) fn slots(&self) -> usize {
        self.layer.len()
    }

    /// The slot holds no item: only an arrow passes it.
    pub(super) fn is_pass(&self, slot: usize) -> bool {
        slot >= self.items
    }

    pub(super) fn layer_of(&self, slot: usize) -> usize {
        self.layer[slot]
    }

    pub(super) fn way(&self, edge: usize) -> &[usize] {
        &self.ways[edge]
    }
}

/// Puts `items` items, joined by `edges`, into layers.
pub(super) fn layered(items: usize, edges: &[(usize, usize)]) -> Layered {
    let layer = longest(items, edges);
    let deepest = layer.iter().copied().max().map_or(0, |deepest| deepest + 1);
    let mut layered = Layered {
        layers: vec![Vec::new(); deepest],
        layer,
        ways: Vec::new(),
        before: vec![Vec::new(); items],
        after: vec![Vec::new(); items],
        items,
    };
    for item in 0..items {
        layered.layers[layered.layer[item]].push(item);
    }
    for (from, to) in edges {
        layered.join(*from, *to);
    }
    layered
}

impl Layered {
    fn join(&mut self, from: usize, to: usize) {
        let (first, last) = (self.layer[from], self.layer[to]);
        let between = last.saturating_sub(first).saturating_sub(1);
        let mut way = vec![from];
        if first < last && self.slots() - self.items + between <= PASSES_MAX {
            for layer in first + 1..last {
                let slot = self.slots();
                way.push(slot);
                self.layers[layer].push(slot);
                self.layer.push(layer);
                self.before.push(Vec::new());
                self.after.push(Vec::new());
            }
        }
        way.push(to);
        for pair in way.windows(2) {
            self.after[pair[0]].push(pair[1]);
            self.before[pair[1]].push(pair[0]);
        }
        self.ways.push(way);
    }
}

/// Returns the layer of each item: the length of the longest path to it. Items that nothing feeds then move next to
/// those they feed. Arrows that lead back do not count: groups may feed each other.
fn longest(items: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let edges = forward(items, edges);
    let (mut into, mut out) = (vec![0; items], vec![Vec::new(); items]);
    for (from, to) in &edges {
        into[*to] += 1;
        out[*from].push(*to);
    }
    let is_fed: Vec<_> = into.iter().map(|into| *into > 0).collect();
    let mut ready: Vec<_> = (0..items).filter(|item| into[*item] == 0).collect();
    let (mut layer, mut order) = (vec![0; items], Vec::with_capacity(items));
    while let Some(item) = ready.pop() {
        order.push(item);
        for to in &out[item] {
            layer[*to] = layer[*to].max(layer[item] + 1);
            into[*to] -= 1;
            if into[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    for item in order.into_iter().rev() {
        if let Some(nearest) = out[item].iter().map(|to| layer[*to]).min() {
            // Only an item that nothing feeds can move without making other arrows longer.
            if !is_fed[item] {
                layer[item] = nearest - 1;
            }
        }
    }
    layer
}

/// Returns the edges without those that close a cycle.
fn forward(items: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut out = vec![Vec::new(); items];
    for (from, to) in edges {
        out[*from].push(*to);
    }
    // 0 is unvisited, 1 is on the path, 2 is done.
    let (mut colour, mut kept) = (vec![0_u8; items], Vec::with_capacity(edges.len()));
    for root in 0..items {
        if colour[root] != 0 {
            continue;
        }
        let mut way = vec![(root, 0)];
        colour[root] = 1;
        while let Some((item, next)) = way.last_mut() {
            let item = *item;
            let Some(to) = out[item].get(*next).copied() else {
                colour[item] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            if colour[to] != 1 {
                kept.push((item, to));
            }
            if colour[to] == 0 {
                colour[to] = 1;
                way.push((to, 0));
            }
        }
    }
    kept
}
