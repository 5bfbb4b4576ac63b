//! A command at work on a store: the directory, the store in it, an engine on that.

use crate::{fault::Fault, place::Place, runs};
use onceflow_engine::{Engine, Options, Summary};
use onceflow_store::Store;

/// An open store.
pub(crate) struct Session {
    pub(crate) place: Place,
    pub(crate) store: Store,
}

impl Session {
    /// Opens the store that is there.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub(crate) async fn open(place: Place) -> Result<Self, Fault> {
        let place = place.must_be_there()?;
        let store = Store::open(&place.directory).await?;
        Ok(Session { place, store })
    }

    /// Opens the store, making one if there is none.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) async fn make(mut place: Place) -> Result<Self, Fault> {
        place.make()?;
        place.is_there = true;
        Session::open(place).await
    }

    /// An engine that takes no steps: it starts runs, answers for them, and cancels them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn idle(&self) -> Result<Engine, Fault> {
        Ok(Engine::open(&self.store, Options { works: false, ..Options::default() }).await?)
    }

    /// The run that a word means.
    ///
    /// # Errors
    /// If it is none, or several.
    pub(crate) async fn run(&self, engine: &Engine, word: &str) -> Result<Summary, Fault> {
        runs::named(runs::all(engine).await?, word)
    }

    /// Leaves the store, with everything on the disk.
    ///
    /// # Errors
    /// If what was done may not last.
    pub(crate) async fn close(self) -> Result<(), Fault> {
        Ok(self.store.close().await?)
    }
}

/// The class of the steps of a run: whoever attends the run takes them, and nobody else.
pub(crate) fn class(key: &str) -> String {
    format!("run/{key}")
}
