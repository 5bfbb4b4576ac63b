//! Inputs in files: a few written by hand per target, and every one that once failed.

use std::{fs, io, path::PathBuf};

/// The directory of this crate.
pub fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The committed inputs of a target, in the order of their names. Those that once failed are among them.
///
/// # Panics
/// If the directory cannot be read: it is part of the repository.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = home().join("corpus").join(target);
    let read = || -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut paths = fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        let named = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, fs::read(path)?))
        };
        paths.into_iter().map(named).collect()
    };
    read().unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

/// Keeps an input that failed, under a name made of what it is.
///
/// # Errors
/// If it cannot be written.
pub fn keep_failure(target: &str, input: &[u8]) -> io::Result<PathBuf> {
    let directory = home().join("failures").join(target);
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{:08x}", crc32fast::hash(input)));
    fs::write(&path, input)?;
    Ok(path)
}
