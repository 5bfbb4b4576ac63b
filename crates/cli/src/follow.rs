//! Shows a run that other processes work on, until it rests: its events, its state and its workers come from the store.

use crate::{
    codes,
    event_log::{Line, Reader},
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    printer::Printer,
    signals::Signals,
    verbs::workers::missing,
    view::View,
};
use onceflow_engine::{Engine, Handle, Summary};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// The longest time between two looks at a run that seems not to change, and the shortest between any two.
const LOOK_MS_MAX: u64 = 200;
const LOOK_MS_MIN: u64 = 10;

/// Workers log their events a moment after the commits. At rest, the end of the run is waited for this long, and then
/// the last events of other workers.
const END_MS_MAX: u64 = 1_000;
const STRAGGLERS_MS: u64 = 250;

/// The time between two looks at the workers of the store.
const WORKERS_EVERY: Duration = Duration::from_secs(2);

/// The pause before a server that does not answer is asked again.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// A server does not answer now, and may do so later. A store in a directory that does not answer will not.
pub(crate) fn is_outage(location: &StoreLocation, fault: &Fault) -> bool {
    location.server.is_some() && fault.code == Some(codes::STORE_BUSY)
}

/// Waits before a server that does not answer is asked again.
pub(crate) async fn pause() {
    tokio::time::sleep(OUTAGE_PAUSE).await;
}

/// How following a run ended.
pub(crate) enum Followed {
    /// The run rests.
    Rests(Handle, Box<Summary>, Box<View>),
    /// The run does not rest, and no process attends it.
    Alone,
    /// A signal asked this process to stop.
    Asked(Exit),
}

/// Follows the run of a key. Events of before are not shown.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn follow(
    engine: &Engine,
    location: &StoreLocation,
    key: &str,
    is_shared: bool,
    printer: &Printer,
    signals: &mut Signals,
) -> Result<Followed, Fault> {
    let mut view = View::new(printer, vec![]);
    let follow = async {
        until_started(engine, key).await?;
        let handle = engine.find(key).await?;
        let mut reader = Reader::open(&handle);
        reader.more().await?.iter().for_each(|line| view.heard(line));
        view.as_stored(&handle).await?;
        let mut follower = Follower::new(engine, location, printer, handle.clone(), is_shared, reader);
        Ok((handle, follower.until_rest(&mut view).await?))
    };
    let followed = signals.unless_asked(follow).await;
    view.end();
    match followed {
        Ok(Ok((handle, Some(report)))) => Ok(Followed::Rests(handle, Box::new(report), Box::new(view))),
        Ok(Ok((_, None))) => Ok(Followed::Alone),
        Ok(Err(fault)) => Err(fault),
        Err(exit) => Ok(Followed::Asked(exit)),
    }
}

/// Waits while the process that attends the run of a key has not started it: the run in the store, if there is one, is
/// not the one it works on yet.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn until_started(engine: &Engine, key: &str) -> Result<(), Fault> {
    while engine.attendant(key).await?.is_some_and(|attendant| !attendant.has_started) {
        tokio::time::sleep(Duration::from_millis(LOOK_MS_MIN)).await;
    }
    Ok(())
}

/// Follows a run and shows its events.
pub(crate) struct Follower<'a> {
    engine: &'a Engine,
    location: &'a StoreLocation,
    printer: &'a Printer,
    handle: Handle,
    /// Any worker may take steps of the run, so it is not left alone while no process attends it.
    is_shared: bool,
    reader: Reader,
    looked_at_workers: Instant,
    /// Kinds of missing workers that were reported already.
    missing: BTreeSet<String>,
    /// Lines from the end of the run on: they are shown when the run is seen at rest, or going on.
    held: Vec<Line>,
    /// The host name of this machine.
    here: String,
}

impl<'a> Follower<'a> {
    /// Shows events from where the reader is.
    pub(crate) fn new(
        engine: &'a Engine,
        location: &'a StoreLocation,
        printer: &'a Printer,
        handle: Handle,
        is_shared: bool,
        reader: Reader,
    ) -> Self {
        let (missing, held, looked_at_workers) = (BTreeSet::new(), vec![], Instant::now());
        let here = onceflow_engine::About::this_process("").host;
        Follower { engine, location, printer, handle, is_shared, reader, looked_at_workers, missing, held, here }
    }

    /// Reads the events that were added to the log, and shows those before the end of the run.
    async fn show(&mut self, view: &mut View) -> Result<(), Fault> {
        for line in self.reader.more().await? {
            if line.is_end() || !self.held.is_empty() {
                self.held.push(line);
            } else {
                view.read(&line, *line.host != *self.here);
            }
        }
        Ok(())
    }

    /// Shows all events of the log; ends of the run come last, because other workers may log earlier events later.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn show_rest(&mut self, view: &mut View) -> Result<(), Fault> {
        self.show(view).await?;
        self.held.sort_by_key(Line::is_end);
        for line in self.held.drain(..) {
            view.read(&line, *line.host != *self.here);
        }
        Ok(())
    }

    /// Shows the last events of a run that is at rest.
    async fn show_end(&mut self, view: &mut View) -> Result<(), Fault> {
        let rested = Instant::now();
        self.show(view).await?;
        while !self.reader.is_at_end() && rested.elapsed() < Duration::from_millis(END_MS_MAX) {
            tokio::time::sleep(Duration::from_millis(LOOK_MS_MIN)).await;
            self.show(view).await?;
        }
        if self.is_shared {
            tokio::time::sleep(Duration::from_millis(STRAGGLERS_MS)).await;
        }
        self.show_rest(view).await
    }

    /// Shows what happens until the run rests; `None` if no process attends it any more. A server that does not answer
    /// is waited for.
    ///
    /// # Errors
    /// If the store in a directory does not answer, or is damaged.
    pub(crate) async fn until_rest(&mut self, view: &mut View) -> Result<Option<Summary>, Fault> {
        loop {
            match self.look(view).await {
                Ok(Looked::GoesOn) => {}
                Ok(Looked::Rests(report)) => return Ok(Some(*report)),
                Ok(Looked::Alone) => return Ok(None),
                Err(fault) if is_outage(self.location, &fault) => pause().await,
                Err(fault) => return Err(fault),
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS_MIN)).await;
            if let Err(error) = self.handle.until_changed(LOOK_MS_MAX - LOOK_MS_MIN).await {
                tracing::debug!(%error, "failed to wait for a change of the run; looking again");
            }
        }
    }

    async fn look(&mut self, view: &mut View) -> Result<Looked, Fault> {
        // First the process, then the run: a process that leaves has left the run at rest, or alone.
        let is_alone = !self.is_shared && self.engine.attendant(self.handle.key()).await?.is_none();
        let report = self.handle.summary().await?;
        if report.status.is_at_rest() {
            self.show_end(view).await?;
            return Ok(Looked::Rests(Box::new(report)));
        }
        match self.held.is_empty() {
            true => self.show(view).await?,
            // The run has gone on since.
            false => self.show_rest(view).await?,
        }
        if is_alone {
            return Ok(Looked::Alone);
        }
        if self.is_shared {
            self.handle.poke().await?;
            if self.looked_at_workers.elapsed() >= WORKERS_EVERY {
                self.look_at_workers().await?;
                self.looked_at_workers = Instant::now();
            }
        }
        Ok(Looked::GoesOn)
    }

    /// Says which workers are missing, if that is new.
    async fn look_at_workers(&mut self) -> Result<(), Fault> {
        let kinds = self.handle.steps().missing_tasks().await?;
        let kinds: BTreeSet<_> = kinds.iter().map(|it| missing(&it.class, &it.tasks)).collect();
        for kind in kinds.difference(&self.missing) {
            self.printer.say(format!("waits   for a worker {kind}: none is there"));
        }
        self.missing = kinds;
        Ok(())
    }
}

enum Looked {
    Rests(Box<Summary>),
    Alone,
    GoesOn,
}
