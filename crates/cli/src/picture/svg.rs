//! A scene as one self-contained SVG file, light or dark as its reader prefers.

use super::{
    layout::{self, PlacedScene, Rect},
    scene::{Box, BoxKind, Repeats, Scene},
    states::State,
    style::{self, escape, short},
};
use std::fmt::Write;

/// The margin around everything.
const MARGIN: f64 = 20.0;
/// The height of the title, and of the legend.
const TITLE: f64 = 30.0;
/// The most letters of a name that are shown.
const NAME_MAX: usize = 36;

/// Makes a whole document.
pub(crate) fn document(scene: &Scene) -> String {
    style::document(&scene.title, draw(scene))
}

/// Makes a drawing for a page that has the CSS rules already.
pub(crate) fn inline(scene: &Scene) -> String {
    style::inline(&scene.title, draw(scene))
}

fn draw(scene: &Scene) -> (String, f64, f64) {
    let sizes: Vec<_> = scene.boxes.iter().map(|one| size(scene, one)).collect();
    let placed = layout::place(scene, &sizes);
    let legend = legend(scene);
    let legend_width = legend.iter().map(|state| entry_width(*state)).sum::<f64>();
    let title_width = scene.title.chars().count() as f64 * 8.5;
    let width = placed.width.max(legend_width).max(title_width) + 2.0 * MARGIN;
    let below = if legend.is_empty() { 0.0 } else { TITLE };
    let height = placed.height + 2.0 * MARGIN + TITLE + below;
    let (dx, dy) = ((width - placed.width) / 2.0, MARGIN + TITLE);
    let mut out = String::from(
        "<defs><marker id=\"of-tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto-start-reverse\"><path class=\"of-head\" d=\"M0 0 L8 4 L0 8 L2 4 z\"/></marker></defs>\n",
    );
    add(&mut out, format_args!("<rect class=\"of-back\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\"/>\n"));
    let title = escape(&scene.title);
    add(&mut out, format_args!("<text class=\"of-name\" x=\"{MARGIN}\" y=\"{:.0}\">{title}</text>\n", MARGIN + 8.0));
    add(&mut out, format_args!("<g transform=\"translate({dx:.1} {dy:.1})\">\n"));
    for (group, rect) in scene.groups.iter().zip(&placed.groups) {
        let told = group.repeats.word().map_or(String::new(), str::to_owned);
        draw_group(&mut out, rect, &short(&group.name, NAME_MAX), &told);
    }
    for way in &placed.arrows {
        arrow(&mut out, &placed, way);
    }
    for (one, rect) in scene.boxes.iter().zip(&placed.boxes) {
        draw_box(&mut out, scene, one, rect);
    }
    out.push_str("</g>\n");
    draw_legend(&mut out, &legend, height - MARGIN);
    (out, width, height)
}

fn add(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string can be written");
}

/// Returns the second line of a box.
fn detail(scene: &Scene, one: &Box) -> String {
    let told = if scene.is_run { one.state.told() } else { String::new() };
    let mut parts: Vec<&str> = one.repeats.word().into_iter().collect();
    parts.push(one.word());
    if !told.is_empty() {
        parts.push(&told);
    }
    parts.join(" · ")
}

fn size(scene: &Scene, one: &Box) -> (f64, f64) {
    let name = short(&one.name, NAME_MAX).chars().count() as f64 * 8.1;
    if !one.is_step() {
        return (name.max(20.0) + 32.0, 28.0);
    }
    let detail = detail(scene, one).chars().count() as f64 * 6.3;
    (name.max(detail).max(60.0) + 30.0, 46.0)
}

fn draw_group(out: &mut String, rect: &Rect, name: &str, told: &str) {
    let Rect { x, y, w, h } = rect;
    add(
        out,
        format_args!(
            "<rect class=\"of-group\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"10\"/>\n"
        ),
    );
    let (tx, ty) = (x + 14.0, y + 22.0);
    let name = escape(name);
    add(
        out,
        format_args!(
            "<text x=\"{tx:.1}\" y=\"{ty:.1}\"><tspan class=\"of-name\">{name}</tspan><tspan class=\"of-dim of-small\" dx=\"6\">{told}</tspan></text>\n"
        ),
    );
}

fn draw_box(out: &mut String, scene: &Scene, one: &Box, rect: &Rect) {
    let Rect { x, y, w, h } = *rect;
    let class = match (&one.kind, scene.is_run) {
        (BoxKind::Step(_) | BoxKind::Call | BoxKind::Operation(_), true) if one.has_state() => one.state.state.word(),
        _ => "plain",
    };
    let tip = escape(&format!("{}: {}", one.id.trim_end_matches('.'), detail(scene, one)));
    add(out, format_args!("<g><title>{tip}</title>"));
    let radius = if one.is_step() { 7.0 } else { 14.0 };
    if one.repeats == Repeats::Each {
        // A second sheet behind the box shows that the step runs for every element.
        add(
            out,
            format_args!(
                "<rect class=\"of-box of-{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{radius}\"/>",
                x + 5.0,
                y + 5.0
            ),
        );
    }
    add(
        out,
        format_args!(
            "<rect class=\"of-box of-{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{radius}\"/>"
        ),
    );
    if let Some((settled, of)) = one.state.progress().filter(|(_, of)| scene.is_run && *of > 0) {
        let full = (w - 16.0) * settled as f64 / of as f64;
        add(
            out,
            format_args!(
                "<rect class=\"of-bar-{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{full:.1}\" height=\"3\" rx=\"1.5\"/>",
                x + 8.0,
                y + h - 6.0
            ),
        );
    }
    let (cx, name) = (x + w / 2.0, escape(&short(&one.name, NAME_MAX)));
    match one.is_step() {
        false => add(
            out,
            format_args!(
                "<text class=\"of-small\" text-anchor=\"middle\" x=\"{cx:.1}\" y=\"{:.1}\">{name}</text>",
                y + h / 2.0 + 4.0
            ),
        ),
        true => {
            let detail = escape(&detail(scene, one));
            add(
                out,
                format_args!(
                    "<text class=\"of-name\" text-anchor=\"middle\" x=\"{cx:.1}\" y=\"{:.1}\">{name}</text>",
                    y + 19.0
                ),
            );
            add(
                out,
                format_args!(
                    "<text class=\"of-dim of-small\" text-anchor=\"middle\" x=\"{cx:.1}\" y=\"{:.1}\">{detail}</text>",
                    y + 35.0
                ),
            );
        }
    }
    out.push_str("</g>\n");
}

/// Draws a curve that leaves and enters layers at right angles.
fn arrow(out: &mut String, placed: &PlacedScene, way: &[(f64, f64)]) {
    let Some((first, rest)) = way.split_first() else { return };
    let mut path = format!("M{:.1} {:.1}", first.0, first.1);
    let mut from = *first;
    // A path of no length has no direction for the tip of the arrow.
    let is_far = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() + (a.1 - b.1).abs() > 0.1;
    for to in rest {
        if !is_far(from, *to) {
            continue;
        }
        match placed.is_across {
            false if (from.0 - to.0).abs() > 0.5 => {
                let middle = (from.1 + to.1) / 2.0;
                add(
                    &mut path,
                    format_args!(" C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}", from.0, to.0, to.0, to.1),
                );
            }
            true if (from.1 - to.1).abs() > 0.5 => {
                let middle = (from.0 + to.0) / 2.0;
                add(
                    &mut path,
                    format_args!(" C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}", from.1, to.1, to.0, to.1),
                );
            }
            _ => add(&mut path, format_args!(" L{:.1} {:.1}", to.0, to.1)),
        }
        from = *to;
    }
    add(out, format_args!("<path class=\"of-arrow\" marker-end=\"url(#of-tip)\" d=\"{path}\"/>\n"));
}

/// Returns the states that occur in the scene.
fn legend(scene: &Scene) -> Vec<State> {
    let is_there = |state: &State| scene.boxes.iter().any(|one| one.has_state() && one.state.state == *state);
    if scene.is_run { State::ALL.into_iter().filter(is_there).collect() } else { vec![] }
}

fn entry_width(state: State) -> f64 {
    state.word().len() as f64 * 6.5 + 34.0
}

fn draw_legend(out: &mut String, legend: &[State], y: f64) {
    let mut x = MARGIN;
    for state in legend {
        let word = state.word();
        add(
            out,
            format_args!(
                "<rect class=\"of-box of-{word}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"12\" rx=\"3\"/>",
                y - 10.0
            ),
        );
        add(out, format_args!("<text class=\"of-dim of-small\" x=\"{:.1}\" y=\"{y:.1}\">{word}</text>\n", x + 20.0));
        x += entry_width(*state);
    }
}
