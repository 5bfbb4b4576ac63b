//! A pipeline that is the work of a step of a flow. Its name is made of the run and the step, so that an attempt that comes
//! after a kill goes on with it; its files are in a directory of the step; and it ends with the step: its rows are removed
//! before the step commits, and what a killed process leaves is found by the row of the step's open work.

use super::{Pipeline, tail::Clock};
use crate::{
    error::StreamError,
    run::{
        options::StreamOptions,
        status::{discard, pipelines_of},
        worker::StreamResult,
    },
};
use onceflow_engine::task::{EndOpenWork, Failure, OpenWork, Step};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The name of a step's pipeline begins with this.
pub(crate) const PREFIX: &str = "step/";

/// The file in the directory of a step that has the name of its place: files that are not there any more, or are on
/// another machine, belong to a pipeline that cannot go on.
const PLACE: &str = ".place";

/// The directory of the workers' lock files, in the engine's scratch directory.
const LOCKS: &str = "onceflow-streams";

/// The pipeline of a step, from the beginning of an attempt to its end. Only a body that
/// [opens work](onceflow_engine::task::Body::opens_work) can have one.
#[derive(Debug)]
pub struct StepPipeline {
    work: OpenWork,
    name: String,
    directory: PathBuf,
}

/// The output of a step's pipeline that has ended.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// The counts of its stages.
    pub result: StreamResult,
    /// The files that were written to its directory, by their paths there, and where the engine can take them from.
    pub files: BTreeMap<PathBuf, PathBuf>,
}

impl StepOutput {
    /// Returns where the file of this name is.
    pub fn file(&self, name: impl AsRef<Path>) -> Option<&Path> {
        self.files.get(name.as_ref()).map(PathBuf::as_path)
    }
}

fn engine(error: onceflow_engine::Error) -> StreamError {
    match error {
        onceflow_engine::Error::Store(error) => StreamError::Store(error),
        error => StreamError::Io { name: String::from("a step"), cause: Arc::new(io::Error::other(error)) },
    }
}

/// Notes a failure of the store, which is none of the step.
fn noted<T>(work: &OpenWork, result: Result<T, StreamError>) -> Result<T, StreamError> {
    if let Err(StreamError::Store(error)) = &result {
        work.note_trouble(error);
    }
    result
}

fn disk(path: &Path) -> impl Fn(io::Error) -> StreamError {
    move |cause| StreamError::Io { name: path.display().to_string(), cause: Arc::new(cause) }
}

impl StepPipeline {
    /// Begins the pipeline of a step, or goes on with that of an earlier attempt. One that wrote its files elsewhere is
    /// removed: this one begins anew.
    ///
    /// # Errors
    /// If the store does not answer, or the directory cannot be made.
    pub async fn begin(step: &Step) -> Result<Self, StreamError> {
        let work = OpenWork::begin(step).await.map_err(engine)?;
        let placed = StepPipeline::place(&work).await;
        let (name, directory) = noted(&work, placed)?;
        Ok(StepPipeline { work, name, directory })
    }

    /// Finds the pipeline of earlier attempts, if its files are here, and removes all others. Returns the name and the
    /// directory of the pipeline.
    async fn place(work: &OpenWork) -> Result<(String, PathBuf), StreamError> {
        for left in work.of_earlier_plans().await.map_err(engine)? {
            end(&left).await?;
        }
        let (records, root) = (work.records(), work.directory());
        let names = pipelines_of(&*records, &format!("{PREFIX}{}/", work.name())).await?;
        let name_at = |place: &str| format!("{PREFIX}{}/{place}", work.name());
        let known = fs::read_to_string(root.join(PLACE)).ok().filter(|place| names.contains(&name_at(place)));
        for name in names.iter().filter(|name| known.as_ref().is_none_or(|place| **name != name_at(place))) {
            discard(&*records, name).await?;
        }
        let place = match known {
            Some(place) => place,
            None => {
                work.remove_directory().map_err(engine)?;
                let place = format!("{:032x}", work.world().random());
                let made = || {
                    fs::create_dir_all(root.join(&place))?;
                    File::create(root.join(PLACE))?.write_all(place.as_bytes())
                };
                made().map_err(disk(&root))?;
                place
            }
        };
        Ok((name_at(&place), root.join(&place)))
    }

    /// An empty pipeline with the name of the step's. What is added to it must be the same in every attempt.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline::new(&self.name).options(StreamOptions::default())
    }

    /// The name of the pipeline in the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells the time of the engine, for sources.
    pub fn clock(&self) -> Clock {
        let world = self.work.world();
        Arc::new(move || world.clock().as_ms())
    }

    /// The directory that its sinks write to. Files that are there at the end are the output.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs the pipeline until its sources have ended, and removes it. Dropped before, it goes on in the next attempt. Does
    /// not return once the step is lost, or its run ends: the worker drops this attempt then.
    ///
    /// # Errors
    /// If the pipeline fails: it is removed then, and the next attempt begins anew.
    pub async fn run(self, pipeline: Pipeline) -> Result<StepOutput, StreamError> {
        let ran = self.run_to_end(pipeline).await;
        noted(&self.work, ran)
    }

    async fn run_to_end(&self, pipeline: Pipeline) -> Result<StepOutput, StreamError> {
        let pipeline = pipeline.locks(self.work.scratch().join(LOCKS));
        let ran = loop {
            let first = self.work.own_batch().await.map_err(engine)?;
            match pipeline.run_from(first, self.work.records(), self.work.world()).await {
                // It was not installed, because the state of the run has changed; or another worker has removed it, and has
                // the step.
                Err(StreamError::Removed { .. }) => self.work.until_ours().await.map_err(engine)?,
                ran => break ran,
            }
        };
        // Else the worker that has the step, or that ends its run, cleans up.
        self.work.until_ours().await.map_err(engine)?;
        match ran {
            Ok(result) if !result.has_ended => {
                let cause = io::Error::other("it was drained before its sources had ended; the next attempt goes on");
                Err(StreamError::Io { name: self.name.clone(), cause: Arc::new(cause) })
            }
            Ok(result) => {
                let mut files = BTreeMap::new();
                for path in files_below(&self.directory).map_err(disk(&self.directory))? {
                    let below = path.strip_prefix(&self.directory).expect("it was found there").to_owned();
                    files.insert(below, self.work.give(&path).map_err(engine)?);
                }
                remove(&self.work).await?;
                self.work.end_with_commit();
                Ok(StepOutput { result, files })
            }
            Err(error) => {
                end(&self.work).await?;
                Err(error)
            }
        }
    }

    /// Removes the pipeline that a step has left open, with its files: the step is not taken up again.
    ///
    /// # Errors
    /// If the store does not answer, or the files cannot be removed.
    pub async fn end_left_open(step: &Step) -> Result<(), StreamError> {
        end(&OpenWork::left_open(step).map_err(engine)?).await
    }
}

/// Removes the pipelines of open work, and its files.
async fn remove(work: &OpenWork) -> Result<(), StreamError> {
    let records = work.records();
    for name in pipelines_of(&*records, &format!("{PREFIX}{}/", work.name())).await? {
        discard(&*records, &name).await?;
    }
    work.remove_directory().map_err(engine)
}

async fn end(work: &OpenWork) -> Result<(), StreamError> {
    remove(work).await?;
    work.end().await.map_err(engine)
}

/// Ends the pipelines that steps of typed tasks have left open: an engine that runs such tasks needs it.
pub fn ends_step_pipelines() -> EndOpenWork {
    EndOpenWork(Arc::new(|step| {
        Box::pin(async move {
            let ended = StepPipeline::end_left_open(&step).await;
            ended.map(|()| Vec::new()).map_err(|error| Failure::from_error(&error))
        })
    }))
}

/// The regular files below a directory.
fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => left.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
