//! The stream file: YAML or JSON that becomes a pipeline of `onceflow-stream`.
//!
//! | module | what it owns |
//! |---|---|
//! | `declare`, `windows` | reading the text into declarations, every part with its place |
//! | `check` | names, the order of steps, and the types of records |
//! | `call` | steps that call a flow for each record |
//! | `expression` | expressions over a record |
//! | `combine` | count, sum, min, max, mean, top and distinct of values whose type is known only when they come |
//! | `source`, `table` | records from files, standard input, and of a generator; tables that records are enriched from |
//! | `given`, `step` | what a stream that is a step of a flow is given, and what it gives; the executor of such steps |
//! | `sql`, `secret` | sinks that write rows of a database; texts with secrets |
//! | [`stream_schema`] | the JSON Schema that editors use |
//! | `build` | the checked file as a pipeline |

mod build;
mod call;
mod check;
mod combine;
mod declare;
mod expression;
mod given;
mod schema;
mod secret;
mod source;
mod sql;
pub(crate) mod step;
mod table;
mod windows;

use crate::{
    FlowFile, LoadedFlow, Problem, Problems, Warning,
    limits::FLOW_NODES_MAX,
    lower::files,
    problem::Diagnostics,
    source::SourceFile,
    syntax::{self, NodeBudget, NodeKind, fields::FieldReader},
};
pub use build::StreamCalls;
pub use schema::stream_schema;
pub use step::executor as stream_executor;

use check::{CheckedNode, CheckedWork};
use declare::RecordTarget;
use onceflow_stream::{GivenFile, Pipeline, pipeline::tail::Clock};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A stream file that was loaded: checked, and ready to run.
#[derive(Debug)]
pub struct LoadedStream {
    /// Its name, and that of its pipeline in a store.
    pub name: String,
    /// Its description, from the file.
    pub description: Option<String>,
    /// Constructs that are allowed but probably not intended.
    pub warnings: Vec<Warning>,
    /// The file, with its content's digest.
    pub file: FlowFile,
    /// Its sources and steps, each after those it reads, and its sinks.
    nodes: Vec<CheckedNode>,
    partitions: u16,
    /// Records that one commit takes at most.
    bundle_records: Option<usize>,
    /// Names of environment variables whose values its sinks need.
    pub secrets: Vec<String>,
    /// The directory that its paths are relative to.
    base: PathBuf,
    /// It is for steps of flows, which give it inputs.
    pub is_step: bool,
    /// The files that its sources and tables are given, by their names.
    given: BTreeMap<String, Vec<GivenFile>>,
}

/// A source, step or sink of a stream, to be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPart {
    /// Its name.
    pub name: String,
    /// The word for its kind: `file`, `filter`, `combine`, …
    pub kind: &'static str,
    /// The numbers of the parts it reads.
    pub inputs: Vec<usize>,
    /// It is a sink.
    pub is_sink: bool,
    /// The name of its step in the plan.
    pub planned: String,
}

impl LoadedStream {
    /// Makes its pipeline. The clock, in milliseconds since 1970, gives the time of records that have none. Without
    /// `calls` it can be planned; run, it would never end a call.
    pub fn pipeline(&self, clock: Clock, calls: Option<&StreamCalls>) -> Pipeline {
        build::pipeline(self, clock, calls)
    }

    /// Returns the flows that its steps call.
    pub fn called_flows(&self) -> impl Iterator<Item = &LoadedFlow> {
        self.nodes.iter().filter_map(|node| match &node.work {
            CheckedWork::Call(call) => Some(&*call.flow),
            _ => None,
        })
    }

    /// Returns the file that a sink writes, by the name of its step in the plan, and the part of the sink if it has parts;
    /// `None` if the sink writes no file.
    pub fn sink_file(&self, sink: &str, part: &str) -> Option<PathBuf> {
        // A sink may have the name of the step it writes.
        let target = |node: &CheckedNode| match &node.work {
            CheckedWork::Sink { to, .. } if check::sink_step(&node.name) == sink => Some(to.clone()),
            _ => None,
        };
        match self.nodes.iter().find_map(target)? {
            RecordTarget::File(path) if part.is_empty() => Some(self.base.join(path)),
            RecordTarget::Dated(_) if !part.is_empty() => Some(self.base.join(part)),
            _ => None,
        }
    }

    /// Lets the databases that its sinks write to forget how far it is, so that it can begin anew. Returns the tables, whose
    /// rows stay.
    ///
    /// # Errors
    /// If a database does not answer.
    pub async fn forget_positions(&self) -> std::io::Result<Vec<String>> {
        sql::forget(self).await
    }

    /// Returns its parts, each after those it reads.
    pub fn parts(&self) -> Vec<StreamPart> {
        self.nodes.iter().map(CheckedNode::part).collect()
    }
}

/// Returns the names that steps with state have in the pipeline of a file that has a source, step or sink of this name.
pub fn step_names(name: &str) -> impl Iterator<Item = String> {
    let others = ["table", "ingest", "once"].map(|part| format!("{name} {part}"));
    [name.to_owned(), check::sink_step(name)].into_iter().chain(others)
}

/// The file declares a stream. A file that cannot be read is none.
pub fn is_stream(path: &Path) -> bool {
    let Ok((text, _)) = files::read(path) else { return false };
    // Few flow files have the word at all, so that they are not parsed twice.
    if !text.contains("stream") {
        return false;
    }
    let report = Diagnostics::default();
    let source = SourceFile::new(path.display().to_string(), text);
    let tree = syntax::parse(&source, NodeBudget { nodes: FLOW_NODES_MAX }, &report);
    let has_key = |name: &str| match tree.as_ref().map(|tree| &tree.what) {
        Some(NodeKind::Map(entries)) => entries.iter().any(|(key, _)| key.name == name),
        _ => false,
    };
    has_key("stream") && !has_key("flow")
}

/// Reads a stream file, and checks all of it.
///
/// # Errors
/// All problems, at once.
pub fn load_stream(path: &Path) -> Result<LoadedStream, Problems> {
    let (text, digest) =
        files::read(path).map_err(|(message, hint)| Problems::from(Problem::new("OF0102", message).hint(hint)))?;
    let report = Diagnostics::default();
    let source = SourceFile::new(path.display().to_string(), text);
    let reader = FieldReader { source: &source, report: &report };
    let tree = syntax::parse(&source, NodeBudget { nodes: FLOW_NODES_MAX }, &report);
    let declared = tree.as_ref().and_then(|tree| declare::read(reader, tree));
    let nodes = declared.as_ref().map(|declared| {
        for hole in step::holes(declared) {
            step::input_of(reader, &declared.inputs, &hole);
        }
        if !declared.inputs.is_empty() {
            step::must_be_step(reader, declared);
        }
        check::run(reader, declared)
    });
    let warnings = report.warnings();
    report.result()?;
    let (Some(declared), Some(nodes)) = (declared, nodes) else {
        return Err(Problem::new("OF0102", format!("{} cannot be read", path.display())).into());
    };
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let base = canonical.parent().map(Path::to_owned).unwrap_or_default();
    Ok(LoadedStream {
        name: declared.name.text,
        description: declared.description,
        warnings,
        file: FlowFile { given: path.to_owned(), path: canonical, digest },
        nodes,
        partitions: declared.partitions,
        bundle_records: declared.bundle_records,
        secrets: declared.secrets.into_iter().map(|secret| secret.text).collect(),
        base,
        is_step: !declared.inputs.is_empty(),
        given: BTreeMap::new(),
    })
}
