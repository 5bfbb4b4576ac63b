//! `onceflow pause`, `resume` and `drain STREAM`: the state that a stream is asked for, from any process. It is a row of the
//! store, so it holds whatever happens to the stream's workers, which notice at once.

use crate::{
    args, exit::Exit, fault::Fault, location::StoreLocation, printer::Printer, session::Session, streams::life,
};

/// Pauses a stream, and waits until nothing of it is on its way.
pub(crate) async fn pause(args: &args::NamedStream, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let exit = life::pause(&args.stream, &session, printer).await;
    session.close().await?;
    exit
}

/// Lets a paused stream go on.
pub(crate) async fn resume(
    args: &args::NamedStream,
    location: StoreLocation,
    printer: &Printer,
) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let exit = life::resume(&args.stream, &session, printer).await;
    session.close().await?;
    exit
}

/// Drains the workers of a stream, and waits for their end.
pub(crate) async fn drain(args: &args::NamedStream, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let exit = life::drain(&args.stream, &session, printer).await;
    session.close().await?;
    exit
}
