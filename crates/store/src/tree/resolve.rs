//! Resolves a path below a directory. Links that stay below are followed, by hand, so that every step of the way is a
//! name in a directory that is held open; a link that leads out ends it.

use super::{Dir, at, kind, names};
use rustix::fs::{FileType, readlinkat};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// Links followed on the way: as many as Linux does.
const LINKS_MAX: usize = 40;

/// An entry below a directory that is not a link.
#[derive(Debug)]
pub struct Spot {
    /// The directory it is in.
    pub dir: Dir,
    /// Its name there.
    pub name: OsString,
    /// Its path from where the search began; no part of it is a link.
    pub path: PathBuf,
}

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum Astray {
    /// A link leads out of the directory, or to the directory itself.
    #[error("is a link that leads out of the work directory")]
    Out,
    /// Nothing is there, and no link is on the way.
    #[error("is not there")]
    Absent,
    /// A link leads to nothing.
    #[error("is a link that leads nowhere")]
    Nowhere,
    /// The system's error.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

enum Part {
    Up,
    Name(OsString),
}

impl Dir {
    /// Resolves a path below this directory. A link with an absolute target stays below if the target begins with one
    /// of `known_as`, the paths by which the directory is known.
    ///
    /// # Errors
    /// [`Astray`].
    pub fn resolve(&self, path: &Path, known_as: &[&Path]) -> Result<Spot, Astray> {
        names(path)?;
        let (mut todo, mut links) = (Vec::new(), 0);
        push(&mut todo, path);
        // The directories on the way, each by its name in the one before.
        let mut way: Vec<(OsString, Dir)> = Vec::new();
        while let Some(part) = todo.pop() {
            let Part::Name(name) = part else {
                way.pop().ok_or(Astray::Out)?;
                continue;
            };
            let here = way.last().map_or(self, |(_, dir)| dir);
            let nothing = || if links == 0 { Astray::Absent } else { Astray::Nowhere };
            let found = here.stat(&name).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => nothing(),
                _ => Astray::Io(error),
            })?;
            match kind(&found) {
                FileType::Symlink if links == LINKS_MAX => return Err(Astray::Nowhere),
                FileType::Symlink => {
                    links += 1;
                    let target = here.read_link(&name)?;
                    if target.is_absolute() {
                        let below = known_as.iter().find_map(|known| target.strip_prefix(known).ok());
                        push(&mut todo, below.ok_or(Astray::Out)?);
                        way.clear();
                    } else {
                        push(&mut todo, &target);
                    }
                }
                FileType::Directory => {
                    let dir = here.child(&name)?;
                    way.push((name, dir));
                }
                _ if todo.is_empty() => return self.spot(way, name),
                _ => return Err(nothing()),
            }
        }
        let (name, _) = way.pop().ok_or(Astray::Out)?;
        self.spot(way, name)
    }

    fn spot(&self, mut way: Vec<(OsString, Dir)>, name: OsString) -> Result<Spot, Astray> {
        let mut path: PathBuf = way.iter().map(|(name, _)| name).collect();
        path.push(&name);
        let dir = way.pop().map_or_else(|| self.try_clone(), |(_, dir)| Ok(dir))?;
        Ok(Spot { dir, name, path })
    }

    fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = readlinkat(&self.fd, name, Vec::new()).map_err(|error| at(&self.path.join(name), error))?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }
}

/// Pushes the parts of a path; the first part is on top.
fn push(todo: &mut Vec<Part>, path: &Path) {
    todo.extend(path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::ParentDir => Some(Part::Up),
        _ => None,
    }));
}
