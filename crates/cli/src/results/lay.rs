//! Computes the paths of outputs in the directory of results. Pure.
//!
//! A file has the name that the flow gives it, at the top. The files of a list, a directory or a record are in a
//! directory of the output's name. Two outputs whose paths would collide are each in a directory of their own name.

use onceflow_exec::value::PortValue;
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// A file or directory that is moved to its destination at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResultItem {
    File { output: String, at: PathBuf, from: PathBuf },
    Directory { output: String, at: PathBuf, files: BTreeMap<PathBuf, PathBuf> },
}

impl ResultItem {
    pub(crate) fn at(&self) -> &Path {
        match self {
            ResultItem::File { at, .. } | ResultItem::Directory { at, .. } => at,
        }
    }

    /// Returns the output it belongs to.
    pub(crate) fn output(&self) -> &str {
        match self {
            ResultItem::File { output, .. } | ResultItem::Directory { output, .. } => output,
        }
    }

    pub(crate) fn files(&self) -> usize {
        match self {
            ResultItem::File { .. } => 1,
            ResultItem::Directory { files, .. } => files.len(),
        }
    }
}

/// All items with their destinations.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) items: Vec<ResultItem>,
    /// The outputs as they are shown, with the paths of their files; `None` for an output that is shown as it is.
    pub(crate) shown: Vec<Option<PortValue>>,
}

/// Computes where outputs go; the paths that are shown begin with `out`.
///
/// # Errors
/// If the name of a file leads out of the directory.
pub(crate) fn lay(out: &Path, outputs: &[(String, PortValue)]) -> Result<Laid, String> {
    let (mut items, mut shown) = (Vec::new(), Vec::with_capacity(outputs.len()));
    for (name, value) in outputs {
        shown.push(match value {
            PortValue::File(file) => {
                let called = inside(file.base())?;
                let apart = is_taken(&called, name, outputs)?;
                let at = if apart { Path::new(name).join(called) } else { called };
                let shown = path(&out.join(&at));
                items.push(ResultItem::File { output: name.clone(), at, from: file.path.clone() });
                Some(shown)
            }
            _ => {
                let at = PathBuf::from(name);
                let mut files = BTreeMap::new();
                let shown = nested(value, &out.join(name), Path::new(""), &mut files)?;
                if !files.is_empty() || matches!(value, PortValue::Directory(_)) {
                    items.push(ResultItem::Directory { output: name.clone(), at, files });
                }
                shown
            }
        });
    }
    Ok(Laid { items, shown })
}

/// Another output needs the path of this file.
fn is_taken(called: &Path, name: &str, outputs: &[(String, PortValue)]) -> Result<bool, String> {
    for (other, value) in outputs.iter().filter(|(other, _)| other != name) {
        let takes = match value {
            // A file moved aside by a collision goes into a directory of its output's name.
            PortValue::File(file) => inside(file.base())? == called || Path::new(other) == called,
            _ => Path::new(other) == called,
        };
        if takes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Collects the files in a value; returns the value with their paths, or `None` if it has none and is shown as it is.
fn nested(
    value: &PortValue,
    out: &Path,
    at: &Path,
    files: &mut BTreeMap<PathBuf, PathBuf>,
) -> Result<Option<PortValue>, String> {
    Ok(match value {
        PortValue::File(file) => {
            let to = at.join(inside(file.base())?);
            let shown = path(&out.join(&to));
            files.insert(to, file.path.clone());
            Some(shown)
        }
        PortValue::Directory(directory) => {
            for file in &directory.files {
                files.insert(at.join(inside(&file.name)?), file.path.clone());
            }
            Some(path(if at.as_os_str().is_empty() { out.to_owned() } else { out.join(at) }.as_path()))
        }
        PortValue::List(elements) => {
            let plain = are_files_with_names_of_their_own(elements);
            let mut shown: Option<Vec<_>> = None;
            for (index, element) in elements.iter().enumerate() {
                let at = if plain { at.to_owned() } else { at.join(index.to_string()) };
                match (nested(element, out, &at, files)?, &mut shown) {
                    (None, None) => {}
                    (Some(element), None) => shown = Some([&elements[..index], &[element]].concat()),
                    (given, Some(shown)) => shown.push(given.unwrap_or_else(|| element.clone())),
                }
            }
            shown.map(PortValue::List)
        }
        PortValue::Record(fields) => {
            let mut changed = Vec::new();
            for (name, field) in fields {
                let shown = nested(field, out, &at.join(inside(name)?), files)?;
                changed.extend(shown.map(|shown| (name.clone(), shown)));
            }
            (!changed.is_empty()).then(|| {
                let mut fields = fields.clone();
                fields.extend(changed);
                PortValue::Record(fields)
            })
        }
        _ => None,
    })
}

fn are_files_with_names_of_their_own(elements: &[PortValue]) -> bool {
    let mut names = std::collections::BTreeSet::new();
    elements.iter().all(|element| match element {
        PortValue::File(file) => names.insert(file.base()),
        PortValue::Null => true,
        _ => false,
    })
}

/// Checks that a name is a relative path that stays inside its directory.
fn inside(name: &str) -> Result<PathBuf, String> {
    let path = Path::new(name);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !stays {
        return Err(format!("a result cannot be called `{name}`: that leads out of the directory of results"));
    }
    Ok(path.to_owned())
}

fn path(path: &Path) -> PortValue {
    PortValue::Text(path.to_string_lossy().into_owned())
}
