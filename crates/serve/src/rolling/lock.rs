//! The lock of a log. It records how far the file was written, for the run after a kill.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use larder_io::access::Access;

/// The notes of a run that may have been killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// When the file was begun.
    pub begin_ns: Option<i64>,
    /// The file was being closed, and has this many bytes before the footer.
    pub whole_bytes: Option<u64>,
}

/// The lock, while it is held.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock. Returns the notes in it, unless the last run removed them at its end.
    pub fn take(path: &Path, access: Access) -> io::Result<(Lock, Option<Note>)> {
        loop {
            let was_there = path.exists();
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut file = access.open(&mut options, path)?;
            if file.try_lock().is_err() {
                let what = "another larder writes this log; end it, or name another file";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            // Between the two calls its owner may have removed the file.
            let same =
                fs::metadata(path).and_then(|there| Ok(there.ino() == file.metadata()?.ino()));
            if !same.unwrap_or(false) {
                continue;
            }
            let mut text = String::new();
            let _ = Read::by_ref(&mut file).take(64).read_to_string(&mut text);
            return Ok((Lock { file, path: path.to_owned() }, was_there.then(|| parse(&text))));
        }
    }

    /// Records how far the file is: two numbers of fixed width in one write, so a reader never sees
    /// one old and one new.
    pub fn note(&mut self, begin_ns: i64, whole_bytes: Option<u64>) {
        let whole = whole_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(-1));
        let text = format!("{begin_ns:20} {whole:20}\n");
        // Without this note the next run uses the file's own time, and its last line.
        let _ = self.file.write_all_at(text.as_bytes(), 0);
    }

    /// Removes the lock: no file is left to close.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Lock {
    /// Releases it. Closing the file would not while a child of this process has it too: between its fork
    /// and its exec.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn parse(text: &str) -> Note {
    let mut words = text.split_whitespace();
    let begin_ns = words.next().and_then(|word| word.parse().ok());
    let whole_bytes = words.next().and_then(|word| word.parse().ok());
    Note { begin_ns, whole_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock ends with its holder, also while somebody has a copy of the descriptor, as a child of this
    /// process between its fork and its exec.
    #[test]
    fn a_copy_of_the_descriptor_holds_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let (lock, _) = Lock::take(&path, Access::PRIVATE).expect("nobody has it");
        let copy = lock.file.try_clone().expect("a descriptor");
        assert!(Lock::take(&path, Access::PRIVATE).is_err(), "it is held");
        drop(lock);
        Lock::take(&path, Access::PRIVATE).expect("its holder is gone");
        drop(copy);
    }
}
