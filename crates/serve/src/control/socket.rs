//! Creates the file of a Unix socket with its mode, refuses to replace that of a running server,
//! and removes it at the end.
//!
//! ```text
//! no file, or a socket without a listener -> bound under another name, mode set, renamed into place -> removed
//! ```
//!
//! Invariant: the path names this server's socket, or a file that another process put there later.
//! At the end the server removes only its own.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts to lock a directory, and the pause between them: two seconds in all.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The socket's file, which is removed when this is dropped, if it is still this server's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // The next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Listens at `path`. The socket is created under another name, receives its mode, and is renamed
/// into place, so it never has another mode at `path`. Of two servers that start at the same time
/// one is refused.
pub fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let directory = make_directory(path)?;
    // Held from the check to the rename; closing it releases the lock.
    let _lock = lock(&directory)?;
    check_free(path)?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    // A killed process with the same process ID may have left it.
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside).map_err(|error| {
        let next = "name a short path in a directory that this user may write to";
        io::Error::new(error.kind(), format!("{}: {error}; {next}", beside.display()))
    })?;
    let placed = || -> io::Result<SocketFile> {
        fs::set_permissions(&beside, Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        fs::rename(&beside, path)?;
        Ok(SocketFile { path: path.to_path_buf(), identity: identity(path)? })
    };
    let file = placed().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    Ok((listener, file))
}

/// The directory of `path`. It is created if it is missing and its parent exists (`/run/larder` of
/// `/run/larder/ctl`).
fn make_directory(path: &Path) -> io::Result<PathBuf> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match fs::DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let next = format!(
                "create it (install -d -o USER {}), set RuntimeDirectory=larder in the unit, or name another path",
                directory.display()
            );
            Err(io::Error::new(error.kind(), format!("{}: {error}; {next}", directory.display())))
        }
        _ => Ok(directory.to_path_buf()),
    }
}

/// Locks a directory against other servers that create a socket there at the same time. They hold
/// the lock only briefly.
fn lock(directory: &Path) -> io::Result<Option<fs::File>> {
    // A directory that is writable but not readable cannot be locked.
    let Ok(file) = fs::File::open(directory) else { return Ok(None) };
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            // The file system does not support locks.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
    }
    let text = format!(
        "{}: another process holds a lock on this directory; start again later, or name another path",
        directory.display()
    );
    Err(io::Error::new(io::ErrorKind::WouldBlock, text))
}

/// Whether `path` does not exist, or is a socket without a listener.
fn check_free(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.file_type().is_socket() {
        let text = format!("{} is there and is no socket; name another path", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            let text = format!(
                "another server listens on {}; stop it (larder ctl stop), or name another path",
                path.display()
            );
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
