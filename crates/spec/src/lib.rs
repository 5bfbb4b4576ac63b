//! The flow file: YAML or JSON that becomes the same graph as a flow written in Rust.
//!
//! | module | what it owns |
//! |---|---|
//! | `syntax` | parsing of the text into declarations, every part with its place |
//! | `types`, `words` | types, names, durations, sizes |
//! | `lower` | lowering of declarations to the kernel's graph |
//! | `check`, `unused` | the kernel's check, in the places of the file; steps that never run |
//! | `remembered` | a flow as bytes, for as long as its files do not change |
//! | `inputs` | the inputs of a run: words, files, patterns, sample sheets |
//! | `stream` | the stream file, which becomes a pipeline |
//! | [`schema()`] | the JSON Schema that editors use |
//! | [`codes`] | the codes of problems |
//!
//! Loading is bounded in time and memory for any content of a file, never panics, and reports all problems at once.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("hello.yaml");
//! std::fs::write(&path, "
//! flow: hello
//! inputs: { name: text }
//! steps:
//!   greet:
//!     run: echo Hello, ${{ inputs.name }}
//!     out: { greeting: text }
//! outputs: { greeting: greet.greeting }
//! ")?;
//! let flow = onceflow_spec::load(&path, &onceflow_spec::LoadOptions::default())?;
//! assert_eq!(flow.name(), "hello");
//! assert_eq!(flow.inputs[0].name, "name");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod check;
pub mod codes;
mod inputs;
mod limits;
mod lower;
mod problem;
mod remembered;
mod schema;
mod source;
mod stream;
mod syntax;
mod types;
mod unused;
mod words;

pub use inputs::{GivenInputs, InputNoun, ports::bind};
pub use problem::{Problem, Problems, SourceLocation, Warning};
pub use schema::schema;
pub use stream::{
    LoadedStream, StreamCalls, StreamPart, is_stream, load_stream, step_names as stream_step_names, stream_executor,
    stream_schema,
};
pub use types::TypeDecl;
pub use unused::Unused;
pub use words::{duration_ms, is_label, reserved_names, size_bytes};

use onceflow_core::model::{CheckedFlow, Port, Type, task::DEFAULT_CLASS};
use onceflow_exec::value::PortValue;
use problem::Diagnostics;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Options for loading a flow.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The class of workers that take its tasks. No result depends on it.
    pub class: String,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { class: DEFAULT_CLASS.to_owned() }
    }
}

/// A flow that was loaded: checked, and ready to be given its inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadedFlow {
    /// The flow and all flows that it calls, checked for all outputs.
    pub checked: CheckedFlow,
    /// Its description, from the file.
    pub description: Option<String>,
    /// Its inputs.
    pub inputs: Vec<FlowInput>,
    /// Its outputs.
    pub outputs: Vec<Port>,
    /// How long inner values outlive the run, if the file sets it.
    pub keep_ms: Option<u64>,
    /// How long a finished run can be queried, if the file sets it.
    pub history_ms: Option<u64>,
    /// After a failure, steps that do not depend on the failed one still run.
    pub finish_independent: bool,
    /// Input files are copied into the store.
    pub store_inputs: bool,
    /// How results get to their place, if the file sets it.
    pub results_mode: Option<ResultsMode>,
    /// Names of environment variables that its steps get as secrets, over all its files.
    pub secrets: Vec<String>,
    /// Steps that never run.
    pub unused: Vec<Unused>,
    /// Constructs that are allowed but probably not intended.
    pub warnings: Vec<Warning>,
    /// All files it was loaded from, the first being its own.
    pub files: Vec<FlowFile>,
}

impl LoadedFlow {
    /// The name of the flow.
    pub fn name(&self) -> &str {
        self.checked.name()
    }
}

/// How files of results get from the store to their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResultsMode {
    /// Copied to files of their own, which share blocks with the store where the file system can.
    #[default]
    Copy,
    /// As hard links to the store's own files: they take no space, and must not be written to.
    Link,
    /// The store gives up its own link to them, and refers to them at their new place.
    Move,
}

impl ResultsMode {
    /// The words for the modes.
    pub const WORDS: [&'static str; 3] = ["copy", "link", "move"];

    /// Parses the word of a mode.
    pub fn of(word: &str) -> Option<Self> {
        [ResultsMode::Copy, ResultsMode::Link, ResultsMode::Move].into_iter().find(|mode| mode.word() == word)
    }

    /// Returns the word of the mode.
    pub fn word(self) -> &'static str {
        match self {
            ResultsMode::Copy => "copy",
            ResultsMode::Link => "link",
            ResultsMode::Move => "move",
        }
    }
}

/// A file that a flow was loaded from, with its content's digest at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFile {
    /// The path by which it was requested.
    pub given: PathBuf,
    /// The path where it was found.
    pub path: PathBuf,
    /// The digest of its content.
    pub digest: onceflow_core::Digest,
}

/// An input of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInput {
    /// Its name.
    pub name: String,
    /// Its type, with the words that enums allow.
    pub shape: TypeDecl,
    /// The kernel's type for it.
    pub ty: Type,
    /// Its default.
    pub default: Option<PortValue>,
    /// The words it may be; empty unless it is an enum.
    pub choices: Vec<String>,
    /// A description of its purpose.
    pub help: Option<String>,
}

impl FlowInput {
    /// The input must be given.
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !matches!(self.ty, Type::Option(_))
    }
}

/// Reads a flow file and the files it calls, and checks all of it.
///
/// # Errors
/// All problems, at once.
pub fn load(path: &Path, options: &LoadOptions) -> Result<LoadedFlow, Problems> {
    let report = Diagnostics::default();
    let mut files = lower::files::LoadedFiles::of(&options.class);
    let loaded = files.main(path, &report);
    let Some((callee, file)) = loaded else {
        report.result()?;
        return Err(Problem::new("OF0102", format!("{} cannot be read", path.display())).into());
    };
    let checked = check::run(files.library, &callee.name, &files.sources, &report);
    let warnings = report.warnings();
    report.result()?;
    let checked = checked.expect("a flow that has mistakes has problems, which were returned");
    Ok(LoadedFlow {
        warnings,
        unused: unused::find(checked.library()),
        checked,
        outputs: callee.outputs.unwrap_or_default(),
        description: file.description,
        inputs: callee.inputs,
        keep_ms: file.keep_ms,
        history_ms: file.history_ms,
        finish_independent: file.finish_independent,
        store_inputs: file.store_inputs,
        results_mode: file.results_mode,
        secrets: files.secrets,
        files: files.read,
    })
}
