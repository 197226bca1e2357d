//! The lock of a folder, whose file has the number of the next segment.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::files;
use crate::options::{Options, StoreError};

/// The beginning of the lock file, before the number of the next segment.
const NUMBERED: &str = "larder store next=";

/// The lock, while it is held.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Writes the number of the next segment, in one write of fixed length.
    pub(crate) fn note_number(&self, number: u64) -> io::Result<()> {
        let mut file = &self.0;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(format!("{NUMBERED}{number:020}\n").as_bytes())
    }
}

impl Drop for Lock {
    /// Releases it. Closing the file would not while a child of this process has it too: between its fork
    /// and its exec.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Locks the folder: only one process writes to it. Also returns the number of the next segment, so
/// that numbers of deleted segments are not used again.
pub(crate) fn lock(options: &Options) -> Result<(Lock, u64), StoreError> {
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
            Ok((Lock(file), number.filter(|number| *number < u64::MAX / 2).unwrap_or(0)))
        }
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(options.directory.clone())),
        Err(TryLockError::Error(error)) => Err(StoreError::Io(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock ends with its holder, also while somebody has a copy of the descriptor, as a child of this
    /// process between its fork and its exec. It keeps the number.
    #[test]
    fn a_copy_of_the_descriptor_holds_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path(), 1 << 20);
        let (held, _) = lock(&options).expect("nobody has it");
        held.note_number(7).expect("room");
        let copy = held.0.try_clone().expect("a descriptor");
        assert!(lock(&options).is_err(), "it is held");
        drop(held);
        let (_, number) = lock(&options).expect("its holder is gone");
        assert_eq!(number, 7);
        drop(copy);
    }
}
