//! The compressor: a thread of the lowest priority that compresses closed segments, the oldest first.
//!
//! ```text
//! compressor     N.pcapng -> N.pcapng.zst.part, synced; hands it over, and waits
//! disk writer    renames it to N.pcapng.zst, changes the catalog, deletes N.pcapng, counts its bytes
//! start          deletes N.pcapng.zst.part; of N.pcapng and N.pcapng.zst keeps the first, which is compressed again
//! ```
//!
//! The content is the same to the byte, so that places in the index, and positions, stay as they
//! are. See `larder_io::zstd_frames` for the format. The first frame has only the beginning of the
//! segment, uncompressed: identity and interfaces are read at little cost.
//!
//! The list of what is to be done is the catalog: nothing more grows if the compressor lags behind.
//! Segments then stay as they were written, for longer or until the budget deletes them.
//!
//! Invariants
//! 1. At any moment one of `N.pcapng` and `N.pcapng.zst` is whole: the compressed file is on the disk
//!    before it gets its name, also without [`Options::sync`](crate::Options), and is not written any
//!    more: when the compressor goes on, the catalog says that the segment is final.
//!
//! Only the disk writer renames and deletes files of closed segments, so the budget and the compressor
//! are never at the same one. A segment whose compression fails stays as it is, until the next start.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use larder_io::access::Access;
use larder_io::zstd_frames::{CONTENT_BYTES, Encoder, FrameList};

use crate::catalog::{Content, Segment};
use crate::files::{self, Kind};
use crate::growing::{Compressed, Shared};
use crate::options::{Counts, Options};

/// Content of the first frame: the section and its interfaces.
const FIRST_BYTES: usize = 4 << 10;

/// Time between two looks whether the file is in its place.
const POLL: Duration = Duration::from_millis(10);

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Compressor {
    shared: Arc<Shared>,
    directory: PathBuf,
    access: Access,
    disk_writer: thread::Thread,
    encoder: Encoder,
    /// Segments before this number are done.
    first: u64,
}

impl Compressor {
    pub fn new(shared: Arc<Shared>, options: &Options, disk_writer: thread::Thread) -> Compressor {
        let Options { directory, access, .. } = options;
        let (directory, encoder) = (directory.clone(), Encoder::default());
        Compressor { shared, directory, access: *access, disk_writer, encoder, first: 0 }
    }

    /// The oldest segment that is closed and not compressed.
    pub fn next(&mut self) -> Option<Segment> {
        let segment = self.shared.catalog.first_from(self.first, |segment| !segment.is_final)?;
        self.first = segment.number;
        matches!(segment.file, Some(Content::File(..))).then_some(segment)
    }

    /// Compresses it, and waits until the file is in its place.
    pub fn take(&mut self, segment: &Segment) {
        let Some(Content::File(path, _)) = &segment.file else { return };
        let number = segment.number;
        let aside = files::path(&self.directory, number, Kind::CompressedPart);
        match self.compress(number, path, &aside) {
            Ok(Some(bytes)) => self.hand_over(Compressed { number, bytes }),
            Ok(None) => {
                let _ = fs::remove_file(&aside);
            }
            Err(error) => {
                let _ = fs::remove_file(&aside);
                let mut is_there = false;
                self.shared.catalog.change(number, |segment| {
                    (segment.is_final, is_there) = (true, true);
                });
                // The budget may have deleted it meanwhile.
                if is_there {
                    let counts = &self.shared.counts;
                    Counts::add(&counts.compressions_failed, 1);
                    let line = counts.log.error("segment not compressed");
                    line.text("path", path.display()).text("error", error);
                    self.shared.wake_helpers();
                }
            }
        }
    }

    /// Writes the compressed file; `None`: the segment was deleted, or the store ends.
    fn compress(&mut self, number: u64, path: &Path, aside: &Path) -> io::Result<Option<u64>> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut out = self.access.create(aside)?;
        let mut list = FrameList::default();
        let (mut content, mut frame) = (Vec::new(), Vec::new());
        let (mut at, mut written) = (0, 0);
        while at < bytes {
            if self.shared.helpers_must_end() || self.shared.catalog.get(number).is_none() {
                return Ok(None);
            }
            let is_first = at == 0;
            let most = if is_first { FIRST_BYTES } else { CONTENT_BYTES };
            content.resize(most.min(usize::try_from(bytes - at).unwrap_or(most)), 0);
            file.read_exact_at(&mut content, at)?;
            frame.clear();
            match is_first {
                true => self.encoder.stored(&content, &mut frame),
                false => self.encoder.frame(&content, &mut frame),
            }
            list.push(frame.len(), content.len());
            out.write_all(&frame)?;
            (at, written) = (at + content.len() as u64, written + frame.len() as u64);
        }
        let table = list.table();
        out.write_all(&table)?;
        out.sync_data()?;
        Ok(Some(written + table.len() as u64))
    }

    /// Waits until the file is in its place. The disk writer may pause after an error of the disk; one
    /// file waits.
    fn hand_over(&mut self, compressed: Compressed) {
        *self.shared.compressed() = Some(compressed);
        while self.shared.compressed().is_some() && !self.shared.helpers_must_end() {
            self.disk_writer.unpark();
            thread::park_timeout(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use larder_serve::log::Log;

    use super::*;
    use crate::catalog::{Catalog, Hook};
    use crate::disk::Files;
    use crate::disk_writer::DiskWriter;
    use crate::recover::StoredSegments;

    /// When the compressor may go on, the segment that it handed over is final. Else it compresses
    /// that again, into the file that has its final name by then. Invariant 1 of `compress`.
    #[test]
    fn what_was_handed_over_is_final() {
        const SEGMENTS: u64 = 2000;
        let folder = tempfile::tempdir().unwrap();
        let catalog = Arc::new(Catalog::new(folder.path(), Log::default()));
        let path = |number, kind| files::path(folder.path(), number, kind);
        let mut stored = StoredSegments::default();
        for number in 0..SEGMENTS {
            let file = Content::File(path(number, Kind::Closed), 8);
            stored.segments.push_back((number, 8));
            catalog.put(Segment {
                number,
                first_position: 8 * number,
                first_ns: None,
                last_ns: None,
                packets: 0,
                bytes: 8,
                is_closed: true,
                header: Arc::default(),
                content: file.clone(),
                file: Some(file),
                is_final: false,
                hook: Hook::Done,
            });
        }
        let shared = Arc::new(Shared::new(Arc::clone(&catalog), Arc::default()));
        let options = Options::new(folder.path(), 1 << 20);
        let disk = Box::new(Files::new(options.access));
        let disk_writer = DiskWriter::new(Arc::clone(&shared), options, disk, stored, None);
        let mut not_final: Vec<u64> = Vec::new();
        thread::scope(|scope| {
            let disk_writer = scope.spawn(|| disk_writer.run());
            for number in 0..SEGMENTS {
                fs::write(path(number, Kind::CompressedPart), b"four").unwrap();
                *shared.compressed() = Some(Compressed { number, bytes: 4 });
                disk_writer.thread().unpark();
                while shared.compressed().is_some() {
                    std::hint::spin_loop();
                }
                let is_final = catalog.get(number).is_some_and(|segment| segment.is_final);
                if !is_final || !path(number, Kind::Compressed).exists() {
                    not_final.push(number);
                }
            }
            shared.is_ending.store(true, Ordering::Release);
            disk_writer.thread().unpark();
        });
        assert!(not_final.is_empty(), "{not_final:?}");
        assert_eq!(shared.counts.segments_compressed.load(Ordering::Relaxed), SEGMENTS);
        assert_eq!(shared.counts.compressions_failed.load(Ordering::Relaxed), 0);
    }
}
