//! A stream that other processes work on: its table, drawn again every second on a terminal, printed when it changed
//! elsewhere, as JSON lines on stderr with `--json`.

use super::{figures, locks, state};
use crate::{exit::Exit, fault::Fault, printer::Printer, session::Session, signals::Signals, view::Rows};
use onceflow_stream::StreamStatus;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows a stream until it has ended, or no process works on it.
pub(super) async fn until_rest(name: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let mut signals = Signals::listen()?;
    let mut shown = Shown { printer, name, rows: printer.live.then(Rows::default), before: None };
    let looks = async {
        loop {
            let status = onceflow_stream::status(&*session.store.records(), name, Some(&locks(session))).await?;
            let Some(status) = status else {
                return Err(Fault::new(Exit::No, crate::codes::NO_RUN, format!("stream `{name}` was removed")));
            };
            let is_at_rest = status.has_ended || status.workers == 0;
            shown.look(&status);
            if is_at_rest {
                return Ok(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let outcome = signals.unless_asked(looks).await;
    if let Some(rows) = shown.rows.take() {
        rows.end();
    }
    match outcome {
        Err(exit) => {
            printer.next("the stream goes on without being watched");
            Ok(exit)
        }
        Ok(status) => {
            let status = status?;
            super::tell(name, &status, printer, false);
            if status.has_ended {
                return Ok(Exit::Done);
            }
            printer.next("`onceflow run` of its file goes on where it stopped");
            Ok(Exit::Waiting)
        }
    }
}

struct Shown<'a> {
    printer: &'a Printer,
    name: &'a str,
    rows: Option<Rows>,
    before: Option<(StreamStatus, Instant)>,
}

impl Shown<'_> {
    fn look(&mut self, status: &StreamStatus) {
        let now = Instant::now();
        let before = self.before.replace((status.clone(), now));
        let has_changed = before.as_ref().is_none_or(|(before, _)| before.stages != status.stages);
        if self.printer.json {
            if has_changed {
                self.printer.event(&figures::json(self.name, status));
            }
            return;
        }
        let ms = |at: &Instant| u64::try_from((now - *at).as_millis()).unwrap_or(u64::MAX);
        let earlier = before.as_ref().map(|(before, at)| (&before.stages[..], ms(at)));
        let mut lines = vec![format!("stream {} {}", self.name, state(status))];
        lines.extend(figures::table(status, earlier));
        match &mut self.rows {
            Some(rows) => rows.draw(&lines),
            None if has_changed => lines.iter().for_each(|line| self.printer.say(line)),
            None => {}
        }
    }
}
