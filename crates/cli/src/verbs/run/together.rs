//! A run that any worker may work on: started here, worked on here as well, and shown until it rests. Whoever started it
//! may go away at any time.

use super::Running;
use crate::{
    event_log,
    exit::Exit,
    fault::Fault,
    presence::Attending,
    run_meta, runs,
    session::Session,
    signals::Signals,
    verbs::{ls::shell_word, worker},
    view::View,
    watching::{self, Seen},
    words, work,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Engine, Handle, Report, RunStatus};
use serde_json::json;

/// An engine, and our place among the processes here, if we work.
struct Ours {
    engine: Engine,
    _attending: Option<Attending>,
}

impl Ours {
    async fn open(session: &Session, key: &str, jobs: Option<u16>, lease_ms: Option<u64>) -> Result<Self, Fault> {
        if jobs == Some(0) {
            return Ok(Ours { engine: session.idle().await?, _attending: None });
        }
        let (engine, attending) = WorkerSetup::of(jobs, lease_ms).attending(key).engine(session, "run").await?;
        Ok(Ours { engine, _attending: Some(attending) })
    }
}

/// Says when the server is lost and when it is back, while this is there.
struct Watching(tokio::task::JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Running<'_> {
    /// Starts the run or goes on with it, works on it, and stays until it rests.
    pub(super) async fn together(&mut self, signals: &mut Signals) -> Result<Exit, Fault> {
        let jobs = if self.args.no_wait && !self.args.flow.new { Some(0) } else { self.args.jobs };
        let ours = Ours::open(&self.session, self.asked.key(), jobs, self.args.lease).await?;
        let engine = &ours.engine;
        let events = engine.events();
        let watching = self.session.store.lost().map(|lost| {
            Watching(tokio::spawn(worker::watch(lost, self.session.location.clone(), self.printer.clone())))
        });
        let starting = async {
            loop {
                match self.start(engine).await {
                    Err(fault) if watching::is_hiccup(&self.session.location, &fault) => watching::pause().await,
                    started => return started,
                }
            }
        };
        let handle = match signals.unless_asked(starting).await {
            Ok(started) => started?,
            Err(exit) => {
                engine.close().await?;
                return Ok(self.stopped("stopped before the first step", exit));
            }
        };
        let location = self.session.location.clone();
        run_meta::draw(&location, &handle).await;
        run_meta::write(&location, handle.id(), self.args, &self.asked);
        self.hints.save();
        if self.args.no_wait {
            engine.close().await?;
            return Ok(self.left_to_workers());
        }
        let written = tokio::spawn(watching::write(events, engine.clone(), location.clone()));
        engine.start_work();
        let mut view = View::new(&self.printer, self.asked.steps()).begins(&handle).await?;
        let mut seen = Seen::from_now(&location, &handle);
        let mut tried = 0;
        let waited = loop {
            let waited = tokio::select! {
                report = seen.until_rest(engine, &handle, &mut view, &self.printer, &location) => report.map(Ok),
                why = engine.until_store_full() => {
                    if let Err(error) = engine.interrupt().await {
                        tracing::debug!(%error, "what was done last may have to be done again");
                    }
                    Err(Fault::full(why))
                }
                exit = signals.asked() => {
                    self.printer.say("stopping: steps that run here are given back (again to stop at once)");
                    engine.interrupt().await?;
                    Ok(Err(exit))
                }
            };
            if !matches!(&waited, Ok(Ok(report)) if self.heals(engine, report, tried).await?) {
                break waited;
            }
            tried += 1;
        };
        if let Err(fault) = work::sweep_removed(engine, &location).await {
            tracing::debug!(%fault, "directories of runs that are gone are left");
        }
        self.leave_others(engine, signals).await?;
        drop(watching);
        drop(written.await);
        seen.show(&mut view);
        view.end();
        match waited? {
            Ok(report) => {
                let is_clean = crate::finish::exit(&report) != Exit::Unclean;
                if matches!(report, Report::Cancelled { .. } | Report::Done(_)) && is_clean {
                    crate::executors::home(&location).clear(handle.id());
                }
                self.tell(&handle, report, &view.progress).await
            }
            Err(exit) => {
                self.printer.say("stopped looking; the run goes on where there are workers");
                self.printer.next(format!("onceflow watch {}", shell_word(self.asked.key())));
                Ok(exit)
            }
        }
    }

    /// Starts the run, or goes on with it. The same again is the same run.
    async fn start(&self, engine: &Engine) -> Result<Handle, Fault> {
        self.not_for_something_else(engine).await?;
        self.prepare(engine).await?;
        Ok(engine.start(self.asked.start.clone()).await?)
    }

    /// Takes no further steps, and finishes those of other runs that it has, unless it is asked to stop.
    async fn leave_others(&self, engine: &Engine, signals: &mut Signals) -> Result<(), Fault> {
        if engine.claimed_steps() > 0 {
            let has = words::count(engine.claimed_steps(), "step");
            self.printer.say(format!("finishing {has} of other runs (Ctrl-C gives them back)"));
        }
        tokio::select! {
            closed = engine.close() => Ok(closed?),
            _ = signals.asked() => Ok(engine.interrupt().await?),
        }
    }

    /// A run at work for something else is not changed by accident: whoever started it may be on another machine.
    async fn not_for_something_else(&self, engine: &Engine) -> Result<(), Fault> {
        if self.args.flow.new {
            return Ok(());
        }
        let Some(known) = runs::of_key(engine, self.asked.key()).await? else { return Ok(()) };
        let is_at_work = !known.status.is_at_rest() && known.status != RunStatus::Planning;
        if is_at_work && engine.is_same(&self.asked.start).await? == Some(false) {
            return Err(self.busy(None, "is at work with other inputs or another flow"));
        }
        Ok(())
    }

    fn left_to_workers(&self) -> Exit {
        let key = self.asked.key();
        if self.printer.json {
            self.printer.data(&json!({"key": key, "status": "running", "pid": null}));
        }
        self.printer.say(format!("run `{key}` is started; workers go on with it"));
        self.printer.next(format!("onceflow watch {}", shell_word(key)));
        Exit::Waiting
    }
}

/// So that the event log of what happened before is not shown again.
impl Seen {
    fn from_now(location: &crate::location::StoreLocation, handle: &onceflow_engine::Handle) -> Self {
        let mut seen = Seen::new(event_log::Reader::open(&location.run(handle.id())));
        seen.skip();
        seen
    }
}
