//! Positions each slot along its layer: as near to the mean of its neighbours as the slots beside it allow.

use super::layers::Layered;

/// The number of passes over all layers.
const PASSES: usize = 16;

/// The weight of keeping a long arrow straight, relative to centring a box.
const STRAIGHT: f64 = 8.0;

/// The gap between arrows that pass a layer side by side.
const PASS_GAP: f64 = 14.0;

/// Returns the middles of all slots; `lengths` has the lengths of items, and slots that arrows pass have 0.
pub(super) fn spread(layered: &Layered, lengths: &[f64], gap: f64) -> Vec<f64> {
    let length = |slot: usize| lengths.get(slot).copied().unwrap_or(0.0);
    let apart = |a: usize, b: usize| {
        let gap = if layered.is_pass(a) && layered.is_pass(b) { PASS_GAP } else { gap };
        (length(a) + length(b)) / 2.0 + gap
    };
    let mut middle = vec![0.0; layered.slots()];
    for layer in &layered.layers {
        let mut at = 0.0;
        for pair in layer.windows(2) {
            middle[pair[0]] = at;
            at += apart(pair[0], pair[1]);
        }
        if let Some(last) = layer.last() {
            middle[*last] = at;
            layer.iter().for_each(|slot| middle[*slot] -= at / 2.0);
        }
    }
    for pass in 0..PASSES {
        let layers: Vec<_> = match pass % 2 {
            0 => (0..layered.layers.len()).collect(),
            _ => (0..layered.layers.len()).rev().collect(),
        };
        for at in layers {
            settle(layered, at, pass + 2 >= PASSES, &apart, &mut middle);
        }
    }
    middle
}

/// Moves the slots of one layer: towards neighbours on one side, and in the last passes on both.
fn settle(layered: &Layered, layer: usize, both: bool, apart: &impl Fn(usize, usize) -> f64, middle: &mut [f64]) {
    let slots = &layered.layers[layer];
    let mut wanted = Vec::with_capacity(slots.len());
    for slot in slots {
        let (before, after) = (&layered.before[*slot], &layered.after[*slot]);
        let passes = |of: &[usize]| of.iter().copied().filter(|other| layered.is_pass(*other)).collect::<Vec<_>>();
        let along = if layered.is_pass(*slot) { [passes(before), passes(after)].concat() } else { vec![] };
        let near: Vec<f64> = match (both, before.is_empty()) {
            // A long arrow is kept straight before it is centred.
            _ if !along.is_empty() => along.iter().map(|other| middle[*other]).collect(),
            (false, false) => before.iter().map(|other| middle[*other]).collect(),
            (false, true) => after.iter().map(|other| middle[*other]).collect(),
            (true, _) => before.iter().chain(after).map(|other| middle[*other]).collect(),
        };
        let want = if near.is_empty() { middle[*slot] } else { near.iter().sum::<f64>() / near.len() as f64 };
        wanted.push((want, if layered.is_pass(*slot) { STRAIGHT } else { 1.0 }));
    }
    let gaps: Vec<_> = slots.windows(2).map(|pair| apart(pair[0], pair[1])).collect();
    for (slot, at) in slots.iter().zip(nearest(&wanted, &gaps)) {
        middle[*slot] = at;
    }
}

/// Returns the positions nearest to the wanted ones, by weight, with each at least a gap after the one before. Items in
/// each other's way form blocks, positioned at their weighted average.
fn nearest(wanted: &[(f64, f64)], gaps: &[f64]) -> Vec<f64> {
    // With all gaps subtracted, positions only must not decrease.
    let mut offset = 0.0;
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    let mut offsets = Vec::with_capacity(wanted.len());
    for (at, (want, weight)) in wanted.iter().enumerate() {
        if at > 0 {
            offset += gaps[at - 1];
        }
        offsets.push(offset);
        let mut block = (want - offset, *weight, 1);
        while let Some(last) = blocks.last().copied().filter(|last| last.0 >= block.0) {
            blocks.pop();
            let weight = last.1 + block.1;
            block = ((last.0 * last.1 + block.0 * block.1) / weight, weight, last.2 + block.2);
        }
        blocks.push(block);
    }
    let flat = blocks.into_iter().flat_map(|(at, _, many)| std::iter::repeat_n(at, many));
    flat.zip(offsets).map(|(at, offset)| at + offset).collect()
}
