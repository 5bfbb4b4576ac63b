//! Looks at a run that another process attends, until it rests or nobody attends it any more.

use crate::{
    event_log::Reader, exit::Exit, fault::Fault, location::StoreLocation, presence, printer::Printer, signals::Signals,
    view::View,
};
use onceflow_engine::{Engine, Error, Handle, Report};
use std::time::Duration;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks at the store between two looks at the event log; the event log tells the end, too, and sooner.
const STORE_EVERY: u32 = 10;

/// How following ended.
pub(crate) enum Followed {
    /// The run rests.
    Rests(Handle, Box<Report>, Box<View>),
    /// Nobody attends it, and it does not rest.
    Alone,
    /// We were asked to stop looking.
    Asked(Exit),
}

/// Follows a run. What happened before is not shown.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn follow(
    engine: &Engine,
    location: &StoreLocation,
    key: &str,
    printer: &Printer,
    signals: &mut Signals,
) -> Result<Followed, Fault> {
    let mut view = View::new(printer, vec![]);
    let mut reader: Option<(Handle, Reader)> = None;
    let mut looks = 0;
    loop {
        // First who is there, then what is: one that leaves has left the run at rest, or alone.
        let attended = presence::look(&location.directory, key);
        let is_started = attended.as_ref().is_none_or(|notice| notice.started);
        if is_started && reader.is_none() {
            reader = match engine.find(key).await {
                Ok(handle) => {
                    let begun = begin(handle, location, &mut view);
                    view.as_stored(&begun.0).await?;
                    Some(begun)
                }
                Err(Error::NoRun(_)) if attended.is_some() => None,
                Err(error) => return Err(error.into()),
            };
        }
        if let Some((handle, reader)) = &mut reader {
            let ended = show(reader, &mut view);
            if ended || attended.is_none() || looks % STORE_EVERY == 0 {
                let report = handle.report().await?;
                if report.is_at_rest() {
                    show(reader, &mut view);
                    view.end();
                    return Ok(Followed::Rests(handle.clone(), Box::new(report), Box::new(view)));
                }
            }
        }
        if attended.is_none() {
            view.end();
            return Ok(Followed::Alone);
        }
        looks += 1;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            exit = signals.asked() => {
                view.end();
                return Ok(Followed::Asked(exit));
            }
        }
    }
}

fn begin(handle: Handle, location: &StoreLocation, view: &mut View) -> (Handle, Reader) {
    let mut reader = Reader::open(&location.run(handle.id()));
    reader.each(|line| view.heard(&line));
    (handle, reader)
}

/// Shows what was added; whether the run ended.
fn show(reader: &mut Reader, view: &mut View) -> bool {
    let mut ended = false;
    reader.each(|line| {
        ended |= matches!(line.what, Some(onceflow_engine::EventKind::DidEnd { .. }));
        view.read(&line);
    });
    ended
}
