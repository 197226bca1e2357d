//! Decompresses files ahead of their turn, each in a thread of its own.
//!
//! A core decompresses far less than another one reads of the result, so of several compressed files as many are
//! decompressed at once as there are cores, those first whose records come first. What a file has in front of its turn
//! waits in memory, up to a limit; longer files then go on at the speed of one core.
//!
//! The bytes, and the error behind them, are those that the file gives without a thread. A thread ends with its file,
//! or when its reader is gone.
//!
//! Bound: [`FILES_MAX`] files, [`CHUNKS`] chunks of [`CHUNK_BYTES`] each: 64 MiB a file.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use crate::stream::CHUNK_BYTES;

/// Files that are decompressed at once, at most.
const FILES_MAX: usize = 4;
/// Chunks of a file that wait.
const CHUNKS: usize = 256;

/// Files that are decompressed at once on this machine; 0 if that saves no time.
pub(crate) fn files_at_once() -> usize {
    match thread::available_parallelism().map_or(1, usize::from) {
        1 => 0,
        cores => cores.min(FILES_MAX),
    }
}

/// A file that a thread decompresses.
struct Ahead {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// Bytes of it that were read.
    at: usize,
}

/// Starts the thread, and returns what reads its bytes; `reader` itself if no thread can be started.
pub(crate) fn start(reader: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    let (sender, chunks) = sync_channel(CHUNKS);
    let (give, given) = sync_channel::<Box<dyn Read + Send>>(1);
    let thread = thread::Builder::new().name("larder-unpack".to_owned());
    let started = thread.spawn(move || {
        let Ok(mut reader) = given.recv() else { return };
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let read = reader.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
            let is_end = read.as_ref().map_or(true, |&count| count < CHUNK_BYTES);
            // The bytes before an error count. Without a reader, the error matters no more.
            if !chunk.is_empty() && sender.send(Ok(chunk)).is_err() {
                return;
            }
            if is_end {
                let _ = sender.send(read.map(|_| Vec::new()));
                return;
            }
        }
    });
    match started {
        Ok(_) => {
            // The thread waits for it.
            let _ = give.send(reader);
            Box::new(Ahead { chunks, chunk: Vec::new(), at: 0 })
        }
        Err(_) => reader,
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            // The last chunk is empty. Without one, the thread has failed.
            let failed = |_| io::Error::other("the decoder failed on this input");
            self.chunk = self.chunks.recv().map_err(failed)??;
            self.at = 0;
            if self.chunk.is_empty() {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.at);
        buffer[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of any length, then an error, a panic, or the end.
    struct Pieces {
        left: usize,
        end: fn() -> io::Result<usize>,
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 {
                return (self.end)();
            }
            let count = buffer.len().min(self.left).min(1 + self.left % 10_007);
            for (byte, left) in buffer[..count].iter_mut().zip((0..self.left).rev()) {
                *byte = left as u8;
            }
            self.left -= count;
            Ok(count)
        }
    }

    fn read(
        reader: impl FnOnce(Box<dyn Read + Send>) -> Box<dyn Read + Send>,
        left: usize,
        end: fn() -> io::Result<usize>,
    ) -> (Vec<u8>, Option<String>) {
        let mut bytes = Vec::new();
        let result = reader(Box::new(Pieces { left, end })).read_to_end(&mut bytes);
        (bytes, result.err().map(|error| error.to_string()))
    }

    /// The bytes, and the error behind them, are those of the reader itself.
    #[test]
    fn a_thread_makes_no_difference() {
        let damaged = || Err(io::Error::other("damaged"));
        for left in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            for end in [|| Ok(0), damaged] {
                assert_eq!(read(start, left, end), read(|reader| reader, left, end), "{left}");
            }
        }
    }

    /// A decoder that panics is an input that is broken at this place.
    #[test]
    fn a_decoder_that_fails_is_an_error() {
        let (bytes, error) = read(start, CHUNK_BYTES + 9, || panic!("as a decoder might"));
        assert!(bytes.len() >= CHUNK_BYTES, "{}", bytes.len());
        assert_eq!(error.as_deref(), Some("the decoder failed on this input"));
    }

    /// A thread whose reader is gone ends, and drops what it reads.
    #[test]
    fn a_thread_ends_with_its_reader() {
        struct Noted(std::sync::mpsc::Sender<()>);
        impl Drop for Noted {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        impl Read for Noted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                Ok(buffer.len())
            }
        }
        let (sender, dropped) = std::sync::mpsc::channel();
        let mut reader = start(Box::new(Noted(sender)));
        reader.read_exact(&mut [0; 10]).expect("bytes");
        drop(reader);
        dropped.recv().expect("the thread ends");
    }
}
