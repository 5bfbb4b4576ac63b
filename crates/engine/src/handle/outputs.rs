//! The outputs of a run: as soon as they exist, with their files written to a directory, or only listed.

use super::Handle;
use crate::{Error, RunStatus, Summary, ValueOutline, data, engine::damage, task::Data};
use futures_util::future::BoxFuture;
use onceflow_core::{Digest, payload::Outcome};
use std::path::{Path, PathBuf};

/// The outputs of a run: see [`Handle::outputs`].
#[derive(Clone, Copy)]
pub struct RunOutputs<'a> {
    handle: &'a Handle,
}

impl<'a> RunOutputs<'a> {
    pub(super) fn of(handle: &'a Handle) -> Self {
        RunOutputs { handle }
    }
}

impl<'a> RunOutputs<'a> {
    /// As [`Handle::output`]; files are written into `directory`.
    ///
    /// # Errors
    /// As [`Handle::output`].
    pub fn output_into(self, name: &'a str, directory: Option<&'a Path>) -> BoxFuture<'a, Result<Data, Error>> {
        self.output_as(name, directory, false)
    }

    /// As [`RunOutputs::output_into`]. Where the file system allows it, large files are hard links to the store's own
    /// objects: they take no space, and must not be written to. Small files, and all files elsewhere, are copies.
    ///
    /// # Errors
    /// As [`Handle::output`].
    pub fn output_linked(self, name: &'a str, directory: &'a Path) -> BoxFuture<'a, Result<Data, Error>> {
        self.output_as(name, Some(directory), true)
    }

    /// Hands over files that [`RunOutputs::output_linked`] gave and that have been moved to these paths: from now on the
    /// store refers to them there, and deletes its own link. Files that the store does not hold as objects of their own
    /// stay as they are. Returns the paths that were handed over. Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn hand_over(self, files: Vec<(Digest, PathBuf)>) -> BoxFuture<'a, Result<Vec<PathBuf>, Error>> {
        Box::pin(async move {
            let mut handed_over = Vec::new();
            for (digest, path) in files {
                if self.handle.shared.values.files().hand_over(digest, &path).await? {
                    handed_over.push(path);
                }
            }
            Ok(handed_over)
        })
    }

    fn output_as(self, name: &'a str, directory: Option<&'a Path>, links: bool) -> BoxFuture<'a, Result<Data, Error>> {
        Box::pin(async move {
            loop {
                let progress = self.handle.shared.signals.progress(self.handle.id).notified();
                let mut progress = std::pin::pin!(progress);
                progress.as_mut().enable();
                if let Some(outcome) = self.arrived(name).await? {
                    self.handle.shared.records.durable(self.handle.shared.records.position()).await?;
                    return self.load(&outcome, directory, links).await;
                }
                if self.handle.is_at_rest().await? {
                    let summary = self.handle.summary().await?;
                    if let Some(outcome) = self.output_at_rest(name, summary)? {
                        return self.load(&outcome, directory, links).await;
                    }
                }
                self.handle.until_something_happens(progress).await?;
            }
        })
    }

    /// The output of a run that is at rest; `None` if the run went on since the summary was read.
    fn output_at_rest(self, name: &str, summary: Summary) -> Result<Option<Outcome>, Error> {
        match summary.status {
            RunStatus::Done => match summary.outputs.into_iter().find(|(output, _)| output == name) {
                Some((_, outcome)) => Ok(Some(outcome)),
                None => Err(Error::NoOutput { key: self.handle.key.clone(), output: name.to_owned() }),
            },
            RunStatus::Failed | RunStatus::Undone | RunStatus::NotUndone if !summary.failures.is_empty() => {
                Err(Error::Failed(summary.failures))
            }
            status if status.is_at_rest() => {
                Err(Error::Refused { key: self.handle.key.clone(), why: summary.to_string() })
            }
            _ => Ok(None),
        }
    }

    /// An output of an active run, if it has arrived.
    async fn arrived(self, name: &str) -> Result<Option<Outcome>, Error> {
        let Some(run) = self.handle.shared.runs.read_run(self.handle.id).await? else { return Ok(None) };
        self.handle.is_for(&run.header)?;
        let outputs = &run.plan.program.blocks[0].outputs;
        let Some(port) = outputs.iter().position(|output| output.port.name == name) else { return Ok(None) };
        let arrived = self.handle.shared.rows_of(&run.plan.keys).arrived_outputs().await?;
        let found = arrived.into_iter().find(|received| usize::from(received.port) == port);
        Ok(found.map(|received| received.outcome))
    }

    /// Reads an output of a finished run without its files: they are listed with name and digest, and have no path.
    ///
    /// # Errors
    /// If the output cannot be read.
    pub fn peek(self, outcome: &'a Outcome) -> BoxFuture<'a, Result<Data, Error>> {
        Box::pin(async move {
            match outcome.value() {
                None => Ok(Data::None),
                Some(payload) => data::peek(&self.handle.shared.values, payload).await,
            }
        })
    }

    /// The structure of an outcome of the run, with the digest of every value in it; no value is read.
    ///
    /// # Errors
    /// If a list cannot be read.
    pub fn value_outline(self, outcome: &'a Outcome) -> BoxFuture<'a, Result<ValueOutline, Error>> {
        Box::pin(async move {
            match outcome.value() {
                None => Ok(ValueOutline::None),
                Some(payload) => data::outline(&self.handle.shared.values, payload).await,
            }
        })
    }

    async fn load(self, outcome: &Outcome, directory: Option<&Path>, links: bool) -> Result<Data, Error> {
        let loaded = match outcome.value() {
            None => Ok(Data::None),
            Some(payload) => data::load_into(&self.handle.shared.values, payload, directory, links).await,
        };
        if let Err(error) = &loaded {
            damage::drop_broken(&self.handle.shared.values, error).await;
        }
        loaded
    }

    /// The outputs of the run are in the store as they were written, as far as a cheap check can tell. Starting the run
    /// again recomputes those that are not.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn are_intact(self, outputs: &'a [(String, Outcome)]) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(damage::are_outputs_intact(&self.handle.shared.values, outputs))
    }
}
