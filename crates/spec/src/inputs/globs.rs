//! Finds the files that a pattern matches, in the order of their paths: `*` and `?` inside a name, `**` across
//! directories.

use crate::limits::GLOB_FILES_MAX;
use globset::{GlobBuilder, GlobMatcher};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The text has wildcards.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// The depth of nested directories that `**` descends into.
const DEPTH_MAX: usize = 64;

/// Returns the files that match, relative to `base`; the error is the reason why the pattern is invalid.
pub(crate) fn find(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let matcher =
        GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| error.kind().to_string())?;
    let parts: Vec<&str> = pattern.split('/').collect();
    let plain = parts.iter().take_while(|part| !is_pattern(part)).count().min(parts.len() - 1);
    let start: PathBuf = if pattern.starts_with('/') {
        Path::new("/").join(parts[..plain].join("/").trim_start_matches('/'))
    } else {
        parts[..plain].iter().collect()
    };
    let depth = if pattern.contains("**") { DEPTH_MAX } else { parts.len() - plain };
    let mut walk = GlobWalk {
        base,
        matcher: matcher.compile_matcher(),
        hidden: pattern.contains("/.") || pattern.starts_with('.'),
        found: vec![],
    };
    walk.directory(&start, depth);
    if walk.found.len() > GLOB_FILES_MAX {
        return Err(format!("it matches more than {GLOB_FILES_MAX} files"));
    }
    walk.found.sort();
    Ok(walk.found)
}

struct GlobWalk<'a> {
    base: &'a Path,
    matcher: GlobMatcher,
    /// Names that begin with a dot match too.
    hidden: bool,
    found: Vec<PathBuf>,
}

impl GlobWalk<'_> {
    /// Searches a directory. One that cannot be read counts as empty.
    fn directory(&mut self, relative: &Path, depth: usize) {
        let shown = if relative.as_os_str().is_empty() { self.base.to_owned() } else { self.base.join(relative) };
        let path = if shown.as_os_str().is_empty() { PathBuf::from(".") } else { shown };
        let Ok(entries) = fs::read_dir(path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !self.hidden && name.to_string_lossy().starts_with('.') || self.found.len() > GLOB_FILES_MAX {
                continue;
            }
            let inner = relative.join(&name);
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_dir() && depth > 1 => self.directory(&inner, depth - 1),
                Ok(metadata) if metadata.is_file() && self.matcher.is_match(&inner) => self.found.push(inner),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_files_it_matches_in_order() {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        for name in ["b.fq", "a.fq", "a b'.fq", "sub/c.fq", "sub/deep/d.fq", ".hidden.fq", "x.txt"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(dir.path())).unwrap_or_default();
            fs::write(path, "").unwrap_or_default();
        }
        let find = |pattern: &str| {
            let found = find(dir.path(), pattern).unwrap_or_default();
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(find("*.fq"), "a b'.fq a.fq b.fq");
        assert_eq!(find("./?.fq"), "a.fq b.fq");
        assert_eq!(find("*/*.fq"), "sub/c.fq");
        assert_eq!(find("**/*.fq"), "a b'.fq a.fq b.fq sub/c.fq sub/deep/d.fq");
        assert_eq!(find("sub/**/*.fq"), "sub/c.fq sub/deep/d.fq");
        assert_eq!(find("{a,b}.fq"), "a.fq b.fq");
        assert_eq!(find(".h*"), ".hidden.fq");
        assert_eq!(find("nothing/*"), "");
        let absolute = format!("{}/*.txt", dir.path().display());
        assert_eq!(find(&absolute), dir.path().join("x.txt").display().to_string());
    }
}
