//! Where the socket is. A socket's address has room for about a hundred bytes of path; where the directory's path is
//! longer, Linux lets us name it through a descriptor of the directory.

use crate::fs::remove_if_there;
use std::{
    fs::{self, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, net::SocketAddr},
    },
    path::{Path, PathBuf},
};
use tokio::net::UnixListener;

/// The name of the socket.
pub(super) const NAME: &str = "store.sock";

/// The name of the socket until it may be used. Not longer than [`NAME`].
const NAME_UNTIL_READY: &str = "store.new";

/// A path that fits into an address, for as long as this lives.
#[derive(Debug)]
pub(super) struct SocketPath {
    path: PathBuf,
    _dir: Option<File>,
}

impl SocketPath {
    /// The address of the socket in a directory.
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        SocketPath::named(dir, NAME)
    }

    fn named(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        if SocketAddr::from_pathname(&path).is_ok() {
            return Ok(SocketPath { path, _dir: None });
        }
        let dir = File::open(dir)?;
        let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
        if !short.exists() {
            let why = format!("{} is too long for a socket's address", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
        }
        Ok(SocketPath { path: short.join(name), _dir: Some(dir) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Listens in a directory that the caller owns, replacing the socket of an earlier owner. From the moment it has its
/// name, the socket is this user's alone.
pub(super) fn listen(dir: &Path) -> io::Result<UnixListener> {
    let fresh = dir.join(NAME_UNTIL_READY);
    remove_if_there(&fresh)?;
    let listener = UnixListener::bind(SocketPath::named(dir, NAME_UNTIL_READY)?.path())?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    fs::rename(&fresh, dir.join(NAME))?;
    Ok(listener)
}

/// Takes the socket away. For the owner only.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    remove_if_there(&dir.join(NAME))
}
