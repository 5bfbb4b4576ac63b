//! Looks at a run that any worker may work on: what processes on this machine did is in its event log, what others did is
//! seen from how much they say they did, and what nobody can do is told.

use crate::{
    codes,
    event_log::{self, EventLogs, Reader},
    exit::Exit,
    fault::Fault,
    follow::Followed,
    location::StoreLocation,
    printer::Printer,
    signals::Signals,
    verbs::workers::lacking,
    view::View,
    words,
};
use onceflow_engine::{Engine, Event, Handle, Report};
use std::{collections::BTreeSet, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;

/// How often the event log is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks at the event log between two looks at the store, and at the workers.
const STORE_EVERY: u32 = 4;
const WORKERS_EVERY: u32 = 40;

/// How long a server that does not answer is left alone.
const HICCUP: Duration = Duration::from_millis(500);

/// Whether a server does not answer now, and may do so later. A store in a directory that does not answer will not.
pub(crate) fn is_hiccup(location: &StoreLocation, fault: &Fault) -> bool {
    location.server.is_some() && fault.code == Some(codes::STORE_BUSY)
}

/// Waits as long as that, for whoever tries again.
pub(crate) async fn pause() {
    tokio::time::sleep(HICCUP).await;
}

/// What was seen of a run so far.
pub(crate) struct Seen {
    reader: Reader,
    looks: u32,
    /// What was said to be lacking.
    lacking: BTreeSet<String>,
    /// Steps that others said they did.
    elsewhere: u64,
}

impl Seen {
    pub(crate) fn new(reader: Reader) -> Self {
        Seen { reader, looks: 0, lacking: BTreeSet::new(), elsewhere: 0 }
    }

    /// What the event log has is not shown.
    pub(crate) fn skip(&mut self) {
        self.reader.more();
    }

    /// Shows what was added to the event log; whether the run ended.
    pub(crate) fn show(&mut self, view: &mut View) -> bool {
        let mut ended = false;
        self.reader.each(|line| {
            ended |= matches!(line.what, Some(onceflow_engine::EventKind::DidEnd { .. }));
            view.read(&line);
        });
        ended
    }

    /// Shows what happens until the run rests. A server that does not answer is waited for, as workers do.
    ///
    /// # Errors
    /// If the store in a directory does not answer, or is damaged.
    pub(crate) async fn until_rest(
        &mut self,
        engine: &Engine,
        handle: &Handle,
        view: &mut View,
        printer: &Printer,
        location: &StoreLocation,
    ) -> Result<Report, Fault> {
        loop {
            match self.look(engine, handle, view, printer).await {
                Ok(Some(report)) => return Ok(report),
                Ok(None) => {}
                Err(fault) if is_hiccup(location, &fault) => pause().await,
                Err(fault) => return Err(fault),
            }
            self.looks = self.looks.wrapping_add(1);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Looks once; what became of the run, if it rests.
    async fn look(
        &mut self,
        engine: &Engine,
        handle: &Handle,
        view: &mut View,
        printer: &Printer,
    ) -> Result<Option<Report>, Fault> {
        let ended = self.show(view);
        if ended || self.looks.is_multiple_of(STORE_EVERY) {
            let report = handle.report().await?;
            if report.is_at_rest() {
                self.show(view);
                let (elsewhere, _) = done_elsewhere(engine, handle).await?;
                view.progress.elsewhere = usize::try_from(elsewhere.max(self.elsewhere)).unwrap_or(usize::MAX);
                return Ok(Some(report));
            }
            handle.poke().await?;
        }
        if self.looks % WORKERS_EVERY == WORKERS_EVERY / 2 {
            self.look_around(engine, handle, printer).await?;
        }
        Ok(None)
    }

    /// Says what nobody can do, and how much was done on other machines, if that is new.
    async fn look_around(&mut self, engine: &Engine, handle: &Handle, printer: &Printer) -> Result<(), Fault> {
        let lacks = handle.missing_tasks().await?;
        let lacks: BTreeSet<_> = lacks.iter().map(|lacks| lacking(&lacks.class, &lacks.tasks)).collect();
        for lacks in lacks.difference(&self.lacking) {
            printer.say(format!("waits   for a worker {lacks}: none is there"));
        }
        self.lacking = lacks;
        let (done, workers) = done_elsewhere(engine, handle).await?;
        if done > self.elsewhere {
            let workers = words::count(workers, "worker");
            printer
                .say(format!("        {} done on other machines, by {workers}", words::count(done as usize, "step")));
            self.elsewhere = done;
        }
        Ok(())
    }
}

/// How many tasks of a run workers on other machines say they did, and how many workers there are.
async fn done_elsewhere(engine: &Engine, handle: &Handle) -> Result<(u64, usize), Fault> {
    let here = onceflow_engine::About::this_process("").host;
    let workers = engine.workers().await?;
    let there: Vec<_> = workers.iter().filter(|worker| worker.is_alive && worker.about.host != here).collect();
    Ok((there.iter().filter_map(|worker| worker.done_of.get(&handle.id())).sum(), there.len()))
}

/// Follows a run that any worker may work on, until it rests.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn follow(
    engine: &Engine,
    location: &StoreLocation,
    handle: Handle,
    printer: &Printer,
    signals: &mut Signals,
) -> Result<Followed, Fault> {
    let mut view = View::new(printer, vec![]);
    let mut seen = Seen::new(Reader::open(&location.run(handle.id())));
    seen.reader.each(|line| view.heard(&line));
    view.as_stored(&handle).await?;
    let exit: Result<Report, Exit> = tokio::select! {
        report = seen.until_rest(engine, &handle, &mut view, printer, location) => Ok(report?),
        exit = signals.asked() => Err(exit),
    };
    view.end();
    Ok(match exit {
        Ok(report) => Followed::Rests(handle, Box::new(report), Box::new(view)),
        Err(exit) => Followed::Asked(exit),
    })
}

/// Writes down what happens here, in any run, until nothing does any more.
pub(crate) async fn write(mut events: UnboundedReceiver<Event>, engine: Engine, location: StoreLocation) {
    const AT_ONCE_MAX: usize = 256;
    let (mut some, mut logs) = (Vec::with_capacity(AT_ONCE_MAX), EventLogs::new(engine, location));
    while events.recv_many(&mut some, AT_ONCE_MAX).await > 0 {
        logs.write(event_log::now_ms(), &some).await;
        some.clear();
    }
}
