//! Resumes a run that is in the store, without the flow file it came from: works on it until it rests, then reports the
//! outcome and writes its results. Shared by `retry` and `fork`.

use crate::{
    args::GoOn,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    finish::{Ending, To},
    follow::Followed,
    printer::Printer,
    progress::Progress,
    run_meta,
    run_worker::{RunWorker, Worked},
    session::{Session, is_for_any},
    signals::Signals,
    verbs::{background, ls::shell_word},
    view::View,
    words,
    worker_setup::WorkerSetup,
};
use onceflow_engine::{Handle, RunStatus, Summary};
use onceflow_spec::ResultsMode;
use std::path::PathBuf;

/// The most failures that are named though they were not retried.
const NAMED_MAX: usize = 10;

/// A run to be resumed.
pub(crate) struct Resume<'a> {
    pub(crate) session: Session,
    pub(crate) key: String,
    pub(crate) printer: &'a Printer,
    pub(crate) args: &'a GoOn,
    /// The failed steps to be retried: those at these addresses, or all of them.
    pub(crate) only: Option<Vec<String>>,
}

/// The result of this process's work on the run.
enum Gone {
    Ended(Exit),
    /// The run is left to a process in the background.
    Left(Handle),
}

impl Resume<'_> {
    /// Resumes the run; the exit code is that of the run's outcome.
    ///
    /// # Errors
    /// If the run does not allow it, or the store does not answer.
    pub(crate) async fn go(self) -> Result<Exit, Fault> {
        let mut signals = Signals::listen()?;
        let idle = self.session.idle().await?;
        let is_shared = is_for_any(&self.session.location, &idle.find(&self.key).await?).await?;
        idle.stop();
        if self.args.jobs == Some(0) && !is_shared {
            return Err(Fault::usage("`--jobs 0` leaves all steps to workers, and none may take them"));
        }
        let gone = self.attend(is_shared, &mut signals).await?;
        let (location, jobs) = (self.session.location.clone(), self.args.jobs);
        let (printer, key) = (self.printer, self.key.clone());
        self.session.close_clean(printer).await?;
        match gone {
            Gone::Left(handle) => background::start(&location, printer, &key, handle.id(), jobs).await,
            Gone::Ended(exit) => Ok(exit),
        }
    }

    /// Works on the run, unless another process attends it: that process is followed, and if it is gone, this one takes
    /// over.
    async fn attend(&self, is_shared: bool, signals: &mut Signals) -> Result<Gone, Fault> {
        let worker = match is_shared && (self.args.no_wait || self.args.jobs == Some(0)) {
            true => RunWorker::idle(&self.session, self.printer, &self.key).await?,
            false => {
                let setup = (WorkerSetup::of(self.args.jobs, None), "retry");
                RunWorker::open(&self.session, self.printer, setup, (&self.key, is_shared)).await?
            }
        };
        while let Some(other) = worker.attend().await? {
            let pid = other.worker.about.pid;
            self.printer.say(format!("run `{}` is at work in process {pid}; following it", self.key));
            let followed = match worker.follow(signals).await? {
                Followed::Alone => continue,
                Followed::Asked(exit) => exit,
                Followed::Rests(handle, report, view) => self.tell(&handle, *report, &view.progress).await?,
            };
            worker.close().await?;
            return Ok(Gone::Ended(followed));
        }
        let handle = worker.engine.find(&self.key).await?;
        if let Err(error) = handle.retry(self.only.as_deref()).await {
            worker.close().await?;
            let fault = Fault::from(error);
            return Err(if is_shared { fault } else { fault.of_unattended(&self.key) });
        }
        if self.args.no_wait {
            worker.close().await?;
            return Ok(match is_shared {
                true => Gone::Ended(background::told(self.printer, &self.key, None)),
                false => Gone::Left(handle),
            });
        }
        let view = View::new(self.printer, vec![]).begins(&handle).await?;
        let Worked { rests, view, engine } = worker.until_rest(&handle, view, signals, async |_, _| Ok(false)).await?;
        let exit = match rests {
            Ok(report) => self.tell(&handle, report, &view.progress).await?,
            Err(exit) => self.stopped(exit),
        };
        engine.close().await?;
        Ok(Gone::Ended(exit))
    }

    fn stopped(&self, exit: Exit) -> Exit {
        self.printer.say("stopped; what is done so far is kept");
        self.printer.next(format!("`onceflow retry {}` goes on where it stopped", shell_word(&self.key)));
        exit
    }

    async fn tell(&self, handle: &Handle, report: Summary, progress: &Progress) -> Result<Exit, Fault> {
        let location = &self.session.location;
        let meta = run_meta::read(location, handle.id());
        let was = meta.as_ref().and_then(|meta| meta["out"].as_str()).map(PathBuf::from);
        let out = self.args.out.clone().or(was).unwrap_or_else(|| PathBuf::from("results"));
        let progress = &self.tried(&report, progress);
        let ending = Ending { printer: self.printer, handle, progress };
        let signature = match report {
            Summary { status: RunStatus::Done, .. } => handle.request().signature().await?,
            _ => None,
        };
        let Some(signature) = signature else { return ending.tell(report, None).await };
        let mut digests = Digests::open(&location.directory, false);
        let was = meta.as_ref().and_then(|meta| ResultsMode::of(meta["results_mode"].as_str()?));
        let mode = was.unwrap_or(self.args.results_mode);
        ending.tell(report, Some(To { outputs: &signature.outputs, out: &out, mode, digests: &mut digests })).await
    }

    /// Names the failed steps that were not to be retried, and adds them to the failures already shown, so that they
    /// are not reported again.
    fn tried(&self, report: &Summary, progress: &Progress) -> Progress {
        let mut progress = progress.clone();
        let (Some(only), Summary { status: RunStatus::Failed, failures, .. }) = (&self.only, report) else {
            return progress;
        };
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
