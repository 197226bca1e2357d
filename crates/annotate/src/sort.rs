//! `--sort start`: rendered records in the order of their flows' first packets.
//!
//! Records come in the order in which flows end, and the first flow may last until the end of the
//! input, so nothing can be written before. Records are held in memory up to a limit. Then they are
//! sorted and written to a temporary file as one *run*; at the end all runs are merged.
//!
//! ```text
//! phase       does                                          ends with
//! gathering   push(): memory holds less than the limit      spill, finish()
//! spill       memory, sorted, becomes the next run          gathering
//! merging     finish(): one read position a run             done, error
//!
//! file        = run ...                (known by their offsets)
//! run         = entry ...              sorted by key
//! entry       = key:u64 len:u32 bytes, numbers little-endian
//! ```
//!
//! Invariants
//! 1. Equal keys keep the order in which they were pushed: runs are numbered in that order, and
//!    within a run entries are sorted by (key, place in memory).
//! 2. The temporary file has no name as soon as it is open, so the system deletes it when the
//!    process ends, in whatever way.
//!
//! Bounds: the limit covers records and their index. (Allocations may be twice as large, since
//! vectors double as they grow, but unused memory is not touched.) While merging, each run has a
//! read buffer: the limit divided by the number of runs, but at least 4 KiB or one record. A run is
//! as long as the limit, so these minima exceed 64 MiB only beyond a log of 1 TiB, and then by 4
//! KiB for each 64 MiB. Disk: the log once, plus 12 bytes a record. Cost: O(n log n) comparisons of
//! integers; each record is copied twice without a spill, else four times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// The memory limit that `larder annotate` uses, bytes.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Bytes of a run's read buffer while merging, at least.
const RUN_BUFFER_BYTES_MIN: usize = 4 << 10;

/// At most: reading more at once is no faster.
const RUN_BUFFER_BYTES_MAX: usize = 1 << 20;

/// Bytes of an entry's header.
const ENTRY_HEADER_BYTES: usize = 12;

/// Sorts records by key, within a memory limit.
#[derive(Debug)]
pub struct Sorter {
    memory_bytes_max: usize,
    directory: PathBuf,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    spilled: Option<Spill>,
}

/// A record in memory. The derived order is that of invariant 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: u64,
    start: usize,
    len: u32,
}

/// The temporary file.
#[derive(Debug)]
struct Spill {
    file: File,
    bytes: u64,
    /// The end of each run; a run begins at the end of the previous one.
    run_ends: Vec<u64>,
}

impl Sorter {
    /// A sorter that keeps at most `memory_bytes_max` bytes in memory, and the rest in a nameless
    /// file in `directory` (`None`: the system's temporary directory, `$TMPDIR`).
    pub fn new(memory_bytes_max: usize, directory: Option<PathBuf>) -> Sorter {
        Sorter {
            memory_bytes_max,
            directory: directory.unwrap_or_else(std::env::temp_dir),
            bytes: Vec::new(),
            entries: Vec::new(),
            spilled: None,
        }
    }

    /// Adds a rendered record; `first_packet` is its key.
    ///
    /// # Errors
    /// [`Error::Output`] when the temporary file cannot be written; the sorter is of no use then.
    pub fn push(&mut self, first_packet: u64, record: &[u8]) -> Result<(), Error> {
        let len = u32::try_from(record.len()).map_err(|_| Error::Output {
            what: "a log record".to_owned(),
            why: "it is longer than 4 GiB and can't be sorted: leave out --sort start".to_owned(),
        })?;
        if self.memory_bytes() + record.len() + size_of::<Entry>() > self.memory_bytes_max {
            self.spill().map_err(|error| cannot_spill(&self.directory, &error))?;
        }
        self.entries.push(Entry { key: first_packet, start: self.bytes.len(), len });
        self.bytes.extend_from_slice(record);
        Ok(())
    }

    /// Passes every record to `write`, in order, one at a time.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::Output`] when the temporary file cannot be written or read.
    pub fn finish(self, mut write: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut sorted = self.sorted()?;
        while let Some((_, record)) = sorted.advance()? {
            write(record)?;
        }
        Ok(())
    }

    /// Ends the gathering; the result gives the records in order, one at a time.
    ///
    /// # Errors
    /// [`Error::Output`] when the temporary file cannot be written or read.
    pub fn sorted(mut self) -> Result<Sorted, Error> {
        if self.spilled.is_some() {
            self.spill().map_err(|error| cannot_spill(&self.directory, &error))?;
        }
        let Some(spilled) = self.spilled else {
            self.entries.sort_unstable();
            let (bytes, entries) = (self.bytes, self.entries);
            return Ok(Sorted(Place::Memory { bytes, entries, next: 0 }));
        };
        // The merge's buffers replace the memory of the records.
        drop((self.bytes, self.entries));
        let merge = Merge::new(spilled, self.memory_bytes_max)
            .map_err(|error| cannot_spill(&self.directory, &error))?;
        Ok(Sorted(Place::Disk { merge, directory: self.directory }))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Moves what is in memory to the temporary file, as a sorted run.
    fn spill(&mut self) -> io::Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.entries.sort_unstable();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spill {
                file: nameless_file(&self.directory)?,
                bytes: 0,
                run_ends: Vec::new(),
            }),
        };
        let mut out = io::BufWriter::with_capacity(RUN_BUFFER_BYTES_MAX, &spilled.file);
        for entry in &self.entries {
            out.write_all(&entry.key.to_le_bytes())?;
            out.write_all(&entry.len.to_le_bytes())?;
            out.write_all(entry.of(&self.bytes))?;
        }
        out.flush()?;
        drop(out);
        spilled.bytes += (self.bytes.len() + self.entries.len() * ENTRY_HEADER_BYTES) as u64;
        spilled.run_ends.push(spilled.bytes);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }
}

impl Entry {
    fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.start + self.len as usize]
    }
}

/// Opens a file in `directory` that has no name.
fn nameless_file(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("larder-sort-{}-{number}", std::process::id()));
        // `create_new` does not follow a link that another user may have put into a shared
        // directory.
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Records in order, from [`Sorter::sorted`].
#[derive(Debug)]
pub struct Sorted(Place);

#[derive(Debug)]
enum Place {
    Memory { bytes: Vec<u8>, entries: Vec<Entry>, next: usize },
    Disk { merge: Merge, directory: PathBuf },
}

impl Sorted {
    /// The next record and its key; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Output`] when the temporary file cannot be read.
    pub fn advance(&mut self) -> Result<Option<(u64, &[u8])>, Error> {
        match &mut self.0 {
            Place::Memory { bytes, entries, next } => {
                let entry = entries.get(*next);
                *next += 1;
                Ok(entry.map(|entry| (entry.key, entry.of(bytes))))
            }
            Place::Disk { merge, directory } => {
                merge.advance().map_err(|error| cannot_spill(directory, &error))
            }
        }
    }
}

/// The merge of all runs of the file.
#[derive(Debug)]
struct Merge {
    file: File,
    runs: Vec<Run>,
    /// The current key of each run that has one, the smallest on top; of equal keys that of the
    /// lowest run (invariant 1).
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// The top was returned.
    begun: bool,
}

impl Merge {
    fn new(spilled: Spill, memory_bytes_max: usize) -> io::Result<Merge> {
        let buffer_bytes = (memory_bytes_max / spilled.run_ends.len())
            .clamp(RUN_BUFFER_BYTES_MIN, RUN_BUFFER_BYTES_MAX);
        let starts = std::iter::once(&0).chain(&spilled.run_ends);
        let mut runs: Vec<Run> = starts
            .zip(&spilled.run_ends)
            .map(|(&next, &end)| Run { next, end, buffer: Vec::new(), at: 0, len: 0, buffer_bytes })
            .collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            if let Some(key) = run.advance(&spilled.file)? {
                heads.push(Reverse((key, number)));
            }
        }
        Ok(Merge { file: spilled.file, runs, heads, begun: false })
    }

    fn advance(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.begun
            && let Some(mut head) = self.heads.peek_mut()
        {
            let Reverse((_, number)) = *head;
            match self.runs[number].advance(&self.file)? {
                Some(key) => *head = Reverse((key, number)),
                None => {
                    std::collections::binary_heap::PeekMut::pop(head);
                }
            }
        }
        self.begun = true;
        let Some(&Reverse((key, number))) = self.heads.peek() else { return Ok(None) };
        Ok(Some((key, self.runs[number].record())))
    }
}

/// A reading position in a run.
#[derive(Debug)]
struct Run {
    /// Offset in the file of the first byte that is not in the buffer.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Start of the current record in the buffer, and its length.
    at: usize,
    len: usize,
    buffer_bytes: usize,
}

impl Run {
    /// Goes to the next record and returns its key; `None` at the end of the run.
    fn advance(&mut self, file: &File) -> io::Result<Option<u64>> {
        self.at += self.len;
        self.len = 0;
        if self.at == self.buffer.len() && self.next == self.end {
            return Ok(None);
        }
        self.hold(ENTRY_HEADER_BYTES, file)?;
        let header = &self.buffer[self.at..self.at + ENTRY_HEADER_BYTES];
        let (Some(&key), Some(&len)) = (header.first_chunk(), header.last_chunk()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        self.at += ENTRY_HEADER_BYTES;
        self.len = u32::from_le_bytes(len) as usize;
        self.hold(self.len, file)?;
        Ok(Some(u64::from_le_bytes(key)))
    }

    fn record(&self) -> &[u8] {
        &self.buffer[self.at..self.at + self.len]
    }

    /// Fills the buffer to `len` bytes from `at` on.
    fn hold(&mut self, len: usize, file: &File) -> io::Result<()> {
        if self.buffer.len() - self.at >= len {
            return Ok(());
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let held = self.buffer.len();
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let more = (len.max(self.buffer_bytes) - held).min(left);
        if held + more < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.resize(held + more, 0);
        file.read_exact_at(&mut self.buffer[held..], self.next)?;
        self.next += more as u64;
        Ok(())
    }
}

/// The error about the temporary file, with the next step.
fn cannot_spill(directory: &Path, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file was damaged: check the disk, and run again",
        _ => {
            "set TMPDIR to a directory with room for the whole log, or leave out --sort start, \
             which needs no room"
        }
    };
    Error::Output {
        what: format!("temporary file in {}", directory.display()),
        why: format!("{error}: {advice}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(limit: usize, records: &[(u64, Vec<u8>)]) -> (Vec<Vec<u8>>, usize) {
        let mut sorter = Sorter::new(limit, None);
        for (key, record) in records {
            sorter.push(*key, record).expect("the temporary directory takes a few bytes");
        }
        let runs = sorter.spilled.as_ref().map_or(0, |spilled| spilled.run_ends.len());
        let mut out = Vec::new();
        sorter
            .finish(|record| {
                out.push(record.to_vec());
                Ok(())
            })
            .expect("the temporary file reads back");
        (out, runs)
    }

    proptest! {
        /// Any records under any limit come in the order of the standard library's stable sort:
        /// with all in memory, with many runs, and with records longer than the limit. Invariant 1.
        #[test]
        fn sorts_as_the_standard_library(
            records in prop::collection::vec((0u64..40, prop::collection::vec(any::<u8>(), 0..200)), 0..300),
            limit in prop::sample::select(vec![0, 100, 1_000, 10_000, 1 << 20]),
        ) {
            let mut expected = records.clone();
            expected.sort_by_key(|(key, _)| *key);
            let expected: Vec<_> = expected.into_iter().map(|(_, record)| record).collect();
            prop_assert_eq!(sorted(limit, &records).0, expected);
        }
    }

    /// A small limit makes many runs, with records that cross the ends of read buffers, and the
    /// order is right.
    #[test]
    fn many_runs() {
        let record = |key: u64| format!("{key:0width$}", width = 30 + (key % 91) as usize);
        let keys = (0..20_000u64).map(|n| n.wrapping_mul(7_919) % 20_000);
        let records: Vec<_> = keys.map(|key| (key, record(key).into_bytes())).collect();
        let (out, runs) = sorted(20_000, &records);
        assert!(runs > 50, "{runs}");
        let expected: Vec<_> = (0..20_000).map(|key| record(key).into_bytes()).collect();
        assert_eq!(out, expected);
    }

    /// No temporary file is visible, neither while sorting nor after an error. Invariant 2.
    #[test]
    fn leaves_nothing_behind() {
        let directory = std::env::temp_dir().join(format!("larder-test-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut sorter = Sorter::new(0, Some(directory.clone()));
        for key in 0..10 {
            sorter.push(key, b"record").expect("room for a few bytes");
        }
        let stopped = sorter.finish(|_| Err(Error::ClosedPipe));
        assert!(matches!(stopped, Err(Error::ClosedPipe)));
        // Fails unless the directory is empty.
        std::fs::remove_dir(&directory).expect("an empty directory");
    }

    /// If the directory cannot be written, the error names it and the way out.
    #[test]
    fn errors_say_what_to_do() {
        let mut sorter = Sorter::new(0, Some(PathBuf::from("/nonexistent/place")));
        sorter.push(1, b"one").expect("nothing to spill yet");
        let error = sorter.push(2, b"two").expect_err("no such directory").to_string();
        assert!(error.contains("/nonexistent/place") && error.contains("TMPDIR"), "{error}");
        let full = cannot_spill(Path::new("/tmp"), &io::ErrorKind::StorageFull.into()).to_string();
        assert!(full.contains("TMPDIR"), "{full}");
    }
}
