//! The flow file: YAML or JSON that becomes the same graph as a flow written in Rust.
//!
//! | module | what it owns |
//! |---|---|
//! | `syntax` | text to what it says, every part with its place |
//! | `types`, `words` | types, names, durations, sizes |
//! | `lower` | what it says to the kernel's graph |
//! | `check`, `unused` | the kernel's check, in the places of the file; steps that never run |
//! | `remembered` | a flow as bytes, for as long as its files do not change |
//! | `inputs` | what a run is given: words, files, patterns, sample sheets |
//! | [`schema()`] | the JSON Schema that editors use |
//! | [`codes`] | what can be wrong |
//!
//! Whatever a file holds, loading it ends soon, takes little, never panics, and says all that is wrong at once.
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
//! assert_eq!(flow.name, "hello");
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
mod syntax;
mod types;
mod unused;
mod words;

pub use inputs::{GivenInputs, InputNoun, ports::bind};
pub use problem::{Problem, Problems, SourceLocation, Warning};
pub use schema::schema;
pub use types::TypeDecl;
pub use unused::Unused;
pub use words::{duration_ms, is_label, reserved_names, size_bytes};

use onceflow_core::model::{Identity, Library, Port, Type, task::DEFAULT_CLASS};
use onceflow_exec::value::PortValue;
use problem::Diagnostics;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How a flow is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Which workers take its tasks. No part of what anything depends on.
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
    /// What it is called; also in [`LoadedFlow::library`].
    pub name: String,
    /// What it says about itself.
    pub description: Option<String>,
    /// It and all flows that it calls.
    pub library: Library,
    /// What its program is known by, if all of its outputs are wanted.
    pub identity: Option<Identity>,
    /// What it takes.
    pub inputs: Vec<FlowInput>,
    /// What it gives.
    pub outputs: Vec<Port>,
    /// How long inner values outlive the run, if it says so.
    pub keep_ms: Option<u64>,
    /// How long a finished run can be asked about, if it says so.
    pub history_ms: Option<u64>,
    /// After a failure, what does not depend on it is still done.
    pub finish_independent: bool,
    /// Input files are copied into the store.
    pub store_inputs: bool,
    /// How results get to their place, if it says so.
    pub results_mode: Option<ResultsMode>,
    /// Names in the environment that steps get, of all its files.
    pub secrets: Vec<String>,
    /// Steps that never run.
    pub unused: Vec<Unused>,
    /// What is allowed, and probably not meant.
    pub warnings: Vec<Warning>,
    /// All files it was loaded from, the first being its own.
    pub files: Vec<FlowFile>,
}

/// How files of results get from the store to their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResultsMode {
    /// As files of their own, which share blocks with the store where the file system can.
    #[default]
    Copy,
    /// As further names of the store's own files: they take no room, and nobody may write to them.
    Link,
    /// The store gives its own name of them up, and refers to them where they are.
    Move,
}

impl ResultsMode {
    /// What they are called.
    pub const WORDS: [&'static str; 3] = ["copy", "link", "move"];

    /// The one that a word means.
    pub fn of(word: &str) -> Option<Self> {
        [ResultsMode::Copy, ResultsMode::Link, ResultsMode::Move].into_iter().find(|mode| mode.word() == word)
    }

    /// What it is called.
    pub fn word(self) -> &'static str {
        match self {
            ResultsMode::Copy => "copy",
            ResultsMode::Link => "link",
            ResultsMode::Move => "move",
        }
    }
}

/// A file that a flow was loaded from, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFile {
    /// How it was looked for.
    pub given: PathBuf,
    /// Where it was.
    pub path: PathBuf,
    /// The digest of its content.
    pub digest: onceflow_core::Digest,
}

/// An input of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInput {
    /// What it is called.
    pub name: String,
    /// Of which type it is, with the words that enums allow.
    pub shape: TypeDecl,
    /// What the kernel calls that type.
    pub ty: Type,
    /// What it is if it is not given.
    pub default: Option<PortValue>,
    /// The words it may be; empty if it is no enum.
    pub choices: Vec<String>,
    /// What it is for.
    pub help: Option<String>,
}

impl FlowInput {
    /// Whether it must be given.
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !matches!(self.ty, Type::Option(_))
    }
}

/// Reads a flow file and those it calls, and checks all of it.
///
/// # Errors
/// All that is wrong, at once.
pub fn load(path: &Path, options: &LoadOptions) -> Result<LoadedFlow, Problems> {
    let report = Diagnostics::default();
    let mut files = lower::files::LoadedFiles::of(&options.class);
    let loaded = files.main(path, &report);
    let Some((callee, file)) = loaded else {
        report.result()?;
        return Err(Problem::new("OF0102", format!("{} cannot be read", path.display())).into());
    };
    let identity = check::run(&files.library, &callee.name, &files.sources, &report);
    let warnings = report.warnings();
    report.result()?;
    Ok(LoadedFlow {
        warnings,
        identity,
        unused: unused::find(&files.library),
        outputs: callee.outputs.unwrap_or_default(),
        name: callee.name,
        description: file.description,
        library: files.library,
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
