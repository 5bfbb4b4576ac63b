//! `onceflow watch RUN`: shows the events of a run until it rests; the exit code is that of the run's outcome. A stream is
//! shown as a table until it ends.

use crate::{
    args,
    exit::Exit,
    fault::Fault,
    finish::Ending,
    follow::{Followed, follow},
    location::StoreLocation,
    printer::{Printer, name},
    session::{Session, is_for_any},
    signals::Signals,
    streams,
};
use serde_json::json;

/// Follows a run.
pub(crate) async fn run(args: &args::Watch, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = match session.run(&engine, &args.run).await {
        Ok(run) => run,
        Err(fault) => {
            engine.stop();
            let watched = streams::watch(&args.run, &session, printer).await;
            session.close().await?;
            return watched?.ok_or(fault);
        }
    };
    let mut signals = Signals::listen()?;
    let is_shared = is_for_any(&session.location, &engine.find(&run.key).await?).await?;
    let exit = match follow(&engine, &session.location, &run.key, is_shared, printer, &mut signals).await? {
        Followed::Asked(exit) => {
            printer.next("the run goes on without being watched");
            exit
        }
        Followed::Alone => {
            if printer.json {
                printer.data(&json!({"key": run.key, "id": run.id.to_string(), "status": "interrupted"}));
            }
            printer.say(format!("run `{}` is not finished, and no process works on it", name(&run.key)));
            printer.next("the `onceflow run` it was started with goes on where it stopped");
            Exit::Waiting
        }
        Followed::Rests(handle, report, view) => {
            Ending { printer, handle: &handle, progress: &view.progress }.tell(*report, None).await?
        }
    };
    engine.stop();
    session.close().await?;
    Ok(exit)
}
