//! Flow files: each is read and lowered once, however many flows call it. Files may call each other in a cycle; the
//! kernel checks that the recursion can end.

use super::lower;
use crate::{
    FlowFile, FlowInput,
    inputs::defaults,
    limits::{FILES_MAX, FLOW_BYTES_MAX, FLOW_NODES_MAX},
    problem::Diagnostics,
    source::{SourceFile, Text},
    syntax::{self, NodeBudget, fields::FieldReader, flow::FlowDecl},
};
use onceflow_core::{
    Digest,
    model::{CheckedFlow, Library, Port},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// A flow as seen by the flows that call it.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    pub(crate) name: String,
    pub(crate) inputs: Vec<FlowInput>,
    /// `None` if the flow has a problem, which was reported.
    pub(crate) outputs: Option<Vec<Port>>,
}

/// All files read so far.
#[derive(Default)]
pub(crate) struct LoadedFiles {
    pub(crate) class: String,
    pub(crate) library: Library,
    pub(crate) sources: Vec<SourceFile>,
    pub(crate) secrets: Vec<String>,
    pub(crate) read: Vec<FlowFile>,
    /// The names of flows that are being lowered, each around those that it calls.
    pub(crate) loading: BTreeSet<String>,
    /// Flows that scopes call, checked for themselves; `None` if one has a problem, which was reported.
    pub(crate) called: BTreeMap<String, Option<CheckedFlow>>,
    by_path: BTreeMap<PathBuf, Option<Callee>>,
}

impl LoadedFiles {
    /// Starts without files; their tasks will be of this class.
    pub(crate) fn of(class: &str) -> Self {
        LoadedFiles { class: class.to_owned(), ..LoadedFiles::default() }
    }

    /// Reads the main file; `None` after reporting a problem.
    pub(crate) fn main(&mut self, path: &Path, report: &Diagnostics) -> Option<(Callee, FlowDecl)> {
        let (text, digest) = match read(path) {
            Ok(read) => read,
            Err((message, hint)) => {
                report.push(crate::Problem::new("OF0102", message).hint(hint));
                return None;
            }
        };
        let key = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.read.push(FlowFile { given: path.to_owned(), path: key.clone(), digest });
        self.load(key, SourceFile::new(path.display().to_string(), text), report)
    }

    /// Loads the flow that `file`, as written in `from`, refers to; the error is the reason, if not reported yet.
    pub(crate) fn callee(&mut self, from: FieldReader<'_>, file: &Text) -> Result<Callee, Option<(String, String)>> {
        let path = Path::new(from.source.file()).parent().unwrap_or(Path::new("")).join(&file.text);
        let shown: PathBuf = path.components().filter(|part| part.as_os_str() != ".").collect();
        let key = match fs::canonicalize(&path) {
            Ok(key) => key,
            Err(_) => {
                let hint = format!("it is looked for beside the file that calls it: {}", shown.display());
                return Err(Some((format!("there is no flow file `{}`", file.text), hint)));
            }
        };
        if let Some(known) = self.by_path.get(&key) {
            return known.clone().ok_or(None);
        }
        if self.by_path.len() >= FILES_MAX {
            return Err(Some((format!("more than {FILES_MAX} flow files are called"), String::new())));
        }
        // A called flow must be a regular file: reading a device or a pipe may block or never end.
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            let hint = String::from("a flow that is called stands in a file");
            return Err(Some((format!("`{}` is not a file", file.text), hint)));
        }
        let (text, digest) = read(&path).map_err(Some)?;
        self.read.push(FlowFile { given: path, path: key.clone(), digest });
        let source = SourceFile::new(shown.display().to_string(), text);
        self.load(key, source, from.report).map(|(callee, _)| callee).ok_or(None)
    }

    /// Reads the stream file that `file`, as written in `from`, refers to; the error is the reason and a hint.
    pub(super) fn stream(&mut self, from: FieldReader<'_>, file: &Text) -> Result<SourceFile, (String, String)> {
        let path = Path::new(from.source.file()).parent().unwrap_or(Path::new("")).join(&file.text);
        let shown: PathBuf = path.components().filter(|part| part.as_os_str() != ".").collect();
        if !path.is_file() {
            let hint = format!("it is looked for beside the flow file: {}", shown.display());
            return Err((format!("there is no stream file `{}`", file.text), hint));
        }
        let (text, digest) = read(&path)?;
        let key = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if !self.read.iter().any(|read| read.path == key) {
            self.read.push(FlowFile { given: path, path: key, digest });
        }
        Ok(SourceFile::new(shown.display().to_string(), text))
    }

    fn load(&mut self, key: PathBuf, source: SourceFile, report: &Diagnostics) -> Option<(Callee, FlowDecl)> {
        self.sources.push(source.clone());
        self.by_path.insert(key.clone(), None);
        let tree = syntax::parse(&source, NodeBudget { nodes: FLOW_NODES_MAX }, report)?;
        let reader = FieldReader { source: &source, report };
        let flow = match syntax::diagram::is(&tree) {
            true => syntax::diagram::read(reader, &tree)?,
            false => syntax::flow::read(reader, &tree)?,
        };
        let mut callee = Callee {
            name: self.free_name(&flow.name.text),
            inputs: defaults::read(reader, &flow.inputs),
            outputs: declared(&flow),
        };
        for secret in &flow.secrets {
            if !self.secrets.contains(&secret.text) {
                self.secrets.push(secret.text.clone());
            }
        }
        self.library.flows.insert(callee.name.clone(), onceflow_core::model::Graph::default());
        self.by_path.insert(key.clone(), Some(callee.clone()));
        let before = report.len();
        self.loading.insert(callee.name.clone());
        let graph = lower(reader, &flow, self);
        self.loading.remove(&callee.name);
        callee.outputs = (report.len() == before).then(|| graph.outputs.clone());
        self.library.flows.insert(callee.name.clone(), graph);
        self.by_path.insert(key, Some(callee.clone()));
        Some((callee, flow))
    }

    fn free_name(&self, wanted: &str) -> String {
        let others = (2..).map(|n| format!("{wanted}-{n}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(others);
        names.find(|name| !self.library.flows.contains_key(name)).unwrap_or_default()
    }
}

/// Returns the outputs of a flow that is still being lowered, because it calls itself: those with declared types.
fn declared(flow: &FlowDecl) -> Option<Vec<Port>> {
    let output = |given: &syntax::outs::OutputDecl| {
        let ty = match &given.shape {
            Some(shape) => shape.ty(),
            None => {
                let (step, output) = given.value.text.split_once('.').unwrap_or((&given.value.text, ""));
                let step = flow.steps.iter().find(|other| other.name.name == step)?;
                let plain = step.each.is_none() && step.when.is_none() && !step.attempt;
                let ports = super::steps::leaf_ports(step).filter(|_| plain)?;
                ports.iter().find(|port| port.name == output || output.is_empty() && ports.len() == 1)?.ty.clone()
            }
        };
        Some(Port::new(given.name.name.clone(), ty))
    };
    flow.outputs.iter().map(output).collect()
}

/// Reads the text of a flow file and its digest; the error is a message and a hint.
pub(crate) fn read(path: &Path) -> Result<(String, Digest), (String, String)> {
    let shown = path.display();
    let failed = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            (format!("there is no file {shown}"), String::from("`onceflow init` makes a first flow"))
        }
        io::ErrorKind::PermissionDenied => {
            (format!("{shown} may not be read"), String::from("look at its permissions"))
        }
        _ => (format!("{shown} cannot be read: {error}"), String::new()),
    };
    let metadata = fs::metadata(path).map_err(|error| failed(&error))?;
    if metadata.is_dir() {
        let inside = ["flow.yaml", "flow.yml", "flow.json"].into_iter().find(|name| path.join(name).is_file());
        let hint = inside
            .map_or("name the flow file in it".into(), |name| format!("did you mean {}?", path.join(name).display()));
        return Err((format!("{shown} is a directory"), hint));
    }
    let mut bytes = Vec::new();
    // The read itself is bounded, because only a regular file reports its length.
    let read = fs::File::open(path).and_then(|file| file.take(FLOW_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| failed(&error))?;
    if bytes.len() as u64 > FLOW_BYTES_MAX {
        let message = match metadata.len() {
            0 => format!("{shown} has more than {FLOW_BYTES_MAX} bytes, which is what a flow file has at most"),
            found => format!("{shown} has {found} bytes; a flow file has at most {FLOW_BYTES_MAX}"),
        };
        return Err((message, String::from("data belongs into inputs, not into the flow")));
    }
    let digest = Digest::of(&bytes);
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
    if bytes.contains(&0) {
        return Err((format!("{shown} is not text: it has a zero byte"), String::from("is it the flow file?")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        (format!("{shown} is not UTF-8: line {line} has other bytes"), String::from("save it as UTF-8"))
    })?;
    Ok((text, digest))
}
