//! The timeline of a run as SVG: a row for each step, a bar for each attempt. Elements that ran at the same time stand
//! below each other; long idle times are cut.

mod axis;
mod lanes;

use crate::{
    history::{Happened, History, How},
    picture::{
        scene::{box_id, is_step},
        style::{self, escape, short},
    },
    words,
};
use axis::Axis;
use lanes::{Bar, Lanes};
use std::{collections::BTreeSet, fmt::Write};

const MARGIN: f64 = 20.0;
const HEAD: f64 = 54.0;
/// The height of a lane, and the gap between rows.
const LANE: f64 = 15.0;
const ROW_GAP: f64 = 9.0;
const PLOT: f64 = 820.0;
/// The most letters of a name that are shown.
const NAME_MAX: usize = 34;

/// One step, with all attempts at it.
struct Row<'a> {
    name: String,
    lanes: Lanes<'a>,
}

/// Makes a whole document.
pub(crate) fn document(history: &History, title: &str) -> String {
    style::document(title, draw(history, title))
}

/// Makes a drawing for a page that has the CSS rules already.
pub(crate) fn inline(history: &History, title: &str) -> String {
    style::inline(title, draw(history, title))
}

fn draw(history: &History, title: &str) -> (String, f64, f64) {
    let shown: Vec<&Happened> = history.all.iter().filter(|one| is_step(&one.address)).collect();
    let axis = Axis::of(&shown, history, PLOT);
    let rows = rows(&shown, &axis);
    let label = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) as f64 * 7.2 + 16.0;
    let left = MARGIN + label;
    let width = left + PLOT + MARGIN + 10.0;
    let rows_height: f64 = rows.iter().map(|row| row.lanes.many() as f64 * LANE + ROW_GAP).sum();
    let height = MARGIN + HEAD + rows_height + 26.0 + MARGIN;
    let bottom = MARGIN + HEAD + rows_height;
    let mut out = String::new();
    add(&mut out, format_args!("<rect class=\"of-back\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\"/>\n"));
    add(
        &mut out,
        format_args!("<text class=\"of-name\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>\n", MARGIN + 8.0, escape(title)),
    );
    draw_axis(&mut out, &axis, history, left, bottom);
    let mut y = MARGIN + HEAD;
    for row in &rows {
        let ty = y + LANE / 2.0 + 4.0;
        add(
            &mut out,
            format_args!(
                "<text class=\"of-small\" text-anchor=\"end\" x=\"{:.1}\" y=\"{ty:.1}\">{}</text>\n",
                left - 10.0,
                escape(&row.name)
            ),
        );
        for bar in row.lanes.bars() {
            draw_bar(&mut out, bar, left, y);
        }
        y += row.lanes.many() as f64 * LANE + ROW_GAP;
    }
    draw_legend(&mut out, &shown, height - MARGIN);
    (out, width, height)
}

fn add(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string can be written");
}

/// Makes a row for each step, in the order in which they began.
fn rows<'a>(shown: &[&'a Happened], axis: &Axis) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    let mut at = std::collections::BTreeMap::new();
    for happened in shown {
        let id = box_id(&happened.address);
        let row = *at.entry(id.clone()).or_insert_with(|| {
            rows.push(Row { name: short(&id, NAME_MAX), lanes: Lanes::default() });
            rows.len() - 1
        });
        rows[row].lanes.put(happened, axis);
    }
    rows
}

fn draw_axis(out: &mut String, axis: &Axis, history: &History, left: f64, bottom: f64) {
    let top = MARGIN + HEAD - 8.0;
    for (ms, label) in axis.ticks() {
        let x = left + axis.x(ms);
        add(out, format_args!("<path class=\"of-arrow of-grid\" d=\"M{x:.1} {top:.1} V{bottom:.1}\"/>"));
        add(
            out,
            format_args!(
                "<text class=\"of-dim of-small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>\n",
                top - 6.0
            ),
        );
    }
    for (x, ms) in axis.cuts() {
        let x = left + x;
        let later = words::duration(ms);
        add(
            out,
            format_args!(
                "<path class=\"of-arrow\" stroke-dasharray=\"1 4\" d=\"M{x:.1} {top:.1} V{bottom:.1}\"><title>{later} later</title></path>"
            ),
        );
        add(
            out,
            format_args!(
                "<text class=\"of-dim of-small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">+{later}</text>\n",
                bottom + 12.0
            ),
        );
    }
    // The first start is the origin of the axis.
    for ms in history.starts_ms.iter().skip(1) {
        let x = left + axis.x(*ms);
        add(
            out,
            format_args!(
                "<path class=\"of-arrow\" stroke-dasharray=\"4 3\" d=\"M{x:.1} {top:.1} V{bottom:.1}\"><title>resumed</title></path>\n"
            ),
        );
    }
}

fn draw_bar(out: &mut String, bar: &Bar<'_>, left: f64, top: f64) {
    let class = class(bar.how);
    let (x, y, width) = (left + bar.from, top + bar.lane as f64 * LANE, (bar.to - bar.from).max(2.0));
    let tip = match bar.many {
        1 => {
            let attempt =
                if bar.first.attempt > 1 { format!(", attempt {}", bar.first.attempt) } else { String::new() };
            let took = words::duration(bar.first.to_ms.saturating_sub(bar.first.from_ms));
            let used = bar.first.used.map_or(String::new(), |used| format!("; {}", words::used(used)));
            format!("{}{attempt}: {} in {took}{used}", words::step(&bar.first.address), bar.how.word())
        }
        many => format!("{} and {} more: {}", words::step(&bar.first.address), many - 1, bar.how.word()),
    };
    let tip = escape(&tip);
    let height = LANE - 3.0;
    add(
        out,
        format_args!(
            "<rect class=\"of-box of-{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2.5\"><title>{tip}</title></rect>\n"
        ),
    );
}

/// Returns the CSS class of a bar: that of a box in the same state.
fn class(how: How) -> &'static str {
    match how {
        How::Lost => "skipped",
        how => how.word(),
    }
}

fn draw_legend(out: &mut String, shown: &[&Happened], y: f64) {
    let hows: BTreeSet<_> = shown.iter().map(|happened| happened.how).collect();
    let mut x = MARGIN;
    for how in hows {
        let word = how.word();
        add(
            out,
            format_args!(
                "<rect class=\"of-box of-{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"12\" rx=\"3\"/>",
                class(how),
                y - 10.0
            ),
        );
        add(out, format_args!("<text class=\"of-dim of-small\" x=\"{:.1}\" y=\"{y:.1}\">{word}</text>\n", x + 20.0));
        x += word.len() as f64 * 6.5 + 34.0;
    }
}
