//! Orders the items within layers: every item moves to the mean position of its neighbours, in sweeps back and forth,
//! as long as fewer arrows cross.

use super::layers::Layered;

/// The most sweeps.
const SWEEPS: usize = 12;

/// Sweeps without improvement after which ordering ends.
const PATIENCE: usize = 4;

/// Orders all layers.
pub(super) fn order(layered: &mut Layered) {
    let mut position = vec![0.0; layered.slots()];
    let mut best = (crossings(layered), layered.layers.clone());
    let mut stale = 0;
    for sweep in 0..SWEEPS {
        if best.0 == 0 || stale >= PATIENCE {
            break;
        }
        for layer in 0..layered.layers.len() {
            note(layered, layer, &mut position);
        }
        let down = sweep % 2 == 0;
        for step in 1..layered.layers.len() {
            let layer = if down { step } else { layered.layers.len() - 1 - step };
            let neighbours = if down { &layered.before } else { &layered.after };
            let mut ranked: Vec<_> = layered.layers[layer]
                .iter()
                .map(|slot| (middle(&neighbours[*slot], &position).unwrap_or(position[*slot]), *slot))
                .collect();
            // The sort is stable, so that equal items stay in the order of the flow.
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            layered.layers[layer] = ranked.into_iter().map(|(_, slot)| slot).collect();
            note(layered, layer, &mut position);
        }
        let now = crossings(layered);
        if now < best.0 {
            (best, stale) = ((now, layered.layers.clone()), 0);
        } else {
            stale += 1;
        }
    }
    layered.layers = best.1;
}

fn note(layered: &Layered, layer: usize, position: &mut [f64]) {
    let slots = &layered.layers[layer];
    for (at, slot) in slots.iter().enumerate() {
        position[*slot] = at as f64 / slots.len() as f64;
    }
}

fn middle(of: &[usize], position: &[f64]) -> Option<f64> {
    let sum: f64 = of.iter().map(|slot| position[*slot]).sum();
    (!of.is_empty()).then(|| sum / of.len() as f64)
}

/// Returns the number of crossings of arrows between neighbouring layers.
fn crossings(layered: &Layered) -> usize {
    let mut at = vec![0; layered.slots()];
    for layer in &layered.layers {
        layer.iter().enumerate().for_each(|(location, slot)| at[*slot] = location);
    }
    layered.layers.iter().map(|layer| between(layered, layer, &at)).sum()
}

/// Counts pairs of arrows out of one layer whose ends are in the opposite order, with a tree of sums.
fn between(layered: &Layered, layer: &[usize], at: &[usize]) -> usize {
    let ends = layer.iter().flat_map(|slot| {
        let mut to: Vec<_> = layered.after[*slot].iter().map(|to| at[*to]).collect();
        to.sort_unstable();
        to
    });
    let ends: Vec<_> = ends.collect();
    let width = ends.iter().copied().max().map_or(0, |most| most + 1);
    let mut sums = vec![0_usize; width + 1];
    let mut crossed = 0;
    for (seen, end) in ends.iter().enumerate() {
        let mut upto = 0;
        let mut index = end + 1;
        while index > 0 {
            upto += sums[index];
            index &= index - 1;
        }
        crossed += seen - upto;
        let mut index = end + 1;
        while index <= width {
            sums[index] += 1;
            index += index & index.wrapping_neg();
        }
    }
    crossed
}
