//! Walks a directory with a flow that calls itself: the files of a directory are added up, and each directory in it is
//! another run of the same flow, side by side. How deep it goes is decided while it runs. Give it a directory; without
//! one it makes its own.

use onceflow::prelude::*;
use std::path::PathBuf;

/// The bytes in the files right here, and the directories beside them.
#[task(outputs(bytes, directories))]
fn list(path: String) -> Result<(u64, Vec<String>), std::io::Error> {
    let (mut bytes, mut directories) = (0, Vec::new());
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            directories.push(entry.path().to_string_lossy().into_owned());
        } else if kind.is_file() {
            bytes += entry.metadata()?.len();
        }
    }
    directories.sort();
    Ok((bytes, directories))
}

#[task(effect = pure, outputs(bytes, directories))]
fn total(here: u64, below: Vec<u64>, directories: Vec<u64>) -> (u64, u64) {
    (here + below.iter().sum::<u64>(), 1 + directories.iter().sum::<u64>())
}

#[flow(outputs(bytes, directories))]
fn walk(f: &mut Builder, path: Port<String>) -> (Port<u64>, Port<u64>) {
    let (here, inside) = f.add(list(path));
    let (below, directories) = f.each(inside, |f, path| f.add(walk(path)));
    f.add(total(here, below, directories))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = tempfile::tempdir()?;
    let directory = match std::env::args_os().nth(1) {
        Some(directory) => PathBuf::from(directory),
        None => {
            std::fs::create_dir_all(own.path().join("a/b/c"))?;
            std::fs::create_dir_all(own.path().join("d"))?;
            for (name, bytes) in [("1", 1), ("a/2", 20), ("a/b/c/3", 300), ("d/4", 4000)] {
                std::fs::write(own.path().join(name), vec![0; bytes])?;
            }
            own.path().to_owned()
        }
    };
    let engine = Engine::in_memory();
    let (bytes, directories) = engine.run(&walk::flow(), directory.to_string_lossy().into_owned()).await?;
    println!("{bytes} bytes in {directories} directories");
    engine.close().await?;
    Ok(())
}
