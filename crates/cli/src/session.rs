//! An open store for a command: its directory or server, the store there, and an engine on it.

use crate::{event_log, fault::Fault, housekeeping, location::StoreLocation, printer::Printer, runs, streams};
use onceflow_core::model::{CheckedFlow, task::DEFAULT_CLASS};
use onceflow_engine::{Engine, Options, Summary};
use onceflow_store::{Store, world::RealWorld};

/// The longest time that a command spends on reclaiming after its work is done.
const CLEAN_MS_MAX: u64 = 2_000;

/// An open store.
pub(crate) struct Session {
    pub(crate) location: StoreLocation,
    pub(crate) store: Store,
}

impl Session {
    /// Opens the existing store.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub(crate) async fn open(location: StoreLocation) -> Result<Self, Fault> {
        let location = location.must_be_there()?;
        let store = match &location.server {
            None => match location.backend.clone() {
                Some(backend) => Store::open_with(&location.directory, backend, RealWorld::here()).await?,
                None => Store::open(&location.directory).await?,
            },
            Some(server) => {
                std::fs::create_dir_all(&location.directory).map_err(Fault::store("make", &location.directory))?;
                Store::connect(server.url()).await?
            }
        };
        let store = store.with_bytes_max(location.bytes_max);
        Ok(Session { location, store })
    }

    /// Opens the store, making one if there is none.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) async fn make(mut location: StoreLocation) -> Result<Self, Fault> {
        location.make()?;
        location.is_there = true;
        Session::open(location).await
    }

    /// Opens an engine that takes no steps: it starts runs, reads them, and cancels them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn idle(&self) -> Result<Engine, Fault> {
        let scratch = crate::executors::home(&self.location).scratch();
        let event_log = Some(event_log::OPTIONS);
        let options = Options { works: false, scratch, locks: true, event_log, ..Options::default() };
        Ok(Engine::open(&self.store, options).await?)
    }

    /// Returns the run that a word names. The name of a stream is no beginning of a run's name, so that `rm` does not
    /// remove the run `clicks-2` where the stream `clicks` was meant.
    ///
    /// # Errors
    /// If the word names none, or several, or a stream.
    pub(crate) async fn run(&self, engine: &Engine, word: &str) -> Result<Summary, Fault> {
        let all = runs::all(engine).await?;
        if !all.iter().any(|run| run.key == word)
            && let Some(fault) = streams::is_no_run(word, self).await?
        {
            return Err(fault);
        }
        runs::named(all, word)
    }

    /// Reclaims values and directories that nothing needs, for a moment at most, then leaves the store. For commands
    /// that have changed something; the next command reclaims the rest.
    ///
    /// # Errors
    /// If the work done may not be durable.
    pub(crate) async fn close_clean(self, printer: &Printer) -> Result<(), Fault> {
        let cleaned = match self.idle().await {
            Ok(engine) => match engine.clean_up(CLEAN_MS_MAX).await {
                Ok(_) => housekeeping::sweep_removed(&engine, &self.location).await,
                Err(error) => Err(error.into()),
            },
            Err(fault) => Err(fault),
        };
        if let Err(fault) = cleaned {
            printer.say(format!("what nothing needs any more could not be removed: {}", fault.message));
            printer.say("`onceflow reclaim` tries it again");
        }
        self.close().await
    }

    /// Leaves the store when everything is durable.
    ///
    /// # Errors
    /// If the work done may not be durable.
    pub(crate) async fn close(self) -> Result<(), Fault> {
        Ok(self.store.close().await?)
    }
}

/// The processes that take the steps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Only the process that attends the run.
    Attending,
    /// Any worker.
    Any,
}

impl Who {
    /// The class of steps of a run that ask for this class in the flow file: the default one, or labels.
    pub(crate) fn class(self, key: &str, asked: &str) -> String {
        match self {
            Who::Attending => own_class(key),
            Who::Any if asked == DEFAULT_CLASS => ANY.to_owned(),
            Who::Any => format!("{ANY}+{asked}"),
        }
    }

    /// The class in a run of this key for each class that the tasks of a flow ask for.
    pub(crate) fn classes(self, key: &str, flow: &CheckedFlow) -> Vec<(String, String)> {
        flow.classes().into_iter().map(|asked| (asked.to_owned(), self.class(key, asked))).collect()
    }
}

/// The class of the steps of a run that only the process which attends it takes.
pub(crate) fn own_class(key: &str) -> String {
    format!("{OWN}{key}")
}

/// The beginning of the class of steps that only the process which attends their run takes; its key follows.
pub(crate) const OWN: &str = "run/";

/// The class of steps of flow files that any worker takes; labels follow, each after a `+`.
pub(crate) const ANY: &str = "flow";

/// The labels that a class of steps asks for, if it is one that any worker may take.
pub(crate) fn labels(class: &str) -> Option<Vec<&str>> {
    let mut parts = class.split('+');
    (parts.next() == Some(ANY)).then(|| parts.collect())
}

/// Any worker may take the steps of a run.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn is_for_any(location: &StoreLocation, handle: &onceflow_engine::Handle) -> Result<bool, Fault> {
    Ok(location.server.is_some() || handle.steps().classes().await?.iter().any(|class| labels(class).is_some()))
}
