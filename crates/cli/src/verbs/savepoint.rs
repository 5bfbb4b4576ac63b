//! `onceflow savepoint STREAM NAME`: copies a stream as it stands, under a name from which another one begins
//! (`run FILE --from NAME`). Without a stream it lists savepoints, and `--rm` removes one.

use crate::{
    args, exit::Exit, fault::Fault, location::StoreLocation, printer::Printer, session::Session, streams,
    verbs::ls::shell_word, words,
};
use onceflow_store::world::RealWorld;
use onceflow_stream::Savepoint;
use serde_json::{Value, json};

/// Makes, removes or lists savepoints.
pub(crate) async fn run(args: &args::Savepoints, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let exit = match (&args.stream, &args.name, &args.rm) {
        (Some(stream), Some(name), _) => make(stream, name, &session, printer).await,
        (_, _, Some(name)) => remove(name, &session, printer).await,
        _ => list(&session, printer).await,
    };
    session.close().await?;
    exit
}

async fn make(word: &str, name: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let stream = streams::name_of(word)?;
    let records = session.store.records();
    let made = onceflow_stream::make_savepoint(&*records, &*RealWorld::here(), &stream, name).await?;
    if printer.json {
        printer.data(&to_json(&made));
    }
    let (size, rows) = (words::bytes(made.bytes), usize::try_from(made.rows).unwrap_or(usize::MAX));
    printer.say(format!("savepoint `{name}` of stream `{stream}` is made: {}, {size}", words::count(rows, "row")));
    printer.next(format!("`onceflow run FILE --key OTHER --from {}` begins another stream there", shell_word(name)));
    Ok(Exit::Done)
}

async fn remove(name: &str, session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    if !onceflow_stream::remove_savepoint(&*session.store.records(), name).await? {
        return Err(onceflow_stream::StreamError::NoSavepoint { name: name.to_owned() }.into());
    }
    if printer.json {
        printer.data(&json!({"savepoint": name, "removed": true}));
    }
    printer.say(format!("savepoint `{name}` is removed; streams that began from it go on"));
    Ok(Exit::Done)
}

async fn list(session: &Session, printer: &Printer) -> Result<Exit, Fault> {
    let all = onceflow_stream::savepoints(&*session.store.records()).await?;
    if printer.json {
        printer.data(&Value::Array(all.iter().map(to_json).collect()));
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        printer.say("there are no savepoints");
        printer.next("`onceflow pause STREAM`, then `onceflow savepoint STREAM NAME` makes one");
        return Ok(Exit::Done);
    }
    let now_ms = crate::event_log::now_ms();
    let line = |savepoint: &Savepoint| {
        let (name, stream) = (crate::printer::name(&savepoint.name), crate::printer::name(&savepoint.stream));
        let (size, age) = (words::bytes(savepoint.bytes), words::ago(now_ms.saturating_sub(savepoint.made_ms)));
        format!("savepoint {name} of stream {stream}, {size}, {age}\n")
    };
    printer.text(all.iter().map(line).collect::<String>());
    Ok(Exit::Done)
}

fn to_json(savepoint: &Savepoint) -> Value {
    let Savepoint { name, stream, made_ms, rows, bytes } = savepoint;
    json!({"savepoint": name, "stream": stream, "made_ms": made_ms, "rows": rows, "bytes": bytes})
}
