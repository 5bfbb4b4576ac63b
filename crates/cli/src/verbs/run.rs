//! `onceflow run FLOW`: starts a run or resumes it, works on it until it rests, and writes its results. A run that
//! another process attends is followed.

use crate::{
    args,
    asked::{Asked, Hints},
    codes,
    exit::Exit,
    fault::Fault,
    finish::{Ending, To},
    follow::{Followed, is_outage, pause, until_started},
    foresight::Foresight,
    housekeeping,
    location::StoreLocation,
    plan,
    printer::Printer,
    progress::Progress,
    run_meta,
    run_worker::{RunWorker, Worked},
    runs,
    session::{Session, Who, is_for_any},
    signals::Signals,
    streams,
    verbs::{background, ls::shell_word},
    view::View,
    words,
    worker_setup::WorkerSetup,
};
use onceflow_core::protocol::ids::RunId;
use onceflow_engine::{Attendant, Engine, Handle, Preview, RunStatus, Summary, is_damage};
use onceflow_spec::ResultsMode;
use serde_json::json;

/// Runs a flow.
pub(crate) async fn run(args: &args::Run, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    if !args.dry_run
        && let Some(stream) = streams::asked(&args.flow, printer)?
    {
        return streams::run(args, &stream, location, printer).await;
    }
    if args.dry_run {
        let explain = args::Explain { flow: args.flow.clone(), all: false };
        return super::explain::run(&explain, location, printer).await;
    }
    let who = if args.shared { Who::Any } else { location.who() };
    if args.jobs == Some(0) && who == Who::Attending {
        return Err(Fault::usage("`--jobs 0` leaves all steps to workers, and none may take them")
            .hint("`--shared` lets workers take them, as on a server; see `onceflow run --help`"));
    }
    let (mut asked, hints) = Asked::read(&args.flow, &location, who, printer)?;
    asked.start.accept_reruns = args.accept_code_change;
    asked.has_secrets()?;
    let session = Session::make(location).await?;
    let mut running = Running { args, asked, hints, session, printer: printer.clone(), left: None };
    let exit = running.go(who).await?;
    let Running { session, left, asked, .. } = running;
    let location = session.location.clone();
    session.close_clean(printer).await?;
    match left {
        Some(run) => background::start(&location, printer, asked.key(), run, args.jobs).await,
        None => Ok(exit),
    }
}

/// Returns how results are written: by the option, else by the flow, else by the settings.
pub(crate) fn results_mode(args: &args::Run, asked: &Asked) -> ResultsMode {
    args.results_mode.or(asked.flow.results_mode).unwrap_or(args.results_mode_otherwise)
}

/// A flow that is to be run.
struct Running<'a> {
    args: &'a args::Run,
    asked: Asked,
    hints: Hints,
    session: Session,
    printer: Printer,
    /// The run that is left to a process in the background.
    left: Option<RunId>,
}

impl Running<'_> {
    async fn go(&mut self, who: Who) -> Result<Exit, Fault> {
        if let Some(exit) = self.nothing_to_do().await? {
            return Ok(exit);
        }
        self.asked.say_unused(&self.printer);
        let mut signals = Signals::listen()?;
        let is_shared = who == Who::Any || self.is_for_any().await?;
        if is_shared {
            self.asked.set_who(Who::Any);
        }
        let worker = self.worker(is_shared).await?;
        while let Some(other) = worker.attend().await? {
            let followed = self.follow(&worker, &other, &mut signals).await;
            if !matches!(followed, Ok(None)) {
                worker.close().await?;
                return followed.map(|exit| exit.expect("it is not none"));
            }
        }
        match self.args.no_wait && !is_shared {
            true => self.leave(worker).await,
            false => self.work(worker, is_shared, &mut signals).await,
        }
    }

    /// Opens the worker of this process for the run; it takes no steps if they are all left to other workers.
    async fn worker(&self, is_shared: bool) -> Result<RunWorker, Fault> {
        let is_idle = self.args.jobs == Some(0) || self.args.no_wait && !self.args.flow.new;
        if is_shared && is_idle {
            return RunWorker::idle(&self.session, &self.printer, self.asked.key()).await;
        }
        let setup = WorkerSetup::of(self.args.jobs, self.args.lease);
        RunWorker::open(&self.session, &self.printer, (setup, "run"), (self.asked.key(), is_shared)).await
    }

    /// There is a run of this key that any worker may take steps of.
    async fn is_for_any(&self) -> Result<bool, Fault> {
        let engine = self.session.idle().await?;
        let found = match engine.find(self.asked.key()).await {
            Ok(handle) => is_for_any(&self.session.location, &handle).await,
            Err(_) => Ok(false),
        };
        engine.stop();
        found
    }

    /// Handles a run that is done and was asked for the same: its results are checked, and the store is not changed.
    async fn nothing_to_do(&mut self) -> Result<Option<Exit>, Fault> {
        let engine = self.session.idle().await?;
        let known = runs::of_key(&engine, self.asked.key()).await?;
        let is_done = known.is_some_and(|run| run.status == RunStatus::Done);
        if self.args.flow.new || !is_done {
            engine.stop();
            return Ok(None);
        }
        if engine.is_same(&self.asked.start).await? != Some(true) {
            engine.stop();
            return Ok(None);
        }
        let handle = engine.find(self.asked.key()).await?;
        let report = handle.summary().await?;
        let is_there = match &report {
            Summary { status: RunStatus::Done, outputs, .. } => handle.outputs().are_intact(outputs).await?,
            _ => false,
        };
        if !is_there {
            engine.stop();
            return Ok(None);
        }
        // The process that ran it may have been killed before it removed its work directories.
        crate::executors::home(&self.session.location).tidy(handle.id());
        let told = self.tell(&handle, report, &Progress::default()).await;
        engine.stop();
        match told {
            // Reading found the damage, and the value is dropped: the run computes it again.
            Err(fault) if fault.exit == Exit::Damaged => {
                self.printer.warn(format!("{}; computing it again", fault.message));
                Ok(None)
            }
            told => told.map(Some),
        }
    }

    /// Starts the run again if it failed because the store lost or damaged a value: the value is computed again.
    async fn heals(&self, engine: &Engine, report: &Summary, tried: usize) -> Result<bool, Fault> {
        /// Each attempt may find damage that was hidden behind the one before.
        const HEALS_MAX: usize = 8;
        match report {
            Summary { status: RunStatus::Failed, failures, .. }
                if failures.iter().any(is_damage) && tried < HEALS_MAX => {}
            _ => return Ok(false),
        }
        self.printer.warn("what a step reads was damaged in the store; computing it again");
        match engine.start(self.asked.start.clone()).await {
            Ok(_same) => Ok(true),
            Err(error) => {
                self.printer.warn(format!("it cannot be computed again: {}", Fault::from(error).message));
                Ok(false)
            }
        }
    }

    async fn tell(&mut self, handle: &Handle, report: Summary, progress: &Progress) -> Result<Exit, Fault> {
        let ending = Ending { printer: &self.printer, handle, progress };
        let mode = results_mode(self.args, &self.asked);
        let (outputs, out) = (&self.asked.flow.outputs, &self.args.out);
        let to = To { outputs, out, mode, digests: &mut self.hints.digests };
        ending.tell(report, Some(to)).await
    }

    /// Follows the process that attends the run; `None` if it is gone, so that this one may resume the run.
    async fn follow(
        &mut self,
        worker: &RunWorker,
        other: &Attendant,
        signals: &mut Signals,
    ) -> Result<Option<Exit>, Fault> {
        let (engine, key) = (&worker.engine, self.asked.key().to_owned());
        if self.args.flow.new {
            return Err(busy(&key, Some(other), "is at work"));
        }
        match signals.unless_asked(until_started(engine, &key)).await {
            Ok(started) => started?,
            Err(exit) => return Ok(Some(exit)),
        }
        let Some(other) = engine.attendant(&key).await? else { return Ok(None) };
        if engine.is_same(&self.asked.start).await? == Some(false) {
            return Err(busy(&key, Some(&other), "is at work with other inputs or another flow"));
        }
        if self.args.no_wait {
            return Ok(Some(background::told(&self.printer, &key, None)));
        }
        self.printer.say(format!("run `{key}` is at work in process {}; following it", other.worker.about.pid));
        match worker.follow(signals).await? {
            Followed::Alone => Ok(None),
            Followed::Asked(exit) => {
                self.printer.next(format!("the run goes on; onceflow watch {}", shell_word(&key)));
                Ok(Some(exit))
            }
            Followed::Rests(handle, report, view) => {
                // The run may have been started for something else meanwhile.
                if engine.is_same(&self.asked.start).await? == Some(false) {
                    return Err(busy(&key, None, "was started with other inputs or another flow meanwhile"));
                }
                Ok(Some(self.tell(&handle, *report, &view.progress).await?))
            }
        }
    }

    /// Starts or resumes the run, and works on it until it rests.
    async fn work(&mut self, worker: RunWorker, is_shared: bool, signals: &mut Signals) -> Result<Exit, Fault> {
        let location = self.session.location.clone();
        let starting = async {
            loop {
                match self.start(&worker.engine, is_shared).await {
                    Err(fault) if is_outage(&location, &fault) => pause().await,
                    started => return started,
                }
            }
        };
        let handle = match signals.unless_asked(starting).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(fault)) => {
                worker.close().await?;
                // Steps of a run that is not shared are taken by this process alone: no other attends it now.
                return Err(if is_shared { fault } else { fault.of_unattended(self.asked.key()) });
            }
            Err(exit) => {
                worker.close().await?;
                return Ok(self.stopped("stopped before the first step", exit));
            }
        };
        self.note(&handle).await;
        if self.args.no_wait {
            worker.close().await?;
            return Ok(self.left_to_workers());
        }
        let view = View::new(&self.printer, self.asked.steps()).begins(&handle).await?;
        let engine = worker.engine.clone();
        let heals = async |report: &Summary, tried: usize| self.heals(&engine, report, tried).await;
        let Worked { rests, view, engine } = worker.until_rest(&handle, view, signals, heals).await?;
        let exit = match rests {
            Ok(report) => self.tell(&handle, report, &view.progress).await?,
            Err(exit) if is_shared => {
                self.printer.say("stopped looking; the run goes on where there are workers");
                self.printer.next(format!("onceflow watch {}", shell_word(self.asked.key())));
                exit
            }
            Err(exit) => {
                let done = words::count(view.progress.total(|group| group.settled()), "step");
                self.stopped(&format!("stopped; {done} done so far are kept"), exit)
            }
        };
        engine.close().await?;
        Ok(exit)
    }

    /// Starts or resumes the run: the same flow and inputs under the same key are the same run.
    async fn start(&self, engine: &Engine, is_shared: bool) -> Result<Handle, Fault> {
        if is_shared {
            self.not_for_something_else(engine).await?;
        }
        let preview = self.prepare(engine).await?;
        self.start_as(engine, preview).await
    }

    /// Starts the run as it was previewed.
    async fn start_as(&self, engine: &Engine, preview: Option<Preview>) -> Result<Handle, Fault> {
        Ok(match preview {
            Some(preview) => engine.start_previewed(preview).await?,
            None => engine.start(self.asked.start.clone()).await?,
        })
    }

    /// Refuses to change a shared run that is at work for something else: its starter may be on another machine.
    async fn not_for_something_else(&self, engine: &Engine) -> Result<(), Fault> {
        if self.args.flow.new {
            return Ok(());
        }
        let Some(known) = runs::of_key(engine, self.asked.key()).await? else { return Ok(()) };
        let is_at_work = !known.status.is_at_rest() && known.status != RunStatus::Planning;
        if is_at_work && engine.is_same(&self.asked.start).await? == Some(false) {
            return Err(busy(self.asked.key(), None, "is at work with other inputs or another flow"));
        }
        Ok(())
    }

    /// Writes the scene of the run's flow and the command line that started it.
    async fn note(&mut self, handle: &Handle) {
        run_meta::draw(&self.session.location, handle).await;
        run_meta::write(&self.session.location, handle.id(), self.args, &self.asked);
        self.hints.save();
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

    fn stopped(&self, what: &str, exit: Exit) -> Exit {
        self.printer.say(what);
        self.printer.next("the same command goes on where it stopped");
        exit
    }

    /// Starts the run, and leaves it to a process in the background.
    async fn leave(&mut self, worker: RunWorker) -> Result<Exit, Fault> {
        // To free the key, steps of the old run may have to be undone by this worker, which must not take steps of the
        // new one.
        let prepared = self.prepare(&worker.engine).await;
        worker.close().await?;
        let preview = prepared.map_err(|fault| fault.of_unattended(self.asked.key()))?;
        let engine = self.session.idle().await?;
        let handle = self.start_as(&engine, preview).await?;
        self.note(&handle).await;
        let report = handle.summary().await?;
        let exit = match report.status.is_at_rest() {
            true => self.tell(&handle, report, &Progress::default()).await?,
            false => {
                self.left = Some(handle.id());
                Exit::Waiting
            }
        };
        engine.close().await?;
        Ok(exit)
    }

    /// Frees the key for `--new`; otherwise prints which steps of an earlier run will run again and why, or returns why
    /// the run is refused. Returns the preview of an earlier run.
    async fn prepare(&self, engine: &Engine) -> Result<Option<Preview>, Fault> {
        let Some(known) = runs::of_key(engine, self.asked.key()).await? else { return Ok(None) };
        if self.args.flow.new {
            housekeeping::forget(engine, &known).await?;
            return Ok(None);
        }
        let mut preview = engine.preview(self.asked.start.clone()).await?;
        if let Some(refused) = preview.refused.take() {
            return Err(refused.into());
        }
        let Some(run) = preview.run.take() else { return Ok(Some(preview)) };
        if run.status.is_being_undone() {
            self.printer.say(format!("run `{}` is being undone: none of its steps will run", run.key));
        } else if !matches!(run.status, RunStatus::Cancelled | RunStatus::Undone) {
            let Foresight { known, notes, .. } = Foresight::of(engine, &run, &mut preview).await?;
            self.printer.say(plan::short(&preview.explanation, &known));
            notes.iter().for_each(|note| self.printer.say(note));
        }
        Ok(Some(preview))
    }
}

/// The error for a run that another process is at work on, for something else.
pub(super) fn busy(key: &str, other: Option<&Attendant>, what: &str) -> Fault {
    let by = other.map_or(String::new(), |other| format!(" in process {}", other.worker.about.pid));
    Fault::new(Exit::Busy, codes::RUN_BUSY, format!("run `{key}` {what}{by}"))
        .hint(format!("`--key NAME` starts another run beside it; `onceflow watch {}` follows it", shell_word(key)))
}
