//! Finds programs on the PATH.

use crate::codes;
use onceflow_engine::task::Failure;
use rustix::fs::{Access, access};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Finds the program of this name on the PATH of this environment, unless the name is a path itself.
pub(crate) fn find(name: &str, env: &[(OsString, OsString)]) -> Result<PathBuf, Failure> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let found = std::env::split_paths(path).map(|directory| directory.join(name)).find(|path| is_program(path));
    found.ok_or_else(|| {
        let failed = codes::failure(codes::NOT_FOUND, format!("`{name}` was not found on the PATH"));
        let mut failed = codes::because(failed, format!("the PATH is {}", path.to_string_lossy()));
        failed.causes.push(format!("hint: install `{name}`, or give its path"));
        failed.not_done = true;
        failed
    })
}

/// The PATH if the environment has none.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn is_program(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok() && path.is_file()
}
