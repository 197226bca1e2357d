//! Cached responses in a file: written when the server ends, read when it begins, and then removed.
//!
//! ```text
//! ends    records with their bodies, not purged -> FILE.new -> FILE
//! begins  FILE -> records that have not expired; FILE is removed before anything is served
//! ```
//!
//! Purges are not in the file, and need not be: purged records are not in it, and a file is read
//! once. A server that is killed begins with nothing, and never with responses that were purged
//! since. For the same reason nothing is saved while it serves.
//!
//! Invariants
//! 1. A record in the file has its body in the record: numbers of bodies mean others in another process.
//! 2. A removed or replaced file stays so when the power fails: the disk has it before anything is
//!    served, or the process ends. An old file would bring back what was purged since. (It may, where
//!    the file system or the mode of the folder does not allow that.)
//! 3. Serial numbers continue after the highest that was read, so that a purge from now on is not older
//!    than a record that was read.
//!
//! Cost: a walk over all records, some seconds for millions, before the first request and after the
//! last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use larder::Seconds;

use crate::store::Store;

/// The first line of a file. Another version of the program may mean other things by a record.
const HEAD: &str = concat!("larder http ", env!("CARGO_PKG_VERSION"), " records 1\n");

/// All versions begin their files with this.
const OURS: &[u8] = b"larder http ";

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// There is none, as at a first start.
    Nothing,
    /// This many records of it are cached.
    Records(u64),
    /// It was read up to its damage, and those records are cached.
    Broken(String),
    /// It cannot be read, or another program wrote it: it stays as it is, at the end too.
    Foreign(String),
}

/// Reads a file into a store that is not used yet.
pub fn load(store: &Store, path: &Path, now: Seconds) -> Loaded {
    // Opening a pipe would wait for its writer.
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

/// Where a file is written before it is renamed.
fn tls_bridge(path: &Path) -> PathBuf {
    let mut tls_bridge = path.as_os_str().to_owned();
    tls_bridge.push(".new");
    tls_bridge.into()
}

/// Tries whether a file can be written: at the end it is too late for an error. Removes what a
/// killed process left there.
pub fn try_out(path: &Path) -> io::Result<()> {
    create(&tls_bridge(path))?;
    fs::remove_file(tls_bridge(path))
}

/// Removes a file that was read, if there is one, for good: also one that another process removed
/// before it was killed.
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

/// Makes the disk record which file is at a path (invariant 2).
fn sync_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
        Err(error) => match error.kind() {
            // There is no folder; or it may be written and not read; or the file system cannot do
            // it.
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// Writes a file in place of an older one: how many records. Nothing may be stored or purged
/// meanwhile.
pub fn save(store: &Store, path: &Path, now: Seconds) -> io::Result<u64> {
    store.settle(now).map_err(io::Error::other)?;
    let tls_bridge = tls_bridge(path);
    let written = write(store, &tls_bridge, now).and_then(|count| {
        fs::rename(&tls_bridge, path)?;
        sync_folder(path)?;
        Ok(count)
    });
    if written.is_err() {
        // Half a file is of no use.
        let _ = fs::remove_file(&tls_bridge);
    }
    written
}

/// It has responses of clients: only its owner may read it.
fn create(path: &Path) -> io::Result<File> {
    // A killed process left it; or, where everybody may write, another user wants larder to write
    // to it.
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
