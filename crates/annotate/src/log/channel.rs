//! The log as a channel: rows for the program that larder runs in.
//!
//! Rows are gathered into chunks, so that the channel costs little a record. Its bound holds back the run while the
//! program is busy; when the program drops the receiver, the run ends as it does at a closed pipe.

use crate::Error;
use crate::options::RowsTo;

/// Bytes of rows at which a chunk is sent.
const CHUNK_BYTES: usize = 1 << 20;

/// Gathers rows into chunks, and sends them.
pub(super) struct RowSender {
    to: RowsTo,
    chunk: Vec<u8>,
}

impl RowSender {
    pub fn new(to: RowsTo) -> RowSender {
        RowSender { to, chunk: Vec::new() }
    }

    pub fn take(&mut self, rows: &[u8]) -> Result<(), Error> {
        self.chunk.extend_from_slice(rows);
        if self.chunk.len() < CHUNK_BYTES {
            return Ok(());
        }
        let room = Vec::with_capacity(self.chunk.len() + self.chunk.len() / 8);
        self.send(room)
    }

    /// Sends what there is.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.chunk.is_empty() { Ok(()) } else { self.send(Vec::new()) }
    }

    fn send(&mut self, next: Vec<u8>) -> Result<(), Error> {
        let chunk = std::mem::replace(&mut self.chunk, next);
        self.to.0.send(chunk).map_err(|_| Error::ClosedPipe)
    }
}
