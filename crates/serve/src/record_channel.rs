//! Sends records (dnstap, lines of logs) from the workers to one thread that writes them.
//!
//! ```text
//! a worker: record, record, ... flush, once per turn -> a bounded channel -> the writer
//! ```
//!
//! A worker never waits. When the channel is full or the writer has ended, the worker drops the whole batch
//! and counts its records. Bounds: a batch has at most [`BATCH_BYTES`] and one record; the channel has a
//! fixed number of batches; each worker fills one batch. Cost: a copy of each record; an allocation and a
//! wake-up of the writer per batch.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A batch of this size is sent before the turn ends.
pub const BATCH_BYTES: usize = 64 << 10;

/// Batches that wait for the writer, from all workers: 4 MiB, and a record per batch.
const BATCHES: usize = 64;

/// Records in their final form, concatenated.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes of all records.
    pub bytes: Vec<u8>,
    /// The number of records.
    pub records: u64,
}

/// The sending end of one worker.
#[derive(Debug)]
pub struct RecordSender {
    batches: SyncSender<Batch>,
    batch: Batch,
    dropped: u64,
}

/// A channel: the sender, of which [`RecordSender::another`] makes one per worker, and the writer's receiver.
pub fn channel() -> (RecordSender, Receiver<Batch>) {
    let (batches, received) = sync_channel(BATCHES);
    (RecordSender { batches, batch: Batch::default(), dropped: 0 }, received)
}

impl RecordSender {
    /// A sender for another worker, with its own batch.
    pub fn another(&self) -> RecordSender {
        RecordSender { batches: self.batches.clone(), batch: Batch::default(), dropped: 0 }
    }

    /// Appends what `write` writes, as one record.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.batch.bytes);
        self.batch.records += 1;
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Sends the batch if the channel has room. Call this once per turn.
    pub fn flush(&mut self) {
        if self.batch.records == 0 {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let records = batch.records;
        if self.batches.try_send(batch).is_err() {
            self.dropped += records;
        }
    }

    /// The number of records that were dropped because the channel was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of one worker arrive in order. When the writer is slow or has ended, records are dropped and no
    /// worker waits.
    #[test]
    fn workers_never_wait() {
        let (mut sender, received) = channel();
        let mut other = sender.another();
        sender.flush();
        for letter in b"ab" {
            sender.record(|out| out.push(*letter));
        }
        sender.flush();
        other.record(|out| out.extend_from_slice(&[7; BATCH_BYTES]));
        let batch = received.recv().unwrap();
        assert_eq!((batch.bytes.as_slice(), batch.records), (&b"ab"[..], 2));
        assert_eq!(received.recv().unwrap().bytes.len(), BATCH_BYTES, "a full batch goes at once");
        for _ in 0..BATCHES + 3 {
            sender.record(|out| out.push(1));
            sender.record(|out| out.push(2));
            sender.flush();
        }
        assert_eq!(sender.dropped(), 6);
        drop(received);
        other.record(|out| out.push(1));
        other.flush();
        assert_eq!(other.dropped(), 1);
    }
}
