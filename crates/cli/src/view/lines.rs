//! Prints plain lines, one for each event, as long as there are few; after that, counts from time to time.

use crate::{
    printer::{Ink, Printer},
    progress::Progress,
    words,
};
use onceflow_engine::EventKind;

/// The most lines about single steps.
const LINES_MAX: usize = 200;

/// The most lines about failures.
const FAILURES_MAX: usize = 50;

/// Time between two lines about progress.
const PAUSE_MS: u64 = 2000;

/// Counts printed lines and failures.
#[derive(Default)]
pub(super) struct Lines {
    said: usize,
    failures: usize,
    last_ms: u64,
}

impl Lines {
    pub(super) fn saw(&mut self, printer: &Printer, progress: &Progress, ms: u64, what: &EventKind, took: Option<u64>) {
        let took = took.map_or(String::new(), |ms| format!(" ({})", words::duration(ms)));
        let is_helper = |address: &str| words::is_helper(address);
        let line = match what {
            EventKind::WillRun { address, .. } | EventKind::DidCommit { address } | EventKind::DidReuse { address }
                if is_helper(address) =>
            {
                return;
            }
            EventKind::DidStart { .. } | EventKind::DidEnd { .. } | EventKind::DidOpen { .. } => return,
            EventKind::DidTurn { .. } | EventKind::DidUse { .. } => return,
            EventKind::DidFail(failed) => {
                self.failures += 1;
                if self.failures <= FAILURES_MAX {
                    printer.say(super::failure(printer, failed));
                }
                return;
            }
            EventKind::WillRun { address, attempt: 1 } => format!("run     {}", words::step(address)),
            EventKind::WillRun { address, attempt } => {
                format!("{}   {}, attempt {attempt}", printer.ink(Ink::Yellow, "again"), words::step(address))
            }
            EventKind::DidCommit { address } => {
                format!("{}    {}{took}", printer.ink(Ink::Green, "done"), words::step(address))
            }
            EventKind::DidReuse { address } => format!("reused  {}", words::step(address)),
            EventKind::DidUndo { address } => format!("undone  {}", words::step(address)),
            EventKind::DidLose { address } => {
                format!("{}    {}: another worker has it", printer.ink(Ink::Yellow, "lost"), words::step(address))
            }
            // Printed even after the limit of lines: otherwise a run that does not go on would have no explanation.
            EventKind::HeldUp { address, why } => {
                printer.say(format!("{} {}: {why}", printer.ink(Ink::Yellow, "held up"), words::step(address)));
                return;
            }
            EventKind::CleanupFailed { address, why } => {
                printer.warn(format!("{}: {why}; the outcome stands", words::step(address)));
                return;
            }
            EventKind::WillWait { address } => {
                format!("{}   {}", printer.ink(Ink::Yellow, "waits"), words::step(address))
            }
            EventKind::DidMarkUnknown { address } => {
                format!("{} {}", printer.ink(Ink::Yellow, "unknown"), words::step(address))
            }
        };
        self.said += 1;
        if self.said <= LINES_MAX {
            printer.say(line);
            self.last_ms = ms;
        } else if ms >= self.last_ms + PAUSE_MS {
            self.last_ms = ms;
            printer.say(progress_line(progress));
        }
    }
}

/// The counts of all steps and those at work, in one line.
fn progress_line(progress: &Progress) -> String {
    let busy = progress.groups.iter().filter(|(_, group)| !group.running.is_empty());
    let far = |(name, group): &(String, crate::progress::Group)| match group.elements_done() {
        Some((done, all)) => format!("{name} {done}/{all}"),
        None => format!("{name} {}", group.before + group.settled()),
    };
    let busy: Vec<_> = busy.take(8).map(far).collect();
    let (done, failed) = (progress.total(|group| group.settled()), progress.total(|group| group.failed.len()));
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let busy = if busy.is_empty() { String::new() } else { format!("; at work: {}", busy.join(", ")) };
    format!("        {done} done{failed}{busy}")
}
