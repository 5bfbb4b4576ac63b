//! Plain lines, one for each event, as long as there are few; then what has been done, now and then.

use crate::{
    printer::{Ink, Printer},
    tally::Tally,
    words,
};
use onceflow_engine::What;

/// Lines about single steps.
const LINES_MAX: usize = 200;

/// Lines about failures.
const FAILURES_MAX: usize = 50;

/// Time between two lines about how far it is.
const PAUSE_MS: u64 = 2000;

/// How much was said already.
#[derive(Default)]
pub(super) struct Lines {
    said: usize,
    failures: usize,
    last_ms: u64,
}

impl Lines {
    pub(super) fn saw(&mut self, printer: &Printer, tally: &Tally, ms: u64, what: &What, took: Option<u64>) {
        let took = took.map_or(String::new(), |ms| format!(" ({})", words::duration(ms)));
        let is_helper = |address: &str| words::is_helper(address);
        let line = match what {
            What::WillRun { address, .. } | What::DidCommit { address } | What::DidReuse { address }
                if is_helper(address) =>
            {
                return;
            }
            What::DidStart { .. } | What::DidEnd { .. } | What::DidOpen { .. } => return,
            What::DidTurn { .. } | What::DidUse { .. } => return,
            What::DidFail(failed) => {
                self.failures += 1;
                if self.failures <= FAILURES_MAX {
                    printer.say(super::failure(printer, failed));
                }
                return;
            }
            What::WillRun { address, attempt: 1 } => format!("run     {}", words::step(address)),
            What::WillRun { address, attempt } => {
                format!("{}   {}, attempt {attempt}", printer.ink(Ink::Yellow, "again"), words::step(address))
            }
            What::DidCommit { address } => {
                format!("{}    {}{took}", printer.ink(Ink::Green, "done"), words::step(address))
            }
            What::DidReuse { address } => format!("reused  {}", words::step(address)),
            What::DidUndo { address } => format!("undone  {}", words::step(address)),
            What::DidLose { address } => {
                format!("{}    {}: another worker has it", printer.ink(Ink::Yellow, "lost"), words::step(address))
            }
            // Also after so many lines: nobody would know why nothing happens.
            What::HeldUp { address, why } => {
                printer.say(format!("{} {}: {why}", printer.ink(Ink::Yellow, "held up"), words::step(address)));
                return;
            }
            What::WillWait { address } => {
                format!("{}   {}", printer.ink(Ink::Yellow, "waits"), words::step(address))
            }
            What::DidLoseTrack { address } => {
                format!("{} {}", printer.ink(Ink::Yellow, "unknown"), words::step(address))
            }
        };
        self.said += 1;
        if self.said <= LINES_MAX {
            printer.say(line);
            self.last_ms = ms;
        } else if ms >= self.last_ms + PAUSE_MS {
            self.last_ms = ms;
            printer.say(progress(tally));
        }
    }
}

/// How far it is, in one line.
fn progress(tally: &Tally) -> String {
    let busy = tally.groups.iter().filter(|(_, group)| !group.running.is_empty());
    let far = |(name, group): &(String, crate::tally::Group)| match group.elements_done() {
        Some((done, all)) => format!("{name} {done}/{all}"),
        None => format!("{name} {}", group.before + group.settled()),
    };
    let busy: Vec<_> = busy.take(8).map(far).collect();
    let (done, failed) = (tally.total(|group| group.settled()), tally.total(|group| group.failed.len()));
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let busy = if busy.is_empty() { String::new() } else { format!("; at work: {}", busy.join(", ")) };
    format!("        {done} done{failed}{busy}")
}
