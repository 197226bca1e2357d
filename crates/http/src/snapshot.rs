//! What is kept, in a file: written when the server ends, read when it begins, and then removed.
//!
//! ```text
//! ends    what has its body in its record, and was not purged -> FILE.new -> FILE
//! begins  FILE -> what has not ended meanwhile; FILE is removed once nothing is in the way of service, and before there is any
//! ```
//!
//! Purges are not in the file, and need not be: what was purged is not in it, and a file is read once. A server that is killed begins
//! with nothing, and never with what somebody had purged since. For the same reason nothing is saved while it serves.
//!
//! Invariants
//! 1. Of a record in the file the body is in the record: numbers of bodies mean others in another process.
//! 2. What was removed or replaced stays so when the power fails: the disk has been told before anything is served, or the process ends. An
//!    old file would bring back what was purged since. (Where the file system, or the folder's mode, does not let us, it may.)
//! 3. Serials go on after the highest that was read, so that what is purged from now on is not older than what was read.
//!
//! Cost: a walk over what is kept, some seconds for millions, before the first request and after the last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use larder::Seconds;

use crate::store::Store;

/// The first line of a file. Another version of the program may mean other things by a record.
const HEAD: &str = concat!("larder http ", env!("CARGO_PKG_VERSION"), " records 1\n");

/// With this begin the files of all versions.
const OURS: &[u8] = b"larder http ";

/// What came of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// There is none, as at a first start.
    Nothing,
    /// So many records are kept of it.
    Records(u64),
    /// It was read up to its damage, and what was read is kept.
    Broken(String),
    /// It cannot be read, or is somebody else's: it stays as it is, at the end too.
    Foreign(String),
}

/// Reads a file into what nobody uses yet.
pub fn load(store: &Store, path: &Path, now: Seconds) -> Loaded {
    // To open a pipe is to wait for who writes to it.
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return Loaded::Foreign("it is no plain file".to_owned());
    }
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Loaded::Nothing,
        Err(error) => return Loaded::Foreign(error.to_string()),
        Ok(file) => file,
    };
    let mut head = Vec::with_capacity(HEAD.len());
    if let Err(error) = (&mut file).take(HEAD.len() as u64).read_to_end(&mut head) {
        return Loaded::Foreign(error.to_string());
    }
    if head != HEAD.as_bytes() {
        let is_ours = head.iter().zip(OURS).all(|(one, other)| one == other);
        return match is_ours {
            true => Loaded::Broken("another version wrote it, or it is cut".to_owned()),
            false => Loaded::Foreign("another program wrote it".to_owned()),
        };
    }
    let loaded = store.cache().load_from(&mut file, now);
    match (loaded, store.settle(now)) {
        (Ok(_), Ok(kept)) => Loaded::Records(kept),
        (Err(error), _) => Loaded::Broken(error.to_string()),
        (_, Err(error)) => Loaded::Broken(error.to_string()),
    }
}

/// Where a file is written before it takes its place.
fn tls_bridge(path: &Path) -> PathBuf {
    let mut tls_bridge = path.as_os_str().to_owned();
    tls_bridge.push(".new");
    tls_bridge.into()
}

/// Tries whether a file can be written: at the end it is too late to hear of it. What a killed process left there is gone then.
pub fn try_out(path: &Path) -> io::Result<()> {
    create(&tls_bridge(path))?;
    fs::remove_file(tls_bridge(path))
}

/// Removes a file that was read, if there is one, for good: also one that another process removed and did not live to see gone.
pub fn remove(path: &Path) -> io::Result<()> {
    unlink(path)?;
    sync_folder(path)
}

fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Has the disk know which file is at a path (invariant 2).
fn sync_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
        Err(error) => match error.kind() {
            // There is no folder; it may be written and not read; or the file system cannot. All that could be done is done.
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// Writes a file in the place of an older one: how many records. Nobody may keep or purge meanwhile.
pub fn save(store: &Store, path: &Path, now: Seconds) -> io::Result<u64> {
    store.settle(now).map_err(io::Error::other)?;
    let tls_bridge = tls_bridge(path);
    let written = write(store, &tls_bridge, now).and_then(|count| {
        fs::rename(&tls_bridge, path)?;
        sync_folder(path)?;
        Ok(count)
    });
    if written.is_err() {
        // Half a file is of no use to anybody.
        let _ = fs::remove_file(&tls_bridge);
    }
    written
}

/// It holds what clients were told: it is for nobody else.
fn create(path: &Path) -> io::Result<File> {
    // What is left of who was killed; or, where all may write, what somebody would have us write to.
    unlink(path)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn write(store: &Store, path: &Path, now: Seconds) -> io::Result<u64> {
    let mut file = create(path)?;
    file.write_all(HEAD.as_bytes())?;
    let count = store.cache().save_to(&mut file, now)?;
    file.sync_all()?;
    Ok(count)
}
