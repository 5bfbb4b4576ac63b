//! Streams paused, resumed, drained and cancelled. Each change is durable before anything is said; then the command waits
//! for the workers, and Ctrl-C ends only the waiting.

use super::{end_called_runs, locks, name_of, state};
use crate::{
    args, asking, exit::Exit, fault::Fault, printer::Printer, session::Session, signals::Signals,
    verbs::ls::shell_word, words,
};
use onceflow_stream::{StreamPhase, StreamStatus};
use serde_json::json;
use std::time::Duration;

/// The time between two looks at workers that are to rest or end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Pauses the stream that a word names.
pub(crate) async fn pause(word: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let name = name_of(word)?;
    let has_changed = onceflow_stream::pause(&*session.store.records(), &name).await?;
    let is_resting = |status: &StreamStatus| {
        status.workers == 0 || !matches!(status.phase, StreamPhase::Pausing | StreamPhase::Draining)
    };
    let told = match until(&name, session, is_resting).await? {
        Ok(Some(status)) => status,
        Ok(None) => return Err(gone(&name)),
        Err(exit) => {
            printer.say(format!("stream `{name}` is paused; its workers finish what they have read"));
            return Ok(exit);
        }
    };
    tell(printer, &name, &told, has_changed);
    let again = if has_changed { "" } else { ", and was before" };
    printer.say(match (told.phase, told.workers) {
        (StreamPhase::Paused, _) => format!("stream `{name}` is paused{again}: nothing of it is on its way"),
        (_, 0) => format!("stream `{name}` is paused{again}; what was read and not finished stays on its way"),
        _ => format!("stream `{name}` {}", state(&told)),
    });
    printer.next(format!("onceflow resume {}", shell_word(&name)));
    Ok(Exit::Done)
}

/// Lets the paused stream that a word names go on.
pub(crate) async fn resume(word: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let name = name_of(word)?;
    let has_changed = onceflow_stream::resume(&*session.store.records(), &name).await?;
    let Some(status) = look(&name, session).await? else { return Err(gone(&name)) };
    tell(printer, &name, &status, has_changed);
    printer.say(match (has_changed, status.workers) {
        (false, _) => format!("stream `{name}` was not paused; it {}", state(&status)),
        (true, 0) => format!("stream `{name}` is not paused any more; no process works on it"),
        (true, workers) => format!("stream `{name}` goes on in {}", words::count(workers, "worker")),
    });
    printer.next(match status.workers {
        0 => String::from("`onceflow run` of its file goes on where it stopped"),
        _ => format!("onceflow watch {}", shell_word(&name)),
    });
    Ok(Exit::Done)
}

/// Drains the workers of the stream that a word names.
pub(crate) async fn drain(word: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let name = name_of(word)?;
    let Some(before) = look(&name, session).await? else { return Err(gone(&name)) };
    onceflow_stream::drain(&*session.store.records(), &name).await?;
    let has_drained = |status: &StreamStatus| status.workers == 0 || status.phase != StreamPhase::Draining;
    match until(&name, session, has_drained).await? {
        Ok(Some(status)) => tell(printer, &name, &status, before.workers > 0),
        Ok(None) => return Err(gone(&name)),
        Err(exit) => {
            printer.say(format!("the workers of stream `{name}` drain"));
            return Ok(exit);
        }
    }
    printer.say(match before.workers {
        0 => format!("no process works on stream `{name}`"),
        workers => format!("{} of stream `{name}` drained", words::count(workers, "worker")),
    });
    printer.next("`onceflow run` of its file goes on where it stopped");
    Ok(Exit::Done)
}

/// Cancels the stream that a word names, after asking; `None` if there is none in the store.
pub(crate) async fn cancel(args: &args::Cancel, session: &Session, printer: &Printer) -> Result<Option<Exit>, Fault> {
    let name = name_of(&args.run)?;
    let Some(status) = look(&name, session).await? else { return Ok(None) };
    let is_over = matches!(status.phase, StreamPhase::Ended);
    if args.sure.dry_run && !is_over {
        printer.say(format!("would stop stream `{name}`, which {}, and drop its state", state(&status)));
        return Ok(Some(Exit::Done));
    }
    let what = format!("stream `{name}` {}: stop it, and drop its positions and its state", state(&status));
    if !is_over && !asking::may(printer, args.sure, &what) {
        return Ok(Some(asking::left_alone(printer)));
    }
    let has_changed = onceflow_stream::cancel(&*session.store.records(), &name).await?;
    if let Err(exit) = until(&name, session, |status| status.workers == 0).await? {
        printer.say(format!("stream `{name}` is cancelled; its workers have not noticed yet"));
        return Ok(Some(exit));
    }
    end_called_runs(session, &name, "cancel").await?;
    if let Some(status) = look(&name, session).await? {
        tell(printer, &name, &status, has_changed);
    }
    printer.say(match has_changed {
        true => format!("stream `{name}` is cancelled; what its sinks wrote stays"),
        false => format!("stream `{name}` was cancelled before"),
    });
    printer.next(format!("onceflow rm {}", shell_word(&name)));
    Ok(Some(Exit::Cancelled))
}

async fn look(name: &str, session: &Session) -> Result<Option<StreamStatus>, Fault> {
    Ok(onceflow_stream::status(&*session.store.records(), name, Some(&locks(session))).await?)
}

/// Waits until the stream is as it should be, or is gone; the error is the exit code of a signal.
async fn until(
    name: &str,
    session: &Session,
    is_so: impl Fn(&StreamStatus) -> bool,
) -> Result<Result<Option<StreamStatus>, Exit>, Fault> {
    let looks = async {
        loop {
            match look(name, session).await? {
                Some(status) if !is_so(&status) => tokio::time::sleep(LOOK_EVERY).await,
                status => return Ok(status),
            }
        }
    };
    match Signals::listen()?.unless_asked(looks).await {
        Ok(looked) => looked.map(Ok),
        Err(exit) => Ok(Err(exit)),
    }
}

fn gone(name: &str) -> Fault {
    super::unknown(name)
}

/// Prints the stream as data.
fn tell(printer: &Printer, name: &str, status: &StreamStatus, has_changed: bool) {
    if printer.json {
        let phase = super::figures::phase(status.phase);
        printer.data(&json!({"stream": name, "phase": phase, "workers": status.workers, "changed": has_changed}));
    }
}
