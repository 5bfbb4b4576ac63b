//! Shows a run while it is at work: bars on a terminal, lines in a pipe, JSON lines with `--json`.

mod bars;
mod lines;

use crate::{
    event_log::{self, Line},
    fault::Fault,
    printer::{Ink, Printer},
    progress::Progress,
    words,
};
use bars::Bars;
pub(crate) use bars::Rows;
use lines::Lines;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{EventKind, Handle};

/// Shows the events of a run.
pub(crate) struct View {
    printer: Printer,
    pub(crate) progress: Progress,
    how: How,
}

enum How {
    Bars(Bars),
    Lines(Lines),
    Json,
    Silent,
}

impl View {
    /// Makes the view of a flow with these steps.
    pub(crate) fn new(printer: &Printer, steps: Vec<String>) -> Self {
        let progress = Progress::of(steps);
        if printer.json {
            return View { printer: printer.clone(), progress, how: How::Json };
        }
        if printer.quiet {
            return View { printer: printer.clone(), progress, how: How::Silent };
        }
        if printer.live {
            let bars = Bars::new();
            printer.draws(Some(bars.all.clone()));
            return View { printer: printer.clone(), progress, how: How::Bars(bars) };
        }
        View { printer: printer.clone(), progress, how: How::Lines(Lines::default()) }
    }

    /// Shows an event that happened at this time.
    pub(crate) fn saw(&mut self, ms: u64, what: &EventKind) {
        let took = self.progress.saw(ms, what);
        match &mut self.how {
            How::Silent => {}
            How::Json => drop(event_log::told(ms, what).map(|line| self.printer.event(&line))),
            How::Lines(lines) => lines.saw(&self.printer, &self.progress, ms, what, took),
            How::Bars(bars) => {
                if let EventKind::DidFail(failed) = what {
                    self.printer.say(failure(&self.printer, failed));
                }
                bars.saw(&self.progress, what);
            }
        }
    }

    /// Shows a line of an event log. `is_elsewhere` says that a worker on another machine logged it.
    pub(crate) fn read(&mut self, line: &Line, is_elsewhere: bool) {
        if let Some(EventKind::DidCommit { address }) = &line.what
            && is_elsewhere
            && !words::is_helper(address)
        {
            self.progress.elsewhere += 1;
        }
        match &line.what {
            Some(what) => self.saw(line.t, what),
            None => {
                self.progress.read(line);
            }
        }
    }

    /// Counts a line without showing it: it happened before this process began to follow the run.
    pub(crate) fn heard(&mut self, line: &Line) {
        self.progress.read(line);
    }

    /// Learns the outline of a run's flow, and the progress of its eaches that are resumed.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn begins(mut self, handle: &Handle) -> Result<Self, Fault> {
        self.progress.knows(&handle.steps().outline().await?.unwrap_or_default());
        self.progress.begins_with(&handle.steps().each_progress().await?);
        Ok(self)
    }

    /// Corrects the counts from the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn as_stored(&mut self, handle: &Handle) -> Result<(), Fault> {
        self.progress.knows(&handle.steps().outline().await?.unwrap_or_default());
        if let Some(standing) = handle.steps().progress().await? {
            self.progress.as_stored(&standing, true);
        }
        Ok(())
    }

    /// Ends the view: nothing more will be drawn.
    pub(crate) fn end(&mut self) {
        if let How::Bars(bars) = &mut self.how {
            bars.end();
            self.printer.draws(None);
        }
    }
}

/// Formats a failure: its step and causes.
pub(crate) fn failure(printer: &Printer, failed: &Failed) -> String {
    failure_to(printer, "failed", failed)
}

/// Formats a failure to do something: what failed, its step and causes.
pub(crate) fn failure_to(printer: &Printer, what: &str, failed: &Failed) -> String {
    let mut causes = failed.causes.iter();
    let first = causes.next().map_or("it failed", String::as_str);
    let again = if failed.attempt > 1 { format!(" (attempt {})", failed.attempt) } else { String::new() };
    // A cause that has a page begins with its error code.
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
