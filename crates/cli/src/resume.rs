//! Goes on with a run that is in the store, without the file it came from: attends it, or works on it with others, until it
//! rests; then says how it went and writes its results. What `retry` and `fork` have in common.

use crate::{
    args::GoOn,
    digests::Digests,
    event_log,
    exit::Exit,
    fault::Fault,
    finish::{Ending, To},
    follow::{Followed, follow},
    presence::{self, Attending, Notice, Presence},
    printer::Printer,
    progress::Progress,
    run_meta,
    session::{Session, is_for_any},
    signals::Signals,
    verbs::{background, ls::shell_word},
    view::View,
    watching, words, work,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Handle, Report};
use onceflow_spec::ResultsMode;
use std::path::PathBuf;

/// Failures that are named though they were not tried again.
const NAMED_MAX: usize = 10;

/// A run that is to go on.
pub(crate) struct Resume<'a> {
    pub(crate) session: Session,
    pub(crate) key: String,
    pub(crate) printer: &'a Printer,
    pub(crate) args: &'a GoOn,
    /// What failed and is to be tried again: all of it, or steps at these addresses.
    pub(crate) only: Option<Vec<String>>,
}

/// How far it came.
enum Gone {
    Ended(Exit),
    /// The other process that attended it is gone.
    Alone,
    /// It is left to a process in the background.
    Left(Handle),
}

impl Resume<'_> {
    /// Goes on, and ends as the run does.
    ///
    /// # Errors
    /// If the run does not allow it, or the store does not answer.
    pub(crate) async fn go(self) -> Result<Exit, Fault> {
        let mut signals = Signals::listen()?;
        let idle = self.session.idle().await?;
        let is_for_any = is_for_any(&self.session.location, &idle.find(&self.key).await?).await?;
        idle.stop();
        let gone = loop {
            let gone = match is_for_any {
                true => self.together(&mut signals).await?,
                false => self.alone(&mut signals).await?,
            };
            if !matches!(gone, Gone::Alone) {
                break gone;
            }
        };
        let (location, jobs) = (self.session.location.clone(), self.args.jobs);
        let (printer, key) = (self.printer, self.key.clone());
        self.session.close_clean(printer).await?;
        match gone {
            Gone::Left(handle) => background::start(&location, printer, &key, handle.id(), jobs).await,
            Gone::Ended(exit) => Ok(exit),
            Gone::Alone => Ok(Exit::Waiting),
        }
    }

    /// A run that only one process takes the steps of: we do, unless another one does.
    async fn alone(&self, signals: &mut Signals) -> Result<Gone, Fault> {
        if self.args.jobs == Some(0) {
            return Err(Fault::usage("`--jobs 0` leaves all steps to workers, and none may take them"));
        }
        let location = &self.session.location;
        let notice = Notice { pid: std::process::id(), key: self.key.clone(), ..Notice::default() };
        match presence::attend(&location.directory, notice)? {
            Presence::Mine(attending, before) if self.args.no_wait => self.leave(attending, before).await,
            Presence::Mine(attending, before) => self.attend(attending, before, signals).await,
            Presence::Other(notice) => {
                let by = notice.map_or(String::new(), |notice| format!(" in process {}", notice.pid));
                self.printer.say(format!("run `{}` is at work{by}; following it", self.key));
                let engine = self.session.idle().await?;
                let followed = follow(&engine, location, &self.key, self.printer, signals).await?;
                let gone = match followed {
                    Followed::Alone => Gone::Alone,
                    Followed::Asked(exit) => Gone::Ended(exit),
                    Followed::Rests(handle, report, view) => {
                        Gone::Ended(self.tell(&handle, *report, &view.progress).await?)
                    }
                };
                engine.stop();
                Ok(gone)
            }
        }
    }

    async fn leave(&self, attending: Attending, before: Option<Notice>) -> Result<Gone, Fault> {
        let engine = self.session.idle().await?;
        work::release(&engine, &self.session.location, before).await?;
        let handle = engine.find(&self.key).await?;
        handle.retry(self.only.as_deref()).await?;
        drop(attending);
        engine.close().await?;
        Ok(Gone::Left(handle))
    }

    async fn attend(
        &self,
        mut attending: Attending,
        before: Option<Notice>,
        signals: &mut Signals,
    ) -> Result<Gone, Fault> {
        let location = &self.session.location;
        let engine = work::engine(&self.session, &mut attending, before, self.args.jobs).await?;
        let (events, handle) = (engine.events(), engine.find(&self.key).await?);
        if let Err(error) = handle.retry(self.only.as_deref()).await {
            engine.close().await?;
            return Err(error.into());
        }
        engine.start_work();
        attending.started()?;
        crate::executors::home(location).tidy(handle.id());
        let writer = event_log::Writer::attend(&location.run(handle.id()));
        let view = View::new(self.printer, vec![]).begins(&handle).await?;
        let shown = work::show(events, &self.key, writer, view);
        let waited = work::wait(&engine, &handle, signals, self.printer).await;
        if let Err(fault) = work::sweep_removed(&engine, location).await {
            tracing::debug!(%fault, "directories of runs that are gone are left");
        }
        engine.close().await?;
        let view = shown.await.map_err(|error| Fault::plain(Exit::No, format!("the view was lost: {error}")))?;
        let exit = match waited? {
            Ok(report) => self.tell(&handle, report, &view.progress).await?,
            Err(exit) => self.stopped(exit),
        };
        drop(attending);
        Ok(Gone::Ended(exit))
    }

    /// A run that any worker may take steps of: we are one of them.
    async fn together(&self, signals: &mut Signals) -> Result<Gone, Fault> {
        let location = &self.session.location;
        let is_idle = self.args.no_wait || self.args.jobs == Some(0);
        let (engine, _attending) = match is_idle {
            true => (self.session.idle().await?, None),
            false => {
                let setup = WorkerSetup::of(self.args.jobs, None).attending(&self.key);
                let (engine, attending) = setup.engine(&self.session, "retry").await?;
                (engine, Some(attending))
            }
        };
        let events = engine.events();
        let handle = engine.find(&self.key).await?;
        if let Err(error) = handle.retry(self.only.as_deref()).await {
            engine.close().await?;
            return Err(error.into());
        }
        if self.args.no_wait {
            engine.close().await?;
            return Ok(Gone::Ended(background::told(self.printer, &self.key, None)));
        }
        let written = tokio::spawn(watching::write(events, engine.clone(), location.clone()));
        engine.start_work();
        let followed = watching::follow(&engine, location, handle, self.printer, signals).await?;
        match &followed {
            Followed::Asked(_) => engine.interrupt().await?,
            Followed::Rests(..) | Followed::Alone => engine.close().await?,
        }
        drop(written.await);
        Ok(Gone::Ended(match followed {
            Followed::Asked(exit) => self.stopped(exit),
            Followed::Alone => Exit::Waiting,
            Followed::Rests(handle, report, view) => {
                if crate::finish::exit(&report) != Exit::Unclean {
                    crate::executors::home(location).clear(handle.id());
                }
                self.tell(&handle, *report, &view.progress).await?
            }
        }))
    }

    fn stopped(&self, exit: Exit) -> Exit {
        self.printer.say("stopped; what is done so far is kept");
        self.printer.next(format!("`onceflow retry {}` goes on where it stopped", shell_word(&self.key)));
        exit
    }

    async fn tell(&self, handle: &Handle, report: Report, progress: &Progress) -> Result<Exit, Fault> {
        let location = &self.session.location;
        let meta = run_meta::read(location, handle.id());
        let was = meta.as_ref().and_then(|meta| meta["out"].as_str()).map(PathBuf::from);
        let out = self.args.out.clone().or(was).unwrap_or_else(|| PathBuf::from("results"));
        let progress = &self.tried(&report, progress);
        let ending = Ending { printer: self.printer, handle, progress };
        let signature = match report {
            Report::Done(_) => handle.signature().await?,
            _ => None,
        };
        let Some(signature) = signature else { return ending.tell(report, None).await };
        let mut digests = Digests::open(&location.directory, false);
        let was = meta.as_ref().and_then(|meta| ResultsMode::of(meta["results_mode"].as_str()?));
        let mode = was.unwrap_or(self.args.results_mode);
        ending.tell(report, Some(To { outputs: &signature.outputs, out: &out, mode, digests: &mut digests })).await
    }

    /// What failed before and was not to be tried again is no news: it is named, and not told again.
    fn tried(&self, report: &Report, progress: &Progress) -> Progress {
        let mut progress = progress.clone();
        let (Some(only), Report::Failed(failures)) = (&self.only, report) else { return progress };
        let others: Vec<_> =
            failures.iter().filter(|failed| !only.iter().any(|address| **address == *failed.address)).collect();
        if !others.is_empty() {
            let named: Vec<_> = others.iter().take(NAMED_MAX).map(|failed| words::step(&failed.address)).collect();
            let more = if others.len() > NAMED_MAX { ", …" } else { "" };
            self.printer.say(format!("not tried again: {}{more}", named.join(", ")));
        }
        progress.failures.extend(others.into_iter().cloned());
        progress
    }
}
