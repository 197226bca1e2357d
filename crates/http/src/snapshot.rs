//! Writes cached responses to a file when the server ends. The next start reads the file, and
//! removes it.
//!
//! ```text
//! ends    records with their bodies, not purged -> FILE.new -> FILE
//! begins  FILE -> records that have not expired; FILE is removed before anything is served
//! ```
//!
//! The file has no purges, and needs none: it has no purged records, and larder reads it only once.
//! A server that is killed starts empty, never with responses that were purged since. For the same
//! reason larder saves nothing while it serves.
//!
//! Invariants
//! 1. A record in the file includes its body: another process gives other numbers to bodies.
//! 2. A removed or replaced file stays so when the power fails: larder syncs the folder before it
//!    serves anything, or before the process ends. An old file would bring back what was purged
//!    since. (It may, where the file system or the mode of the folder does not allow the sync.)
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

/// The first line of a file. In another version of the program records may have another meaning.
const HEAD: &str = concat!("larder http ", env!("CARGO_PKG_VERSION"), " records 1\n");

/// The first bytes of a file of any version.
const OURS: &[u8] = b"larder http ";

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// There is no file, as at a first start.
    Nothing,
    /// This many records of it are cached.
    Records(u64),
    /// The file is damaged; the records before the damage are cached.
    Broken(String),
    /// larder cannot read it, or another program wrote it. larder does not change it, at the end
    /// either.
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

/// The path of a file before it is renamed.
fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    temporary.into()
}

/// Checks that a file can be written: at the end it is too late for an error. Removes the file that
/// a killed process left there.
pub fn try_out(path: &Path) -> io::Result<()> {
    create(&temporary(path))?;
    fs::remove_file(temporary(path))
}

/// Removes a file that was read, if there is one, for good. This includes one that another process
/// removed before it was killed.
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

/// Makes the disk record the file names of a folder (invariant 2).
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

/// Writes a file in place of an older one, and returns the number of records. Nothing may be stored
/// or purged meanwhile.
pub fn save(store: &Store, path: &Path, now: Seconds) -> io::Result<u64> {
    store.settle(now).map_err(io::Error::other)?;
    let temporary = temporary(path);
    let written = write(store, &temporary, now).and_then(|count| {
        fs::rename(&temporary, path)?;
        sync_folder(path)?;
        Ok(count)
    });
    if written.is_err() {
        // Half a file is useless.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Responses of clients are in it: only its owner may read it.
fn create(path: &Path) -> io::Result<File> {
    // A killed process left it. Or another user, where everybody may write, wants larder to write
    // to its file.
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
