//! `onceflow run FLOW`: starts a run or goes on with it, attends it until it rests, and writes its results. One that
//! another process attends is followed.

mod together;

use crate::{
    args,
    asked::{Asked, Hints},
    codes, event_log,
    exit::Exit,
    fault::Fault,
    finish::{Ending, To},
    follow::{Followed, follow},
    location::StoreLocation,
    plan,
    presence::{self, Attending, Notice, Presence},
    printer::Printer,
    progress::Progress,
    run_meta, runs,
    session::{Session, Who, is_for_any},
    signals::Signals,
    verbs::{background, ls::shell_word},
    view::View,
    words, work,
};
use onceflow_core::protocol::ids::RunId;
use onceflow_engine::{Engine, Handle, Report, RunStatus, is_damage};
use onceflow_spec::ResultsMode;

/// Runs a flow.
pub(crate) async fn run(args: &args::Run, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
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

/// How results get to their place: the option says, else the flow, else the settings.
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
        if who == Who::Any || self.is_for_any().await? {
            return self.together(&mut signals).await;
        }
        loop {
            let notice = Notice { pid: std::process::id(), key: self.asked.key().to_owned(), ..Notice::default() };
            match presence::attend(&self.session.location.directory, notice)? {
                Presence::Mine(attending, before) => return self.attend(attending, before, &mut signals).await,
                Presence::Other(notice) => {
                    if let Some(exit) = self.follow(notice, &mut signals).await? {
                        return Ok(exit);
                    }
                }
            }
        }
    }

    /// Whether a run of this key is at work that any worker may take steps of.
    async fn is_for_any(&self) -> Result<bool, Fault> {
        let engine = self.session.idle().await?;
        let found = match engine.find(self.asked.key()).await {
            Ok(handle) => is_for_any(&self.session.location, &handle).await,
            Err(_) => Ok(false),
        };
        engine.stop();
        found
    }

    /// A run that is done and asked for the same again: its results are looked after, and nothing is written.
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
        let report = handle.report().await?;
        let is_there = match &report {
            Report::Done(outputs) => handle.are_intact(outputs).await?,
            _ => false,
        };
        if !is_there {
            engine.stop();
            return Ok(None);
        }
        // Whoever did it may have been killed before it could clear up.
        crate::executors::home(&self.session.location).tidy(handle.id());
        let told = self.tell(&handle, report, &Progress::default()).await;
        engine.stop();
        match told {
            // It was found when it was read, and is dropped: the run goes on, and computes it again.
            Err(fault) if fault.exit == Exit::Damaged => {
                self.printer.warn(format!("{}; computing it again", fault.message));
                Ok(None)
            }
            told => told.map(Some),
        }
    }

    /// Waits until the run rests. What the store has lost is computed again, as long as that leads on.
    async fn until_rest(
        &self,
        engine: &Engine,
        handle: &Handle,
        signals: &mut Signals,
    ) -> Result<Result<Report, Exit>, Fault> {
        for tried in 0.. {
            let waited = work::wait(engine, handle, signals, &self.printer).await?;
            if !matches!(&waited, Ok(report) if self.heals(engine, report, tried).await?) {
                return Ok(waited);
            }
        }
        unreachable!("it is not healed for ever")
    }

    /// Whether the run goes on: it stands still because of what the store has lost, and that is computed again.
    async fn heals(&self, engine: &Engine, report: &Report, tried: usize) -> Result<bool, Fault> {
        /// Each may find something that was hidden behind the one before.
        const HEALS_MAX: usize = 8;
        match report {
            Report::Failed(failures) if failures.iter().any(is_damage) && tried < HEALS_MAX => {}
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

    async fn tell(&mut self, handle: &Handle, report: Report, progress: &Progress) -> Result<Exit, Fault> {
        let ending = Ending { printer: &self.printer, handle, progress };
        let mode = results_mode(self.args, &self.asked);
        let (outputs, out) = (&self.asked.flow.outputs, &self.args.out);
        let to = To { outputs, out, mode, digests: &mut self.hints.digests };
        ending.tell(report, Some(to)).await
    }

    /// Another process attends the run. `None` if it is gone, and the run is ours to go on with.
    async fn follow(&mut self, notice: Option<Notice>, signals: &mut Signals) -> Result<Option<Exit>, Fault> {
        if self.args.flow.new {
            return Err(self.busy(notice.as_ref(), "is at work"));
        }
        let engine = self.session.idle().await?;
        let notice = match signals.unless_asked(self.until_started(notice)).await {
            Ok(Some(notice)) => notice,
            Ok(None) => return Ok(None),
            Err(exit) => return Ok(Some(exit)),
        };
        if engine.is_same(&self.asked.start).await? == Some(false) {
            return Err(self.busy(Some(&notice), "is at work with other inputs or another flow"));
        }
        let key = self.asked.key().to_owned();
        if self.args.no_wait {
            return Ok(Some(background::told(&self.printer, &key, None)));
        }
        self.printer.say(format!("run `{key}` is at work in process {}; following it", notice.pid));
        let followed = follow(&engine, &self.session.location, &key, &self.printer, signals).await?;
        let exit = match followed {
            Followed::Alone => None,
            Followed::Asked(exit) => {
                self.printer.next(format!("the run goes on; onceflow watch {}", shell_word(&key)));
                Some(exit)
            }
            Followed::Rests(handle, report, view) => {
                // Whoever it was may have been asked for something else meanwhile.
                if engine.is_same(&self.asked.start).await? == Some(false) {
                    return Err(self.busy(None, "was started with other inputs or another flow meanwhile"));
                }
                Some(self.tell(&handle, *report, &view.progress).await?)
            }
        };
        engine.stop();
        Ok(exit)
    }

    /// Waits for the moment in which the other one has said that the run is started, or is gone.
    async fn until_started(&self, mut notice: Option<Notice>) -> Option<Notice> {
        loop {
            match notice {
                Some(notice) if notice.started => return Some(notice),
                _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
            notice = Some(presence::look(&self.session.location.directory, self.asked.key())?);
        }
    }

    fn busy(&self, notice: Option<&Notice>, what: &str) -> Fault {
        busy(self.asked.key(), notice, what)
    }

    /// The run is ours: starts it or goes on with it, and stays until it rests.
    async fn attend(
        &mut self,
        mut attending: Attending,
        before: Option<Notice>,
        signals: &mut Signals,
    ) -> Result<Exit, Fault> {
        if self.args.no_wait {
            return self.leave(attending, before).await;
        }
        let engine = work::engine(&self.session, &mut attending, before, self.args.jobs).await?;
        let start = self.asked.start.clone();
        let starting = async {
            self.prepare(&engine).await?;
            Ok::<_, Fault>((engine.events(), engine.start(start).await?))
        };
        let (events, handle) = match signals.unless_asked(starting).await {
            Ok(started) => started?,
            Err(exit) => {
                engine.close().await?;
                return Ok(self.stopped("stopped before the first step", exit));
            }
        };
        run_meta::draw(&self.session.location, &handle).await;
        engine.start_work();
        attending.started()?;
        run_meta::write(&self.session.location, handle.id(), self.args, &self.asked);
        self.hints.save();
        crate::executors::home(&self.session.location).tidy(handle.id());
        let writer = event_log::Writer::attend(&self.session.location.run(handle.id()));
        let view = View::new(&self.printer, self.asked.steps()).begins(&handle).await?;
        let shown = work::show(events, self.asked.key(), writer, view);
        let waited = self.until_rest(&engine, &handle, signals).await;
        if let Err(fault) = work::sweep_removed(&engine, &self.session.location).await {
            tracing::debug!(%fault, "directories of runs that are gone are left");
        }
        engine.close().await?;
        let view = shown.await.map_err(|error| Fault::plain(Exit::No, format!("the view was lost: {error}")))?;
        match waited? {
            Ok(report) => {
                if matches!(&report, Report::Cancelled { not_undone } if not_undone.is_empty()) {
                    crate::executors::home(&self.session.location).clear(handle.id());
                }
                let exit = self.tell(&handle, report, &view.progress).await?;
                drop(attending);
                Ok(exit)
            }
            Err(exit) => {
                let done = words::count(view.progress.total(|group| group.settled()), "step");
                Ok(self.stopped(&format!("stopped; {done} done so far are kept"), exit))
            }
        }
    }

    fn stopped(&self, what: &str, exit: Exit) -> Exit {
        self.printer.say(what);
        self.printer.next("the same command goes on where it stopped");
        exit
    }

    /// The run is ours: starts it, and leaves it to a process in the background.
    async fn leave(&mut self, mut attending: Attending, before: Option<Notice>) -> Result<Exit, Fault> {
        let engine = match self.args.flow.new {
            // What the old one did may have to be undone.
            true => work::engine(&self.session, &mut attending, before, self.args.jobs).await?,
            false => {
                let engine = self.session.idle().await?;
                work::release(&engine, &self.session.location, before).await?;
                engine
            }
        };
        self.prepare(&engine).await?;
        engine.close().await?;
        let engine = self.session.idle().await?;
        let handle = engine.start(self.asked.start.clone()).await?;
        run_meta::draw(&self.session.location, &handle).await;
        run_meta::write(&self.session.location, handle.id(), self.args, &self.asked);
        self.hints.save();
        let report = handle.report().await?;
        drop(attending);
        let exit = match report.is_at_rest() {
            true => self.tell(&handle, report, &Progress::default()).await?,
            false => {
                self.left = Some(handle.id());
                Exit::Waiting
            }
        };
        engine.close().await?;
        Ok(exit)
    }

    /// Makes the key free if a new run is wanted; says what runs again and why if there was one, unless it may not.
    async fn prepare(&self, engine: &Engine) -> Result<(), Fault> {
        let Some(known) = runs::of_key(engine, self.asked.key()).await? else { return Ok(()) };
        if self.args.flow.new {
            return work::forget(engine, &known).await;
        }
        if let Some(refused) = engine.refusal(self.asked.start.clone()).await? {
            return Err(refused.into());
        }
        let is_undoing = super::explain::is_being_undone(known.status);
        if is_undoing {
            self.printer.say(format!("run `{}` is being undone: none of its steps will run", known.key));
        } else if !matches!(known.status, RunStatus::Cancelled | RunStatus::Undone) {
            let explanation = engine.explain(self.asked.start.clone()).await?;
            let (known, _) = super::explain::going_on(&self.session.location, engine, &self.asked.start).await?;
            self.printer.say(plan::short(&explanation, &known));
            let notes = super::explain::notes(&self.session.location, engine, &self.asked.start, &explanation).await?;
            notes.iter().for_each(|note| self.printer.say(note));
        }
        Ok(())
    }
}

/// Another process is at work on the run, for something else.
pub(super) fn busy(key: &str, notice: Option<&Notice>, what: &str) -> Fault {
    let by = notice.map_or(String::new(), |notice| format!(" in process {}", notice.pid));
    Fault::new(Exit::Busy, codes::RUN_BUSY, format!("run `{key}` {what}{by}"))
        .hint(format!("`--key NAME` starts another run beside it; `onceflow watch {}` follows it", shell_word(key)))
}
