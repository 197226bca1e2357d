//! The lock of a folder, whose file has the number of the next segment.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::files;
use crate::options::{Options, StoreError};

/// The beginning of the lock file, before the number of the next segment.
const NUMBERED: &str = "larder store next=";

/// Writes the number of the next segment, in one write of fixed length.
pub(crate) fn note_number(mut lock: &File, number: u64) -> io::Result<()> {
    lock.seek(SeekFrom::Start(0))?;
    lock.write_all(format!("{NUMBERED}{number:020}\n").as_bytes())
}

/// Locks the folder: only one process writes to it. Also returns the number of the next segment, so
/// that numbers of deleted segments are not used again.
pub(crate) fn lock(options: &Options) -> Result<(File, u64), StoreError> {
    let path = files::lock(&options.directory);
    let mut how = File::options();
    how.read(true).write(true).create(true).truncate(false);
    let mut file = options.access.open(&mut how, &path).map_err(StoreError::at(&path))?;
    match file.try_lock() {
        Ok(()) => {
            let mut text = String::new();
            let _ = Read::by_ref(&mut file).take(64).read_to_string(&mut text);
            let number =
                text.strip_prefix(NUMBERED).and_then(|number| number.trim_end().parse().ok());
            Ok((file, number.filter(|number| *number < u64::MAX / 2).unwrap_or(0)))
        }
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(options.directory.clone())),
        Err(TryLockError::Error(error)) => Err(StoreError::Io(path, error)),
    }
}
