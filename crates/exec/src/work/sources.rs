//! Inputs that are the user's own files: a step reads them at their own paths, and nothing of them is in its work
//! directory. The engine checks that their content is unchanged; this module, that a directory has exactly the files
//! that the run was planned with.

use crate::{
    codes,
    value::{DirectoryValue, PortValue},
};
use onceflow_engine::{
    SOURCE_CHANGED,
    task::{Data, Failure},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The user's own files among the inputs of a step.
#[derive(Default)]
pub(super) struct SourceInputs {
    paths: BTreeSet<PathBuf>,
    /// Directories that the step reads at their own paths.
    directories: Vec<DirectoryValue>,
}

impl SourceInputs {
    /// Notes the files of an input.
    pub(super) fn note(&mut self, input: &Data) {
        match input {
            Data::File(file) if file.by_reference => drop(self.paths.insert(file.path.clone())),
            Data::List(elements) => elements.with_files().iter().for_each(|element| self.note(element)),
            Data::File(_) | Data::Bytes(_) | Data::None => {}
        }
    }

    /// The file is the user's own.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.paths.contains(path)
    }

    /// All files of an input are the user's own, so nothing has to be staged in the work directory. Sets the paths of
    /// the directories in it to their own.
    pub(super) fn stay(&mut self, value: &mut PortValue) -> bool {
        if self.paths.is_empty() || !value.files().iter().all(|file| self.paths.contains(&file.path)) {
            return false;
        }
        // A directory without files has no path yet.
        if !are_somewhere(value) {
            return false;
        }
        self.locate(value);
        true
    }

    fn locate(&mut self, value: &mut PortValue) {
        match value {
            PortValue::Directory(directory) => {
                directory.path = root(directory).map(Path::to_owned).unwrap_or_default();
                self.directories.push(DirectoryValue::clone(directory));
            }
            PortValue::List(elements) => elements.iter_mut().for_each(|element| self.locate(element)),
            PortValue::Record(fields) => fields.values_mut().for_each(|field| self.locate(field)),
            _ => {}
        }
    }

    /// Checks that the directories hold exactly the files that the run was planned with.
    pub(super) fn check_directories(&self) -> Result<(), Failure> {
        for directory in &self.directories {
            let path = directory.path.display();
            let changed = |why: String| {
                let failed = codes::failure(SOURCE_CHANGED, format!("input changed: {why}")).finally();
                codes::because(failed, "hint: run the same command again, which plans with what is there now")
            };
            let now = DirectoryValue::read(&directory.path);
            let now = now.map_err(|error| changed(format!("directory {path} cannot be read: {error}")))?;
            let names = |of: &DirectoryValue| of.files.iter().map(|file| file.name.clone()).collect::<BTreeSet<_>>();
            let (was, is) = (names(directory), names(&now));
            if let Some(name) = was.symmetric_difference(&is).next() {
                let what = if is.contains(name) { "has a new file" } else { "has lost a file" };
                return Err(changed(format!("directory {path} {what}, `{name}`")));
            }
        }
        Ok(())
    }
}

/// Returns the path below which all files of a directory are, judged by their names.
fn root(directory: &DirectoryValue) -> Option<&Path> {
    let mut roots = directory.files.iter().map(|file| {
        let parts = Path::new(&file.name).components().count();
        file.path.ends_with(&file.name).then(|| file.path.ancestors().nth(parts)).flatten()
    });
    let first = roots.next()??;
    roots.all(|root| root == Some(first)).then_some(first)
}

fn are_somewhere(value: &PortValue) -> bool {
    match value {
        PortValue::Directory(directory) => root(directory).is_some(),
        PortValue::List(elements) => elements.iter().all(are_somewhere),
        PortValue::Record(fields) => fields.values().all(are_somewhere),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::FileValue;
    use onceflow_engine::task::FileData;

    fn directory(at: &Path, names: &[&str]) -> PortValue {
        let file = |name: &&str| FileValue { name: (*name).to_owned(), path: at.join(name) };
        PortValue::from(DirectoryValue { path: PathBuf::new(), files: names.iter().map(file).collect() })
    }

    #[test]
    fn a_directory_of_the_users_is_where_it_is_and_must_stay_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let mut sources = SourceInputs::default();
        std::fs::create_dir(place.path().join("sub")).unwrap();
        for name in ["a", "sub/b"] {
            std::fs::write(place.path().join(name), name).unwrap();
            sources.note(&Data::List(
                vec![Data::from(FileData::new(name, place.path().join(name)).by_reference())].into(),
            ));
        }
        let mut value = directory(place.path(), &["a", "sub/b"]);
        assert!(sources.stay(&mut value));
        let PortValue::Directory(located) = &value else { panic!("{value:?}") };
        assert_eq!(located.path, place.path());
        sources.check_directories().unwrap();
        std::fs::write(place.path().join("sub/c"), "new").unwrap();
        let told = sources.check_directories().unwrap_err().causes.join(" ");
        assert!(told.contains("OF0330: input changed") && told.contains("has a new file, `sub/c`"), "{told}");
    }

    #[test]
    fn files_of_the_store_are_put_into_the_work_directory() {
        let mut sources = SourceInputs::default();
        sources.note(&Data::from(FileData::new("a", "/data/a").by_reference()));
        sources.note(&Data::from(FileData::new("b", "/store/b")));
        let file = |path: &str| PortValue::from(FileValue { name: "a".into(), path: path.into() });
        assert!(sources.stay(&mut file("/data/a")) && !sources.stay(&mut file("/store/b")));
        assert!(!sources.stay(&mut PortValue::List(vec![file("/data/a"), file("/store/b")])));
        assert!(!sources.stay(&mut directory(Path::new("/data"), &[])));
    }
}
