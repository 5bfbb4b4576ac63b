//! Files and directories that a step leaves, by name or glob: inside of its work directory, and nowhere else.

use super::text::read_text;
use crate::{
    action::{Capture, Part, Template},
    codes,
    expr::{self, Scope},
    shell,
    template::Wrong,
    value::{DirectoryValue, FileValue, Mismatch, Value},
    work::{INPUTS, TEMPORARY, Work},
};
use globset::{Glob, GlobBuilder, GlobMatcher};
use onceflow_core::model::{Port, Type};
use onceflow_engine::task::Failure;
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Where an output will be, known before the step runs.
pub(crate) enum Planned {
    /// A name or a glob.
    Path(Named),
    /// Elsewhere.
    Other,
}

/// A name or a glob.
pub(crate) struct Named {
    pattern: String,
    glob: Option<GlobMatcher>,
}

/// Whether a name or glob stays inside of the work directory, as far as its text can tell.
///
/// # Errors
/// If it is absolute, leads out with `..`, is where inputs are, or is no glob.
pub fn check(template: &Template) -> Result<(), Wrong> {
    let wrong = |(message, hint): (String, &str)| Wrong { span: 0..0, message, hint: Some(hint.into()) };
    // What a hole holds is not known; a name stands for it.
    let text = template.0.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Hole(_) => "x",
    });
    named(text.collect(), is_glob(template)).map(|_| ()).map_err(wrong)
}

/// Where all outputs will be; directories are made.
pub(crate) fn plan(work: &Work, ports: &[Port], captures: &[Capture], scope: &Scope) -> Result<Vec<Planned>, Failure> {
    let mut planned = Vec::with_capacity(captures.len());
    for (port, capture) in ports.iter().zip(captures) {
        let Capture::Path(template) = capture else {
            planned.push(Planned::Other);
            continue;
        };
        let named = render(template, scope, &work.path).map_err(|why| {
            codes::failure(codes::OUTPUT_REFUSED, format!("output `{}` has no name: {why}", port.name)).finally()
        })?;
        if named.glob.is_none() {
            named
                .make(work, port)
                .map_err(|error| codes::work(format!("`{}` could not be made", named.pattern), &error))?;
        }
        planned.push(Planned::Path(named));
    }
    Ok(planned)
}

fn is_glob(template: &Template) -> bool {
    let text = |part: &Part| matches!(part, Part::Text(text) if text.contains(['*', '?', '[', '{']));
    template.0.iter().any(text)
}

fn render(template: &Template, scope: &Scope, base: &Path) -> Result<Named, String> {
    let is_glob = is_glob(template);
    let mut pattern = String::new();
    for part in &template.0 {
        match part {
            Part::Text(text) => pattern.push_str(text),
            Part::Hole(source) => {
                let value = expr::eval(source, scope).map_err(|error| error.to_string())?;
                let text = shell::text_of(&value, base).map_err(|unfit| unfit.0)?;
                // What a value holds is a name, whatever characters it has.
                pattern.push_str(&if is_glob { globset::escape(&text) } else { text });
            }
        }
    }
    named(pattern, is_glob).map_err(|(message, hint)| format!("{message}; {hint}"))
}

fn named(pattern: String, is_glob: bool) -> Result<Named, (String, &'static str)> {
    let inside = "name a file or directory inside of the work directory, such as `result.txt` or `*.bam`";
    let path = Path::new(&pattern);
    if pattern.trim().is_empty() || pattern.contains('\0') {
        return Err((format!("{pattern:?} is no name"), inside));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::CurDir => {}
            _ => return Err((format!("`{pattern}` leads out of the work directory"), inside)),
        }
    }
    match parts.first() {
        None => return Err((format!("`{pattern}` is the work directory itself"), inside)),
        Some(&INPUTS | &TEMPORARY) => return Err((format!("`{pattern}` is not a place for outputs"), inside)),
        Some(_) => {}
    }
    let pattern = parts.join("/");
    let glob = match is_glob {
        false => None,
        true => {
            let glob: Result<Glob, _> = GlobBuilder::new(&pattern).literal_separator(true).build();
            let glob = glob.map_err(|error| (format!("`{pattern}` is no glob: {}", error.kind()), inside))?;
            Some(glob.compile_matcher())
        }
    };
    Ok(Named { pattern, glob })
}

/// A type without the option around it.
fn bare(ty: &Type) -> (&Type, bool) {
    match ty {
        Type::Option(inner) => (bare(inner).0, true),
        other => (other, false),
    }
}

impl Planned {
    /// What `out.NAME` is to the command, if it has a name.
    pub(crate) fn name(&self) -> Option<Value> {
        match self {
            Planned::Path(Named { pattern, glob: None }) => Some(Value::text(match pattern.starts_with('-') {
                true => format!("./{pattern}"),
                false => pattern.clone(),
            })),
            _ => None,
        }
    }
}

impl Named {
    /// A directory is there, empty, when the step starts; and so is the directory that a file goes into.
    fn make(&self, work: &Work, port: &Port) -> io::Result<()> {
        let path = work.path.join(&self.pattern);
        match bare(&port.ty).0 {
            Type::Directory => fs::create_dir_all(path),
            _ if self.pattern.contains('/') => fs::create_dir_all(path.parent().unwrap_or(&work.path)),
            _ => Ok(()),
        }
    }

    /// The value of an output.
    pub(super) fn value(&self, work: &Work, port: &Port) -> Result<Value, Failure> {
        let (ty, is_option) = bare(&port.ty);
        let found = self.find(work).map_err(|error| codes::work("the work directory could not be read", &error))?;
        match (ty, found.as_slice()) {
            (Type::List(inner), _) if matches!(**inner, Type::File | Type::Directory) => {
                if found.is_empty() && self.glob.is_none() && !is_option {
                    return Err(self.missing(work, port));
                }
                let elements = found.iter().map(|path| take(work, path, inner, &port.name));
                elements.collect::<Result<_, _>>().map(Value::List)
            }
            (_, []) if is_option => Ok(Value::Null),
            (_, []) => Err(self.missing(work, port)),
            (Type::File | Type::Directory, [path]) => take(work, path, ty, &port.name),
            (_, [path]) => read_text(&inside(work, path, &port.name)?, port, &format!("`{}`", self.pattern)),
            (_, many) => {
                let what = format!("output `{}` is one {ty}, but `{}` matches {}", port.name, self.pattern, many.len());
                let failed = codes::failure(codes::OUTPUT_MANY, what);
                let failed = codes::because(failed, format!("found: {}", list(many, work)));
                let hint = format!("hint: declare `list<{ty}>` to have them all, or a name that only one has");
                Err(codes::because(failed, hint))
            }
        }
    }

    fn missing(&self, work: &Work, port: &Port) -> Failure {
        let what = format!("output `{}` is missing: there is no `{}` in the work directory", port.name, self.pattern);
        let failed = codes::failure(codes::OUTPUT_MISSING, what);
        let mut entries = entries(&work.path, &work.path, false).unwrap_or_default();
        entries.sort();
        let found = match entries.is_empty() {
            true => String::from("nothing else is there"),
            false => format!("what is there: {}", list(&entries, work)),
        };
        let name = port.name.replace('-', ".");
        let hint = format!("hint: write to `${{{{ out.{name} }}}}`, or declare the name it really has");
        codes::because(codes::because(failed, found), hint)
    }

    /// All that match, in order.
    fn find(&self, work: &Work) -> io::Result<Vec<PathBuf>> {
        let Some(glob) = &self.glob else {
            let path = work.path.join(&self.pattern);
            return Ok(fs::symlink_metadata(&path).map(|_| vec![path]).unwrap_or_default());
        };
        let mut found = Vec::new();
        let hidden = self.pattern.starts_with('.') || self.pattern.contains("/.");
        let mut open = vec![work.path.clone()];
        let is_deep = self.pattern.contains('/') || self.pattern.contains("**");
        while let Some(directory) = open.pop() {
            for path in entries(&work.path, &directory, hidden)? {
                let below = path.strip_prefix(&work.path).unwrap_or(&path);
                if glob.is_match(below) {
                    found.push(path.clone());
                }
                if is_deep && fs::symlink_metadata(&path)?.is_dir() {
                    open.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// What is in a directory, but for what is ours.
fn entries(work: &Path, directory: &Path, hidden: bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_ours = directory == work && (name == INPUTS || name == TEMPORARY);
        let is_hidden = !hidden && name.to_string_lossy().starts_with('.');
        if !is_ours && !is_hidden {
            found.push(directory.join(name));
        }
    }
    Ok(found)
}

fn list(paths: &[PathBuf], work: &Work) -> String {
    let name = |path: &PathBuf| {
        let slash = if path.is_dir() { "/" } else { "" };
        format!("`{}{slash}`", path.strip_prefix(&work.path).unwrap_or(path).display())
    };
    let names: Vec<_> = paths.iter().take(10).map(name).collect();
    let more = if paths.len() > 10 { format!(" and {} more", paths.len() - 10) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// The file that a path really is, which must be in the work directory.
fn inside(work: &Work, path: &Path, port: &str) -> Result<PathBuf, Failure> {
    let shown = path.strip_prefix(&work.path).unwrap_or(path).display().to_string();
    let wrong = |why: String| codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: `{shown}` {why}"));
    let kind = fs::symlink_metadata(path).map_err(|error| wrong(format!("cannot be read: {error}")))?.file_type();
    // A directory on the way may be a link too.
    if !kind.is_symlink() && path.parent() == Some(&work.path) {
        return Ok(path.to_owned());
    }
    let real = fs::canonicalize(path).map_err(|_| wrong(String::from("is a link that leads nowhere")))?;
    let home = fs::canonicalize(&work.path).map_err(|error| codes::work("the work directory is gone", &error))?;
    match real.strip_prefix(&home) {
        Ok(below) if !below.starts_with(INPUTS) => Ok(work.path.join(below)),
        _ => {
            let failed = wrong(String::from("is a link that leads out of the work directory"));
            Err(codes::because(failed, "hint: copy the file, `cp`, instead of linking it").finally())
        }
    }
}

/// A file or directory that is an output.
fn take(work: &Work, path: &Path, ty: &Type, port: &str) -> Result<Value, Failure> {
    let shown = path.strip_prefix(&work.path).unwrap_or(path).display().to_string();
    let wrong = |why: &str| codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: `{shown}` {why}"));
    let real = inside(work, path, port)?;
    let data = fs::symlink_metadata(&real).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    match ty {
        Type::Directory if data.is_dir() => {
            let mut files = Vec::new();
            walk(work, &real, "", port, &mut files)?;
            files.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(Value::Directory(DirectoryValue { path: real, files }))
        }
        Type::Directory => Err(wrong("is declared as a directory, but is a file")),
        _ if data.is_dir() => Err(codes::because(
            wrong("is declared as a file, but is a directory"),
            "hint: declare it as `dir`, or name the file in it",
        )),
        _ if !data.is_file() => Err(wrong("is neither a file nor a directory")),
        _ => {
            let named = FileValue::from_path(path).map_err(|mismatch| wrong(&mismatch.to_string()))?;
            Ok(Value::File(FileValue { path: real, ..named }))
        }
    }
}

/// Directories inside one another, also through links.
const DEPTH_MAX: usize = 64;

/// All files of a directory. A link may lead to another part of the work directory, but not out of it.
fn walk(work: &Work, at: &Path, prefix: &str, port: &str, files: &mut Vec<FileValue>) -> Result<(), Failure> {
    let wrong = |why: &str| {
        codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: `{}` {why}", prefix.trim_end_matches('/')))
    };
    if prefix.matches('/').count() > DEPTH_MAX {
        return Err(wrong("is too deep, or has a link that leads back up"));
    }
    for entry in fs::read_dir(at).map_err(|error| wrong(&format!("cannot be read: {error}")))? {
        let entry = entry.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
            return Err(wrong(&format!("holds the name {:?}, which is not UTF-8", entry.file_name())));
        };
        let real = inside(work, &entry.path(), port)?;
        match real.is_dir() {
            true => walk(work, &real, &format!("{name}/"), port, files)?,
            false => {
                let Value::File(file) = take(work, &entry.path(), &Type::File, port)? else { continue };
                files.push(FileValue { name, path: file.path });
            }
        }
    }
    Ok(())
}

/// Why an answer is no output.
pub(super) enum Refused {
    Type(Mismatch),
    File(Failure),
}

/// An answer as a value of a type: where a file is wanted, its path is taken.
pub(super) fn resolve(work: &Work, value: Value, ty: &Type, port: &str) -> Result<Value, Refused> {
    match (ty, value) {
        (Type::Option(_), Value::Null) => Ok(Value::Null),
        (Type::Option(inner), value) => resolve(work, value, inner, port),
        (Type::File | Type::Directory, Value::Text(path)) => {
            let named = named(path, false).map_err(|(why, hint)| {
                let failed = codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: {why}"));
                Refused::File(codes::because(failed, format!("hint: {hint}")).finally())
            })?;
            take(work, &work.path.join(named.pattern), ty, port).map_err(Refused::File)
        }
        (Type::List(inner), Value::List(elements)) => {
            let elements = elements.into_iter().map(|element| resolve(work, element, inner, port));
            elements.collect::<Result<_, _>>().map(Value::List)
        }
        (Type::Record(types), Value::Record(mut fields)) => {
            let mut found = std::collections::BTreeMap::new();
            for (name, ty) in types {
                if let Some(field) = fields.remove(name) {
                    found.insert(name.clone(), resolve(work, field, ty, port)?);
                }
            }
            Value::Record(found).conform(&Type::Record(types.clone())).map_err(Refused::Type)
        }
        (Type::Bytes, Value::Text(text)) => {
            Value::from_json(serde_json::Value::String(text), ty).map_err(Refused::Type)
        }
        (ty, value) => value.conform(ty).map_err(Refused::Type),
    }
}
