//! What a run is given: words of a command line, a file of inputs, patterns, sample sheets, defaults; each input as a
//! value of its type, or all that is wrong at once.
//!
//! | module | what it owns |
//! |---|---|
//! | `convert` | values of a tree or a word, as a type wants them |
//! | `globs` | which files a pattern means |
//! | `sheet` | sample sheets |
//! | `ports` | the same for ports without a flow file |
//! | `defaults` | the inputs of a flow and what they are if nothing is given |

mod convert;
pub(crate) mod defaults;
mod globs;
pub(crate) mod ports;
mod sheet;

use crate::{
    Flow, Input, Problem, Problems, Shape,
    limits::{DATA_BYTES_MAX, DATA_NODES_MAX},
    problem::Report,
    source::Source,
    syntax::{self, Budget, What},
    words,
};
use convert::{Convert, Files};
use onceflow_core::model::Type;
use onceflow_exec::value::{DirectoryValue, Value};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// What a run is given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Words of a command line: `name=value`. A list takes several; a file, a path or a pattern; a value that is not a
    /// single word, JSON, or `@` and the path of a file that holds it.
    pub words: Vec<(String, String)>,
    /// A file of inputs: YAML or JSON with a value for each, or a sample sheet if one input is a list of records. Words
    /// go before it. Paths in it are relative to it.
    pub file: Option<PathBuf>,
}

/// What values are called that are asked for: inputs of a flow, unless they are somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Whose they are: `the flow`.
    pub owner: &'static str,
    /// One of them: `input`.
    pub one: &'static str,
}

impl Called {
    /// Inputs of a flow.
    pub const INPUTS: Called = Called { owner: "the flow", one: "input" };
}

impl Flow {
    /// The inputs of a run, in the flow's order; an option that is not given is null. Files are there, and their paths
    /// absolute.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub fn bind(&self, given: &Given) -> Result<Vec<(String, Value)>, Problems> {
        self.bind_called(given, Called::INPUTS, Files::AreThere)
    }

    /// As [`Flow::bind`], but that files which are named need not be there: for who looks at what was done with them.
    ///
    /// # Errors
    /// All else that is wrong, at once.
    pub fn bind_though_gone(&self, given: &Given) -> Result<Vec<(String, Value)>, Problems> {
        self.bind_called(given, Called::INPUTS, Files::MayBeGone)
    }

    fn bind_called(&self, given: &Given, called: Called, files: Files) -> Result<Vec<(String, Value)>, Problems> {
        let report = Report::default();
        let mut values = BTreeMap::new();
        self.words(given, (called, files), &mut values, &report);
        if let Some(file) = &given.file {
            self.file(file, files, &mut values, &report);
        }
        let mut bound = Vec::new();
        for input in &self.inputs {
            let value = match values.remove(&input.name) {
                Some(value) => value,
                None => self.default(input, (called, files), &report),
            };
            bound.extend(value.map(|value| (input.name.clone(), value)));
        }
        report.result()?;
        Ok(bound)
    }

    fn default(&self, input: &Input, (called, files): (Called, Files), report: &Report) -> Option<Value> {
        match &input.default {
            Some(value) => settled(value.clone(), input, files, report),
            None if matches!(input.ty, Type::Option(_)) => Some(Value::Null),
            None => {
                let help = input.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
                let message = format!("the {} `{}` is missing: {}{help}", called.one, input.name, describe(input));
                report.push(Problem::new("OF0202", message).hint(format!(
                    "--input {}={}",
                    input.name,
                    example(&input.shape)
                )));
                None
            }
        }
    }

    fn words(
        &self,
        given: &Given,
        (called, files): (Called, Files),
        values: &mut BTreeMap<String, Option<Value>>,
        report: &Report,
    ) {
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
                self.unknown(name, called, None, report);
                continue;
            };
            let convert = Convert { base: Path::new(""), files, what: format!("{} `{name}`", called.one) };
            values.insert(name.to_owned(), convert.words(&words, &input.shape, report));
        }
    }

    fn unknown(&self, name: &str, Called { owner, one }: Called, place: Option<crate::Place>, report: &Report) {
        let hint = words::meant(name, self.inputs.iter().map(|input| input.name.as_str()));
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        report.push(Problem { code: "OF0201", message: format!("{owner} has no {one} `{name}`"), place, hint });
    }

    fn file(&self, path: &Path, files: Files, values: &mut BTreeMap<String, Option<Value>>, report: &Report) {
        if sheet::is_sheet(path) {
            let lists: Vec<_> = self.inputs.iter().filter(|input| sheet::record(&input.shape).is_some()).collect();
            match lists.as_slice() {
                [input] if !values.contains_key(&input.name) => {
                    let convert = Convert { base: Path::new(""), files, what: format!("input `{}`", input.name) };
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
        let Some(tree) = syntax::parse(&source, Budget { nodes: DATA_NODES_MAX }, report) else { return };
        let What::Map(entries) = &tree.what else {
            let hint = "it holds a map: the names of inputs and their values";
            report.at(&source, tree.span, "OF0207", format!("{} holds {}", path.display(), tree.found()), hint);
            return;
        };
        let base = path.parent().unwrap_or(Path::new(""));
        for (key, node) in entries {
            let Some(input) = self.inputs.iter().find(|input| input.name == key.name) else {
                self.unknown(&key.name, Called::INPUTS, Some(source.place(key.span)), report);
                continue;
            };
            if !values.contains_key(&input.name) {
                let convert = Convert { base, files, what: format!("input `{}`", key.name) };
                values.insert(input.name.clone(), convert.node(node, &input.shape, &source, report));
            }
        }
    }
}

/// A default whose files are there.
fn settled(value: Value, input: &Input, files: Files, report: &Report) -> Option<Value> {
    let missing = |what: String| {
        report.push(Problem::new("OF0204", format!("the default of `{}`: {what}", input.name)));
        None
    };
    match value {
        Value::File(file) if files == Files::AreThere && !file.path.is_file() => {
            missing(format!("there is no file {}", file.path.display()))
        }
        Value::Directory(directory) => match DirectoryValue::read(&directory.path) {
            Ok(directory) => Some(Value::Directory(directory)),
            Err(error) => missing(format!("{} cannot be read: {error}", directory.path.display())),
        },
        Value::List(items) => {
            let items: Vec<_> = items.into_iter().map(|item| settled(item, input, files, report)).collect();
            items.into_iter().collect::<Option<_>>().map(Value::List)
        }
        Value::Record(fields) => {
            let fields = fields.into_iter().map(|(name, field)| Some((name, settled(field, input, files, report)?)));
            fields.collect::<Option<_>>().map(Value::Record)
        }
        other => Some(other),
    }
}

/// What an input is, for people.
fn describe(input: &Input) -> String {
    match input.choices.is_empty() {
        true => format!("it is {}", input.ty),
        false => format!("it is one of {}", words::list(input.choices.iter().map(String::as_str))),
    }
}

fn example(shape: &Shape) -> String {
    match shape.required() {
        Shape::Enum(words) => words.first().cloned().unwrap_or_default(),
        Shape::List(inner) if sheet::record(shape).is_some() || matches!(**inner, Shape::Record(_)) => {
            "sheet.csv".into()
        }
        Shape::List(inner) if matches!(inner.ty(), Type::File) => "'data/*.txt'".into(),
        Shape::List(_) => "'[…]'".into(),
        Shape::Record(_) => "'{…}'".into(),
        Shape::Plain(Type::File) => "PATH".into(),
        Shape::Plain(Type::Directory) => "DIR".into(),
        Shape::Plain(Type::Int) => "1".into(),
        Shape::Plain(Type::Float) => "0.5".into(),
        Shape::Plain(Type::Bool) => "true".into(),
        _ => "…".into(),
    }
}

/// A file of data; `None` after saying what is wrong with it.
fn read(path: &Path, report: &Report) -> Option<Source> {
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
                return Some(Source::new(shown, text));
            }
            Ok(Err(_)) => problem(format!("{shown} is not UTF-8")),
            Err(error) => problem(format!("{shown} cannot be read: {error}")),
        },
    }
    None
}
