//! Binds the inputs of a run, from words of a command line, a file of inputs, patterns, sample sheets and defaults:
//! each input as a value of its type, or all problems at once.
//!
//! | module | what it owns |
//! |---|---|
//! | `convert` | conversion of a tree or a word to a value of a type |
//! | `globs` | the files that a pattern matches |
//! | `sheet` | sample sheets |
//! | `ports` | the same for ports without a flow file |
//! | `defaults` | the inputs of a flow and their defaults |

mod convert;
pub(crate) mod defaults;
pub(crate) mod globs;
pub(crate) mod ports;
mod sheet;

use crate::{
    FlowInput, LoadedFlow, Problem, Problems, TypeDecl,
    limits::{DATA_BYTES_MAX, DATA_NODES_MAX},
    problem::Diagnostics,
    source::SourceFile,
    syntax::{self, NodeBudget, NodeKind},
    words,
};
use convert::{Convert, FilePresence};
use onceflow_core::model::Type;
use onceflow_exec::value::{DirectoryValue, PortValue};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The inputs given to a run.
#[derive(Clone, Debug, Default)]
pub struct GivenInputs {
    /// Words of a command line: `name=value`. A list takes several; a file, a path or a pattern; a value that is not a
    /// single word, JSON, or `@` and the path of a file that holds it.
    pub words: Vec<(String, String)>,
    /// A file of inputs: YAML or JSON with a value for each, or a sample sheet if one input is a list of records. Words
    /// take precedence over it. Paths in it are relative to it.
    pub file: Option<PathBuf>,
}

/// The words for the requested values in messages: inputs of a flow, or of another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputNoun {
    /// The owner: `the flow`.
    pub owner: &'static str,
    /// The singular: `input`.
    pub one: &'static str,
}

impl InputNoun {
    /// Inputs of a flow.
    pub const INPUTS: InputNoun = InputNoun { owner: "the flow", one: "input" };
}

impl LoadedFlow {
    /// Binds the inputs of a run, in the flow's order; an option that is not given is null. Files exist, and their
    /// paths are absolute.
    ///
    /// # Errors
    /// All problems, at once.
    pub fn bind(&self, given: &GivenInputs) -> Result<Vec<(String, PortValue)>, Problems> {
        Binding { inputs: &self.inputs, called: InputNoun::INPUTS, files: FilePresence::AreThere }.bind(given)
    }

    /// As [`LoadedFlow::bind`], but named files need not exist: for a caller that only inspects what was computed from
    /// them.
    ///
    /// # Errors
    /// All other problems, at once.
    pub fn bind_though_gone(&self, given: &GivenInputs) -> Result<Vec<(String, PortValue)>, Problems> {
        Binding { inputs: &self.inputs, called: InputNoun::INPUTS, files: FilePresence::MayBeGone }.bind(given)
    }
}

/// The inputs that are bound, their noun in messages, and whether their files must exist.
struct Binding<'a> {
    inputs: &'a [FlowInput],
    called: InputNoun,
    files: FilePresence,
}

impl Binding<'_> {
    fn bind(&self, given: &GivenInputs) -> Result<Vec<(String, PortValue)>, Problems> {
        let report = Diagnostics::default();
        let mut values = BTreeMap::new();
        self.words(given, &mut values, &report);
        if let Some(file) = &given.file {
            self.file(file, &mut values, &report);
        }
        let mut bound = Vec::new();
        for input in self.inputs {
            let value = match values.remove(&input.name) {
                Some(value) => value,
                None => self.default(input, &report),
            };
            bound.extend(value.map(|value| (input.name.clone(), value)));
        }
        report.result()?;
        Ok(bound)
    }

    fn default(&self, input: &FlowInput, report: &Diagnostics) -> Option<PortValue> {
        match &input.default {
            Some(value) => settled(value.clone(), input, self.files, report),
            None if matches!(input.ty, Type::Option(_)) => Some(PortValue::Null),
            None => {
                let help = input.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
                let message = format!("the {} `{}` is missing: {}{help}", self.called.one, input.name, describe(input));
                report.push(Problem::new("OF0202", message).hint(format!(
                    "--input {}={}",
                    input.name,
                    example(&input.shape)
                )));
                None
            }
        }
    }

    fn words(&self, given: &GivenInputs, values: &mut BTreeMap<String, Option<PortValue>>, report: &Diagnostics) {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &given.words {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in names {
            let words: Vec<_> =
                given.words.iter().filter(|(other, _)| other == name).map(|(_, word)| word.as_str()).collect();
            let Some(input) = self.inputs.iter().find(|input| input.name == name) else {
                self.unknown(name, self.called, None, report);
                continue;
            };
            let what = format!("{} `{name}`", self.called.one);
            let convert = Convert { base: Path::new(""), files: self.files, what };
            values.insert(name.to_owned(), convert.words(&words, &input.shape, report));
        }
    }

    fn unknown(
        &self,
        name: &str,
        InputNoun { owner, one }: InputNoun,
        place: Option<crate::SourceLocation>,
        report: &Diagnostics,
    ) {
        let hint = words::meant(name, self.inputs.iter().map(|input| input.name.as_str()));
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        report.push(Problem { code: "OF0201", message: format!("{owner} has no {one} `{name}`"), place, hint });
    }

    fn file(&self, path: &Path, values: &mut BTreeMap<String, Option<PortValue>>, report: &Diagnostics) {
        if sheet::is_sheet(path) {
            let lists: Vec<_> = self.inputs.iter().filter(|input| sheet::record(&input.shape).is_some()).collect();
            match lists.as_slice() {
                [input] if !values.contains_key(&input.name) => {
                    let what = format!("input `{}`", input.name);
                    let convert = Convert { base: Path::new(""), files: self.files, what };
                    values.insert(input.name.clone(), convert.sheet(path, &input.shape, report));
                }
                [_] => {}
                _ => {
                    let message = format!("{} is a sample sheet, but which input is it?", path.display());
                    let hint = format!("--input NAME={}", path.display());
                    report.push(Problem::new("OF0207", message).hint(hint));
                }
            }
            return;
        }
        let Some(source) = read(path, report) else { return };
        let Some(tree) = syntax::parse(&source, NodeBudget { nodes: DATA_NODES_MAX }, report) else { return };
        let NodeKind::Map(entries) = &tree.what else {
            let hint = "it holds a map: the names of inputs and their values";
            report.at(&source, tree.span, "OF0207", format!("{} holds {}", path.display(), tree.found()), hint);
            return;
        };
        let base = path.parent().unwrap_or(Path::new(""));
        for (key, node) in entries {
            let Some(input) = self.inputs.iter().find(|input| input.name == key.name) else {
                self.unknown(&key.name, InputNoun::INPUTS, Some(source.place(key.span)), report);
                continue;
            };
            if !values.contains_key(&input.name) {
                let convert = Convert { base, files: self.files, what: format!("input `{}`", key.name) };
                values.insert(input.name.clone(), convert.node(node, &input.shape, &source, report));
            }
        }
    }
}

/// Checks that the files of a default exist.
fn settled(value: PortValue, input: &FlowInput, files: FilePresence, report: &Diagnostics) -> Option<PortValue> {
    let missing = |what: String| {
        report.push(Problem::new("OF0204", format!("the default of `{}`: {what}", input.name)));
        None
    };
    match value {
        PortValue::File(file) if files == FilePresence::AreThere && !file.path.is_file() => {
            missing(format!("there is no file {}", file.path.display()))
        }
        PortValue::Directory(directory) => match DirectoryValue::read(&directory.path) {
            Ok(directory) => Some(directory.into()),
            Err(error) => missing(format!("{} cannot be read: {error}", directory.path.display())),
        },
        PortValue::List(items) => {
            let items: Vec<_> = items.into_iter().map(|item| settled(item, input, files, report)).collect();
            items.into_iter().collect::<Option<_>>().map(PortValue::List)
        }
        PortValue::Record(fields) => {
            let fields = fields.into_iter().map(|(name, field)| Some((name, settled(field, input, files, report)?)));
            fields.collect::<Option<_>>().map(PortValue::Record)
        }
        other => Some(other),
    }
}

/// Describes an input for a message.
fn describe(input: &FlowInput) -> String {
    match input.choices.is_empty() {
        true => format!("it is {}", input.ty),
        false => format!("it is one of {}", words::list(input.choices.iter().map(String::as_str))),
    }
}

fn example(shape: &TypeDecl) -> String {
    match shape.required() {
        TypeDecl::Enum(words) => words.first().cloned().unwrap_or_default(),
        TypeDecl::List(inner) if sheet::record(shape).is_some() || matches!(**inner, TypeDecl::Record(_)) => {
            "sheet.csv".into()
        }
        TypeDecl::List(inner) if matches!(inner.ty(), Type::File) => "'data/*.txt'".into(),
        TypeDecl::List(_) => "'[…]'".into(),
        TypeDecl::Record(_) => "'{…}'".into(),
        TypeDecl::Plain(Type::File) => "PATH".into(),
        TypeDecl::Plain(Type::Directory) => "DIR".into(),
        TypeDecl::Plain(Type::Int) => "1".into(),
        TypeDecl::Plain(Type::Float) => "0.5".into(),
        TypeDecl::Plain(Type::Bool) => "true".into(),
        _ => "…".into(),
    }
}

/// Reads a file of data; `None` after reporting its problem.
fn read(path: &Path, report: &Diagnostics) -> Option<SourceFile> {
    let shown = path.display().to_string();
    let problem = |message: String| report.push(Problem::new("OF0207", message));
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => problem(format!("there is no file {shown}")),
        Err(error) => problem(format!("{shown} cannot be read: {error}")),
        Ok(metadata) if metadata.is_dir() => problem(format!("{shown} is a directory")),
        Ok(metadata) if metadata.len() > DATA_BYTES_MAX => {
            problem(format!("{shown} has {} bytes; {DATA_BYTES_MAX} is the most", metadata.len()));
        }
        Ok(_) => match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => {
                let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
                return Some(SourceFile::new(shown, text));
            }
            Ok(Err(_)) => problem(format!("{shown} is not UTF-8")),
            Err(error) => problem(format!("{shown} cannot be read: {error}")),
        },
    }
    None
}
