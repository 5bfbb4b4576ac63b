//! The executor of streams that are steps: a pipeline of the step's own, whose files are the outputs.

use super::{FIGURES, StepFigures, StepStream, file_of};
use crate::{
    limits::FLOW_NODES_MAX,
    problem::Diagnostics,
    source::{SourceFile, Span},
    stream::{LoadedStream, build, check, check::CheckedNode},
    syntax::{self, NodeBudget, fields::FieldReader},
};
use onceflow_core::{
    Digest,
    model::{Port, TaskSpec},
};
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};
use onceflow_exec::{
    action::{Action, StreamAction},
    codes, expr,
    expr::Bindings,
    value::{FileValue, PortValue},
};
use onceflow_stream::{
    BoxFuture, GivenFile, Pipeline, StepOutput, StepPipeline, StreamError, StreamResult, pipeline::tail::Clock,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Returns the executor of steps that are streams, for a worker to offer beside [`onceflow_exec::executors`].
pub fn executor() -> (&'static str, Arc<dyn Body>) {
    (onceflow_exec::action::STREAM, Arc::new(StreamSteps))
}

struct StreamSteps;

impl Body for StreamSteps {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        Attempt::Async(Box::pin(async move { run(&step, inputs).await }))
    }

    fn opens_work(&self) -> bool {
        true
    }

    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        Some(Box::pin(async move {
            let ended = StepPipeline::end_left_open(&step).await;
            ended.map(|()| Vec::new()).map_err(|error| Failure::from_error(&error))
        }))
    }
}

fn other_version(why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {why}", codes::OTHER_VERSION)).finally()
}

fn failed(error: &StreamError) -> Failure {
    Failure::new(format!("{}: the stream has stopped: {error}", codes::STREAM))
}

async fn run(step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let spec = step.spec().ok_or_else(|| other_version("the step belongs to no run"))?;
    let Action::Stream(action) = Action::from_spec(spec).map_err(other_version)? else {
        return Err(other_version("the step is not one for `stream`"));
    };
    let mut stream = stream_of(&action)?;
    stream.given = given(&action, spec, inputs)?;
    let own = StepPipeline::begin(step).await.map_err(|error| failed(&error))?;
    stream.name = own.name().to_owned();
    stream.base = own.directory().to_owned();
    let pipeline = pipeline(&stream, own.clock())?;
    let planned = pipeline.explain();
    let ended = own.run(pipeline).await.map_err(|error| failed(&error))?;
    let figures = figures(&ended.result, |stage| planned.reads(stage));
    spec.outputs.iter().map(|port| output(port, &stream.nodes, &ended, &figures)).collect()
}

/// Makes the pipeline of a step, and the directories of its sinks.
fn pipeline(stream: &LoadedStream, clock: Clock) -> Result<Pipeline, Failure> {
    for node in stream.nodes.iter().filter(|node| node.part().is_sink) {
        let directory = stream.base.join(&node.name);
        std::fs::create_dir_all(&directory)
            .map_err(|error| Failure::new(format!("{}: {}: {error}", codes::STREAM, directory.display())))?;
    }
    Ok(build::pipeline(stream, clock, None))
}

/// Reads the stream of an action.
fn stream_of(action: &StreamAction) -> Result<LoadedStream, Failure> {
    let report = Diagnostics::default();
    let source = SourceFile::new("stream", action.stream.clone());
    let reader = FieldReader { source: &source, report: &report };
    let tree = syntax::parse(&source, NodeBudget { nodes: FLOW_NODES_MAX }, &report);
    let stream = tree.as_ref().and_then(|tree| StepStream::inline(reader, tree, Span::default()));
    let nodes = stream.as_ref().map(|stream| check::run(reader, &stream.declared));
    report.result().map_err(|problems| other_version(format!("the stream of the step cannot be read: {problems}")))?;
    let (Some(StepStream { declared }), Some(nodes)) = (stream, nodes) else {
        return Err(other_version("the stream of the step cannot be read"));
    };
    let file = crate::FlowFile { given: PathBuf::new(), path: PathBuf::new(), digest: Digest::of(b"") };
    Ok(LoadedStream {
        name: declared.name.text,
        description: None,
        warnings: Vec::new(),
        file,
        nodes,
        partitions: declared.partitions,
        bundle_records: declared.bundle_records,
        secrets: Vec::new(),
        base: PathBuf::new(),
        is_step: true,
        given: BTreeMap::new(),
    })
}

/// The files that the sources and tables are given.
fn given(
    action: &StreamAction,
    spec: &TaskSpec,
    inputs: Vec<Data>,
) -> Result<BTreeMap<String, Vec<GivenFile>>, Failure> {
    let mut scope = Bindings::new();
    for (port, data) in spec.inputs.iter().zip(inputs) {
        let value = PortValue::from_data(data, &port.ty);
        scope.bind(&port.name, value.map_err(|wrong| other_version(format!("input `{}`: {wrong}", port.name)))?);
    }
    let mut all = BTreeMap::new();
    for (name, source) in &action.given {
        let value = expr::eval(source, &scope)
            .map_err(|error| Failure::new(format!("{}: {error}", codes::EXPRESSION)).finally())?;
        let file = |file: &FileValue| GivenFile { name: file.name.clone(), path: file.path.clone() };
        let mut files: Vec<GivenFile> = value.files().into_iter().map(file).collect();
        if let PortValue::Directory(_) = value {
            files.retain(|file| !Path::new(&file.name).components().any(|part| is_hidden(part.as_os_str())));
        }
        all.insert(name.clone(), files);
    }
    Ok(all)
}

fn is_hidden(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The counts of the step: what the first stages took in, and what the last ones gave.
fn figures(result: &StreamResult, reads: impl Fn(usize) -> Vec<usize>) -> StepFigures {
    let read: Vec<usize> = (0..result.stages.len()).flat_map(&reads).collect();
    let mut figures = StepFigures::default();
    for (stage, counted) in result.stages.iter().enumerate() {
        if reads(stage).is_empty() {
            figures.records_in += counted.counts.records_in;
        }
        if !read.contains(&stage) {
            figures.records_out += counted.counts.records_out;
        }
        figures.late += counted.counts.late;
        figures.skipped += counted.counts.skipped;
    }
    figures
}

/// An output of the step: the counts, or the files of the sink of that name.
fn output(port: &Port, nodes: &[CheckedNode], ended: &StepOutput, figures: &StepFigures) -> Result<Data, Failure> {
    let value = match nodes.iter().find(|node| node.part().is_sink && node.name == port.name) {
        None if port.name == FIGURES => {
            let number = |count: u64| PortValue::Int(i64::try_from(count).unwrap_or(i64::MAX));
            PortValue::Record(figures.fields().map(|(name, count)| (name.to_owned(), number(count))).into())
        }
        None => return Err(other_version(format!("the stream has no sink `{}`", port.name))),
        Some(node) => {
            let of_sink = ended.files.iter().filter_map(|(below, path)| {
                let name = below.strip_prefix(&node.name).ok()?.to_string_lossy().replace('/', "-");
                Some(PortValue::from(FileValue { name, path: path.clone() }))
            });
            let mut files: Vec<PortValue> = of_sink.collect();
            match file_of(node) {
                None => PortValue::List(files),
                Some(_) if files.len() == 1 => files.remove(0),
                Some(name) => {
                    let why = format!(
                        "{}: sink `{}` has written {} files, not `{name}`",
                        codes::STREAM,
                        node.name,
                        files.len()
                    );
                    return Err(Failure::new(why));
                }
            }
        }
    };
    value.into_data(&port.ty).map_err(|wrong| other_version(format!("output `{}`: {wrong}", port.name)))
}
