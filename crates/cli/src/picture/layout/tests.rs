//! Invariants of every layout, checked on many small graphs.

use super::*;
use crate::picture::scene::{Box, BoxKind, Repeats, SceneGroup};

fn scene(boxes: &[Option<usize>], groups: &[Option<usize>], arrows: &[(usize, usize)]) -> Scene {
    let one = |(at, group): (usize, &Option<usize>)| Box {
        id: format!("b{at}"),
        name: format!("b{at}"),
        kind: BoxKind::Step(String::from("run")),
        group: *group,
        repeats: Repeats::Once,
        in_choice: false,
        eaches: vec![],
        reserves: (0, 0),
        state: crate::picture::states::Stand::default(),
    };
    let group = |(at, group): (usize, &Option<usize>)| SceneGroup {
        id: format!("g{at}"),
        name: format!("g{at}"),
        repeats: Repeats::Once,
        group: *group,
    };
    Scene {
        title: String::from("x"),
        boxes: boxes.iter().enumerate().map(one).collect(),
        groups: groups.iter().enumerate().map(group).collect(),
        arrows: arrows.iter().copied().collect(),
        is_run: false,
    }
}

fn overlap(a: &Rect, b: &Rect) -> bool {
    a.x + 0.01 < b.x + b.w && b.x + 0.01 < a.x + a.w && a.y + 0.01 < b.y + b.h && b.y + 0.01 < a.y + a.h
}

fn holds(a: &Rect, b: &Rect) -> bool {
    a.x <= b.x + 0.01 && a.y <= b.y + 0.01 && b.x + b.w <= a.x + a.w + 0.01 && b.y + b.h <= a.y + a.h + 0.01
}

fn check(scene: &Scene) {
    let sizes: Vec<_> = (0..scene.boxes.len()).map(|at| (60.0 + 13.0 * (at % 5) as f64, 40.0)).collect();
    for across in [false, true] {
        let placed = place_as(scene, &sizes, across);
        let all = Rect { x: 0.0, y: 0.0, w: placed.width, h: placed.height };
        for (at, rect) in placed.boxes.iter().enumerate() {
            assert!(holds(&all, rect), "{at} {rect:?} is not in {all:?}: {:?}", scene.arrows);
            let around = scene.boxes[at].group.map_or(all, |group| placed.groups[group]);
            assert!(holds(&around, rect), "{at} {rect:?} is not in its group {around:?}: {:?}", scene.arrows);
            for other in &placed.boxes[..at] {
                assert!(!overlap(rect, other), "{rect:?} is on {other:?}: {:?}", scene.arrows);
            }
        }
        for (at, rect) in placed.groups.iter().enumerate() {
            let siblings = (0..at).filter(|other| scene.groups[*other].group == scene.groups[at].group);
            assert!(
                siblings.into_iter().all(|other| !overlap(rect, &placed.groups[other])),
                "groups are on each other"
            );
            let others = scene.boxes.iter().zip(&placed.boxes).filter(|(one, _)| one.group == scene.groups[at].group);
            assert!(others.into_iter().all(|(_, other)| !overlap(rect, other)), "a group is on a box");
        }
        for (from, to) in &scene.arrows {
            let flat = scene.boxes[*from].group == scene.boxes[*to].group && scene.groups.is_empty();
            let (a, b) = (placed.boxes[*from], placed.boxes[*to]);
            let forward = if across { a.x + a.w < b.x } else { a.y + a.h < b.y };
            assert!(!flat || forward, "an arrow leads back: {:?}", scene.arrows);
        }
        let numbers = placed.arrows.iter().flatten().flat_map(|(x, y)| [*x, *y]);
        assert!(numbers.into_iter().all(f64::is_finite));
    }
}

#[test]
fn no_box_is_on_another_and_every_arrow_leads_on_in_all_graphs_of_five() {
    let pairs: Vec<_> = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))).collect();
    for bits in 0..1_u32 << pairs.len() {
        let arrows: Vec<_> =
            pairs.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, pair)| *pair).collect();
        check(&scene(&[None; 5], &[], &arrows));
    }
}

#[test]
fn groups_hold_what_is_in_them_also_where_they_feed_each_other() {
    let pairs: Vec<_> = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))).collect();
    for bits in (0..1_u32 << pairs.len()).step_by(3) {
        let arrows: Vec<_> =
            pairs.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, pair)| *pair).collect();
        check(&scene(&[Some(0), Some(1), Some(2), Some(0), None], &[None, None, Some(0)], &arrows));
    }
}

#[test]
fn nothing_and_very_much_can_be_laid_out() {
    check(&scene(&[], &[], &[]));
    let wide: Vec<_> = (1..400).flat_map(|at| [(0, at), (at, 400)]).collect();
    check(&scene(&[None; 401], &[], &wide));
    let all_to_last: Vec<_> = (0..300).flat_map(|at| [(at, at + 1), (at, 300)]).collect();
    check(&scene(&[None; 301], &[], &all_to_last));
}
