//! Positions of boxes, groups and arrows: in layers, every arrow leading to a later one, with few crossings and short
//! paths. A group is laid out by itself, and then is one box of the graph around it.
//!
//! | module | responsibility |
//! |---|---|
//! | `layers` | layers of boxes, and the slots that long arrows pass through |
//! | `order` | the order within layers |
//! | `spread` | the position of each along its layer |

mod layers;
mod order;
mod spread;

use super::scene::Scene;
use std::collections::{BTreeMap, BTreeSet};

/// The gap between boxes of a layer, and between layers.
const GAP: f64 = 24.0;
const LAYER_GAP: f64 = 44.0;
/// The padding in a group, and the space above its content for its name.
const PAD: f64 = 16.0;
const HEAD: f64 = 26.0;
/// The preferred ratio of width to height: far from it, a picture may be read better across than down.
const SHAPE: f64 = 1.6;

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) w: f64,
    pub(crate) h: f64,
}

/// A scene with the position of everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacedScene {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Rectangles, by index in the scene.
    pub(crate) boxes: Vec<Rect>,
    pub(crate) groups: Vec<Rect>,
    /// The path of each arrow: the points it passes, the first and last at borders.
    pub(crate) arrows: Vec<Vec<(f64, f64)>>,
    /// Layers stand side by side, instead of one below the other.
    pub(crate) is_across: bool,
}

/// An item of a graph that is laid out: a box or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LayoutItem {
    Box(usize),
    Group(usize),
}

/// Places all of a scene whose boxes have these sizes.
pub(crate) fn place(scene: &Scene, sizes: &[(f64, f64)]) -> PlacedScene {
    let down = place_as(scene, sizes, false);
    if down.width <= down.height * SHAPE * 1.5 && down.height <= down.width * 2.5 {
        return down;
    }
    let across = place_as(scene, sizes, true);
    let badness = |placed: &PlacedScene| (placed.width / SHAPE).max(placed.height);
    if badness(&across) < badness(&down) * 0.8 { across } else { down }
}

fn place_as(scene: &Scene, sizes: &[(f64, f64)], is_across: bool) -> PlacedScene {
    let mut placing = Placing {
        scene,
        sizes,
        is_across,
        inside: BTreeMap::new(),
        boxes: vec![Rect::default(); scene.boxes.len()],
        groups: vec![Rect::default(); scene.groups.len()],
        arrows: Vec::new(),
    };
    for (at, one) in scene.boxes.iter().enumerate() {
        placing.inside.entry(one.group).or_default().push(LayoutItem::Box(at));
    }
    // A group comes after the one around it, so going backwards the innermost are measured first.
    for (at, group) in scene.groups.iter().enumerate() {
        placing.inside.entry(group.group).or_default().push(LayoutItem::Group(at));
    }
    for at in (0..scene.groups.len()).rev() {
        let (w, h) = placing.graph(Some(at));
        (placing.groups[at].w, placing.groups[at].h) = (w + 2.0 * PAD, h + 2.0 * PAD + HEAD);
    }
    let (width, height) = placing.graph(None);
    for at in 0..scene.groups.len() {
        let Rect { x, y, .. } = placing.groups[at];
        placing.move_inside(at, x + PAD, y + PAD + HEAD);
    }
    PlacedScene {
        width,
        height,
        boxes: placing.boxes,
        groups: placing.groups,
        arrows: placing.arrows.into_iter().map(|(_, way)| way).collect(),
        is_across,
    }
}

struct Placing<'a> {
    scene: &'a Scene,
    sizes: &'a [(f64, f64)],
    is_across: bool,
    inside: BTreeMap<Option<usize>, Vec<LayoutItem>>,
    boxes: Vec<Rect>,
    groups: Vec<Rect>,
    /// Arrows, each with the group it is drawn in.
    arrows: Vec<(Option<usize>, Vec<(f64, f64)>)>,
}

impl Placing<'_> {
    /// Lays out the items directly in a group, from 0, 0; returns their total size.
    fn graph(&mut self, group: Option<usize>) -> (f64, f64) {
        let items = self.inside.get(&group).cloned().unwrap_or_default();
        let index: BTreeMap<_, _> = items.iter().enumerate().map(|(at, item)| (*item, at)).collect();
        let edges = self.edges(group, &index);
        let sizes: Vec<_> = items.iter().map(|item| self.size(*item)).collect();
        let (along, across): (Vec<_>, Vec<_>) = match self.is_across {
            false => sizes.iter().copied().unzip(),
            true => sizes.iter().map(|(w, h)| (*h, *w)).unzip(),
        };
        let mut layered = layers::layered(items.len(), &edges);
        order::order(&mut layered);
        let middle = spread::spread(&layered, &along, GAP);
        let deep = depths(&layered, &across);
        let length = |slot: usize| along.get(slot).copied().unwrap_or(0.0);
        let least = (0..layered.slots()).map(|slot| middle[slot] - length(slot) / 2.0).fold(f64::MAX, f64::min);
        let most = (0..layered.slots()).map(|slot| middle[slot] + length(slot) / 2.0).fold(f64::MIN, f64::max);
        for (at, item) in items.iter().enumerate() {
            let (near, depth) = deep[layered.layer_of(at)];
            let (a, d) = (middle[at] - least - along[at] / 2.0, near + (depth - across[at]) / 2.0);
            let (x, y) = if self.is_across { (d, a) } else { (a, d) };
            let rect = self.rect(*item);
            (rect.x, rect.y) = (x, y);
            (rect.w, rect.h) = sizes[at];
        }
        for edge in 0..edges.len() {
            let way = self.way(&layered, edge, &middle, &deep, least, &across);
            self.arrows.push((group, way));
        }
        let end = deep.last().map_or(0.0, |(near, depth)| near + depth);
        let size = (if items.is_empty() { 0.0 } else { most - least }, end);
        if self.is_across { (size.1, size.0) } else { size }
    }

    fn rect(&mut self, item: LayoutItem) -> &mut Rect {
        match item {
            LayoutItem::Box(at) => &mut self.boxes[at],
            LayoutItem::Group(at) => &mut self.groups[at],
        }
    }

    fn size(&self, item: LayoutItem) -> (f64, f64) {
        match item {
            LayoutItem::Box(at) => self.sizes[at],
            LayoutItem::Group(at) => (self.groups[at].w.max(self.name_width(at)), self.groups[at].h),
        }
    }

    fn name_width(&self, group: usize) -> f64 {
        self.scene.groups[group].name.chars().count() as f64 * 8.0 + 90.0
    }

    /// Returns the arrows between items directly in a group: arrows of boxes deeper inside count as their group's.
    fn edges(&self, group: Option<usize>, index: &BTreeMap<LayoutItem, usize>) -> Vec<(usize, usize)> {
        let at = |which: usize| {
            let mut item = LayoutItem::Box(which);
            let mut around = self.scene.boxes[which].group;
            while around != group {
                let inner = around?;
                item = LayoutItem::Group(inner);
                around = self.scene.groups[inner].group;
            }
            index.get(&item).copied()
        };
        let lifted = self.scene.arrows.iter().filter_map(|(from, to)| Some((at(*from)?, at(*to)?)));
        let edges: BTreeSet<_> = lifted.filter(|(from, to)| from != to).collect();
        edges.into_iter().collect()
    }

    /// Returns the points an arrow passes.
    fn way(
        &self,
        layered: &layers::Layered,
        edge: usize,
        middle: &[f64],
        deep: &[(f64, f64)],
        least: f64,
        across: &[f64],
    ) -> Vec<(f64, f64)> {
        let slots = layered.way(edge);
        let mut points = Vec::new();
        for (at, slot) in slots.iter().enumerate() {
            let (near, depth) = deep[layered.layer_of(*slot)];
            let (first, last) = (at == 0, at + 1 == slots.len());
            let inset = across.get(*slot).map_or(0.0, |own| (depth - own) / 2.0);
            let a = middle[*slot] - least;
            match (first, last) {
                // Arrows turn between layers: beside a small box there may be a large group.
                (true, _) => points.extend([(a, near + depth - inset), (a, near + depth)]),
                (_, true) => points.extend([(a, near), (a, near + inset)]),
                // The arrow goes straight through the whole layer, so that it crosses no box.
                _ => points.extend([(a, near), (a, near + depth)]),
            }
        }
        let turn = |(a, d): (f64, f64)| if self.is_across { (d, a) } else { (a, d) };
        points.into_iter().map(turn).collect()
    }

    /// Moves the items in a group to the group's position.
    fn move_inside(&mut self, group: usize, x: f64, y: f64) {
        for item in self.inside.get(&Some(group)).cloned().unwrap_or_default() {
            let rect = self.rect(item);
            (rect.x, rect.y) = (rect.x + x, rect.y + y);
        }
        for (of, way) in &mut self.arrows {
            if *of == Some(group) {
                way.iter_mut().for_each(|point| *point = (point.0 + x, point.1 + y));
            }
        }
    }
}

/// Returns the start and depth of each layer.
fn depths(layered: &layers::Layered, across: &[f64]) -> Vec<(f64, f64)> {
    let mut near = 0.0;
    let mut deep = Vec::new();
    for layer in &layered.layers {
        let depth = layer.iter().map(|slot| across.get(*slot).copied().unwrap_or(0.0)).fold(0.0, f64::max);
        deep.push((near, depth));
        near += depth + LAYER_GAP;
    }
    deep
}

#[cfg(test)]
mod tests;
