//! A command at work on a store: the directory, the store in it, an engine on that.

use crate::{fault::Fault, place::Place, printer::Printer, runs};
use onceflow_engine::{Engine, Options};
use onceflow_store::{Records, Store};
use std::sync::Arc;

/// An open store.
pub(crate) struct Session {
    pub(crate) place: Place,
    pub(crate) printer: Printer,
    pub(crate) store: Store,
}

impl Session {
    /// Opens the store that is there.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub(crate) async fn open(place: Place, printer: &Printer) -> Result<Self, Fault> {
        let place = place.must_be_there()?;
        let store = Store::open(&place.directory).await?;
        Ok(Session { place, printer: printer.clone(), store })
    }

    /// Opens the store, making one if there is none.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) async fn make(mut place: Place, printer: &Printer) -> Result<Self, Fault> {
        place.make()?;
        place.is_there = true;
        Session::open(place, printer).await
    }

    pub(crate) fn records(&self) -> Arc<dyn Records> {
        self.store.records()
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
    pub(crate) async fn run(&self, word: &str) -> Result<runs::Run, Fault> {
        runs::named(runs::all(&*self.records()).await?, word)
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
