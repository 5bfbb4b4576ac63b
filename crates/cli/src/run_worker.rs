//! This process at work on one run: as the only worker of the run, which it attends, or as one of several workers.

use crate::{
    event_log::{self, Reader},
    executors,
    exit::Exit,
    fault::Fault,
    finish,
    follow::{self, Followed, Follower},
    housekeeping,
    location::StoreLocation,
    printer::Printer,
    session::Session,
    signals::Signals,
    verbs::worker,
    view::View,
    words,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Attendant, Engine, Event, Handle, RunStatus, Summary};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

/// A worker for one run. It takes no step before [`RunWorker::until_rest`].
pub(crate) struct RunWorker {
    pub(crate) engine: Engine,
    key: String,
    is_shared: bool,
    location: StoreLocation,
    printer: Printer,
    events: UnboundedReceiver<Event>,
    _outages: Option<Task>,
}

/// A task that ends with this.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A run after its worker: its outcome at rest, or the exit code if the worker was stopped before. The worker attends
/// the run until the engine is closed, so that no process removes the run while its results are written.
pub(crate) struct Worked {
    pub(crate) rests: Result<Summary, Exit>,
    pub(crate) view: View,
    pub(crate) engine: Engine,
}

impl RunWorker {
    /// Opens the worker of a command for the run of a key; it prints when a server is lost and when it is back.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn open(
        session: &Session,
        printer: &Printer,
        (setup, verb): (WorkerSetup, &str),
        (key, is_shared): (&str, bool),
    ) -> Result<Self, Fault> {
        let engine = setup.for_run(key, is_shared).engine(session, verb).await?;
        Ok(RunWorker::with(engine, session, printer, (key, is_shared)))
    }

    /// The same for a process that leaves all steps to other workers.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn idle(session: &Session, printer: &Printer, key: &str) -> Result<Self, Fault> {
        Ok(RunWorker::with(session.idle().await?, session, printer, (key, true)))
    }

    fn with(engine: Engine, session: &Session, printer: &Printer, (key, is_shared): (&str, bool)) -> Self {
        let (location, printer) = (session.location.clone(), printer.clone());
        let watch = |lost| Task(tokio::spawn(worker::watch(lost, location.clone(), printer.clone())));
        let _outages = session.store.lost().map(watch);
        let events = engine.events();
        RunWorker { engine, key: key.to_owned(), is_shared, location, printer, events, _outages }
    }

    /// Attends the run, unless another process does: that one is returned. Workers of a shared run need not agree.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn attend(&self) -> Result<Option<Attendant>, Fault> {
        match self.is_shared {
            true => Ok(None),
            false => Ok(self.engine.attend().await?),
        }
    }

    /// Follows the run, which another process attends.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn follow(&self, signals: &mut Signals) -> Result<Followed, Fault> {
        follow::follow(&self.engine, &self.location, &self.key, self.is_shared, &self.printer, signals).await
    }

    /// Leaves the run.
    ///
    /// # Errors
    /// If the work done may not be durable.
    pub(crate) async fn close(self) -> Result<(), Fault> {
        Ok(self.engine.close().await?)
    }

    /// Takes steps of the run and shows its events, until the run rests or a signal asks to stop. At rest, `goes_on` may start it again: it is passed the summary, and how often it did so before.
    ///
    /// # Errors
    /// If the store does not answer, or has no room.
    pub(crate) async fn until_rest(
        self,
        handle: &Handle,
        view: View,
        signals: &mut Signals,
        goes_on: impl AsyncFn(&Summary, usize) -> Result<bool, Fault>,
    ) -> Result<Worked, Fault> {
        let RunWorker { engine, key, is_shared, location, printer, events, _outages } = self;
        let mut shown = match is_shared {
            true => {
                // Other workers have events too, so they are shown from the log, also those of this process.
                drop(events);
                let mut reader = Reader::open(handle);
                reader.more().await?;
                engine.start_work();
                let follower = Follower::new(&engine, &location, &printer, handle.clone(), true, reader);
                Shown::FromLog(Box::new((follower, view)))
            }
            false => {
                engine.begin_attended().await?;
                executors::home(&location).tidy(handle.id());
                Shown::AsItHappens(tokio::spawn(show(events, key, view)))
            }
        };
        let mut tried = 0;
        let waited = loop {
            let rests = async {
                match &mut shown {
                    Shown::FromLog(from_log) => {
                        let (follower, view) = &mut **from_log;
                        Ok(follower.until_rest(view).await?.expect("a shared run is never alone"))
                    }
                    Shown::AsItHappens(_) => Ok::<_, Fault>(handle.wait().await?),
                }
            };
            let waited = tokio::select! {
                report = rests => report.map(Ok),
                why = engine.until_store_full() => {
                    // Without room, steps would be retried in vain again and again.
                    if let Err(error) = engine.interrupt().await {
                        tracing::debug!(%error, "failed to close the worker; the steps done last may run again");
                    }
                    Err(Fault::full(why))
                }
                exit = signals.asked() => {
                    printer.say(match is_shared {
                        true => "stopping: steps that run here are given back (again to stop at once)",
                        false => "stopping: no further steps are taken (again to stop at once)",
                    });
                    engine.interrupt().await?;
                    Ok(Err(exit))
                }
            };
            if !matches!(&waited, Ok(Ok(report)) if goes_on(report, tried).await?) {
                break waited;
            }
            tried += 1;
        };
        housekeeping::try_sweep_removed(&engine, &location).await;
        drain(&engine, signals, &printer).await?;
        drop(_outages);
        let view = match shown {
            Shown::FromLog(from_log) => {
                let (mut follower, mut view) = *from_log;
                follower.show_rest(&mut view).await?;
                view.end();
                view
            }
            Shown::AsItHappens(shown) => {
                shown.await.map_err(|error| Fault::plain(Exit::No, format!("the view was lost: {error}")))?
            }
        };
        let rests = match waited {
            Ok(rests) => rests,
            Err(fault) => {
                engine.close().await?;
                return Err(fault);
            }
        };
        if let Ok(summary) = &rests
            && matches!(summary.status, RunStatus::Cancelled | RunStatus::Done)
            && finish::exit(summary) != Exit::Unclean
        {
            executors::home(&location).clear(handle.id());
        }
        Ok(Worked { rests, view, engine })
    }
}

/// The source of a worker's view: other workers of a shared run have events too.
enum Shown<'a> {
    AsItHappens(JoinHandle<View>),
    FromLog(Box<(Follower<'a>, View)>),
}

/// Takes no further steps, and finishes those it has, of whatever run, unless a signal asks to stop.
async fn drain(engine: &Engine, signals: &mut Signals, printer: &Printer) -> Result<(), Fault> {
    if engine.claimed_steps() > 0 {
        let has = words::count(engine.claimed_steps(), "step");
        printer.say(format!("finishing {has} (Ctrl-C gives them back)"));
    }
    tokio::select! {
        drained = engine.drain() => Ok(drained?),
        _ = signals.asked() => Ok(engine.interrupt().await?),
    }
}

/// Shows the events of this process in one run, until there are no more.
async fn show(events: UnboundedReceiver<Event>, key: String, mut view: View) -> View {
    event_log::follow(events, key, |ms, what| view.saw(ms, what)).await;
    view.end();
    view
}
