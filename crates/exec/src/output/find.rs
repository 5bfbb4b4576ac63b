//! Finds output files and directories by name or glob: inside the step's work directory, and nowhere else.

use super::text::read_text;
use crate::{
    action::{Capture, Template, TemplatePart},
    codes,
    expr::{self, Bindings},
    shell,
    template::TemplateError,
    value::{DirectoryValue, FileValue, Mismatch, PortValue},
    work::{INPUTS, TEMPORARY, WorkDir},
};
use globset::{Glob, GlobBuilder, GlobMatcher};
use onceflow_core::model::{Port, Type};
use onceflow_engine::task::Failure;
use onceflow_store::tree::{self, Astray, Dir, Spot};
use rustix::fs::FileType;
use std::{
    fs::File,
    io,
    path::{Component, Path, PathBuf},
};

/// The place of an output, known before the step runs.
pub(crate) enum ExpectedOutput {
    /// In the work directory, by a name or a glob.
    Path(PathPattern),
    /// Not in the work directory: standard output, or an expression over an answer.
    Other,
}

/// A name or a glob, relative to the work directory.
pub(crate) struct PathPattern {
    pattern: String,
    glob: Option<GlobMatcher>,
}

/// Checks that a name or glob stays inside the work directory, as far as its text can tell.
///
/// # Errors
/// If it is absolute, leads out with `..`, is in the directory of inputs, or is an invalid glob.
pub fn check(template: &Template) -> Result<(), TemplateError> {
    let wrong = |(message, hint): (String, &str)| TemplateError { span: 0..0, message, hint: Some(hint.into()) };
    // The value of a hole is not known yet; a placeholder name stands for it.
    let text = template.0.iter().map(|part| match part {
        TemplatePart::Text(text) => text.as_str(),
        TemplatePart::Hole(_) => "x",
    });
    named(text.collect(), is_glob(template)).map(|_| ()).map_err(wrong)
}

/// Determines the places of all outputs, and creates their directories.
pub(crate) fn plan(
    work: &WorkDir,
    ports: &[Port],
    captures: &[Capture],
    scope: &Bindings,
) -> Result<Vec<ExpectedOutput>, Failure> {
    let mut planned = Vec::with_capacity(captures.len());
    for (port, capture) in ports.iter().zip(captures) {
        let Capture::Path(template) = capture else {
            planned.push(ExpectedOutput::Other);
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
        planned.push(ExpectedOutput::Path(named));
    }
    assert_eq!(planned.len(), ports.len().min(captures.len()), "an output would be looked for in the place of another");
    Ok(planned)
}

fn is_glob(template: &Template) -> bool {
    let text = |part: &TemplatePart| matches!(part, TemplatePart::Text(text) if text.contains(['*', '?', '[', '{']));
    template.0.iter().any(text)
}

fn render(template: &Template, scope: &Bindings, base: &Path) -> Result<PathPattern, String> {
    let is_glob = is_glob(template);
    let mut pattern = String::new();
    for part in &template.0 {
        match part {
            TemplatePart::Text(text) => pattern.push_str(text),
            TemplatePart::Hole(source) => {
                let value = expr::eval(source, scope).map_err(|error| error.to_string())?;
                let text = shell::text_of(&value, base).map_err(|unfit| unfit.0)?;
                // A value is always part of a name, even if it has glob characters.
                pattern.push_str(&if is_glob { globset::escape(&text) } else { text });
            }
        }
    }
    named(pattern, is_glob).map_err(|(message, hint)| format!("{message}; {hint}"))
}

fn named(pattern: String, is_glob: bool) -> Result<PathPattern, (String, &'static str)> {
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
    assert!(!pattern.starts_with('/') && !pattern.is_empty(), "output {pattern:?} would be looked for outside");
    let glob = match is_glob {
        false => None,
        true => {
            let glob: Result<Glob, _> = GlobBuilder::new(&pattern).literal_separator(true).build();
            let glob = glob.map_err(|error| (format!("`{pattern}` is no glob: {}", error.kind()), inside))?;
            Some(glob.compile_matcher())
        }
    };
    Ok(PathPattern { pattern, glob })
}

/// Returns a type without the option around it, and whether there was one.
fn bare(ty: &Type) -> (&Type, bool) {
    match ty {
        Type::Option(inner) => (bare(inner).0, true),
        other => (other, false),
    }
}

impl ExpectedOutput {
    /// The output is found in the work directory.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self, ExpectedOutput::Path(_))
    }

    /// Returns the value of `out.NAME` for the command, if the output has a name and not a glob.
    pub(crate) fn name(&self) -> Option<PortValue> {
        match self {
            ExpectedOutput::Path(PathPattern { pattern, glob: None }) => {
                Some(PortValue::text(match pattern.starts_with('-') {
                    true => format!("./{pattern}"),
                    false => pattern.clone(),
                }))
            }
            _ => None,
        }
    }
}

impl PathPattern {
    /// Creates the output directory, or the directory that an output file goes into, before the step starts.
    fn make(&self, work: &WorkDir, port: &Port) -> io::Result<()> {
        let path = Path::new(&self.pattern);
        let directory = match bare(&port.ty).0 {
            Type::Directory => path,
            _ => path.parent().unwrap_or(Path::new("")),
        };
        work.dir.make_beneath(directory).map(drop)
    }

    /// Reads the value of an output.
    pub(super) fn value(&self, work: &WorkDir, port: &Port) -> Result<PortValue, Failure> {
        let (ty, is_option) = bare(&port.ty);
        let found = self.find(work).map_err(|error| codes::work("the work directory could not be read", &error))?;
        match (ty, found.as_slice()) {
            (Type::List(inner), _) if matches!(**inner, Type::File | Type::Directory) => {
                if found.is_empty() && self.glob.is_none() && !is_option {
                    return Err(self.missing(work, port));
                }
                let elements = found.iter().map(|path| take(work, path, inner, &port.name));
                elements.collect::<Result<_, _>>().map(PortValue::List)
            }
            (_, []) if is_option => Ok(PortValue::Null),
            (_, []) => Err(self.missing(work, port)),
            (Type::File | Type::Directory, [path]) => take(work, path, ty, &port.name),
            (_, [path]) => {
                let spot = inside(work, path, &port.name)?;
                let mut file = open(&spot, path, &port.name)?;
                read_text(&mut file, port, &format!("`{}`", self.pattern))
            }
            (_, many) => {
                let what = format!("output `{}` is one {ty}, but `{}` matches {}", port.name, self.pattern, many.len());
                let failed = codes::failure(codes::OUTPUT_MANY, what);
                let failed = codes::because(failed, format!("found: {}", list(&kinds(work, many))));
                let hint = format!("hint: declare `list<{ty}>` to have them all, or a name that only one has");
                Err(codes::because(failed, hint))
            }
        }
    }

    fn missing(&self, work: &WorkDir, port: &Port) -> Failure {
        let what = format!("output `{}` is missing: there is no `{}` in the work directory", port.name, self.pattern);
        let failed = codes::failure(codes::OUTPUT_MISSING, what);
        let mut entries = entries(&work.dir, Path::new(""), false).unwrap_or_default();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let found = match entries.is_empty() {
            true => String::from("nothing else is there"),
            false => format!("what is there: {}", list(&entries)),
        };
        let name = port.name.replace('-', ".");
        let hint = format!("hint: write to `${{{{ out.{name} }}}}`, or declare the name it really has");
        codes::because(codes::because(failed, found), hint)
    }

    /// Returns all matches in order, as paths in the work directory.
    fn find(&self, work: &WorkDir) -> io::Result<Vec<PathBuf>> {
        let Some(glob) = &self.glob else {
            let path = PathBuf::from(&self.pattern);
            return Ok(match work.resolve(&path) {
                Err(Astray::Absent) => vec![],
                // Any other error is reported when the file is taken.
                _ => vec![path],
            });
        };
        let mut found = Vec::new();
        let hidden = self.pattern.starts_with('.') || self.pattern.contains("/.");
        let mut open = vec![PathBuf::new()];
        let is_deep = self.pattern.contains('/') || self.pattern.contains("**");
        while let Some(at) = open.pop() {
            for (path, kind) in entries(&work.dir.beneath(&at)?, &at, hidden)? {
                if is_deep && kind == FileType::Directory {
                    open.push(path.clone());
                }
                if glob.is_match(&path) {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Lists a directory inside the work directory, as paths in the work directory, without the executor's own entries.
fn entries(directory: &Dir, at: &Path, hidden: bool) -> io::Result<Vec<(PathBuf, FileType)>> {
    let mut found = Vec::new();
    for entry in directory.entries()? {
        let is_ours = at.as_os_str().is_empty() && (entry.name == INPUTS || entry.name == TEMPORARY);
        let is_hidden = !hidden && entry.name.to_string_lossy().starts_with('.');
        if !is_ours && !is_hidden {
            found.push((at.join(entry.name), entry.kind));
        }
    }
    Ok(found)
}

fn kinds(work: &WorkDir, paths: &[PathBuf]) -> Vec<(PathBuf, FileType)> {
    let kind = |path: &PathBuf| {
        let spot = work.resolve(path).ok()?;
        Some(tree::kind(&spot.dir.stat(&spot.name).ok()?))
    };
    paths.iter().map(|path| (path.clone(), kind(path).unwrap_or(FileType::Unknown))).collect()
}

fn list(paths: &[(PathBuf, FileType)]) -> String {
    let name = |(path, kind): &(PathBuf, FileType)| {
        let slash = if *kind == FileType::Directory { "/" } else { "" };
        format!("`{}{slash}`", path.display())
    };
    let names: Vec<_> = paths.iter().take(10).map(name).collect();
    let more = if paths.len() > 10 { format!(" and {} more", paths.len() - 10) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

fn refused(port: &str, path: &Path, why: impl std::fmt::Display) -> Failure {
    codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: `{}` {why}", path.display()))
}

/// Resolves the links in a path of the work directory; the result must be in the work directory too.
fn inside(work: &WorkDir, path: &Path, port: &str) -> Result<Spot, Failure> {
    match work.resolve(path) {
        Ok(spot) if !spot.path.starts_with(INPUTS) => Ok(spot),
        Ok(_) | Err(Astray::Out) => {
            let failed = refused(port, path, Astray::Out);
            Err(codes::because(failed, "hint: copy the file, `cp`, instead of linking it").finally())
        }
        Err(astray) => Err(refused(port, path, astray)),
    }
}

/// Opens an output file. A FIFO or a device is refused, because reading it might block forever.
fn open(spot: &Spot, path: &Path, port: &str) -> Result<File, Failure> {
    regular(spot, path, port)?;
    spot.dir.open_file(&spot.name).map_err(|error| refused(port, path, format!("cannot be read: {error}")))
}

fn regular(spot: &Spot, path: &Path, port: &str) -> Result<(), Failure> {
    match kind(spot, path, port)? {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(codes::because(
            refused(port, path, "is declared as a file, but is a directory"),
            "hint: declare it as `dir`, or name the file in it",
        )),
        other => Err(neither(other, path, port)),
    }
}

fn neither(kind: FileType, path: &Path, port: &str) -> Failure {
    refused(port, path, format!("is neither a file nor a directory: it is {}", tree::called(kind)))
}

fn kind(spot: &Spot, path: &Path, port: &str) -> Result<FileType, Failure> {
    let found = spot.dir.stat(&spot.name);
    found.map(|found| tree::kind(&found)).map_err(|error| refused(port, path, format!("cannot be read: {error}")))
}

/// Reads an output file or directory, by its path in the work directory.
fn take(work: &WorkDir, path: &Path, ty: &Type, port: &str) -> Result<PortValue, Failure> {
    let spot = inside(work, path, port)?;
    if *ty != Type::Directory {
        regular(&spot, path, port)?;
        let named = FileValue::from_path(path).map_err(|mismatch| refused(port, path, mismatch))?;
        return Ok(FileValue { path: work.path.join(spot.path), ..named }.into());
    }
    if kind(&spot, path, port)? != FileType::Directory {
        return Err(refused(port, path, "is declared as a directory, but is a file"));
    }
    let unread = |error: io::Error| refused(port, path, format!("cannot be read: {error}"));
    let mut files = Vec::new();
    walk(work, (&spot.dir.child(&spot.name).map_err(unread)?, &spot.path), "", port, &mut files)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(DirectoryValue { path: work.path.join(spot.path), files }.into())
}

/// The depth of nested directories, also through links.
const DEPTH_MAX: usize = 64;

/// Collects all files of a directory inside the work directory. A link may lead to another part of the work directory,
/// but not out of it.
fn walk(
    work: &WorkDir,
    (directory, at): (&Dir, &Path),
    prefix: &str,
    port: &str,
    files: &mut Vec<FileValue>,
) -> Result<(), Failure> {
    let wrong = |why: &str| refused(port, Path::new(prefix.trim_end_matches('/')), why);
    if prefix.matches('/').count() > DEPTH_MAX {
        return Err(wrong("is too deep, or has a link that leads back up"));
    }
    let unread = |error: io::Error| wrong(&format!("cannot be read: {error}"));
    for entry in directory.entries().map_err(unread)? {
        let Some(name) = entry.name.to_str().map(|name| format!("{prefix}{name}")) else {
            return Err(wrong(&format!("holds the name {:?}, which is not UTF-8", entry.name)));
        };
        let path = at.join(&entry.name);
        // Only links need resolving: other entries are where they seem to be.
        let link = (entry.kind == FileType::Symlink).then(|| inside(work, &path, port)).transpose()?;
        let found = link.as_ref().map_or(Ok(entry.kind), |spot| kind(spot, &path, port))?;
        let real = link.as_ref().map_or(&path, |spot| &spot.path);
        match found {
            FileType::Directory => {
                let below = match &link {
                    Some(spot) => spot.dir.child(&spot.name),
                    None => directory.child(&entry.name),
                };
                walk(work, (&below.map_err(unread)?, real), &format!("{name}/"), port, files)?;
            }
            FileType::RegularFile => files.push(FileValue { name, path: work.path.join(real) }),
            other => return Err(neither(other, &path, port)),
        }
    }
    Ok(())
}

/// The reason why an answer cannot be an output.
pub(super) enum OutputError {
    Type(Mismatch),
    File(Failure),
}

/// Converts an answer to a value of a type: where the type has a file, the answer gives its path.
pub(super) fn resolve(work: &WorkDir, value: PortValue, ty: &Type, port: &str) -> Result<PortValue, OutputError> {
    match (ty, value) {
        (Type::Option(_), PortValue::Null) => Ok(PortValue::Null),
        (Type::Option(inner), value) => resolve(work, value, inner, port),
        (Type::File | Type::Directory, PortValue::Text(path)) => {
            let named = named(path, false).map_err(|(why, hint)| {
                let failed = codes::failure(codes::OUTPUT_REFUSED, format!("output `{port}`: {why}"));
                OutputError::File(codes::because(failed, format!("hint: {hint}")).finally())
            })?;
            take(work, Path::new(&named.pattern), ty, port).map_err(OutputError::File)
        }
        (Type::List(inner), PortValue::List(elements)) => {
            let elements = elements.into_iter().map(|element| resolve(work, element, inner, port));
            elements.collect::<Result<_, _>>().map(PortValue::List)
        }
        (Type::Record(types), PortValue::Record(mut fields)) => {
            let mut found = std::collections::BTreeMap::new();
            for (name, ty) in types {
                if let Some(field) = fields.remove(name) {
                    found.insert(name.clone(), resolve(work, field, ty, port)?);
                }
            }
            PortValue::Record(found).conform(&Type::Record(types.clone())).map_err(OutputError::Type)
        }
        (Type::Bytes, PortValue::Text(text)) => {
            PortValue::from_json(serde_json::Value::String(text), ty).map_err(OutputError::Type)
        }
        (ty, value) => value.conform(ty).map_err(OutputError::Type),
    }
}
