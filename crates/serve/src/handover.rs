//! Records from the cores to a thread that writes them: dnstap, logs.
//!
//! ```text
//! a core: record, record, ... flush, once a turn -> a bounded channel -> the writer
//! ```
//!
//! A core never waits: where the writer does not keep up, or is gone, a whole batch is dropped and its records are
//! counted. Bounds: [`BATCH_BYTES`] and a record a batch, the channel's batches, one batch a core. Cost: a copy of
//! each record, an allocation and a wake-up of the writer a batch.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Octets after which a batch goes before the turn's end.
pub const BATCH_BYTES: usize = 64 << 10;

/// Batches that wait for the writer, over all cores: 4 MiB and a record each.
const BATCHES: usize = 64;

/// Records in their final form, one after the other.
#[derive(Debug, Default)]
pub struct Batch {
    /// The records.
    pub octets: Vec<u8>,
    /// How many.
    pub records: u64,
}

/// One core's end.
#[derive(Debug)]
pub struct Feed {
    batches: SyncSender<Batch>,
    batch: Batch,
    dropped: u64,
}

/// A channel: the end that cores clone ([`Feed::another`]), and the writer's.
pub fn channel() -> (Feed, Receiver<Batch>) {
    let (batches, received) = sync_channel(BATCHES);
    (Feed { batches, batch: Batch::default(), dropped: 0 }, received)
}

impl Feed {
    /// One for another core.
    pub fn another(&self) -> Feed {
        Feed { batches: self.batches.clone(), batch: Batch::default(), dropped: 0 }
    }

    /// Appends what `write` writes, as one record.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.batch.octets);
        self.batch.records += 1;
        if self.batch.octets.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands over what was recorded, if there is room. To be called once a turn.
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

    /// Records that were dropped for want of room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records arrive in the order of their core; a writer that does not follow, or is gone, costs records and nobody's time.
    #[test]
    fn nobody_waits() {
        let (mut feed, received) = channel();
        let mut other = feed.another();
        feed.flush();
        for letter in b"ab" {
            feed.record(|out| out.push(*letter));
        }
        feed.flush();
        other.record(|out| out.extend_from_slice(&[7; BATCH_BYTES]));
        let batch = received.recv().unwrap();
        assert_eq!((batch.octets.as_slice(), batch.records), (&b"ab"[..], 2));
        assert_eq!(received.recv().unwrap().octets.len(), BATCH_BYTES, "a full batch goes at once");
        for _ in 0..BATCHES + 3 {
            feed.record(|out| out.push(1));
            feed.record(|out| out.push(2));
            feed.flush();
        }
        assert_eq!(feed.dropped(), 6);
        drop(received);
        other.record(|out| out.push(1));
        other.flush();
        assert_eq!(other.dropped(), 1);
    }
}
