//! How much of its inputs a source has read.
//!
//! Bytes are those of the files, before decompression: their number is known before the end. Reading runs ahead of what
//! the caller does with the records, by the batches in flight and the buffers of streams.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::input::Input;

/// See the module.
#[derive(Debug, Default)]
pub struct Reading {
    /// Bytes of all files; 0 if one is a pipe, whose length nothing tells.
    pub bytes_total: u64,
    /// Files, and pipes.
    pub files_total: u64,
    /// Bytes read so far.
    pub bytes: AtomicU64,
    /// Files read to their end; a single one is not counted.
    pub files: AtomicU64,
}

impl Reading {
    /// Of these inputs, none of which has been read.
    pub(crate) fn of(inputs: &[&[Input]]) -> Reading {
        let all = || inputs.iter().copied().flatten();
        let bytes_total = all().map(Input::total_bytes).sum::<Option<u64>>().unwrap_or(0);
        let files_total = all().count() as u64;
        Reading { bytes_total, files_total, ..Reading::default() }
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        // Relaxed, as below: a picture for the eye, which orders nothing.
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts what is read of a file.
pub(crate) struct Counted<R> {
    pub inner: R,
    pub reading: Arc<Reading>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.reading.add_bytes(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::AtomicBool;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use larder_testkit::frames::Pcap;

    use super::*;
    use crate::batch::{Source, SourceOptions};
    use crate::input::Content;

    const FILE_BYTES: u64 = 4 << 20;

    fn capture(folder: &std::path::Path, number: usize, is_compressed: bool) -> Input {
        let mut pcap = Pcap::new(1);
        let frame = [7; 1024 - 16];
        while (pcap.bytes.len() as u64) < FILE_BYTES {
            pcap.push(pcap.bytes.len() as u64 * 1_000, &frame);
        }
        let mut bytes = pcap.bytes;
        if is_compressed {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&bytes).expect("memory");
            bytes = gzip.finish().expect("memory");
        }
        let path = folder.join(number.to_string());
        std::fs::write(&path, bytes).expect("room");
        Input::open(&path).expect("a capture")
    }

    /// Whatever files are read, one or merged, plain or compressed: at first little is read, at the end all.
    #[test]
    fn all_is_counted_in_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = AtomicBool::new(false);
        for (files, is_compressed) in [(1, false), (1, true), (3, false), (3, true)] {
            let open = |number| capture(folder.path(), number, is_compressed);
            let inputs: Vec<Input> = (0..files).map(open).collect();
            let bytes: u64 = inputs.iter().filter_map(Input::total_bytes).sum();
            assert_eq!(bytes > FILE_BYTES / 2, !is_compressed, "{bytes}");
            let of_source = SourceOptions { batch_bytes: 1 << 16, in_flight: 1 };
            let mut source = Source::open(inputs, of_source, &stop).expect("captures");
            let reading = source.reading();
            assert_eq!((reading.bytes_total, reading.files_total), (bytes, files as u64));
            drop(source.next_batch(&stop).expect("packets"));
            let so_far = reading.bytes.load(Ordering::Relaxed);
            // Compressed, all fits the buffers of the thread that reads ahead.
            assert!(so_far < bytes || is_compressed, "{so_far} of {bytes}");
            assert!(so_far > 0 || files > 1, "{so_far} of {bytes}");
            while source.next_batch(&stop).is_some() {}
            assert_eq!(reading.bytes.load(Ordering::Relaxed), bytes, "{files} {is_compressed}");
            let files_read = reading.files.load(Ordering::Relaxed);
            assert_eq!(files_read, if files > 1 { files as u64 } else { 0 });
        }
    }

    /// With a pipe nothing tells the number of bytes.
    #[test]
    fn a_pipe_has_no_length() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, theirs) = std::io::pipe().expect("a pipe");
        File::from(OwnedFd::from(theirs)).write_all(&Pcap::new(1).bytes).expect("a pipe");
        let content = Content::Stream { file: OwnedFd::from(ours).into(), live: true };
        let pipe = Input { name: "-".to_owned(), content };
        let reading = Reading::of(&[&[capture(folder.path(), 0, false), pipe]]);
        assert_eq!((reading.bytes_total, reading.files_total), (0, 2));
    }
}
