//! A stream with its own thread that reads and decodes, so that a caller can wait for a slow pipe
//! with a limit, and decoding runs in parallel.
//!
//! The thread ends with the input, or when the source is dropped and its next read returns. No
//! thread waits for it, since a pipe may stay silent forever. If a decoder panics, its thread ends,
//! and the input counts as broken from there.
//!
//! Bound: 2 * [`CHUNKS`] chunks of [`CHUNK_BYTES`].

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Bytes read, or decoded, at once.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks between the thread that reads and the source.
const CHUNKS: usize = 4;

/// How long a wait may last before it checks whether the caller wants to stop.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(100);

/// A message of the reading thread.
enum Chunk {
    /// A buffer, and how much of it counts.
    Data(Vec<u8>, usize),
    Failed(String),
    End,
}

/// A stream as the source sees it.
#[derive(Debug)]
pub(crate) struct Stream {
    chunks: Receiver<Chunk>,
    used: SyncSender<Vec<u8>>,
    /// It may grow slowly.
    pub(crate) live: bool,
    /// The input ends with `buffer`.
    pub(crate) ended: bool,
    /// [`Stream::drain`] was called.
    drained: bool,
    /// The error with which the stream ended, if any.
    pub(crate) failure: Option<String>,
    /// Offset of `buffer[0]` in the input.
    pub(crate) base: u64,
    /// Bytes that were received and not yet taken.
    pub(crate) buffer: Vec<u8>,
}

impl Stream {
    /// Starts the thread. `open` runs on it, since it may wait for the first bytes.
    pub(crate) fn start<F>(open: F, live: bool) -> Stream
    where
        F: FnOnce() -> io::Result<Box<dyn Read + Send>> + Send + 'static,
    {
        let (chunk_sender, chunks) = sync_channel(CHUNKS);
        let (used, used_receiver) = sync_channel(CHUNKS);
        let thread = thread::Builder::new().name("larder-read".to_owned());
        let failure = thread
            .spawn(move || {
                let last = match open().and_then(|r| read_chunks(r, &chunk_sender, &used_receiver))
                {
                    Ok(()) => Chunk::End,
                    Err(error) => Chunk::Failed(error.to_string()),
                };
                // The source may have been dropped; then no thread needs the result.
                let _ = chunk_sender.send(last);
            })
            .err()
            .map(|error| error.to_string());
        let ended = failure.is_some();
        let buffer = Vec::new();
        Stream { chunks, used, live, ended, drained: false, failure, base: 0, buffer }
    }

    /// Waits for a chunk for at most `patience`, then takes more up to a chunk's length: a search
    /// after damage restarts with each call, so each call should bring many bytes.
    pub(crate) fn receive(&mut self, patience: Duration) {
        let want = self.buffer.len() + CHUNK_BYTES;
        match self.chunks.recv_timeout(patience) {
            Ok(chunk) => self.accept(chunk),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => return self.lose_thread(),
        }
        while !self.ended && self.buffer.len() < want {
            let Ok(chunk) = self.chunks.try_recv() else { break };
            self.accept(chunk);
        }
    }

    /// For a caller that stops: takes the bytes that the thread has sent so far, without waiting.
    /// Works once, since the thread may read on forever. True if there were any.
    pub(crate) fn drain(&mut self) -> bool {
        if std::mem::replace(&mut self.drained, true) {
            return false;
        }
        let before = self.buffer.len();
        for _ in 0..CHUNKS {
            let Ok(chunk) = self.chunks.try_recv() else { break };
            self.accept(chunk);
        }
        self.buffer.len() > before || self.ended
    }

    fn accept(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Data(data, count) => {
                self.buffer.extend_from_slice(&data[..count]);
                // A full channel means that the thread has enough of them.
                let _ = self.used.try_send(data);
            }
            Chunk::End => self.ended = true,
            Chunk::Failed(why) => {
                self.ended = true;
                self.failure = Some(why);
            }
        }
    }

    /// The thread has ended without a message: a decoder panicked. The bytes before count.
    fn lose_thread(&mut self) {
        self.ended = true;
        self.failure = Some("the decoder failed on this input".to_owned());
    }

    /// Bytes of input received so far.
    pub(crate) fn length(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }
}

/// Reads until the end, an error, or the receiver is dropped.
fn read_chunks(
    mut reader: Box<dyn Read + Send>,
    chunks: &SyncSender<Chunk>,
    used: &Receiver<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut buffer = used.try_recv().unwrap_or_else(|_| vec![0; CHUNK_BYTES]);
        let count = loop {
            match reader.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 || chunks.send(Chunk::Data(buffer, count)).is_err() {
            return Ok(());
        }
    }
}
