//! Draws a bar for each step of the flow that has progress to show, and below them the running steps, since when each
//! runs, and an estimate of the time left. Every row is one line of the terminal, however narrow that is: a line that
//! wraps cannot be redrawn.

use crate::{
    event_log,
    progress::{Group, Progress},
    words,
};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onceflow_engine::EventKind;
use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use std::{collections::BTreeMap, io::Write, time::Duration};

/// The most bars that are shown at a time; those of steps at rest make room.
const BARS_MAX: usize = 12;

/// The most running steps named in the last line.
const NAMED_MAX: usize = 4;

/// Elements that must be done before the time left is estimated.
const ESTIMATE_AFTER: usize = 3;

/// The bars on a terminal.
pub(super) struct Bars {
    pub(super) all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
    running: ProgressBar,
    /// The time when this process began to follow the run.
    since_ms: u64,
    /// The width of the terminal when rows were last laid out.
    columns: u16,
    echo: Echo,
}

/// Keeps the terminal from echoing `^C`: the cursor stands behind the last row, and an echo there would move it below,
/// so that rows would be drawn twice.
struct Echo(Option<Termios>);

impl Echo {
    fn off() -> Self {
        let stderr = std::io::stderr();
        // A process in the background may not change the terminal, and would be stopped for trying.
        let is_ours = tcgetpgrp(&stderr).is_ok_and(|group| group == getpgrp());
        let Some(before) = tcgetattr(&stderr).ok().filter(|_| is_ours) else { return Echo(None) };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHOCTL);
        Echo(tcsetattr(&stderr, OptionalActions::Now, &quiet).is_ok().then_some(before))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            // If restoring fails, there is nowhere to report it.
            let _stays = tcsetattr(std::io::stderr(), OptionalActions::Now, &before);
        }
    }
}

/// Rows on a terminal that are drawn again in place.
#[derive(Default)]
pub(crate) struct Rows {
    all: MultiProgress,
    rows: Vec<ProgressBar>,
}

impl Rows {
    /// Draws these rows in place of those before; what is wider than the terminal is cut off.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        while self.rows.len() < lines.len() {
            let row = self.all.add(ProgressBar::new_spinner());
            row.set_style(style("{msg}"));
            self.rows.push(row);
        }
        let room = usize::from(columns()).saturating_sub(1);
        for (row, line) in self.rows.iter().zip(lines) {
            row.set_message(fit(line, room));
            row.tick();
        }
    }

    /// Removes the rows.
    pub(crate) fn end(self) {
        self.rows.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        let running = all.add(ProgressBar::new_spinner());
        running.set_style(style("{spinner:.cyan} {elapsed} {msg}"));
        running.enable_steady_tick(Duration::from_millis(120));
        Bars {
            all,
            bars: BTreeMap::new(),
            running,
            since_ms: event_log::now_ms(),
            columns: columns(),
            echo: Echo::off(),
        }
    }

    pub(super) fn saw(&mut self, progress: &Progress, what: &EventKind) {
        let address = match what {
            EventKind::WillRun { address, .. } | EventKind::DidCommit { address } | EventKind::DidReuse { address } => {
                address
            }
            EventKind::DidUndo { address } | EventKind::DidLose { address } | EventKind::DidMarkUnknown { address } => {
                address
            }
            EventKind::WillWait { address } => address,
            EventKind::HeldUp { address, why } => {
                let _lost_with_the_terminal = self.all.println(format!("held up {}: {why}", words::step(address)));
                return;
            }
            EventKind::CleanupFailed { address, why } => {
                let said = format!("warning: {}: {why}; the outcome stands", words::step(address));
                let _lost_with_the_terminal = self.all.println(said);
                return;
            }
            EventKind::DidFail(failed) => &*failed.address,
            EventKind::DidOpen { address, .. } => address,
            EventKind::DidEnd { .. } => return self.show_all(progress),
            EventKind::DidStart { .. } | EventKind::DidTurn { .. } | EventKind::DidUse { .. } => return,
        };
        let now = columns();
        if now != self.columns {
            self.columns = now;
            self.bars.values().for_each(|bar| bar.set_style(row(now)));
        }
        let name = words::top(address);
        if let Some((_, group)) = progress.groups.iter().find(|(known, _)| known == name)
            && !(words::is_helper(address) && group.settled() + group.running.len() == 0)
        {
            let (since_ms, room) = (self.since_ms, room(self.columns));
            let bar = self.bar(progress, name);
            let (done, of) = far(group);
            bar.set_length(of.max(1) as u64);
            bar.set_position(done as u64);
            bar.set_message(fit(&notes(group, since_ms).join(", "), room));
        }
        let running = progress.running();
        let named: Vec<_> = running.iter().take(NAMED_MAX).map(|(step, _)| step.as_str()).collect();
        let more = running.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        self.running.set_message(match named.is_empty() {
            true => String::from("…"),
            false => {
                fit(&format!("running {}{more}", named.join(", ")), usize::from(self.columns).saturating_sub(SPINNER))
            }
        });
    }

    /// Shows the final counts of all steps.
    fn show_all(&mut self, progress: &Progress) {
        for (name, group) in &progress.groups {
            if let Some(bar) = self.bars.get(name) {
                let (done, of) = far(group);
                bar.set_length(of.max(1) as u64);
                bar.set_position(done as u64);
                bar.set_message(fit(&notes(group, self.since_ms).join(", "), room(self.columns)));
            }
        }
    }

    fn bar(&mut self, progress: &Progress, name: &str) -> &ProgressBar {
        if !self.bars.contains_key(name) {
            self.make_room(progress);
            let bar = self.all.insert_before(&self.running, ProgressBar::new(1));
            bar.set_style(row(self.columns));
            bar.set_prefix(name.to_owned());
            self.bars.insert(name.to_owned(), bar);
        }
        &self.bars[name]
    }

    fn make_room(&mut self, progress: &Progress) {
        let rests =
            |name: &String| !progress.groups.iter().any(|(known, group)| known == name && !group.running.is_empty());
        while self.bars.len() >= BARS_MAX {
            let Some(name) = self.bars.keys().find(|name| rests(name)).cloned() else { return };
            if let Some(bar) = self.bars.remove(&name) {
                bar.finish_and_clear();
                self.all.remove(&bar);
            }
        }
    }

    /// Leaves the last state of the bars, once, above the next output.
    pub(super) fn end(&mut self) {
        self.running.finish_and_clear();
        let bars = std::mem::take(&mut self.bars);
        bars.values().for_each(ProgressBar::abandon);
        if !bars.is_empty() {
            // The cursor is left behind the last bar, so that the next output needs a new line.
            drop(writeln!(std::io::stderr()));
        }
        self.echo = Echo(None);
    }
}

/// The width of the terminal.
fn columns() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col).max(1)
}

/// Returns done and all: elements of an each, else steps that had events.
fn far(group: &Group) -> (usize, usize) {
    group.elements_done().unwrap_or_else(|| {
        let done = group.before + group.settled();
        (done, done + group.running.len() + group.interrupted.len() + group.waits.len() + group.failed.len())
    })
}

fn notes(group: &Group, since_ms: u64) -> Vec<String> {
    let mut notes: Vec<String> = rate(group).into_iter().chain(left(group, since_ms)).collect();
    for (n, what) in [(group.reused, "reused"), (group.failed.len(), "failed"), (group.undone, "undone")] {
        if n > 0 {
            notes.push(format!("{n} {what}"));
        }
    }
    if let (None, Some(elements)) = (group.per_element, group.elements) {
        notes.push(format!("steps of {}", words::count(elements, "element")));
    }
    notes
}

/// Returns the estimated time for the rest of an each, at the pace since this process began to follow the run.
fn left(group: &Group, since_ms: u64) -> Option<String> {
    let (done, of) = group.elements_done().filter(|(done, of)| done < of)?;
    let per_element = group.per_element.filter(|per| *per > 0)?;
    let now_done = group.settled() / per_element;
    let ms = group.last_ms?.saturating_sub(group.first_ms?.max(since_ms));
    (now_done >= ESTIMATE_AFTER && ms >= 1000)
        .then(|| format!("about {} left", words::duration(ms * (of - done) as u64 / now_done as u64)))
}

/// Returns elements per second or per minute, once enough are done.
fn rate(group: &Group) -> Option<String> {
    let ms = group.last_ms?.saturating_sub(group.first_ms?);
    if group.settled() < 2 || ms < 1000 {
        return None;
    }
    let per_second = group.settled() as f64 * 1000.0 / ms as f64;
    Some(match per_second {
        fast if fast >= 10.0 => format!("{fast:.0}/s"),
        some if some >= 1.0 => format!("{some:.1}/s"),
        slow => format!("{:.1}/min", slow * 60.0),
    })
}

/// Columns that stay free, so that no row ever wraps.
const FREE: usize = 3;

/// Columns before the text of the row about running steps.
const SPINNER: usize = 12 + FREE;

/// Returns a layout that fits: on narrow terminals first the message is cut, then the bar is left out, then the name is
/// shortened.
fn row(columns: u16) -> ProgressStyle {
    style(match columns {
        0..=29 => "{prefix:10!} {pos}/{len}",
        30..=59 => "{prefix:<12!} {pos:>5}/{len:<5} {msg}",
        _ => "{prefix:<16!} {bar:24.green/dim} {pos:>5}/{len:<5} {msg}",
    })
}

/// Returns the columns left for the message of a row.
fn room(columns: u16) -> usize {
    let before = match columns {
        0..=29 => return 0,
        30..=59 => 25,
        _ => 54,
    };
    usize::from(columns).saturating_sub(before + FREE)
}

/// Cuts a text to the columns there are.
fn fit(text: &str, room: usize) -> String {
    match text.chars().count() <= room {
        true => text.to_owned(),
        false if room == 0 => String::new(),
        false => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our own templates are right").progress_chars("━╸─")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_each_counts_elements_and_says_how_long_the_rest_may_take() {
        let each = Group {
            done: 10,
            before: 30,
            elements: Some(100),
            per_element: Some(2),
            first_ms: Some(5_000),
            last_ms: Some(15_000),
            ..Group::default()
        };
        assert_eq!(far(&each), (20, 100));
        assert_eq!(left(&each, 0).as_deref(), Some("about 2m 40s left"));
        assert_eq!(left(&Group { done: 2, ..each.clone() }, 0), None, "that says nothing yet");
        let irregular = Group { per_element: None, ..each };
        assert_eq!((far(&irregular), left(&irregular, 0)), ((40, 40), None));
        assert_eq!(notes(&irregular, 0).last().map(String::as_str), Some("steps of 100 elements"));
    }

    #[test]
    fn a_row_fits_into_any_terminal() {
        for columns in [1, 20, 30, 49, 60, 80, 200] {
            drop(row(columns));
            let (text, room) = ("x".repeat(300), room(columns));
            assert_eq!(fit(&text, room).chars().count(), room);
            assert!(room < usize::from(columns), "something stays free");
        }
        assert_eq!((fit("short", 5).as_str(), fit("longer", 5).as_str()), ("short", "long…"));
    }
}
