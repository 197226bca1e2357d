//! The closed files of a log. At the start larder finds them; later it compresses them, and deletes
//! the oldest for the budget.

use std::fs;
use std::io;

use larder_io::input::display_name;

use super::gzip::Gzip;
use super::name::Stamp;
use super::{Rolling, left, lock};

/// A closed file.
#[derive(Debug)]
pub(super) struct Closed {
    stamp: Stamp,
    bytes: u64,
    pub(super) is_packed: bool,
}

impl Rolling {
    pub(super) fn add_closed(&mut self, stamp: Stamp, bytes: u64, is_packed: bool) {
        if let Some(gzip) = &self.gzip
            && !is_packed
        {
            gzip.pack(stamp.clone(), self.names.closed(&stamp));
        }
        if self.last.as_ref() < Some(&stamp) {
            self.last = Some(stamp.clone());
        }
        let at = self.closed.partition_point(|other| other.stamp < stamp);
        self.closed.insert(at, Closed { stamp, bytes, is_packed });
    }

    /// Takes the results of the compressor.
    pub(super) fn take_packed(&mut self) {
        while let Some((stamp, result)) = self.gzip.as_ref().and_then(Gzip::done) {
            let found = self.closed.iter_mut().find(|closed| closed.stamp == stamp);
            match (result, found) {
                (Ok(bytes), Some(closed)) => {
                    (closed.bytes, closed.is_packed) = (bytes, true);
                    self.counts.files_compressed += 1;
                }
                // It was deleted for the budget before.
                (Ok(_), None) => drop(fs::remove_file(self.names.packed(&stamp))),
                (Err(_), None) => {}
                (Err(error), Some(_)) => {
                    let name = display_name(&self.names.closed(&stamp));
                    let hint = "the next start tries again";
                    let line = self.log.warn("log not compressed").text("path", name);
                    line.text("error", error).text("hint", hint);
                }
            }
        }
    }

    /// Deletes the oldest files until all fit the budget.
    pub(super) fn keep_budget(&mut self) {
        if self.options.budget_bytes == 0 {
            return;
        }
        self.take_packed();
        let current = self.current.as_ref().map_or(0, |current| current.whole_bytes);
        let mut sum: u64 = current + self.closed.iter().map(|closed| closed.bytes).sum::<u64>();
        let mut gone = 0;
        while sum > self.options.budget_bytes && gone < self.closed.len() {
            let closed = &self.closed[gone];
            // Both names: it may be compressed at this moment.
            let _ = fs::remove_file(self.names.closed(&closed.stamp));
            let _ = fs::remove_file(self.names.packed(&closed.stamp));
            sum -= closed.bytes;
            gone += 1;
        }
        self.closed.drain(..gone);
        self.counts.files_removed += gone as u64;
    }

    /// Finds files that earlier runs closed, and completes their compression.
    pub(super) fn find_closed(&mut self) -> io::Result<()> {
        for (stamp, plain, packed) in self.names.list()? {
            if packed.is_some() && plain.is_some() {
                // Invariant 3: the compressed file has all records.
                fs::remove_file(self.names.closed(&stamp))?;
            }
            match (packed, plain) {
                (Some(bytes), _) => self.add_closed(stamp, bytes, true),
                (None, Some(bytes)) => self.add_closed(stamp, bytes, false),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Closes the file of a killed run.
    pub(super) fn close_left(&mut self, left: Option<lock::Note>) -> io::Result<()> {
        let Some(note) = left else { return Ok(()) };
        let mut foot = Vec::new();
        let footer = &mut self.footer;
        let found = left::mend(&self.names, note, self.last.as_ref(), |last_ns| {
            footer(last_ns, &mut foot);
            std::mem::take(&mut foot)
        })?;
        if let Some((stamp, bytes)) = found {
            self.counts.files_closed += 1;
            self.add_closed(stamp, bytes, false);
        }
        Ok(())
    }
}
