//! The thread that compresses closed files.
//!
//! The thread writes the compressed file under another name, syncs it to the disk, and renames it;
//! only then it removes the original. It has the lowest priority, so it only uses idle time of the
//! processor.
//!
//! Bounds: names of files that wait; one file and one thread. Cost: about 20 ns a byte.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use flate2::Compression;
use flate2::write::GzEncoder;

use larder_io::access::Access;
use larder_io::cores;

use super::name::{Stamp, with_ending};

const BUFFER_BYTES: usize = 64 << 10;

/// A file that was compressed: its new size in bytes, or the error.
type Done = (Stamp, io::Result<u64>);

/// The thread. If it is dropped, it ends after the current file.
#[derive(Debug)]
pub(super) struct Gzip {
    work: Option<Sender<(Stamp, PathBuf)>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl Gzip {
    pub fn start(access: Access) -> Gzip {
        let (work, files) = channel();
        let (say, done) = channel();
        let run = move || run(&files, &say, access);
        // Without a thread files stay uncompressed; the first file to compress reports that.
        let thread = thread::Builder::new().name("larder-gzip".to_owned()).spawn(run).ok();
        Gzip { work: Some(work), done, thread }
    }

    /// Queues a file for compression.
    pub fn pack(&self, stamp: Stamp, path: PathBuf) {
        if let Some(work) = &self.work {
            let _ = work.send((stamp, path));
        }
    }

    /// A file that is compressed, if there is one.
    pub fn done(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// Waits until all files are compressed.
    pub fn finish(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // The panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

fn run(files: &Receiver<(Stamp, PathBuf)>, say: &Sender<Done>, access: Access) {
    // It compresses while the processor is idle. If the kernel refuses, it runs as others do.
    let _ = cores::lower_priority();
    while let Ok((stamp, path)) = files.recv() {
        if say.send((stamp, pack(&path, access))).is_err() {
            return;
        }
    }
}

/// Compresses a file, and removes it. Returns the size of the new one.
fn pack(path: &Path, access: Access) -> io::Result<u64> {
    let to = with_ending(path.to_owned(), ".gz");
    let part = with_ending(to.clone(), ".part");
    let bytes = encode(path, &part, access).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })?;
    fs::rename(&part, &to)?;
    // The budget removed it meanwhile: then our owner removes the compressed file too.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(bytes),
    }
}

fn encode(from: &Path, to: &Path, access: Access) -> io::Result<u64> {
    let mut from = BufReader::with_capacity(BUFFER_BYTES, File::open(from)?);
    let out = BufWriter::with_capacity(BUFFER_BYTES, access.create(to)?);
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    let out = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    // The compressed file is on the disk before the original is removed, also if power fails.
    // (Tests cut no power, and would wait for disks.)
    if cfg!(not(test)) {
        out.sync_all()?;
    }
    Ok(out.metadata()?.len())
}
