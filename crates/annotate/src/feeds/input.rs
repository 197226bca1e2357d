//! Opens a log: plain or compressed, a file or a pipe that grows.
//!
//! A pipe may give nothing for hours, and the run must still end on request. So a thread reads it,
//! and the run waits for that thread and checks [`Progress::stop`]. Files are read, not mapped:
//! their lines are copied anyway.
//!
//! Bound: `CHUNKS_MAX` pieces of `CHUNK_BYTES`. The thread ends with the pipe, or at the first
//! piece after the run has ended; one that waits for a silent pipe ends with the process.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use larder_io::decode::decoder;
use larder_io::input::{Content, Input, InputError};

use crate::options::Endpoint;
use crate::{Error, Progress};

const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS_MAX: usize = 4;
/// Interval at which a waiting run checks for a stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Decompressed bytes of a log.
pub type LogReader = BufReader<Box<dyn Read + Send>>;

/// An opened log.
pub struct Text {
    /// Its name, for messages.
    pub name: String,
    /// The log.
    pub reader: LogReader,
    /// It may grow while it is read.
    pub live: bool,
}

/// Opens a log and reads its first bytes, which tell the compression.
pub fn open(endpoint: &Endpoint, progress: &Arc<Progress>) -> Result<Text, Error> {
    let path = match endpoint {
        Endpoint::Pipe => Path::new("-"),
        Endpoint::Path(path) => path,
        Endpoint::Tcp(_) | Endpoint::Listen(_) => return Err(no_log(&endpoint.to_string())),
        Endpoint::Bytes(bytes) => {
            let bytes: Box<dyn Read + Send> = Box::new(Cursor::new(*bytes));
            return Ok(Text {
                name: "the sample".to_owned(),
                reader: BufReader::new(bytes),
                live: false,
            });
        }
    };
    let Input { name, content } = Input::open(path)?;
    let refused = |source| InputError::Open { name: name.clone(), source };
    let (decoded, live) = match content {
        Content::Memory(bytes) => (decoder(Cursor::new(bytes)), false),
        // A path opens none.
        Content::Senders(_) => return Err(no_log("senders of captures")),
        Content::Mapped(_) => (decoder(File::open(path).map_err(refused)?), false),
        Content::Stream { file, live: false } => (decoder(file), false),
        Content::Stream { file, live: true } => {
            (decoder(Growing::new(file, progress).map_err(refused)?), true)
        }
    };
    let (bytes, _) = decoded
        .map_err(|error| InputError::Unreadable { name: name.clone(), why: error.to_string() })?;
    Ok(Text { name, reader: BufReader::with_capacity(CHUNK_BYTES, bytes), live })
}

fn no_log(what: &str) -> Error {
    let why = "logs are read from files and pipes; pipe it: nc HOST PORT | larder annotate --eve -";
    Error::Input { what: what.to_owned(), why: why.to_owned() }
}

/// A pipe that ends when its writer, or the run, ends.
struct Growing {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    progress: Arc<Progress>,
}

impl Growing {
    fn new(file: File, progress: &Arc<Progress>) -> io::Result<Growing> {
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        std::thread::Builder::new()
            .name("larder-log".to_owned())
            .spawn(move || read_chunks(file, &sender))?;
        Ok(Growing { chunks, chunk: Cursor::default(), progress: Arc::clone(progress) })
    }
}

fn read_chunks(mut file: File, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let result = match file.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                chunk.truncate(count);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = result.is_err();
        if sender.send(result).is_err() || failed {
            return;
        }
    }
}

impl Read for Growing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => self.chunk = Cursor::new(chunk?),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {
                    if self.progress.stop.load(Ordering::Relaxed) {
                        return Ok(0);
                    }
                }
            }
        }
    }
}
