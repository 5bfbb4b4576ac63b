//! A bar for each step of the flow that has something to show, and below them what is running now.

use crate::{
    tally::{Group, Tally},
    words,
};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onceflow_engine::What;
use std::{collections::BTreeMap, io::Write, time::Duration};

/// Bars that are shown at a time; those of steps at rest make room.
const BARS_MAX: usize = 12;

/// What is named in the line about what is running.
const NAMED_MAX: usize = 4;

/// The bars on a terminal.
pub(super) struct Bars {
    pub(super) all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
    running: ProgressBar,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        let running = all.add(ProgressBar::new_spinner());
        running.set_style(style("{spinner:.cyan} {msg}"));
        running.enable_steady_tick(Duration::from_millis(120));
        Bars { all, bars: BTreeMap::new(), running }
    }

    pub(super) fn saw(&mut self, tally: &Tally, what: &What) {
        let address = match what {
            What::WillRun { address, .. } | What::DidCommit { address } | What::DidReuse { address } => address,
            What::DidUndo { address } | What::DidLose { address } | What::DidLoseTrack { address } => address,
            What::WillWait { address } => address,
            What::HeldUp { address, why } => {
                let _lost_with_the_terminal = self.all.println(format!("held up {}: {why}", words::step(address)));
                return;
            }
            What::DidFail(failed) => &*failed.address,
            What::DidOpen { address, .. } => address,
            What::DidStart { .. } | What::DidEnd { .. } | What::DidTurn { .. } | What::DidUse { .. } => return,
        };
        let name = words::top(address);
        if let Some((_, group)) = tally.groups.iter().find(|(known, _)| known == name) {
            let bar = self.bar(tally, name);
            let heard = group.elements.unwrap_or(0).max(group.settled() + group.running.len());
            bar.set_length(heard.max(1) as u64);
            bar.set_position(group.settled() as u64);
            let mut notes: Vec<String> = rate(group).into_iter().collect();
            if group.reused > 0 {
                notes.push(format!("{} reused", group.reused));
            }
            if group.failed > 0 {
                notes.push(format!("{} failed", group.failed));
            }
            if group.undone > 0 {
                notes.push(format!("{} undone", group.undone));
            }
            bar.set_message(notes.join(", "));
        }
        let running = tally.running();
        let named: Vec<_> = running.iter().take(NAMED_MAX).map(|(step, _)| step.as_str()).collect();
        let more = running.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        self.running.set_message(match named.is_empty() {
            true => String::from("…"),
            false => format!("running {}{more}", named.join(", ")),
        });
    }

    fn bar(&mut self, tally: &Tally, name: &str) -> &ProgressBar {
        if !self.bars.contains_key(name) {
            self.make_room(tally);
            let bar = self.all.insert_before(&self.running, ProgressBar::new(1));
            bar.set_style(style("{prefix:<16!} {bar:24.green/dim} {pos:>5}/{len:<5} {msg}"));
            bar.set_prefix(name.to_owned());
            self.bars.insert(name.to_owned(), bar);
        }
        &self.bars[name]
    }

    fn make_room(&mut self, tally: &Tally) {
        let rests =
            |name: &String| !tally.groups.iter().any(|(known, group)| known == name && !group.running.is_empty());
        while self.bars.len() >= BARS_MAX {
            let Some(name) = self.bars.keys().find(|name| rests(name)).cloned() else { return };
            if let Some(bar) = self.bars.remove(&name) {
                bar.finish_and_clear();
            }
        }
    }

    pub(super) fn end(&self) {
        self.bars.values().for_each(ProgressBar::abandon);
        self.running.finish_and_clear();
        if !self.bars.is_empty() {
            // Bars end where they end; what is said next begins on a line of its own.
            drop(writeln!(std::io::stderr()));
        }
    }
}

/// How many a second, or a minute, once that says something.
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

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our own templates are right").progress_chars("━╸─")
}
