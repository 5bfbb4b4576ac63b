//! What people see while a run is at work: bars on a terminal, lines in a pipe, JSON lines if they asked for them.

mod bars;
mod lines;

use crate::{
    printer::{Ink, Printer},
    tally::Tally,
    trail, words,
};
use bars::Bars;
use lines::Lines;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::What;

/// Shows what happens.
pub(crate) struct View {
    printer: Printer,
    pub(crate) tally: Tally,
    how: How,
}

enum How {
    Bars(Bars),
    Lines(Lines),
    Json,
    Silent,
}

impl View {
    /// For a flow with these steps.
    pub(crate) fn new(printer: &Printer, steps: Vec<String>) -> Self {
        let tally = Tally::of(steps);
        if printer.json {
            return View { printer: printer.clone(), tally, how: How::Json };
        }
        if printer.quiet {
            return View { printer: printer.clone(), tally, how: How::Silent };
        }
        if printer.live {
            let bars = Bars::new();
            return View { printer: printer.above(bars.all.clone()), tally, how: How::Bars(bars) };
        }
        View { printer: printer.clone(), tally, how: How::Lines(Lines::default()) }
    }

    /// Shows that this happened, at this time.
    pub(crate) fn saw(&mut self, ms: u64, what: &What) {
        let took = self.tally.saw(ms, what);
        match &mut self.how {
            How::Silent => {}
            How::Json => self.printer.event(&trail::line(ms, what)),
            How::Lines(lines) => lines.saw(&self.printer, &self.tally, ms, what, took),
            How::Bars(bars) => {
                if let What::DidFail(failed) = what {
                    self.printer.say(failure(&self.printer, failed));
                }
                bars.saw(&self.tally, what);
            }
        }
    }

    /// Takes note without showing: what happened before we looked.
    pub(crate) fn heard(&mut self, ms: u64, what: &What) {
        self.tally.saw(ms, what);
    }

    /// Nothing more will be drawn.
    pub(crate) fn end(&mut self) {
        if let How::Bars(bars) = &self.how {
            bars.end();
        }
    }
}

/// A failure: where, and what was said last.
pub(crate) fn failure(printer: &Printer, failed: &Failed) -> String {
    failure_to(printer, "failed", failed)
}

/// A failure to do something: what that means for the step, where, and what was said last.
pub(crate) fn failure_to(printer: &Printer, what: &str, failed: &Failed) -> String {
    let mut causes = failed.causes.iter();
    let first = causes.next().map_or("it failed", String::as_str);
    let again = if failed.attempt > 1 { format!(" (attempt {})", failed.attempt) } else { String::new() };
    // A cause that has a page begins with its code.
    let (code, first) = match first.split_once(": ") {
        Some((code, rest)) if code.starts_with("OF") && code.len() == 6 => (format!("[{code}]"), rest),
        _ => (String::new(), first),
    };
    let what = printer.ink(Ink::Red, &format!("{what}{code}"));
    let mut text = format!("{what} {}{again}: {}", words::step(&failed.address), indented(first));
    for cause in causes {
        text.push_str("\n  ");
        text.push_str(&indented(cause));
    }
    text
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ")
}
